"""Laws for networks that are trained with gradients."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.laws.comparison import BrokenLawError, require, require_close
from glassformer.laws.law import law
from glassformer.laws.subject import Subject
from glassformer.models.network import MaskedLM, Network, Trait

PREDICTS_TOKENS = frozenset({Trait.CAUSAL_LM, Trait.MASKED_LM, Trait.SEQ2SEQ})
MIN_GRADIENT = 1e-7  # below it a gradient counts as 0
CANCELED_BIASES = ("key.bias", "cross.key_norm.bias")
MAX_STEPS, TARGET_LOSS, MAX_LR = 500, 0.05, 3e-3  # for overfitting one batch; the loss is in nats


@law(without=Trait.FITTED)
def check_every_parameter_gets_a_gradient(subject: Subject) -> None:
    """Every parameter has a gradient that is not 0 everywhere.

    A bias of all keys is an exception, except in additive attention: it adds the same value to all
    scores of a query, which the softmax cancels. So does the bias of a norm of keys, if the keys
    are not rotated by their position, as in cross-attention.
    """
    subject = subject.trainable_copy()
    network = subject.network
    losses = [(x * subject.random_like(x)).sum() for x in all_outputs(subject)]
    torch.autograd.backward(losses)
    is_additive = "additive" in vars(network.config).values()
    for name, parameter in network.named_parameters():
        gradient = parameter.grad
        if gradient is None:
            raise BrokenLawError(f"for {name}: it has none")
        if name.endswith("position.weight"):
            gradient = gradient[: subject.length]  # later positions are not used
        if is_additive or not name.endswith(CANCELED_BIASES):
            require(float(gradient.abs().max()) > MIN_GRADIENT, f"for {name}: it is 0")


def all_outputs(subject: Subject) -> list[Tensor]:
    """Everything that a network can be trained to predict."""
    network = subject.network
    inputs = subject.examples(6)
    if isinstance(network, MaskedLM) and subject.has(Trait.MASKED_LM):
        ids = inputs["ids"]
        masked_positions = torch.ones_like(ids, dtype=torch.bool)
        segments = None
        if subject.has(Trait.SEGMENTED):
            segments = (torch.arange(subject.length) >= subject.length // 2).long().expand(6, -1)
            segments = segments.to(ids.device)
        logits = network.masked_logits(ids, masked_positions, segments)
        return [x for x in (logits.tokens, logits.is_next) if x is not None]
    outputs = network.all_outputs(**inputs)
    poolers = [child for name, child in network.named_children() if name == "pooler"]
    if network.traits & {*PREDICTS_TOKENS, Trait.CLASSIFIER} or not poolers:
        return outputs
    return [*outputs, *(pooler(outputs[0]) for pooler in poolers)]  # an encoder without a head


def has_tied_head(network: Network) -> bool:
    """Whether the logits of tokens are computed with the embedding matrix."""
    heads = tuple(f"{head}." for head in network.output_heads)
    has_weight = any(n.startswith(heads) and "weight" in n for n, _ in network.named_parameters())
    predicts_tokens = bool(PREDICTS_TOKENS & network.traits)
    # the head of a masked LM has a dense layer before the embedding matrix
    return predicts_tokens and (not has_weight or network.has(Trait.MASKED_LM))


@law(without=Trait.FITTED, when=has_tied_head)
def check_tied_head_and_embedding_share_one_gradient(subject: Subject) -> None:
    """The gradient of an embedding that is also the head is the sum over both its uses.

    It is compared with the finite difference in a random direction, in double precision.
    """
    subject = subject.trainable_copy()
    subject.network.double()
    ids = subject.ids()
    weight = subject.random_like(subject(ids).detach())
    table = subject.network.get_parameter(f"{subject.network.embeddings[0]}.weight")
    direction = subject.random_like(table, stream=3)
    step = 1e-8  # small, so that hardly any ReLU switches on or off

    def loss() -> Tensor:
        return (subject(ids) * weight).sum()

    torch.autograd.backward(loss())
    assert table.grad is not None
    analytic = (table.grad * direction).sum()
    values = []
    with torch.no_grad():
        original = table.clone()
        for sign in (1, -1):
            table.copy_(original + sign * step * direction)
            values.append(loss())
    numeric = (values[0] - values[1]) / (2 * step)
    require_close(analytic, numeric, 1e-3, "for the embedding")


@law(without=Trait.FITTED)
def check_one_batch_can_be_learned(subject: Subject) -> None:
    """Trained on one batch with random targets, the network soon predicts them."""
    subject = subject.trainable_copy()
    network = subject.network.train()
    inputs = subject.examples()
    loss_of = make_loss(subject, inputs)
    lr = min(MAX_LR, 0.3 / network.config.dim)  # a wider network needs smaller steps
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    for _ in range(MAX_STEPS):
        loss = loss_of(subject.run(inputs))
        if loss < TARGET_LOSS:
            return
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    raise BrokenLawError(f"after {MAX_STEPS} steps: the loss is still {loss.item():.2f}")


def make_loss(subject: Subject, inputs: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """The cross-entropy of random targets, or, if values are predicted, their squared error."""
    output = subject.run(inputs).detach()
    if subject.network.traits.isdisjoint({*PREDICTS_TOKENS, Trait.CLASSIFIER, Trait.ENCODER}):
        values = subject.random_like(output, stream=3).tanh()
        return lambda output: F.mse_loss(output, values)
    targets = torch.randint(10**6, output.shape[:-1], generator=subject.generator(3))
    if subject.has(Trait.CLASSIFIER):
        targets = torch.arange(len(output))
    targets = (targets % output.shape[-1]).to(output.device).flatten()
    return lambda output: F.cross_entropy(output.flatten(0, -2), targets)
