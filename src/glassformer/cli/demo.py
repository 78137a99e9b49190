"""`glass demo`: one sentence through a small model, with every step shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from glassformer.core.i18n import visible

if TYPE_CHECKING:
    from rich.console import Console

    from glassformer.inspection.reading import Reading

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

    show(Console(highlight=False), text, layer=layer, head=head, seed=seed)


def show(console: Console, text: str, *, layer: int = 0, head: int = 0, seed: int = 0) -> None:
    """Build the model and print the worksheet: text goes in above and comes out below."""
    import pydoc_data.topics

    import torch

    from glassformer.inspection.reading import one_head, read
    from glassformer.inspection.screen import show_table
    from glassformer.inspection.sheet import Step, Table
    from glassformer.inspection.worksheet import likeliest
    from glassformer.models.generator import Config, Generator
    from glassformer.text.subword import BPE

    def section(title: str, content: str) -> None:
        console.print(f"\n[bold cyan]{title}[/]")
        console.print(content, markup=False, soft_wrap=True)

    torch.manual_seed(seed)
    tokenizer = BPE.train(pydoc_data.topics.topics.values(), vocab=2048)
    config = Config(vocab=tokenizer.vocab, context=64, dim=64, depth=2, heads=4)
    network = Generator(config).eval()
    reading = read(network, tokenizer, text)
    pattern = one_head(reading, layer, head).pattern

    size, where = sum(p.numel() for p in network.parameters()), f"block {layer}, head {head}"
    console.print(
        f"[bold]A generator[/] of {config.depth} blocks, {config.heads} heads, {config.dim} wide: "
        f"{size:,} parameters, untrained.\n"
        f"[bold]A tokenizer[/] of {tokenizer.vocab:,} tokens (BPE), learnt from Python's own "
        "documentation."
    )
    section("1. The text becomes tokens, and tokens become ids", tokens_lines(reading))
    section(f"2. Each value by its name, through block {layer}", shapes_lines(reading, layer))
    console.print(f"\n[bold cyan]3. What share each token (row) reads from which: {where}[/]")
    tokens = reading.tokens
    show_table(console, Step(""), Table("pattern", pattern, tokens, tokens, places=2, shaded=True))
    section("4. The likeliest next tokens", next_lines(likeliest(reading, tokenizer, 5)))
    console.print(NEXT, markup=False)


def tokens_lines(reading: Reading) -> str:
    rows = enumerate(zip(reading.tokens, reading.ids, strict=True))
    return "\n".join(f"{at:5}  {visible(token):<14} {id:6}" for at, (token, id) in rows)


def shapes_lines(reading: Reading, layer: int) -> str:
    shown = {
        name: " x ".join(map(str, value.shape))
        for name, value in reading.trace.items()
        if not name.startswith("blocks.") or f"{name}.".startswith(f"blocks.{layer}.")
    }
    return "\n".join(f"  {name:<40} {shape:>16}" for name, shape in shown.items())


def next_lines(tokens: list[tuple[str, float]]) -> str:
    return "\n".join(f"  {visible(token):<18} {chance:8.2%}" for token, chance in tokens)
