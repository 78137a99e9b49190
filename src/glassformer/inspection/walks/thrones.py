"""From a corpus to what the encoder says, by hand: as printed and as it should be."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.inspection.sheet import Step, Table, agree
from glassformer.inspection.walks.by_hand import (
    DIM,
    FEATURES,
    PARTS,
    START,
    VOCABULARY,
    ByHand,
    grid,
    ids_of,
    ours_of,
)  # fmt: skip
from glassformer.inspection.walks.printed import (
    CORPUS,
    DEVIATION_2,
    EMBEDDING,
    FED,
    HEAD,
    IDS,
    INPUT,
    KEY,
    MEAN_2,
    NORM_1,
    NORM_2,
    OUT,
    PLACED,
    POSITION,
    PRODUCTS,
    PROJECTED,
    QUERY,
    SCALED,
    SUM_2,
    VALUE,
    WK,
    WORDS,
    WQ,
    WV,
)  # fmt: skip
from glassformer.nn.positions import Sinusoidal
from glassformer.nn.span import Span
from glassformer.trace import Trace
from glassformer.core.i18n import say


@torch.no_grad()
def walk() -> list[Step]:
    network = ByHand()
    return [about(), *into_numbers(), *attention(network), *rest_of_the_encoder(network)]


def about() -> Step:
    return Step(
        say("A Transformer by hand"),
        "",
        say(
            "Khan's tutorial (2024) works out a Transformer with 6 features a word "
            "(f0 to f5), one head 4 wide (e0 to e3) and one block a side. “As printed” is what "
            "stands there, with * at each cell that is wrong; “as it should be” is computed by the "
            "parts that train models here, with the tutorial's numbers as their weights. Where it "
            "is silent the weights are our own, and say so."
        ),
    )


def rest() -> Step:
    """What the text says beside its matrices."""
    words = len({word.lower() for word in CORPUS})
    asked = torch.tensor([[8.33 * math.log(words), 8.33 * math.log10(words), DIM]])
    return Step(
        say("What else the tutorial says"),
        "n > 8.33 log N",
        say("A rule for the width of an embedding, by the number of words N = {n}.", n=words),
        (
            Table(
                say("width"), asked, (),
                [say("by the natural logarithm"), say("by that to base 10"), say("used")],
                "given", 1,
            ),
        ),
        say(
            "By its own rule its embedding is too narrow. It gives LLaMA an encoder; LLaMA is a "
            "decoder alone. It adds ε to the deviation; ε stands under the root with the variance."
        ),
    )  # fmt: skip


# --- text to numbers --------------------------------------------------------------------------


def into_numbers() -> list[Step]:
    folded = {word.lower() for word in CORPUS}
    right = waves()
    wrong = own_formula()
    by_word = partial(Table, rows=WORDS, columns=FEATURES)
    own, paper = agree(POSITION, wrong, 4), agree(POSITION, right, 4)
    return [
        Step(
            say("Vocabulary"),
            say("vocab size = count(set(N))"),
            say("Every different word of the corpus gets a number."),
            (
                Table(say("as printed"), torch.tensor([[23.0]]), kind="printed"),
                Table(
                    say("as it should be"), torch.tensor([[float(len(VOCABULARY))]]), kind="right"
                ),
            ),
            say(
                "There are {folded} words if case is folded and {kept} if not; without <start> "
                "and <end> a sentence could neither begin nor stop.",
                folded=len(folded),
                kept=len(set(CORPUS)),
            ),
        ),
        Step(
            say("Input"),
            "",
            say("The sentence is looked up word by word: {text}.", text=" ".join(INPUT)),
            (
                Table(
                    say("the numbers of its words"),
                    torch.tensor([[float(IDS.index(w) + 1) for w in WORDS]]),
                    columns=WORDS,
                    kind="given",
                ),
            ),
            say("The sentence has seven words; the tutorial drops “the” and goes on with six."),
        ),
        Step(
            say("Embedding"),
            "E[id]",
            say("Each word is a row of numbers. They start by chance and are learnt."),
            (by_word(say("given"), EMBEDDING, kind="given", places=2),),
        ),
        Step(
            say("Position"),
            "PE[p, 2i] = sin(p / 10000^(2i/d)),  PE[p, 2i+1] = cos(p / 10000^(2i/d))",
            say("Waves tell the place of each word: slower ones further to the right."),
            (
                by_word(say("as printed"), POSITION, kind="printed"),
                by_word(say("by the tutorial's own formula"), wrong, kind="made"),
                by_word(say("as it should be"), right, kind="right"),
            ),
            say(
                "{own} of 36 cells contradict the tutorial's own formula: at places 1, 3 and 4 it "
                "took the sine for odd features. {paper} of 36 differ from the paper, because the "
                "exponent has the feature's number i where it needs that of its pair.",
                own=int((~own).sum()),
                paper=int((~paper).sum()),
            ),
        ),
        Step(
            say("Embedding and position"),
            "X = E + PE",
            say("The two are added; the tutorial calls it concatenation."),
            (
                by_word(say("as printed"), PLACED, kind="printed", places=2),
                by_word(say("as it should be"), EMBEDDING + right, kind="right"),
            ),
            say("It follows from the printed positions, so that it has their mistakes."),
        ),
    ]


def waves() -> Tensor:
    """The places of the words, as models tell them: t d."""
    return Sinusoidal(DIM)(Span(len(WORDS), len(WORDS))).double()  # type: ignore[no-any-return]


def own_formula() -> Tensor:
    """What the tutorial's formula gives: its exponent has the feature's own number. t d"""
    at, i = torch.arange(len(WORDS))[:, None].double(), torch.arange(DIM)
    angles = at / 10_000.0 ** (2 * i / DIM)
    return torch.where(i % 2 == 0, angles.sin(), angles.cos())


# --- attention --------------------------------------------------------------------------------


def attention(network: ByHand) -> list[Step]:
    """One head, on the printed input, and on the right one."""
    right = EMBEDDING + waves()
    with Trace(network.encoder) as ours:
        network.read(PLACED)
    with Trace(network.encoder) as whole:
        network.read(right)

    def both(
        name: str, columns: list[str], printed: Tensor | None, places: int
    ) -> tuple[Table, ...]:
        show = partial(Table, rows=WORDS, columns=columns)
        title = say("as it should be, from the printed input")
        tables = [
            show(title, grid(ours[name]), kind="right"),
            show(say("with the right positions too"), grid(whole[name])),
        ]
        if printed is not None:
            tables.insert(0, show(say("as printed"), printed, kind="printed", places=places))
        return tuple(tables)

    slip = QUERY @ KEY.T / math.sqrt(DIM)
    mixed = (SCALED.softmax(dim=-1) @ QUERY - HEAD).abs().max()
    return [
        Step(
            say("Queries"),
            "Q = X W_q",
            say("What each word asks for: its row times a matrix."),
            (
                Table("W_q", WQ, FEATURES, PARTS, "given", 2),
                *both("attention.q", PARTS, QUERY, 2),
            ),
            say("The printed queries follow from the printed input."),
        ),
        Step(
            say("Keys"),
            "K = X W_k",
            say("What each word offers to be found by."),
            (Table("W_k", WK, FEATURES, PARTS, "given", 2), *both("attention.k", PARTS, KEY, 2)),
            say("The printed keys follow from the printed input."),
        ),
        Step(
            say("Values"),
            "V = X W_v",
            say("What each word has to give."),
            (Table("W_v", WV, FEATURES, PARTS, "given", 2), *both("attention.v", PARTS, VALUE, 2)),
            say(
                "{right} of 24 cells are right: what is printed is a copy of the queries.",
                right=int(agree(VALUE, grid(ours["attention.v"]), 2).sum()),
            ),
        ),
        Step(
            say("Products"),
            "Q Kᵀ",
            say("How well each word's question (row) meets each word's offer (column)."),
            (
                Table(say("as printed"), PRODUCTS, WORDS, WORDS, "printed"),
                Table(say("as it should be, from the printed rounded Q and K"), QUERY @ KEY.T,
                      WORDS, WORDS, "right"),
            ),
            say("Right."),
        ),
        Step(
            say("Scores"),
            "Q Kᵀ / √d_k",
            say("Divided by the root of the head's width, so that they do not grow with it."),
            (
                Table(say("as printed"), SCALED, WORDS, WORDS, "printed", 2),
                Table(say("divided by √6"), slip, WORDS, WORDS),
                *both("attention.scores", WORDS, None, 4),
            ),
            say(
                "The tutorial divides by √6, the width of the embedding ({cells} of 36 cells "
                "agree, to two places; its caption says 5). A head is 4 wide: it must be √4 = 2.",
                cells=int(agree(SCALED, slip, 2).sum()),
            ),
        ),
        Step(
            say("Pattern"),
            "softmax(Q Kᵀ / √d_k)",
            say("Each row becomes shares that add up to one: whom a word reads, and how much."),
            both("attention.pattern", WORDS, None, 4),
            say("The tutorial shows this step as a picture only."),
        ),
        Step(
            say("Mixture"),
            "Z = softmax(Q Kᵀ / √d_k) V",
            say("Each word becomes a mixture of the values that it reads."),
            both("attention.heads", PARTS, HEAD, 4),
            say(
                "The printed mixture is that of the queries, with scores divided by √6: within "
                "{off:.0e}.", off=float(mixed),
            ),
        ),
        Step(
            say("Projection"),
            "A = Z W_o",
            say("Back to the width of the embedding."),
            (
                Table("W_o", OUT, PARTS, FEATURES, "given", 2),
                *both("attention", FEATURES, PROJECTED, 2),
            ),
            say(
                "From the printed Z, rounded, {cells} of 36 cells follow; Z was wrong.",
                cells=int(agree(PROJECTED, HEAD.round(decimals=2) @ OUT, 2).sum()),
            ),
        ),
        Step(
            say("Add and norm"),
            say("(X + A − mean) / deviation"),
            say("The input is added, then each row is brought to mean 0 and deviation 1."),
            both("attention_norm", FEATURES, NORM_1, 2),
            slip_of_the_mean(),
        ),
    ]  # fmt: skip


def geometric_norm() -> Tensor:
    """The tutorial's first norm: around the geometric mean, with numbers rounded on the way."""
    total = PLACED + PROJECTED
    mean = total.log().mean(dim=1, keepdim=True).exp().round(decimals=2)
    deviation = total.std(dim=1, correction=0, keepdim=True).round(decimals=2)
    return (total - mean) / (deviation + 1e-4)


