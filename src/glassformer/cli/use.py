"""The command that continues a text: generate."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from glassformer.cli import options
from glassformer.cli.help import echo

if TYPE_CHECKING:
    from glassformer.api import Model


@click.command()
@options.trained_run
@click.argument("prompt", default="")
@click.option(
    "-n",
    "--max-new-tokens",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Maximum number of tokens to generate.",
)
@click.option(
    "-t",
    "--temperature",
    default=0.8,
    show_default=True,
    help="Sampling temperature; 0 means greedy decoding.",
)
@click.option(
    "--top-k",
    default=0,
    show_default=True,
    help="Sample only from the k most likely tokens; 0 means no limit.",
)
@click.option(
    "--top-p",
    default=1.0,
    show_default=True,
    help="Sample only from the smallest set of most likely tokens whose total probability is at "
    "least p.",
)
@click.option(
    "--min-p",
    default=0.0,
    show_default=True,
    help="Sample only tokens with at least p times the probability of the most likely one.",
)
@click.option(
    "--repetition-penalty",
    default=1.0,
    show_default=True,
    help="Make tokens that already occurred less likely; 1 means no penalty.",
)
@click.option(
    "--stop", multiple=True, metavar="STRING", help="Stop before this string; can be repeated."
)
@click.option(
    "--samples",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of continuations to generate.",
)
@click.option("--seed", type=int, help="Random seed for sampling.  [default: random]")
@click.option(
    "-i",
    "--interactive",
    is_flag=True,
    help="Read prompts from standard input, one per line; /help lists commands.",
)
@options.json()
def generate(run: str, prompt: str, interactive: bool, as_json: bool, **values: Any) -> None:
    """Generate a continuation of PROMPT with the model in RUN.

    Prints the prompt and the continuation. With - as PROMPT, the prompt is read from standard
    input, without its final newline. With --interactive, each line is a prompt; commands such as
    /temperature 0.5 change the options. Ctrl-C stops a continuation, Ctrl-D ends the session.

    \b
    glass generate runs/generate-1 "To be, or"
    glass generate runs/generate-1 --interactive
    head -3 sonnet.txt | glass generate runs/generate-1 - -n 400 --temperature 0.7
    """
    from glassformer.api import load
    from glassformer.cli.interactive import Session
    from glassformer.models.network import Trait

    if interactive and prompt:
        raise click.UsageError("--interactive reads the prompts: leave out PROMPT")
    model = load(run)
    if interactive:
        model.require_trait(Trait.CAUSAL_LM, "generate")
        Session(lambda text: print_samples(model, text, as_json=as_json, **values), values).run()
    else:
        text = sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt
        print_samples(model, text, as_json=as_json, **values)


def print_samples(
    model: "Model", text: str, *, samples: int, seed: int | None, as_json: bool, **sampling: Any
) -> None:
    """Print continuations of a text as they are generated."""
    from glassformer.text.tokenizer import unknown_ids

    tokenizer = model.require_tokenizer()
    unknown = unknown_ids(tokenizer)
    if count := sum(id in unknown for id in tokenizer.encode(text)):
        tokens = "1 token of the prompt is" if count == 1 else f"{count} tokens of the prompt are"
        echo(f"warning: {tokens} not in the vocabulary", err=True)
    for i in range(samples):
        sample_seed = None if seed is None else seed + i
        chunks = model.stream(text, seed=sample_seed, **sampling)
        if as_json:
            click.echo(json.dumps({"prompt": text, "text": "".join(chunks)}, ensure_ascii=False))
            continue
        click.echo(text, nl=False)
        for chunk in chunks:
            click.echo(chunk, nl=False)
        click.echo("\n---" * (i + 1 < samples))
