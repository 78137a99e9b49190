"""Commands that print a worksheet: demo of a small model, walk of a tutorial or any model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.core.i18n import show_whitespace, tr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from glassformer.inspection.sheet import Step
    from glassformer.inspection.traced_text import TracedText

STDOUT = Path("-")
SENTENCE = "The value of the list is the sum of its items"
NEXT = """
Of a model that you trained: glass walk runs/generate-1 "Any sentence"
Of any network, in Python:

  import torch
  from glassformer import MODELS, Trace
  network = MODELS["gpt2"](MODELS["gpt2"].Config(depth=2)).eval()
  with Trace(network, "*.pattern") as trace:
      network(torch.tensor([[1, 2, 3]]))
  trace["blocks.0.attention.pattern"]"""


@click.command()
@click.argument("text", default=SENTENCE)
@click.option("--layer", default=0, show_default=True, help="The block to look into.")
@click.option("--head", default=0, show_default=True, help="The head whose pattern is shown.")
@click.option("--seed", type=click.IntRange(0, 2**32), default=0, help="Of the weights.")
def demo(text: str, layer: int, head: int, seed: int) -> None:
    """Send TEXT through a small model and print its worksheet.

    The tokenizer learns from the documentation that every Python carries; the model's weights are
    as they start, so its guesses are chance: what you see is the machine, not its knowledge.

    \b
    glass demo
    glass demo "In the beginning was the word" --layer 1 --head 2
    """
    from rich.console import Console

    print_demo(Console(highlight=False), text, layer=layer, head=head, seed=seed)


def print_demo(
    console: Console, text: str, *, layer: int = 0, head: int = 0, seed: int = 0
) -> None:
    """Build a model and print its worksheet, from the text at the top to the next token."""
    import pydoc_data.topics

    import torch

    from glassformer.inspection.traced_text import find_head, trace_text
    from glassformer.inspection.worksheet import top_tokens
    from glassformer.models.generator import Config, Generator
    from glassformer.text.subword import BPE

    torch.manual_seed(seed)
    tokenizer = BPE.train(pydoc_data.topics.topics.values(), vocab=2048)
    config = Config(vocab=tokenizer.vocab, context=64, dim=64, depth=2, heads=4)
    network = Generator(config).eval()
    traced = trace_text(network, tokenizer, text)
    pattern = find_head(traced, layer, head).pattern
    size = sum(p.numel() for p in network.parameters())
    console.print(
        f"[bold]A generator[/] of {config.depth} blocks, {config.heads} heads, {config.dim} wide: "
        f"{size:,} parameters, untrained.\n"
        f"[bold]A tokenizer[/] of {tokenizer.vocab:,} tokens (BPE), learnt from Python's own "
        "documentation."
    )
    print_reading(console, traced, layer, head, pattern)
    console.print("\n[bold cyan]4. The likeliest next tokens[/]")
    for token, prob in top_tokens(traced, tokenizer, 5):
        console.print(f"  {show_whitespace(token):<18} {prob:8.2%}", markup=False, soft_wrap=True)
    console.print(NEXT, markup=False)


def print_reading(
    console: Console, traced: TracedText, layer: int, head: int, pattern: Any
) -> None:
    """Print a text's tokens, the shapes of the values in one block, and one head's pattern."""
    from glassformer.inspection.sheet import Step, Table
    from glassformer.inspection.terminal import show_table

    tokens = traced.tokens
    console.print("\n[bold cyan]1. The text becomes tokens, and tokens become ids[/]")
    for position, (token, id) in enumerate(zip(tokens, traced.ids, strict=True)):
        line = f"{position:5}  {show_whitespace(token):<14} {id:6}"
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"\n[bold cyan]2. Each value by its name, through block {layer}[/]")
    for name, value in traced.trace.items():
        if not name.startswith("blocks.") or f"{name}.".startswith(f"blocks.{layer}."):
            shape = " x ".join(map(str, value.shape))
            console.print(f"  {name:<40} {shape:>16}", markup=False, soft_wrap=True)
    title = f"3. What share each token (row) reads from which: block {layer}, head {head}"
    console.print(f"\n[bold cyan]{title}[/]")
    show_table(
        console, Step(""), Table("pattern", pattern, tokens, tokens, decimals=2, shaded=True)
    )


@click.command()
@click.argument("what", default="thrones")
@click.argument("text", required=False)
@click.option("--layer", type=int, help="The block to look into.  [default: 0]")
@click.option("--head", type=int, help="The head to look into.  [default: 0]")
@click.option("--target", help="The translation to write; its own unless given.")
@click.option("--weights", is_flag=True, help="Show the weights of each step too.")
@click.option("--why", metavar="NAME[PLACE]", help="How one number was made, as output[0,-1,5].")
@click.option("--step", "wait", is_flag=True, help="A step at a time: q ends it, b goes back.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page (- for the screen).")
@click.option("--latex", type=click.Path(path_type=Path), help="Write a LaTeX file (or -).")
@click.option("--csv", "folder", type=click.Path(path_type=Path), help="Write each matrix here.")
@click.option("--blanks", is_flag=True, help="Leave numbers out; a second sheet has them.")
@options.overwrite(help="Write over files that are there.")
@options.lang
def walk(what: str, text: str | None, **values: Any) -> None:
    """Tell a worked example: thrones, markov, attention, position or norm; or RUN's own.

    Each step has its formula and its matrices: as printed, as it should be, and why they differ.
    For a trained model, every step of TEXT through one of its blocks.

    \b
    glass walk
    glass walk markov --step
    glass walk runs/generate-1 "The cat sat" --layer 1 --head 2
    glass walk runs/generate-1 "The cat sat" --why "blocks.0.attention.scores[0,0,2,1]"
    glass walk attention --html sheet.html --blanks --lang zh
    """
    from glassformer.inspection.sheet import blank_out

    files = [values[name] for name in ("html", "latex", "folder")]
    options.check_output_paths(*(f for f in files if f != STDOUT), overwrite=values["overwrite"])
    steps = make_steps(what, text, values)
    sheets = [blank_out(steps), steps] if values["blanks"] else [steps]
    title = make_title(what, text, values["why"])
    if any(file is not None for file in files):
        write_sheets(sheets, title, values)
    else:
        print_sheets(sheets, title, wait=values["wait"])


def make_steps(what: str, text: str | None, values: dict[str, Any]) -> Sequence[Step]:
    """Return the steps of a worked example, or of a text in a trained model."""
    from glassformer.api import load
    from glassformer.core.config import did_you_mean
    from glassformer.core.errors import GlassError
    from glassformer.lessons import LESSONS, load_lesson

    if what in LESSONS:
        if text is not None:
            raise click.UsageError(f"{what} is a worked example: it takes no text")
        for name in ("layer", "head", "target", "weights", "why"):
            if values[name] not in (None, False):
                raise click.UsageError(f"--{name} asks a trained model: name a run and a text")
        return load_lesson(what)
    if not Path(what).exists():
        hint = (
            did_you_mean(what, LESSONS) or f"; there are the worked examples {', '.join(LESSONS)}"
        )
        raise GlassError(f"there is no run and no worked example {what!r}{hint}")
    if text is None:
        raise click.UsageError("name a text that the model is to read")
    model, target = load(what), values["target"]
    if values["why"] is not None:
        for name in ("layer", "head", "weights", "blanks"):
            if values[name] not in (None, False):
                raise click.UsageError(f"--why names its number whole: it takes no --{name}")
        return model.why(text, values["why"], target=target).steps()
    indices = {name: values[name] or 0 for name in ("layer", "head")}
    return model.walk(text, target=target, weights=values["weights"], **indices)


def make_title(what: str, text: str | None, why: str | None) -> str:
    from glassformer.lessons import LESSONS, lesson_title

    if what in LESSONS:
        return lesson_title(what)
    run, text = Path(what).name, repr(text)
    if why is not None:
        return tr("{run} reads {text}: {name}", run=run, text=text, name=why)
    return tr("{run} reads {text}", run=run, text=text)


def write_sheets(sheets: Sequence[Sequence[Step]], title: str, values: dict[str, Any]) -> None:
    """Write the page, the LaTeX file and the folder of tables that were asked for."""
    from glassformer.core.folder import write_file
    from glassformer.inspection import export

    for file, make in ((values["html"], export.html), (values["latex"], export.latex)):
        if file == STDOUT:
            click.echo(make(sheets, title))
        elif file is not None:
            write_file(file, make(sheets, title))
            click.echo(f"wrote {file}", err=True)
    if (tables := values["folder"]) is not None:
        for sheet, folder in zip(sheets, (tables, tables / "solution"), strict=False):
            folder.mkdir(exist_ok=True)
            for old in folder.glob("[0-9][0-9]-*.csv"):  # of a sheet that is written over
                old.unlink()
            click.echo(f"{len(export.tables(sheet, folder))} tables in {folder}", err=True)


def print_sheets(sheets: Sequence[Sequence[Step]], title: str, *, wait: bool) -> None:
    from rich.console import Console

    from glassformer.inspection.terminal import show

    console = Console(highlight=False)
    console.print(title, style="bold", markup=False)
    for number, sheet in enumerate(sheets):
        if number:
            console.print(f"\n[bold]{tr('Solution')}[/]")
        show_by_key(console, sheet) if wait else show(console, sheet)


def show_by_key(console: Console, steps: Sequence[Step]) -> None:
    """Show one step per key press, or all at once if there is no terminal."""
    from glassformer.inspection.terminal import show_step

    is_interactive, at = sys.stdin.isatty() and sys.stdout.isatty(), 0
    while at < len(steps):
        show_step(console, steps[at])
        at += 1
        if not is_interactive or at == len(steps):
            continue
        prompt = tr("{at} of {all}: any key goes on, b goes back, q ends", at=at, all=len(steps))
        console.print(f"[dim]{prompt}[/]")
        key = click.getchar()
        if key in ("q", "Q", "\x1b"):
            raise click.exceptions.Exit(0)
        at = max(at - 2, 0) if key in ("b", "B") else at
