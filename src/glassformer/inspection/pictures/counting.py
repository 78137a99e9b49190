"""Word counts as pictures: one-hot rows, Markov chains, and the votes of pairs of words."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.draw import find_kind
from glassformer.inspection.pictures.canvas import ACCENT, GRAY, LINE, Canvas
from glassformer.inspection.word_counts import (
    BATTERY,
    CANDIDATES,
    PROGRAM,
    SHOW_ME,
    count_votes,
    count_words,
)
from glassformer.models.network import Network, Trait
from glassformer.text.tokenizer import Tokenizer

N_STATES = 9  # tokens of a trained model's chain
MAX_VOCAB = 4096
MIDDLE = 2.5  # height of a chain
MIN_PROB = 0.05  # of an arrow of a trained model's chain
TITLES = {
    1: "the next word depends on one word: a first-order model",
    2: "the next word depends on two words: a second-order model",
}
CORPORA = {"first": (SHOW_ME, 1), "battery": (BATTERY, 1), "second": (BATTERY, 2)}


def one_hot() -> Any:
    """A one-hot row for each word; multiplying a matrix by one selects one of its rows."""
    words, probs = transitions(SHOW_ME, 1)
    identity = torch.eye(len(words))
    width = 0.36 * len(words)
    row = identity[words.index("my")][None]
    canvas = Canvas(14.4, 4.3)
    index = words.index("my")
    panels = (
        (1.0, 1.0, identity, words, 0, tr("a one-hot row for each word")),
        (4.5, 1.0 + 0.36 * index, row, (), 0, tr("x: “my”")),
        (8.2, 1.0, probs, words, 1, tr("T: the next word")),
        (11.4, 1.0 + 0.36 * index, row @ probs, (), 1, tr("x T: the word after “my”")),
    )
    for x, y, values, rows, decimals, text in panels:
        area = canvas.matrix(x, y, values, rows=rows, columns=words, decimals=decimals)
        if rows:
            canvas.frame(canvas.row(area, index))
        canvas.text(x + width / 2, 3.9, text)
    canvas.text(7.25, 2.26, "×", size=14)
    canvas.text(11.06, 2.26, "=", size=14)
    return canvas.figure


def transitions(lines: list[str], order: int) -> tuple[list[str], Tensor]:
    """The contexts of this many words, and the fraction of each word after them: n v."""
    words, counts = count_words(lines, order)
    if order == 1:
        return words, counts.fractions([torch.arange(len(words))])
    texts = [line.split() for line in lines]
    pairs = sorted({pair for text in texts for pair in pairwise(text)})
    last, earlier = (torch.tensor([words.index(pair[i]) for pair in pairs]) for i in (1, 0))
    return [" ".join(pair) for pair in pairs], counts.fractions([last, earlier])


def markov(
    kind: str | None = None, network: Network | None = None, tokenizer: Tokenizer | None = None
) -> Any:
    """A Markov chain and its matrix: of a small corpus, or of a trained language model."""
    if network is not None and tokenizer is not None:
        return draw_trained_chain(network, tokenizer)
    lines, order = find_kind(CORPORA, kind or "first")
    states, probs = transitions(lines, order)
    words, _ = transitions(lines, 1)
    canvas = Canvas(14.2, 4.4, tr(TITLES[order]))
    places = place_states(states, lines, order)
    for i, j in probs.nonzero().tolist():
        target = words[j] if order == 1 else f"{states[i].split()[-1]} {words[j]}"
        draw_transition(canvas, places, states[i], target, float(probs[i, j]))
    draw_states(canvas, places)
    canvas.matrix(11.4, 1.2, probs, rows=states, columns=words, cell=0.3)
    if order == 2:
        n, rows = len(words), len(states)
        text = tr("{n}² = {all} pairs are possible, {rows} occur", n=n, all=n * n, rows=rows)
        canvas.text(12.4, 4.15, text)
    return canvas.figure


Places = dict[str, tuple[float, float]]


def place_states(states: Sequence[str], lines: list[str], order: int) -> Places:
    """A place for each state: from left to right as in the lines.

    The last words of all lines are in the column on the right.
    """
    columns: dict[int, list[str]] = {}
    last = max(len(line.split()) for line in lines) - order
    for state in states:
        indexes = (f" {line} ".find(f" {state} ") for line in lines)
        line = next(line for line, i in zip(lines, indexes, strict=True) if i >= 0)
        first = len(f" {line} ".partition(f" {state} ")[0].split())
        column = last if line.endswith(state) else first
        columns.setdefault(column, []).append(state)
    step = 8.6 / max(max(columns), 1)
    return {
        state: (0.75 + step * column, MIDDLE + 0.95 * (row - (len(names) - 1) / 2))
        for column, names in columns.items()
        for row, state in enumerate(names)
    }


def draw_states(canvas: Canvas, places: Places, width: float = 0.95) -> None:
    for state, (x, y) in places.items():
        text = show_whitespace(state).replace(" ", "\n")
        height = 0.5 if "\n" in text else 0.34
        canvas.box(x, y, width, text, height=height, colors=("#e8f0fa", LINE), size=8.5)


def draw_transition(canvas: Canvas, places: Places, start: str, end: str, prob: float) -> None:
    """An arrow between two states; it is wider and darker for a larger probability."""
    (x, y), (u, v) = places[start], places[end]
    side = 1 if min(y, v) > MIDDLE else -1  # a long arrow passes above, or below in the lower half
    bend = 0.3 * side if any(x < a < u for a, _ in places.values()) else 0.0
    length = max(((u - x) ** 2 + (v - y) ** 2) ** 0.5, 1e-6)
    gap = min(0.52 / max(abs(u - x) / length, 1e-6), 0.3 / max(abs(v - y) / length, 1e-6))
    dx, dy = (u - x) / length * gap, (v - y) / length * gap
    ends = (x + dx, y + dy), (u - dx, v - dy)
    if bend:
        ends = (x, y + 0.25 * side), (u, v + 0.25 * side)
    canvas.arrow(*ends, color=LINE, width=0.8 + 2.5 * prob, bend=bend)
    height = -0.14 if not bend else side * (0.42 + 0.15 * (u - x))
    canvas.text((x + u) / 2, (y + v) / 2 + height, f"{prob:.0%}", size=8)


@torch.no_grad()
def draw_trained_chain(network: Network, tokenizer: Tokenizer) -> Any:
    """The most frequent tokens of a language model that reads one token at a time."""
    if not network.has(Trait.CAUSAL_LM):
        raise GlassError("`markov` needs a language model")
    if (vocab := tokenizer.vocab) > MAX_VOCAB:
        raise GlassError(f"`markov` needs a vocabulary of at most {MAX_VOCAB} tokens, got {vocab}")
    ids = torch.arange(vocab, device=network.device)[:, None]
    probs = network(ids)[:, -1].float().softmax(dim=-1)[:, :vocab].cpu()  # v v
    frequency = torch.full((vocab,), 1 / vocab)
    for _ in range(50):  # until the frequencies do not change: those of an endless text
        frequency = frequency @ probs
    chosen = frequency.argsort(descending=True)[:N_STATES]
    tokens = [tokenizer.token(int(i)) for i in chosen]
    part = probs[chosen][:, chosen]
    canvas = Canvas(11.6, 5.6, tr("the most frequent tokens, and which of them follows which"))
    angles = 2 * torch.pi * torch.arange(len(tokens)) / len(tokens)
    places = {
        f"{i}": (2.9 + 2.1 * float(angle.sin()), 3.0 - 2.1 * float(angle.cos()))
        for i, angle in enumerate(angles)
    }
    for i, row in enumerate(part.tolist()):
        for j, prob in enumerate(row):
            if prob >= MIN_PROB and i != j:
                (x, y), (u, v) = places[f"{i}"], places[f"{j}"]
                start = x + 0.22 * (u - x), y + 0.22 * (v - y)
                end = u - 0.22 * (u - x), v - 0.22 * (v - y)
                canvas.arrow(start, end, color=LINE, width=4 * prob, bend=0.15)
    draw_states(canvas, {token: places[f"{i}"] for i, token in enumerate(tokens)}, 0.7)
    canvas.matrix(7.2, 1.5, part, rows=tokens, columns=tokens, decimals=2)
    rest = 1 - float(part.sum(dim=1).mean())
    canvas.text(
        8.8, 5.1, tr("other tokens: {rest} of the probability on average", rest=f"{rest:.0%}")
    )
    return canvas.figure


def votes() -> Any:
    """The votes of the pairs “word, ran” for the next word, before and after a mask."""
    earlier = PROGRAM.split()[:-1]
    battery = PROGRAM.replace("program", "battery")
    at = earlier.index("program") + 1
    table = torch.cat([count_votes(False)[0][:at], count_votes(False, battery)[0][at - 1 : at],
                       count_votes(False)[0][at:]])  # fmt: skip
    words = [*earlier[:at], "battery", *earlier[at:]]
    is_read = torch.tensor([[float(word in earlier)] for word in words])
    mask = (table > 0.5).any(dim=1, keepdim=True).float()
    canvas = Canvas(13.0, 6.0, tr("“{text} …”: votes of the pairs for the next word", text=PROGRAM))
    draw_voting(canvas, words, is_read, mask, table)
    columns = (
        (4.9, is_read, 0, tr("the text\nhas the pair"), [""]), (6.0, mask, 0, tr("mask"), [""]),
        (7.0, is_read * mask, 0, tr("both"), [""]),
        (8.2, table, 1, tr("T: how the\npairs vote"), CANDIDATES),
        (9.9, is_read * table, 1, tr("without\nthe mask"), CANDIDATES),
        (11.6, is_read * mask * table, 1, tr("with\nthe mask"), CANDIDATES),
    )  # fmt: skip
    for x, values, decimals, title, names in columns:
        area = canvas.matrix(x, 1.25, values, columns=names, decimals=decimals)
        canvas.text(area.x, area.bottom + 0.28, title)
    for x, total in ((9.9, count_votes(False)[1]), (11.6, count_votes(True)[1])):
        canvas.matrix(x, 5.55 - 0.1, total, decimals=1)
    canvas.text(9.75, 5.63, tr("totals"), ha="right")
    return canvas.figure


def draw_voting(
    canvas: Canvas, words: list[str], is_read: Tensor, mask: Tensor, table: Tensor
) -> None:
    """Lines from each pair to the words that it votes for; red for those that the mask keeps."""
    ends = {0: 2.2, 1: 3.9}
    for i, word in enumerate(words):
        y = 1.25 + 0.36 * (i + 0.5)
        color = "black" if is_read[i] else "#aaa"
        canvas.text(1.45, y, f"{word}, ran", ha="right", color=color)
        for j, end in ends.items():
            if float(table[i, j]) and is_read[i]:
                canvas.line((1.55, y), (3.2, end), color=ACCENT if mask[i] else GRAY,
                            linewidth=2.4 * float(table[i, j]))  # fmt: skip
    for j, end in ends.items():
        canvas.box(3.6, end, 0.8, CANDIDATES[j], colors=("#e8f0fa", LINE))
