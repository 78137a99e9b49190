"""Commands that look inside a trained model: draw, heads, patch."""

import json
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo

HEADINGS = {  # by what a plot needs
    "nothing": "Plots without a model",
    "model": "Plots of the model in RUN",
    "text": "Plots of the model in RUN reading TEXT",
    "translation": "Plots of the model in RUN translating TEXT",
    "image": "Plots of the model in RUN reading the image file TEXT, or painting the class TEXT",
}


class PlotCommand(click.Command):
    """A command whose help lists the registered plots, grouped by the arguments they need."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from glassformer.inspection.plots import PLOTS, Needs, plots_needing

        for needs, title in HEADINGS.items():
            with formatter.section(title):
                names = plots_needing(Needs(needs))
                formatter.write_dl([(name, PLOTS[name].help) for name in names])
        super().format_options(ctx, formatter)


@click.command(cls=PlotCommand)
@click.argument("name")
@click.argument("run", required=False, type=click.Path(exists=True))
@click.argument("text", required=False)
@options.out(help="File to write.  [default: NAME.png, or NAME.gif for an animation]")
@click.option(
    "--layer",
    help="Index of a block, or name of a layer such as decoder.0.cross.  [default: the first]",
)
@click.option("--head", type=int, help="Index of the attention head.  [default: 0]")
@click.option("--part", help="Part that `architecture` highlights.  [default: attention]")
@options.overwrite(help="Overwrite the file if it exists.")
def draw(name: str, run: str | None, text: str | None, **values: Any) -> None:
    """Draw the plot NAME and save it to a file.

    Plots are saved as .png, .svg or .pdf; the animation `unfolding` as .gif.

    \b
    glass draw waves
    glass draw architecture --part cross --out cross.svg
    glass draw attention runs/generate-1 "the cat sat on the mat" --layer 1 --head 2
    glass draw unfolding runs/translate-1 三百二十一
    glass draw factors runs/recommend-1
    """
    from glassformer.api import load
    from glassformer.inspection.diagrams import draw_diagram
    from glassformer.inspection.draw import save

    file = check_plot(name, run, text, values)
    if run is None:
        figure = draw_diagram(name, values["part"] or "attention")
    else:
        layer: int | str | None = values["layer"]
        if layer and str(layer).lstrip("-").isdigit():
            layer = int(layer)
        figure = load(run).draw(name, text or "", layer=layer, head=values["head"] or 0)
    save(figure, file)
    click.echo(file)


def check_plot(name: str, run: str | None, text: str | None, values: dict[str, Any]) -> Path:
    """Return the file to write; raise an error if the plot does not take these arguments."""
    from glassformer.core.config import did_you_mean
    from glassformer.core.errors import GlassError
    from glassformer.inspection.draw import ANIMATION_SUFFIXES, FIGURE_SUFFIXES
    from glassformer.inspection.plots import OPTIONS, PLOTS, Needs

    if name not in PLOTS:
        hint = did_you_mean(name, PLOTS) or f"; available: {', '.join(PLOTS)}"
        raise GlassError(f"unknown plot {name!r}{hint}")
    plot = PLOTS[name]
    suffixes = ANIMATION_SUFFIXES if plot.is_animation else FIGURE_SUFFIXES
    file: Path = values["out"] or Path(name + suffixes[0])
    if file.suffix not in suffixes:
        raise click.UsageError(f"{file}: this plot can only be saved as {' or '.join(suffixes)}")
    options.check_output_paths(file, overwrite=values["overwrite"])
    needs_run, needs_text = plot.needs is not Needs.NOTHING, plot.needs not in (
        Needs.NOTHING, Needs.MODEL
    )  # fmt: skip
    if needs_run != (run is not None) or needs_text != (text is not None):
        if needs_run and not needs_text:
            raise click.UsageError(f"{name} needs RUN and takes no TEXT")
        raise click.UsageError(
            f"{name} needs RUN and TEXT" if needs_run else f"{name} takes neither RUN nor TEXT"
        )
    for option in OPTIONS:
        if values[option] is not None and not plot.accepts(option):
            others = ", ".join(n for n, other in PLOTS.items() if other.accepts(option))
            raise click.UsageError(f"{name} takes no --{option}; plots that do: {others}")
    return file


@click.command()
@options.trained_run
@click.argument("text", required=False)
@options.plot(help="Also draw the table to this file (.png, .svg or .pdf).")
@options.overwrite(help="Overwrite the --plot file if it exists.")
@options.json()
def heads(run: str, text: str | None, plot: Path | None, overwrite: bool, as_json: bool) -> None:
    """Measure what each attention head in RUN attends to, and what ablating it costs.

    For each head, prints the fraction of its attention to the previous token, the first token, the
    token itself, earlier occurrences of the same token, and the tokens after those (induction);
    the mean attention distance in tokens; and the cost of ablating the head in nats: the increase
    in loss for language models and translators, the KL divergence of the output for other models.
    Without TEXT, the model reads a random sequence that is repeated once; a translator needs TEXT.

    \b
    glass heads runs/generate-1
    glass heads runs/generate-1 "the cat sat on the mat and the cat" --plot heads.png
    """
    from rich.console import Console

    from glassformer.api import load
    from glassformer.core.reporter import Reporter
    from glassformer.inspection.terminal import show

    options.check_output_paths(plot, overwrite=overwrite)
    report = load(run).heads(text, reporter=Reporter())
    if plot is not None:
        from glassformer.inspection.draw import heads_figure, save

        save(heads_figure(report), plot)
        echo(f"wrote {plot}", err=True)
    if as_json:
        for stats in report:
            click.echo(json.dumps(stats.row()))
        return
    show(Console(highlight=False), report.steps())


@click.command()
@options.trained_run
@click.argument("clean")
@click.argument("corrupt")
@options.plot(help="Also draw the tables to this file (.png, .svg or .pdf).")
@options.overwrite(help="Overwrite the --plot file if it exists.")
@options.json(help="Print one JSON object.")
def patch(
    run: str, clean: str, corrupt: str, plot: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Find the activations in RUN that account for the difference between two texts.

    Activation patching: the model reads the text CORRUPT with one value at a time replaced by its
    value for the text CLEAN. Prints the fraction of the difference in the output that each value
    restores: the output of each block, attention and feed-forward layer at each token, and of each
    head.

    \b
    glass patch runs/generate-1 "the cat sat on the" "the dog lay on the"
    """
    from rich.console import Console
    from torch import Tensor

    from glassformer.api import load
    from glassformer.core.reporter import Reporter
    from glassformer.inspection.terminal import show

    options.check_output_paths(plot, overwrite=overwrite)
    result = load(run).patch(clean, corrupt, reporter=Reporter())
    if plot is not None:
        from glassformer.inspection.draw import patch_figure, save

        save(patch_figure(result), plot)
        echo(f"wrote {plot}", err=True)
    if as_json:
        click.echo(json.dumps(vars(result), default=Tensor.tolist))
        return
    show(Console(highlight=False), result.steps())
