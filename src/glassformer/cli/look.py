"""Commands that look inside a trained model: draw, heads, patch."""

import json
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options


class ListsPlots(click.Command):
    """A command whose help lists the registered pictures, by what they need."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from glassformer.inspection.plots import PLOTS, Needs, plots_needing

        for needs, title in {
            Needs.NOTHING: "Pictures that need no model",
            Needs.TEXT: "Pictures of TEXT on its way through RUN",
            Needs.TRANSLATION: "Pictures of RUN's translation of TEXT",
        }.items():
            with formatter.section(title):
                formatter.write_dl([(name, PLOTS[name].help) for name in plots_needing(needs)])
        super().format_options(ctx, formatter)


@click.command(cls=ListsPlots)
@click.argument("name")
@click.argument("run", required=False, type=click.Path(exists=True))
@click.argument("text", required=False)
@options.out(help="The file.  [default: NAME.png]")
@click.option(
    "--layer", help="A block by its number, or a layer as decoder.0.cross.  [default: the first]"
)
@click.option("--head", type=int, help="Which head of the layer.  [default: 0]")
@click.option("--part", help="What architecture lights.  [default: attention]")
@options.overwrite(help="Write over a file that is there.")
def draw(name: str, run: str | None, text: str | None, **values: Any) -> None:
    """Draw NAME into a file: .png, .svg or .pdf, and .gif for what moves (unfolding).

    \b
    glass draw waves
    glass draw architecture --part cross --out cross.svg
    glass draw attention runs/generate-1 "the cat sat on the mat" --layer 1 --head 2
    glass draw unfolding runs/translate-1 三百二十一
    """
    from glassformer.api import load
    from glassformer.inspection.diagrams import draw_diagram
    from glassformer.inspection.draw import save

    file = check_plot(name, run, text, values)
    if run is None or text is None:
        chart = draw_diagram(name, values["part"] or "attention")
    else:
        layer: int | str | None = values["layer"]
        if layer and str(layer).lstrip("-").isdigit():
            layer = int(layer)
        chart = load(run).draw(name, text, layer=layer, head=values["head"] or 0)
    save(chart, file)
    click.echo(file)


def check_plot(name: str, run: str | None, text: str | None, values: dict[str, Any]) -> Path:
    """Return the file to write, after checking that the arguments fit the picture."""
    from glassformer.core.config import did_you_mean
    from glassformer.core.errors import GlassError
    from glassformer.inspection.draw import MOVING, STILL
    from glassformer.inspection.plots import OPTIONS, PLOTS, Needs

    if name not in PLOTS:
        hint = did_you_mean(name, PLOTS) or f"; there are {', '.join(PLOTS)}"
        raise GlassError(f"there is no picture {name!r}{hint}")
    picture = PLOTS[name]
    suffixes = MOVING if picture.moves else STILL
    file: Path = values["out"] or Path(name + suffixes[0])
    if file.suffix not in suffixes:
        raise click.UsageError(f"{file}: this picture is written as {' or '.join(suffixes)}")
    options.check_output_paths(file, overwrite=values["overwrite"])
    alone = picture.needs is Needs.NOTHING
    if alone != (run is None) or alone != (text is None):
        raise click.UsageError(
            f"{name} needs no model" if alone else f"{name} needs a run and a text"
        )
    for option in OPTIONS:
        if values[option] is not None and not picture.forward_inputs(option):
            others = " and ".join(n for n, other in PLOTS.items() if other.forward_inputs(option))
            raise click.UsageError(f"{name} takes no --{option}; {others} do")
    return file


@click.command()
@options.trained_run
@click.argument("text", required=False)
@options.plot(help="Draw the table (.png, .svg, .pdf).")
@options.overwrite(help="Write over a picture that is there.")
@options.json()
@options.lang
def heads(run: str, text: str | None, plot: Path | None, overwrite: bool, as_json: bool) -> None:
    """Measure where every head of RUN looks while it reads TEXT, and what its silence costs.

    Shares of attention: to the token before, the first, itself, the same token earlier, and what
    followed that (induction); then how far it looks, in tokens, and what switching it off costs, in
    nats: of a model that writes, what is added to the loss of the text; of others, how far the
    answer moves. Without TEXT it reads tokens by chance, said twice; a translator needs one.

    \b
    glass heads runs/generate-1
    glass heads runs/generate-1 "the cat sat on the mat and the cat" --plot heads.png
    """
    from rich.console import Console

    from glassformer.api import load
    from glassformer.core.reporter import Reporter
    from glassformer.inspection.terminal import show

    options.check_output_paths(plot, overwrite=overwrite)
    measure_heads = load(run).heads(text, reporter=Reporter())
    if plot is not None:
        from glassformer.inspection.draw import role_map, save

        save(role_map(measure_heads), plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        for role in measure_heads:
            click.echo(json.dumps(role.row()))
        return
    show(Console(highlight=False), measure_heads.steps())


@click.command()
@options.trained_run
@click.argument("clean")
@click.argument("corrupt")
@options.plot(help="Draw it (.png, .svg, .pdf).")
@options.overwrite(help="Write over a picture that is there.")
@options.json(help="One object.")
@options.lang
def patch(
    run: str, clean: str, corrupt: str, plot: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Put values of the CLEAN text, one at a time, into RUN's reading of the CORRUPT one.

    Shows how much of the difference between the two answers each value brings back: what each block
    says at each token, what its attention and its feed-forward layer add, and each head alone.

    \b
    glass patch runs/generate-1 "the cat sat on the" "the dog lay on the"
    """
    from rich.console import Console
    from torch import Tensor

    from glassformer.api import load
    from glassformer.core.reporter import Reporter
    from glassformer.inspection.terminal import show

    options.check_output_paths(plot, overwrite=overwrite)
    effects = load(run).patch(clean, corrupt, reporter=Reporter())
    if plot is not None:
        from glassformer.inspection.draw import patch_map, save

        save(patch_map(effects), plot)
        click.echo(f"wrote {plot}", err=True)
    if as_json:
        click.echo(json.dumps(vars(effects), default=Tensor.tolist))
        return
    show(Console(highlight=False), effects.steps())
