"""What the tutorial leaves out: the decoder, a predicted word, and how the network is trained."""

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.lessons.thrones_network import (
    END,
    FEATURES,
    SOURCE,
    START,
    VOCABULARY,
    ByHand,
    grid,
    ids_of,
    weights_of,
)
from glassformer.trace import Trace

TARGET = [START, "you", "win", "or", "you", "die", END]
LR, ADAM_LR, UPDATES = 0.5, 0.02, 300  # one plain update, then many by Adam


def compute_values() -> Values:
    network = ByHand()
    return {
        "words": SOURCE,
        "features": FEATURES,
        "vocabulary": VOCABULARY,
        "target_words": TARGET[:-1],
        "target": " ".join(TARGET[:-1]),
        "answers": " ".join(TARGET[1:]),
        **compute_decoder(network),
        **compute_printed_probs(),
        **compute_softmax_twice(),
        **compute_one_update(network),
        **compute_many_updates(network),
    }


@torch.no_grad()
def compute_decoder(network: ByHand) -> Values:
    """The weights of the decoder, and every value between its input and its logits."""
    ids, decoder = ids_of(TARGET[:-1]), network.decoder
    with Trace(network) as trace:
        logits = network(ids_of(SOURCE), ids)
    five = ids_of(read_words("thrones_decoder")["printed_words"])
    return {
        "embedding": network.token(ids),
        "input": network.embed(ids),
        **weights_of(decoder.attention, "masked_"),
        "masked_scores": grid(trace["decoder.attention.scores"]),
        "masked_pattern": grid(trace["decoder.attention.pattern"]),
        "masked_output": grid(trace["decoder.attention"]),
        "masked_norm": grid(trace["decoder.attention_norm"]),
        **weights_of(decoder.cross, "cross_"),
        "cross_pattern": grid(trace["decoder.cross.pattern"]),
        "cross_output": grid(trace["decoder.cross"]),
        "cross_norm": grid(trace["decoder.cross_norm"]),
        **weights_of(decoder.feedforward),
        "decoded": grid(trace["decoder"]),
        "w": network.head.weight.T.clone(),
        "logits": logits,
        "probs_of_five": logits.softmax(dim=-1)[:, five],
        "predicted": " ".join(VOCABULARY[int(i)] for i in logits.argmax(dim=-1)),
    }


def compute_printed_probs() -> Values:
    printed = read_matrices("thrones_decoder")
    softmax = printed["printed_logits"].softmax(dim=-1)
    return {**printed, **read_words("thrones_decoder"), "printed_logits_softmax": softmax}


def compute_softmax_twice() -> Values:
    """A softmax before a loss that has one of its own, for an answer of which it is certain."""
    certain = torch.eye(4, dtype=torch.float64)[3:]  # of four words the last
    again = certain.softmax(dim=-1)
    return {
        "certain_probs": certain,
        "softmax_again": again,
        "loss_again": -again[:, 3:].log(),
        "gradient_again": again - certain,
    }


def compute_loss(network: ByHand) -> tuple[Tensor, Tensor]:
    """The logits for the target, t v, and their loss."""
    logits = network(ids_of(SOURCE), ids_of(TARGET[:-1]))
    return logits, F.cross_entropy(logits, ids_of(TARGET[1:]))


def compute_one_update(network: ByHand) -> Values:
    """The loss, its gradient, and one plain update of every weight, for the words of the answer."""
    logits, loss = compute_loss(network)
    weights, answers = list(network.parameters()), ids_of(TARGET[1:])  # the last is the head's
    logits_gradient, *gradients = torch.autograd.grad(loss, (logits, *weights))
    before = network.head.weight.detach().clone()
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(LR * gradient)
        _, loss_after = compute_loss(network)
    columns = torch.tensor(sorted(set(answers.tolist())))
    probs = logits.softmax(dim=-1).gather(1, answers[:, None])
    return {
        "answer_words": [VOCABULARY[int(i)] for i in columns],
        "answer_probs": probs.detach(),
        "loss": loss.detach()[None, None],
        "logits_gradient": logits_gradient[:, columns],
        "head_gradient": gradients[-1][columns].T,
        "lr": LR,
        "head_before": before[columns].T,
        "head_after": network.head.weight.detach()[columns].T.clone(),
        "loss_before_and_after": torch.stack((loss.detach(), loss_after))[None],
    }


def compute_many_updates(network: ByHand) -> Values:
    """Many updates by Adam; then what the network generates, and its loss."""
    optimizer = torch.optim.Adam(network.parameters(), lr=ADAM_LR)
    for _ in range(UPDATES):
        _, loss = compute_loss(network)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    generated = [START]
    with torch.no_grad():
        while generated[-1] != END and len(generated) < 10:
            logits = network(ids_of(SOURCE), ids_of(generated))
            generated.append(VOCABULARY[int(logits[-1].argmax())])
        _, loss = compute_loss(network)
    return {
        "updates": UPDATES,
        "adam_lr": ADAM_LR,
        "generated": " ".join(generated[1:]),
        "final_loss": torch.tensor([[float(loss)]]),
    }
