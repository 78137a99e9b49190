"""What the tutorial leaves out: the decoder, a predicted word, and how it is learnt."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.walks.by_hand import (
    END,
    FEATURES,
    START,
    VOCABULARY,
    ByHand,
    grid,
    ids_of,
)  # fmt: skip
from glassformer.inspection.walks.printed import LOGITS, PROBABILITIES, SHOWN, WORDS
from glassformer.nn.span import Span
from glassformer.trace import Trace
from glassformer.words import say

SAID = [START, "you", "win", "or", "you", "die", END]
RATE, UPDATES = 0.5, 300


def walk() -> list[Step]:
    network = ByHand()
    with torch.no_grad():
        steps = decoder(network)
    return [*steps, *learning(network)]


# --- the decoder, which the tutorial leaves out ---------------------------------------------------


def decoder(network: ByHand) -> list[Step]:
    asked = SAID[:-1]
    with Trace(network) as trace:
        logits = network(ids_of(WORDS), ids_of(asked))
    five = [VOCABULARY.index(word) for word in SHOWN]
    best = [VOCABULARY[int(i)] for i in logits.argmax(dim=-1)]
    show = partial(Table, rows=asked)
    return [
        Step(
            say("What the decoder reads"),
            "E[id] + PE",
            say(
                "While it learns, the decoder reads the right answer shifted by one, all places at "
                "once: {text}. These embeddings are ours.", text=" ".join(asked),
            ),
            (
                show(
                    say("ours"),
                    network.token(ids_of(asked)) + network.position(Span(len(asked), len(asked))),
                    columns=FEATURES,
                    kind="given",
                ),
            ),
            say("The tutorial feeds <end> as well, does not shift, and says one word at a time."),
        ),
        Step(
            say("Masked attention"),
            "softmax(mask(Q Kᵀ / √d_k))",
            say("A word may look at itself and at those before it; what is to come is hidden."),
            (
                show(say("scores, ours"), grid(trace["decoder.attention.scores"]), columns=asked),
                show(say("pattern, ours"), grid(trace["decoder.attention.pattern"]), columns=asked),
            ),
            say("A mask hides the future; it does not prevent overfitting."),
        ),
        Step(
            say("Attention to the source"),
            "softmax(Q Kᵀ / √d_k) V",
            say("Queries come from the decoder, keys and values from the encoder."),
            (
                show(say("pattern, ours"), grid(trace["decoder.cross.pattern"]), columns=WORDS),
                show(say("what it adds, ours"), grid(trace["decoder.cross"]), columns=FEATURES),
            ),
            say("The tutorial takes queries and keys from the encoder, values from the decoder."),
        ),
        Step(
            say("What the decoder says"),
            "norm(x + F)",
            say("After its feed-forward layer and its last norm."),
            (show(say("ours"), grid(trace["decoder"]), columns=FEATURES),),
        ),
        Step(
            say("Scores for words"),
            "logits = X W",
            say("Each place has a score for every word."),
            (show(say("ours"), logits, columns=VOCABULARY, places=2),),
            say("The tutorial flattens all places into one row of 36; each place is for itself."),
        ),
        Step(
            say("Probabilities"),
            "softmax(logits)",
            say("For five words the tutorial prints scores and probabilities."),
            (
                Table(say("its scores"), LOGITS, columns=SHOWN, kind="given", places=2),
                Table(say("as printed"), PROBABILITIES, columns=SHOWN, kind="printed", places=3),
                Table(say("as it should be, of these five"), LOGITS.softmax(dim=-1), (), SHOWN,
                      "right"),
                show(say("ours, of all words"), logits.softmax(dim=-1)[:, five], columns=SHOWN),
            ),
            say("Equal scores of 2.3 cannot be .05 and .12."),
        ),
        Step(
            say("The predicted words, before it has learnt"),
            "argmax",
            say("Likeliest after each place: {words}. Chance: nothing was learnt yet.",
                words=" ".join(best)),
        ),
    ]  # fmt: skip


# --- learning, which no seed shows ------------------------------------------------------------


def learning(network: ByHand) -> list[Step]:
    """A loss, its gradient, one update; then many, and the sentence to its end."""
    source, asked, answers = ids_of(WORDS), ids_of(SAID[:-1]), ids_of(SAID[1:])
    logits = network(source, asked)
    loss = F.cross_entropy(logits, answers)
    weights = list(network.parameters())  # the last is that of the head
    towards, *slopes = torch.autograd.grad(loss, (logits, *weights))
    before = network.head.weight.detach().clone()
    with torch.no_grad():
        for one, slope in zip(weights, slopes, strict=True):
            one.sub_(RATE * slope)
        after = F.cross_entropy(network(source, asked), answers)
    updated, slope = network.head.weight.detach().clone(), slopes[-1]
    like = torch.tensor(sorted(set(answers.tolist())))
    some = [VOCABULARY[int(i)] for i in like]
    column = partial(Table, rows=FEATURES, columns=some)
    show = partial(Table, rows=SAID[:-1])
    learnt = learn(network, source, asked, answers)
    return [
        Step(
            say("Loss"),
            "−log p(right word), the mean over all places",
            say("How surprised it is by the right words {text}.", text=" ".join(SAID[1:])),
            (
                show(
                    say("p of the right word"),
                    logits.softmax(dim=-1).gather(1, answers[:, None]).detach(),
                    columns=["p"],
                ),
                Table(say("loss"), loss.detach()[None, None]),
            ),
        ),
        Step(
            say("Gradient"),
            "(p − 1[right]) / places;  ∂loss/∂W = Xᵀ (p − 1[right]) / places",
            say("How the loss changes with each score, and so with each weight of the last layer."),
            (
                show(say("by the scores of these words"), towards[:, like], columns=some),
                column(say("by the weights of these words"), slope[like].T),
            ),
        ),
        Step(
            say("One update"),
            "W ← W − rate × ∂loss/∂W",
            say("Every weight takes a step downhill, at a rate of {rate}.", rate=RATE),
            (
                column(say("weights before"), before[like].T, kind="given"),
                column(say("and after"), updated[like].T),
                Table(say("loss before and after"), torch.stack((loss.detach(), after))[None],
                      (), [say("before"), say("after")]),
            ),
        ),
        Step(
            say("After {count} updates", count=UPDATES),
            "",
            say("It says, word by word from <start>: {words}", words=" ".join(learnt)),
        ),
    ]  # fmt: skip


def learn(network: ByHand, source: Tensor, asked: Tensor, answers: Tensor) -> list[str]:
    """Many updates; then what it says, each word read before the next is said."""
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(UPDATES):
        loss = F.cross_entropy(network(source, asked), answers)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    said = [START]
    with torch.no_grad():
        while said[-1] != END and len(said) < 10:
            said.append(VOCABULARY[int(network(source, ids_of(said))[-1].argmax())])
    return said[1:]
