"""An animation of how a Transformer reads and writes: layer by layer, then token by token.

Shapes: h heads, t queries, s keys.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.figures import animate, subplots
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.pictures.canvas import GRAY
from glassformer.inspection.traced_text import TracedText, attention_patterns, is_source_value
from glassformer.text.tokenizer import Tokenizer

MIN_WEIGHT = 0.05  # of a line
GAP = 1.2  # between source and target
Point = tuple[float, float]


@dataclass(frozen=True)
class Stack:
    """Layers over a row of tokens."""

    tokens: list[str]
    left: float  # x of the first token
    layers: list[Tensor]  # attention to the tokens, mean of the heads: t t
    cross: list[Tensor]  # attention to the source, if there is one: t s

    def place(self, token: int, layer: int) -> Point:
        return self.left + token, float(layer)

    @property
    def depth(self) -> int:
        return max(len(self.layers), len(self.cross))


def unfolding(traced: TracedText, tokenizer: Tokenizer) -> Any:
    """All tokens of an encoder at once, layer by layer; those of a decoder one after another."""
    encoder, decoder = make_stacks(traced)
    steps = list_steps(encoder, decoder)
    width = decoder.left + len(decoder.tokens)
    top = max(encoder.depth, decoder.depth)
    chart, ax = subplots(figsize=(0.62 * width + 0.9, 0.9 * top + 2.2))
    chart.set_layout_engine("none")
    ax.set_position((0.02, 0.02, 0.96, 0.96))
    predictions = next_tokens(traced, tokenizer)

    def draw(step: int) -> None:
        ax.clear()
        ax.set(xlim=(-0.7, width - 0.3), ylim=(-1.3, top + 1.1))
        ax.axis("off")
        for stack in (encoder, decoder):
            draw_tokens(ax, stack)
        for earlier in steps[:step]:
            draw_step(ax, encoder, decoder, earlier, alpha=0.12)
        draw_step(ax, encoder, decoder, steps[step], alpha=1.0)
        last = steps[step]
        if isinstance(last, int) and predictions:
            for token in range(last + 1):
                x, y = decoder.place(token, decoder.depth)
                ax.text(x, y + 0.35, predictions[token], ha="center", rotation=30, fontsize=8,
                        color="C3" if token == last else GRAY)  # fmt: skip
        ax.text(-0.6, top + 0.95, describe_step(last, decoder), fontsize=9, va="top")

    return animate(chart, draw, len(steps))


Step = int | tuple[str, int]  # a token of the decoder, or a stack and a layer


def make_stacks(traced: TracedText) -> tuple[Stack, Stack]:
    """The encoder (without layers if there is none), and the decoder or the only stack."""
    source = list[Tensor]()
    target = list[Tensor]()
    cross = list[Tensor]()
    lengths = len(traced.source), len(traced.tokens)
    for name, heads in attention_patterns(traced).items():
        pattern = heads.float().mean(dim=0).cpu()
        is_source = bool(traced.source) and is_source_value(name)
        is_cross = bool(traced.source) and "cross" in name
        shape = (lengths[0 if is_source else 1], lengths[0 if is_source or is_cross else 1])
        if pattern.shape == shape:
            (source if is_source else cross if is_cross else target).append(pattern)
    if not (target or cross):
        raise GlassError("`unfolding` needs a model whose attention layers read all tokens")
    left = lengths[0] + GAP if traced.source else 0.0
    return Stack(traced.source, 0.0, source, []), Stack(traced.tokens, left, target, cross)


def list_steps(encoder: Stack, decoder: Stack) -> list[Step]:
    """The layers of the encoder, then the tokens of the decoder if it cannot look ahead."""
    steps: list[Step] = [("encoder", layer) for layer in range(encoder.depth)]
    if all(float(pattern.triu(1).sum()) == 0 for pattern in decoder.layers):
        return [*steps, *range(len(decoder.tokens))]
    return [*steps, *(("decoder", layer) for layer in range(decoder.depth))]


def describe_step(step: Step, decoder: Stack) -> str:
    if isinstance(step, int) and decoder.cross:
        return tr("token {n}: it reads what is before it (blue) and the source (orange)", n=step)
    if isinstance(step, int):
        return tr("token {n}: it reads what is before it", n=step)
    return tr("layer {n}: all tokens at once", n=step[1])


def next_tokens(traced: TracedText, tokenizer: Tokenizer) -> list[str]:
    """The most likely token after each position, if the model predicts one."""
    if traced.output.ndim != 2:
        return []
    ids = traced.output.argmax(dim=-1).tolist()
    return [show_whitespace(tokenizer.token(i)) for i in ids]


def draw_tokens(ax: Any, stack: Stack) -> None:
    """The tokens at the bottom, and a dot for each token in each layer."""
    for token, text in enumerate(stack.tokens):
        x, _ = stack.place(token, 0)
        ax.text(x, -0.3, show_whitespace(text), ha="right", va="top", rotation=30, fontsize=8)
        ax.plot([x] * (stack.depth + 1), range(stack.depth + 1), "o", color="#c9d3e0", markersize=5)


def draw_step(ax: Any, encoder: Stack, decoder: Stack, step: Step, alpha: float) -> None:
    """The lines of one step, from each query down to its keys."""
    if not isinstance(step, int):
        name, layer = step
        stack = encoder if name == "encoder" else decoder
        for token in range(len(stack.tokens)):
            draw_lines(ax, stack, stack, stack.layers[layer], token, layer, "C0", alpha)
        return
    for layer in range(decoder.depth):
        if layer < len(decoder.layers):
            draw_lines(ax, decoder, decoder, decoder.layers[layer], step, layer, "C0", alpha)
        if layer < len(decoder.cross):
            draw_lines(ax, decoder, encoder, decoder.cross[layer], step, layer, "C1", alpha)


def draw_lines(
    ax: Any, stack: Stack, other: Stack, pattern: Tensor, token: int, layer: int, color: str,
    alpha: float,
) -> None:  # fmt: skip
    """Lines from a token after a layer to the tokens that it attends to."""
    x, y = stack.place(token, layer + 1)
    for key, weight in enumerate(pattern[token].tolist()):
        if weight > MIN_WEIGHT:
            start = other.place(key, layer if other is stack else other.depth)
            strength = alpha * min(weight + 0.1, 1)
            ends = zip(start, (x, y), strict=True)
            ax.plot(*ends, color=color, alpha=strength, linewidth=1.8, gid=f"{token} {key} {layer}")
    ax.plot([x], [y], "o", color=color, alpha=max(alpha, 0.5), markersize=6)