def slip_of_the_mean() -> str:
    total = PLACED + PROJECTED
    plain = F.layer_norm(total, (DIM,))
    return say(
        "With the arithmetic mean {plain} of 36 cells follow, with the geometric mean {slip}: the "
        "first row's is {wrong:.2f}, where the mean is {right:.3f}. The norm also lacks the scale "
        "and the shift that are learnt.",
        plain=int(agree(NORM_1, plain, 2).sum()),
        slip=int(agree(NORM_1, geometric_norm(), 2).sum()),
        wrong=float(total[0].log().mean().exp()), right=float(total[0].mean()),
    )  # fmt: skip


# --- the rest of the encoder ------------------------------------------------------------------


def rest_of_the_encoder(network: ByHand) -> list[Step]:
    by_word = partial(Table, rows=WORDS, columns=FEATURES)
    with Trace(network.encoder) as ours:
        network(ids_of(WORDS), ids_of([START]))
    mean, spread = SUM_2.mean(dim=1, keepdim=True), SUM_2.std(dim=1, correction=0, keepdim=True)
    two_rows = torch.stack([SUM_2[i : i + 2].std() for i in range(len(WORDS))])[:, None]
    right = (SUM_2 - mean) / spread
    slip = float((two_rows - DEVIATION_2).abs().max())
    return [
        Step(
            say("Feed-forward, as printed"),
            "max(0, X W + b)",
            say("The tutorial has one layer; its weights are not in the text."),
            (by_word(say("as printed"), FED, kind="given", places=2),),
            say("It cannot be checked. Of the block after ReLU it prints five of six rows."),
        ),
        Step(
            say("Feed-forward, completed"),
            "max(0, X W₁ + b₁) W₂ + b₂",
            say("The paper's has two layers. These weights are ours, on the right first norm."),
            (
                by_word(say("what goes in"), grid(ours["attention_norm"])),
                *ours_of(network.encoder.feedforward, "widen"),
                Table(say("after ReLU"), grid(ours["feedforward.hidden"]), WORDS),
                *ours_of(network.encoder.feedforward, "narrow"),
                by_word(say("what comes out"), grid(ours["feedforward"])),
            ),
        ),
        Step(
            say("Second sum"),
            "X + F",
            say("Back to the printed numbers: what the norm said plus what the layer said."),
            (
                by_word(say("as printed"), SUM_2, kind="printed", places=2),
                by_word(say("as it should be"), NORM_1 + FED, kind="right", places=2),
                Table(say("its means, as printed"), MEAN_2, WORDS, kind="given"),
            ),
            say("Right, and so are its means."),
        ),
        Step(
            say("Second deviation"),
            say("√(mean of (x − mean)²)"),
            say("How far the numbers of a row lie from their mean."),
            (
                Table(say("as printed"), DEVIATION_2, WORDS, kind="printed"),
                Table(say("of each row together with the next"), two_rows, WORDS),
                Table(say("as it should be"), spread, WORDS, kind="right"),
            ),
            say(
                "The printed ones are the sample deviation of two rows together, each with the "
                "next, to {off:.0e}: a range in a spreadsheet that was one row too long.",
                off=slip,
            ),
        ),
        Step(
            say("Second norm"),
            say("(x − mean) / deviation"),
            say("What the encoder says in the end."),
            (
                by_word(say("as printed"), NORM_2, kind="printed", places=2),
                by_word(say("as it should be, from the printed sum"), right, kind="right"),
                by_word(say("ours, all right from the start"), grid(ours["feedforward_norm"])),
            ),
            say(
                "{wrong} of 36 cells are wrong, because the deviations are.",
                wrong=36 - int(agree(NORM_2, right, 2).sum()),
            ),
        ),
    ]  # fmt: skip
