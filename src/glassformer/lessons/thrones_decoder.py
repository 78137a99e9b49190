"""The parts that the tutorial omits: the decoder, its predictions, and training.

Shapes: t words, v vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.lessons.thrones_network import (
    DIM,
    END,
    FEATURES,
    SOURCE,
    START,
    VOCABULARY,
    TutorialTransformer,
    copy_weights,
    ids_of,
    to_matrix,
)
from glassformer.trace import Trace

TARGET = [START, "you", "win", "or", "you", "die", END]
LR = 0.5  # for one update by gradient descent
ADAM_LR, UPDATES = 0.02, 300  # for the further updates


def compute_values() -> Values:
    network = TutorialTransformer()
    return {
        "words": SOURCE,
        "features": FEATURES,
        "vocabulary": VOCABULARY,
        "decoder_words": TARGET[:-1],
        "decoder_input": " ".join(TARGET[:-1]),
        "target": " ".join(TARGET[1:]),
        **compute_decoder(network),
        **compare_flattened(network),
        **compute_printed_probs(),
        **compute_one_update(network),
        **compute_many_updates(network),
    }


@torch.no_grad()
def compute_decoder(network: TutorialTransformer) -> Values:
    """The weights of the decoder, and its values from the input to the logits."""
    ids = ids_of(TARGET[:-1])
    decoder = network.decoder
    with Trace(network) as trace:
        logits = network(ids_of(SOURCE), ids)
    five = ids_of(read_words("thrones_decoder")["printed_words"])
    return {
        "embedding": network.token(ids),
        "input": network.embed(ids),
        **copy_weights(decoder.attention, "masked_"),
        "masked_scores": to_matrix(trace["decoder.attention.scores"]),
        "masked_pattern": to_matrix(trace["decoder.attention.pattern"]),
        "masked_output": to_matrix(trace["decoder.attention"]),
        "masked_norm": to_matrix(trace["decoder.attention_norm"]),
        **copy_weights(decoder.cross, "cross_"),
        "cross_pattern": to_matrix(trace["decoder.cross.pattern"]),
        "cross_output": to_matrix(trace["decoder.cross"]),
        "cross_norm": to_matrix(trace["decoder.cross_norm"]),
        **copy_weights(decoder.feedforward),
        "decoded": to_matrix(trace["decoder"]),
        "w": network.head.weight.T.clone(),
        "logits": logits,
        "probs_of_five": logits.softmax(dim=-1)[:, five],
        "predicted": " ".join(VOCABULARY[int(i)] for i in logits.argmax(dim=-1)),
    }


def compare_flattened(network: TutorialTransformer) -> Values:
    """The shapes of the last layer for one flattened row, as printed, and for each position."""
    t = len(SOURCE)
    d = DIM
    printed_vocab = float(read_matrices("thrones")["printed_vocab_size"])
    x = network.embed(ids_of(TARGET[:-1]))
    weights = network.head.weight.T
    return {
        "flat_columns": [str(i) for i in (1, 2, 3, *range(t * d - 3, t * d + 1))],
        "flat_shapes": torch.tensor([[1.0, t * d, t * d, printed_vocab]]),
        "position_shapes": torch.tensor([[float(n) for n in (*x.shape, *weights.shape)]]),
        "head_sizes": torch.tensor([[t * d * printed_vocab, float(weights.numel())]]),
    }


def compute_printed_probs() -> Values:
    printed = read_matrices("thrones_decoder")
    softmax = printed["printed_logits"].softmax(dim=-1)
    return {**printed, **read_words("thrones_decoder"), "printed_logits_softmax": softmax}


def compute_loss(network: TutorialTransformer) -> tuple[Tensor, Tensor]:
    """The logits (t v) and their loss."""
    logits = network(ids_of(SOURCE), ids_of(TARGET[:-1]))
    return logits, F.cross_entropy(logits, ids_of(TARGET[1:]))


def compute_one_update(network: TutorialTransformer) -> Values:
    """The loss, its gradient, and one update of every weight by gradient descent.

    The gradients and the weights of the head are only those of the target words.
    """
    logits, loss = compute_loss(network)
    weights = list(network.parameters())  # the head's weights come last
    targets = ids_of(TARGET[1:])
    logit_gradient, *gradients = torch.autograd.grad(loss, (logits, *weights))
    before = network.head.weight.detach().clone()
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(LR * gradient)
        _, loss_after = compute_loss(network)
    columns = torch.tensor(sorted(set(targets.tolist())))
    probs = logits.softmax(dim=-1).gather(1, targets[:, None])
    return {
        "distinct_targets": [VOCABULARY[int(i)] for i in columns],
        "target_probs": probs.detach(),
        "loss": loss.detach()[None, None],
        "logit_gradient": logit_gradient[:, columns],
        "head_gradient": gradients[-1][columns].T,
        "lr": LR,
        "head_before": before[columns].T,
        "head_after": network.head.weight.detach()[columns].T.clone(),
        "loss_before_and_after": torch.stack((loss.detach(), loss_after))[None],
    }


def compute_many_updates(network: TutorialTransformer) -> Values:
    """The text that the network generates after many updates by Adam, and its loss."""
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
