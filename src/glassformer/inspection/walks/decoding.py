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
    as_it_is,
    grid,
    ids_of,
    ours_of,
)  # fmt: skip
from glassformer.inspection.walks.printed import LOGITS, PROBABILITIES, SHOWN, WORDS
from glassformer.nn.span import Span
from glassformer.trace import Trace
from glassformer.core.i18n import say

SAID = [START, "you", "win", "or", "you", "die", END]
RATE, UPDATES, PACE = 0.5, 300, 0.02  # of one plain update, and of many by Adam


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
    show, part = partial(Table, rows=asked), network.decoder
    return [
        Step(
            say("What the decoder reads"),
            "X = E[id] + PE",
            say(
                "While it learns, the decoder reads the right answer shifted by one, all places at "
                "once: {text}. These embeddings are ours.", text=" ".join(asked),
            ),
            (
                show(say("E[id], ours"), network.token(ids_of(asked)), columns=FEATURES,
                     kind="given", places=2),
                show(
                    "X",
                    network.token(ids_of(asked)) + network.position(Span(len(asked), len(asked))),
                    columns=FEATURES,
                ),
            ),
            say("The tutorial feeds <end> as well, does not shift, and says one word at a time."),
        ),
        Step(
            say("Masked attention"),
            "softmax(mask(Q Kᵀ / √d_k))",
            say("A word may look at itself and at those before it; what is to come is hidden."),
            (
                *ours_of(part.attention, "query", "key", "value", "out"),
                show(say("scores, ours"), grid(trace["decoder.attention.scores"]), columns=asked),
                show(say("pattern, ours"), grid(trace["decoder.attention.pattern"]), columns=asked),
                show(say("what it adds, ours"), grid(trace["decoder.attention"]), columns=FEATURES),
                show(say("after the norm"), grid(trace["decoder.attention_norm"]),
                     columns=FEATURES),
            ),
            say("A mask hides the future; it does not prevent overfitting."),
        ),
        Step(
            say("Attention to the source"),
            "softmax(Q Kᵀ / √d_k) V",
            say("Queries come from the decoder, keys and values from the encoder."),
            (
                *ours_of(part.cross, "query", "key", "value", "out"),
                show(say("pattern, ours"), grid(trace["decoder.cross.pattern"]), columns=WORDS),
                show(say("what it adds, ours"), grid(trace["decoder.cross"]), columns=FEATURES),
                show(say("after the norm"), grid(trace["decoder.cross_norm"]), columns=FEATURES),
            ),
            say("The tutorial takes queries and keys from the encoder, values from the decoder."),
        ),
        Step(
            say("What the decoder says"),
            "norm(x + max(0, x W₁ + b₁) W₂ + b₂)",
            say("After its feed-forward layer and its last norm."),
            (
                *ours_of(part.feedforward, "widen", "narrow"),
                show(say("ours"), grid(trace["decoder"]), columns=FEATURES),
            ),
        ),
        Step(
            say("Scores for words"),
            "logits = X W",
            say("Each place has a score for every word."),
            (
                Table(say("{name}, ours", name="W"), as_it_is(network.head.weight.T), FEATURES,
                      VOCABULARY, "given", 2),
                show(say("ours"), logits, columns=VOCABULARY, places=2),
            ),
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


# --- learning, which no tutorial shows -----------------------------------------------------------


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
    learnt, end = learn(network, source, asked, answers)
    return [
        Step(
            say("Loss"),
            say("−log p(right word), the mean over all places"),
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
        twice(),
        Step(
            say("Gradient"),
            say("(p − 1[right]) / places;  ∂loss/∂W = Xᵀ (p − 1[right]) / places"),
            say("How the loss changes with each score, and so with each weight of the last layer."),
            (
                show(say("by the scores of these words"), towards[:, like], columns=some),
                column(say("by the weights of these words"), slope[like].T),
            ),
        ),
        Step(
            say("One update"),
            say("W ← W − rate × ∂loss/∂W"),
            say("Every weight of the network takes a step downhill, at a rate of {rate}; those of "
                "the last layer for these words are shown.", rate=RATE),
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
            say("From there on by Adam, at a rate of {rate}. It says, word by word from <start>: "
                "{words}", rate=PACE, words=" ".join(learnt)),
            (Table(say("loss"), torch.tensor([[end]])),),
        ),
    ]  # fmt: skip


def twice() -> Step:
    """What a softmax before a loss that has one of its own comes to."""
    sure = torch.eye(4, dtype=torch.float64)[3:]  # of four words the last, without a doubt
    shares = sure.softmax(dim=-1)
    return Step(
        say("Not twice"),
        "−log softmax(softmax(logits))",
        say("The loss takes scores and has a softmax of its own. One tutorial puts another before "
            "it: then even an answer without a doubt, of four words the last, seems doubtful."),
        (
            Table(say("the answer"), sure, kind="given", places=0),
            Table(say("after another softmax"), shares, places=3),
            Table(say("its loss, which can get no lower"), -shares[:, 3:].log()),
            Table(say("its slope, which is not 0"), shares - sure, places=3),
        ),
    )  # fmt: skip


def learn(
    network: ByHand, source: Tensor, asked: Tensor, answers: Tensor
) -> tuple[list[str], float]:
    """Many updates; then what it says, each word read before the next is said, and the loss."""
    optimiser = torch.optim.Adam(network.parameters(), lr=PACE)
    for _ in range(UPDATES):
        loss = F.cross_entropy(network(source, asked), answers)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    said = [START]
    with torch.no_grad():
        while said[-1] != END and len(said) < 10:
            said.append(VOCABULARY[int(network(source, ids_of(said))[-1].argmax())])
        end = F.cross_entropy(network(source, asked), answers)
    return said[1:], float(end)
