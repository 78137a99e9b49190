"""The command that opens the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from glassformer.cli import options
from glassformer.cli.help import echo

if TYPE_CHECKING:
    from glassformer.serve.session import Session


@click.command()
@click.argument("run", required=False, type=options.RunPath(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the local server.  [default: 8765, or a free one]",
)
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@click.option(
    "--export",
    "file",
    type=click.Path(path_type=Path),
    help="Write the page for one text to this HTML file instead of serving it.",
)
@click.option("--text", help="Text that the page shows first.  [default: an example]")
@options.overwrite(help="Overwrite the --export file if it exists.")
def look(
    run: Path | None,
    port: int | None,
    no_browser: bool,
    file: Path | None,
    text: str | None,
    overwrite: bool,
) -> None:
    """Open a local web page that looks inside the model in RUN.

    The page shows every value of a forward pass and where each number came from, attention, the
    next token, what changes if a part is switched off, and the training of the run. Without RUN, it
    shows a small model that comes with Glassformer. The server answers only on this machine; Ctrl-C
    stops it. The page that --export writes is one file that needs neither a server nor a network.

    \b
    glass look
    glass look runs/generate-1
    glass look runs/generate-1 --port 9000 --no-browser
    glass look runs/generate-1 --text "The for statement" --export page.html
    """
    from glassformer.serve.session import Session

    if file is not None:
        options.check_output_paths(file, overwrite=overwrite)
        write_page(Session.open(run), text, file)
        return
    from glassformer.serve.app import bind, serve

    with bind(port) as server:
        session = Session.open(run, text)
        serve(session, server, lambda url: announce(url, open_browser=not no_browser))


def announce(url: str, *, open_browser: bool) -> None:
    """Print the address of the server, which starts next, and open it in a browser."""
    import threading
    import webbrowser

    click.echo(url)
    if open_browser:
        echo("opening the page in a browser; press Ctrl-C here to stop", err=True)
        # in a thread, since a browser in the terminal returns only when it is closed
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def write_page(session: Session, text: str | None, file: Path) -> None:
    from glassformer.core.folder import write_file
    from glassformer.serve.export import export_page

    page, omitted = export_page(session, text)
    write_file(file, page)
    echo(f"wrote {file} ({len(page.encode()) / 1e6:.1f} MB)", err=True)
    if omitted:
        echo(f"left out to keep it small: {', '.join(omitted)}", err=True)
