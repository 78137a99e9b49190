"""Commands that print worksheets: demo (a small model) and walk (a lesson or any model)."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo
from glassformer.core.i18n import show_whitespace, tr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from glassformer.inspection.sheet import Step
    from glassformer.inspection.traced_text import TracedText

STDOUT = Path("-")
MAX_OWN_TEXT = 20_000  # characters of a text for a lesson
DEFAULT_TEXT = "The value of the list is the sum of its items"
NEXT_STEPS = """
In a web page: glass look
For a model that you trained: glass walk runs/generate-1 "Any sentence"
For any network, in Python:

  import torch
  from glassformer import MODELS, Trace
  network = MODELS["gpt2"](MODELS["gpt2"].Config(depth=2)).eval()
  with Trace(network, "*.pattern") as trace:
      network(torch.tensor([[1, 2, 3]]))
  trace["blocks.0.attention.pattern"]"""


@click.command()
@click.argument("text", default=DEFAULT_TEXT)
@click.option("--layer", default=0, show_default=True, help="Index of the block to show.")
@click.option("--head", default=0, show_default=True, help="Index of the head to show.")
def demo(text: str, layer: int, head: int) -> None:
    """Run TEXT through a small trained model and print every step.

    The model comes with Glassformer: a GPT-2 with 558,144 parameters, trained on the documentation
    that comes with Python (`recipes/explorer.toml`). `glass look` opens it in a web page.

    \b
    glass demo
    glass demo "In the beginning was the word" --layer 1 --head 2
    """
    from rich.console import Console

    print_demo(Console(highlight=False), text, layer=layer, head=head)


def print_demo(console: Console, text: str, *, layer: int = 0, head: int = 0) -> None:
    """Print the steps from a text to the next token."""
    from glassformer.api import SHIPPED_MODEL, load
    from glassformer.inspection.traced_text import find_head, trace_text
    from glassformer.inspection.worksheet import top_tokens

    model = load(SHIPPED_MODEL)
    network = model.network
    tokenizer = model.require_tokenizer()
    config = model.config
    traced = trace_text(network, tokenizer, text)
    pattern = find_head(traced, layer, head).pattern
    console.print(
        f"[bold]Model[/]: {model.name} with {config.depth} blocks, {config.heads} heads and "
        f"dim {config.dim}: {network.size:,} parameters, trained on Python's documentation.\n"
        f"[bold]Tokenizer[/]: BPE with {tokenizer.vocab:,} tokens."
    )
    print_forward_pass(console, traced, layer, head, pattern)
    console.print("\n[bold cyan]4. The most likely next tokens[/]")
    for token, prob in top_tokens(traced, tokenizer, 5):
        console.print(f"  {show_whitespace(token):<18} {prob:8.2%}", markup=False, soft_wrap=True)
    console.print(NEXT_STEPS, markup=False)


def print_forward_pass(
    console: Console, traced: TracedText, layer: int, head: int, pattern: Any
) -> None:
    """Print the tokens, the shapes of the values in one block, and the pattern of one head."""
    from glassformer.inspection.sheet import Step, Table
    from glassformer.inspection.terminal import show_table

    tokens = traced.tokens
    console.print("\n[bold cyan]1. The text as tokens (position, token, id)[/]")
    for position, (token, id) in enumerate(zip(tokens, traced.ids, strict=True)):
        line = f"{position:5}  {show_whitespace(token):<14} {id:6}"
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"\n[bold cyan]2. Named values and their shapes (block {layer} only)[/]")
    for name, value in traced.trace.items():
        if not name.startswith("blocks.") or f"{name}.".startswith(f"blocks.{layer}."):
            shape = " x ".join(map(str, value.shape))
            console.print(f"  {name:<40} {shape:>16}", markup=False, soft_wrap=True)
    title = f"3. Attention from each token (row) to each token (column): block {layer}, head {head}"
    console.print(f"\n[bold cyan]{title}[/]")
    show_table(
        console, Step(""), Table("pattern", pattern, tokens, tokens, decimals=2, shaded=True)
    )


@click.command()
@click.argument("what", default="thrones", metavar="[LESSON|RUN]")
@click.argument("text", required=False)
@click.option("--layer", type=int, help="Index of the block to show.  [default: 0]")
@click.option("--head", type=int, help="Index of the head to show.  [default: 0]")
@click.option(
    "--target",
    help="Target text to feed to the decoder.  [default: the model's own translation]",
)
@click.option("--weights", is_flag=True, help="Also show the weights of each step.")
@click.option(
    "--why",
    metavar="NAME[INDEX]",
    help="Show how one number, such as output[0,-1,5], was computed.",
)
@click.option(
    "--step", "wait", is_flag=True, help="Wait for a key after each step: q quits, b goes back."
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write an HTML page to this file, or - (stdout).",
)
@click.option(
    "--latex", type=click.Path(path_type=Path), help="Write LaTeX to this file, or - (stdout)."
)
@click.option(
    "--csv",
    "folder",
    type=click.Path(path_type=Path),
    help="Write each matrix as a CSV file to this folder.",
)
@click.option(
    "--blanks", is_flag=True, help="Leave numbers blank as an exercise, followed by the solution."
)
@options.overwrite(help="Overwrite the output files if they exist.")
def walk(what: str, text: str | None, **values: Any) -> None:
    """Print a worksheet: a lesson, or TEXT traced through the model in RUN, step by step.

    Each step has its formula and its matrices. The lessons are thrones (a whole Transformer by
    hand, on three quotes from Game of Thrones), machines (two words through attention, heads,
    residual connections and the decoder), markov (from counting to a network), tokens (BPE and
    WordPiece, merge by merge), ratings, attention, position and norm: worked examples from
    tutorials, with the published numbers, the correct ones and, where they differ, why. errata has
    all corrections of five tutorials, code has their code, corrected; glass lessons lists the
    tutorials section by section. The lessons markov, tokens, attention and position can also be
    computed for your own TEXT or a text file, and thrones for a sentence in words of its quotes.
    For a trained model, shows one block and one head.

    \b
    glass walk
    glass walk markov --step
    glass walk markov "the cat sat on the mat. the dog sat on the rug."
    glass walk tokens "low lower lowest"
    glass walk errata
    glass walk runs/generate-1 "The cat sat" --layer 1 --head 2
    glass walk runs/generate-1 "The cat sat" --why "blocks.0.attention.scores[0,0,2,1]"
    glass walk attention --html sheet.html --blanks --lang zh
    """
    from glassformer.inspection.sheet import blank_out

    files = [values[name] for name in ("html", "latex", "folder")]
    is_written = any(file is not None for file in files)
    if is_written and values["wait"]:
        raise click.UsageError(
            "--step waits for keys in the terminal: leave out --html, --latex and --csv"
        )
    options.check_output_paths(*(f for f in files if f != STDOUT), overwrite=values["overwrite"])
    steps = make_steps(what, text, values)
    sheets = [blank_out(steps), steps] if values["blanks"] else [steps]
    title = make_title(what, text, values["why"])
    if is_written:
        write_sheets(sheets, title, values)
    else:
        print_sheets(sheets, title, wait=values["wait"])


def make_steps(what: str, text: str | None, values: dict[str, Any]) -> Sequence[Step]:
    """Return the steps of a lesson, or of a text traced through a trained model."""
    from glassformer.api import load
    from glassformer.core.config import did_you_mean
    from glassformer.core.errors import GlassError
    from glassformer.lessons import LESSONS, TEXT_LESSONS, load_lesson, load_text_lesson

    if what in LESSONS:
        if text is not None and what not in TEXT_LESSONS:
            problem = f"{what} is a lesson: it does not take a TEXT"
            raise click.UsageError(f"{problem}; these do: {', '.join(TEXT_LESSONS)}")
        for name in ("layer", "head", "target", "weights", "why"):
            if values[name] not in (None, False):
                raise click.UsageError(f"--{name} needs a trained model: give RUN and TEXT")
        return load_lesson(what) if text is None else load_text_lesson(what, read_own_text(text))
    if not Path(what).exists() and Path(what).name != what:
        raise GlassError(f"{what} does not exist; `glass runs` lists the runs")
    if not Path(what).exists():
        hint = did_you_mean(what, LESSONS) or f"; available lessons: {', '.join(LESSONS)}"
        raise GlassError(f"{what!r} is neither a run nor a lesson{hint}")
    if text is None:
        raise click.UsageError("missing TEXT: give a text for the model to read")
    model, target = load(what), values["target"]
    if values["why"] is not None:
        for name in ("layer", "head", "weights", "blanks"):
            if values[name] not in (None, False):
                raise click.UsageError(f"--why shows only one number: remove --{name}")
        return model.why(text, values["why"], target=target).steps()
    indices = {name: values[name] or 0 for name in ("layer", "head")}
    return model.walk(text, target=target, weights=values["weights"], **indices)


def read_own_text(text: str) -> str:
    """Return the text itself or, if it is the name of a file, the start of that file."""
    from glassformer.core.folder import read_text

    if os.path.isfile(text):  # noqa: PTH113 - Path.is_file fails for texts too long to be a name
        text = read_text(Path(text))
    if len(text) > MAX_OWN_TEXT:
        echo(f"only the first {MAX_OWN_TEXT} characters of the text are used", err=True)
    return text[:MAX_OWN_TEXT]


def make_title(what: str, text: str | None, why: str | None) -> str:
    from glassformer.lessons import LESSONS, lesson_title

    if what in LESSONS and text is None:
        return lesson_title(what)
    run, text = Path(what).name, repr(text)
    if why is not None:
        return tr("{run} on {text}: {name}", run=run, text=text, name=why)
    return tr("{run} on {text}", run=run, text=text)


def write_sheets(sheets: Sequence[Sequence[Step]], title: str, values: dict[str, Any]) -> None:
    """Write the HTML page, the LaTeX file and the folder of CSV files, if their options are set."""
    from glassformer.core.folder import write_file
    from glassformer.inspection import export

    for file, make in ((values["html"], export.html), (values["latex"], export.latex)):
        if file == STDOUT:
            click.echo(make(sheets, title))
        elif file is not None:
            write_file(file, make(sheets, title))
            echo(f"wrote {file}", err=True)
    if (tables := values["folder"]) is not None:
        solution = tables / "solution"
        for folder in (tables, solution):
            for old in folder.glob("[0-9][0-9]-*.csv"):  # left by the overwritten worksheet
                old.unlink()
        with contextlib.suppress(OSError):  # it does not exist or contains other files
            solution.rmdir()
        for sheet, folder in zip(sheets, (tables, solution), strict=False):
            folder.mkdir(exist_ok=True)
            echo(f"wrote {len(export.write_tables(sheet, folder))} tables to {folder}", err=True)


def print_sheets(sheets: Sequence[Sequence[Step]], title: str, *, wait: bool) -> None:
    from rich.console import Console

    from glassformer.inspection.terminal import show

    console = Console(highlight=False)
    console.print(title, style="bold", markup=False)
    for number, sheet in enumerate(sheets):
        if number:
            console.print(f"\n[bold]{tr('Solution')}[/]")
        show_interactively(console, sheet) if wait else show(console, sheet)


def show_interactively(console: Console, steps: Sequence[Step]) -> None:
    """Show one step per key press, or all steps if there is no terminal."""
    from glassformer.inspection.terminal import show_step

    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    number = 0
    while number < len(steps):
        show_step(console, steps[number])
        number += 1
        if not is_interactive or number == len(steps):
            continue
        prompt = tr(
            "step {step} of {total}: any key to continue, b to go back, q to quit",
            step=number,
            total=len(steps),
        )
        console.print(f"[dim]{prompt}[/]")
        key = click.getchar()
        if key in ("q", "Q", "\x1b"):
            raise click.exceptions.Exit(0)
        number = max(number - 2, 0) if key in ("b", "B") else number
