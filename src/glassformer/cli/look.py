"""Commands that look inside a trained model: draw, heads, patch."""

import json
from pathlib import Path
from typing import Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo

HEADINGS = {  # by what a plot needs
    "nothing": "Plots without a model",
    "optional model": "Plots without a model, or of the model in RUN",
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
@click.argument("run", required=False, type=options.RunPath())
@click.argument("text", required=False)
@options.out(help="File to write.  [default: NAME.png, or NAME.gif for an animation]")
@click.option(
    "--layer",
    help="Index of a block, or name of a layer such as decoder.0.cross.  [default: the first]",
)
@click.option(
    "--head",
    type=int,
    multiple=True,
    help="Index of the attention head; `lines` takes several.  [default: 0]",
)
@click.option("--token", type=int, help="Index of the token whose attention or output is drawn.")
@click.option(
    "--part",
    help="Part of the `architecture`: embedding, position, attention, mask, cross, norm, "
    "feedforward, logits, softmax, encoder, decoder, or drawn large: head, multihead, block, "
    "classifier.  [default: attention]",
)
@click.option(
    "--kind",
    help="Variant of a plot. product: matrix, dot, films; markov: first, battery, second; "
    "self-attention: qkv, plain, matrices; folding: columns, reshape, projections, parameters; "
    "connections: rnn, birnn, cnn, attention, seq2seq, seq2seq-attention.  [default: the first]",
)
@options.overwrite(help="Overwrite the file if it exists.")
def draw(name: str, run: str | None, text: str | None, **values: Any) -> None:
    """Draw the plot NAME and save it to a file.

    Plots are saved as .png, .svg or .pdf; the animation `unfolding` as .gif. With --lang zh, the
    texts in the plot are Chinese.

    \b
    glass draw waves
    glass draw architecture --part cross --out cross.svg
    glass draw connections --kind cnn --lang zh
    glass draw shapes runs/generate-1
    glass draw attention runs/generate-1 "the cat sat on the mat" --layer 1 --head 2
    glass draw lines runs/generate-1 "the cat sat on the mat" --head 0 --head 1
    glass draw flow runs/generate-1 "the cat sat on the mat" --token 2
    glass draw unfolding runs/translate-1 三百二十一
    glass draw factors runs/recommend-1
    """
    from glassformer.api import load
    from glassformer.inspection.draw import save
    from glassformer.inspection.plots import OPTIONS, draw_diagram

    file = check_plot(name, run, text, values)
    chosen = {option: values[option] for option in OPTIONS}
    if str(chosen["layer"]).removeprefix("-").isdigit():
        chosen["layer"] = int(chosen["layer"])
    if len(heads := values["head"]) < 2:
        chosen["head"] = heads[0] if heads else None
    if run is None:
        figure = draw_diagram(name, **chosen)
    else:
        of_model = {option: chosen[option] for option in ("layer", "head", "token")}
        figure = load(run).draw(name, text or "", **of_model)
    save(figure, file)
    click.echo(file)


def check_plot(name: str, run: str | None, text: str | None, values: dict[str, Any]) -> Path:
    """Return the file to write; raise an error if the plot does not take these arguments."""
    from glassformer.inspection.draw import ANIMATION_SUFFIXES, FIGURE_SUFFIXES
    from glassformer.inspection.plots import OPTIONS, PLOTS, find_plot

    plot = find_plot(name)
    suffixes = ANIMATION_SUFFIXES if plot.is_animation else FIGURE_SUFFIXES
    file: Path = values["out"] or Path(name + suffixes[0])
    if file.suffix not in suffixes:
        raise click.UsageError(f"{file}: this plot can only be saved as {' or '.join(suffixes)}")
    options.check_output_paths(file, overwrite=values["overwrite"])
    check_arguments(name, run, text)
    for option in OPTIONS:
        if values[option] not in (None, ()) and not plot.accepts(option):
            others = ", ".join(n for n, other in PLOTS.items() if other.accepts(option))
            raise click.UsageError(f"{name} takes no --{option}; plots that do: {others}")
    if run is not None and values["kind"] is not None:
        raise click.UsageError(f"{name} takes no --kind with RUN")
    if len(values["head"]) > 1 and not plot.several_heads:
        raise click.UsageError(f"{name} takes one --head")
    return file


def check_arguments(name: str, run: str | None, text: str | None) -> None:
    """Raise a usage error unless RUN and TEXT are given exactly where the plot needs them."""
    from glassformer.inspection.plots import PLOTS, Needs

    needs = PLOTS[name].needs
    has_run, has_text = run is not None, text is not None
    if needs is Needs.NOTHING and (has_run or has_text):
        raise click.UsageError(f"{name} takes neither RUN nor TEXT")
    if needs is Needs.OPTIONAL_MODEL and has_text:
        raise click.UsageError(f"{name} takes no TEXT")
    if needs is Needs.MODEL and (has_text or not has_run):
        raise click.UsageError(f"{name} needs RUN and takes no TEXT")
    without_text = (Needs.NOTHING, Needs.OPTIONAL_MODEL, Needs.MODEL)
    if needs not in without_text and not (has_run and has_text):
        raise click.UsageError(f"{name} needs RUN and TEXT")


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
