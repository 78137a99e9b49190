"""Laws for networks that take a padding mask."""

import torch
from torch import Tensor

from glassformer.laws.caching import empty_cache
from glassformer.laws.comparison import require, require_close, require_equal
from glassformer.laws.law import law
from glassformer.laws.subject import SIDES, SOURCE_LENGTH, Side, Subject
from glassformer.models.network import Encoder, Trait


@law(Trait.PADDING_INVARIANT)
@torch.no_grad()
def check_padding_changes_nothing(subject: Subject) -> None:
    """A sequence has the same output alone as with padding in a batch."""
    ids = subject.ids()
    for side in SIDES:
        keep = subject.keep(side)
        output = subject(ids, keep=keep)
        for row, row_keep in enumerate(keep):
            expected = subject(ids[row : row + 1, row_keep], row=row)[0]
            actual = output[row] if expected.ndim == 1 else output[row, row_keep]
            require_close(actual, expected, subject.tolerance, f"with padding on the {side}")


@law(Trait.PADDING_INVARIANT)
@torch.no_grad()
def check_padding_ids_do_not_matter(subject: Subject) -> None:
    """Changing the ids at padding changes nothing, bit for bit."""
    ids = subject.ids()
    for side in SIDES:
        keep = subject.keep(side)
        other = torch.where(keep, ids, subject.other_ids(ids))
        outputs = [subject(x, keep=keep) for x in (ids, other)]
        if not subject.has(Trait.CLASSIFIER):
            outputs = [output[keep] for output in outputs]
        require_equal(outputs[1], outputs[0], f"with padding on the {side}")


@law(Trait.SEQ2SEQ)
@torch.no_grad()
def check_source_padding_changes_nothing(subject: Subject) -> None:
    """A padded source gives the same output, in one pass and in steps with a cache."""
    ids, source = subject.ids(1), subject.source(1)
    expected = subject(ids, source=source)
    for side in SIDES:
        padded, keep = pad_source(source, subject.other_ids(source[:, :2]), side)
        actual = subject(ids, source=padded, source_keep=keep)
        require_close(actual, expected, subject.tolerance, f"with padding on the {side}")
        if subject.has(Trait.CACHED):
            cache = empty_cache(subject)
            cut = subject.length // 2 - 1
            first = subject(ids[:, :cut], source=padded, source_keep=keep, cache=cache)
            steps = torch.cat((first, subject(ids[:, cut:], cache=cache)), dim=1)
            where = f"with padding on the {side} and a cache"
            require_close(steps, expected, subject.tolerance, where)


def pad_source(source: Tensor, padding: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """A source with padding on one side, and its `keep`."""
    parts = (padding, source) if side == "left" else (source, padding)
    index = torch.arange(SOURCE_LENGTH + 2, device=source.device)
    keep = index >= 2 if side == "left" else index < SOURCE_LENGTH
    return torch.cat(parts, dim=1), keep[None]


@law(Trait.PADDING_INVARIANT)
def check_sequence_of_only_padding_is_finite(subject: Subject) -> None:
    """A sequence without any real token has finite outputs and gradients."""
    subject = subject.trainable_copy()
    keep = subject.keep("right")
    keep[1] = False
    output = subject(subject.ids(), keep=keep)
    require(bool(output.isfinite().all()), "for the output")
    if subject.has(Trait.FITTED):
        return
    torch.autograd.backward(output.sum())
    for name, parameter in subject.network.named_parameters():
        is_finite = parameter.grad is None or bool(parameter.grad.isfinite().all())
        require(is_finite, f"for the gradient of {name}")


@law(Trait.ENCODER)
@torch.no_grad()
def check_features_ignore_padding(subject: Subject) -> None:
    """Each token has a vector of features, which does not depend on padding."""
    ids = subject.ids()
    keep = subject.keep("right")
    network = subject.network
    assert isinstance(network, Encoder)
    features = network.features(ids, keep)
    shape = (*ids.shape, subject.network.config.dim)
    actual_shape = tuple(features.shape)
    require(actual_shape == shape, f"for the shape: expected {shape}, got {actual_shape}")
    for row, row_keep in enumerate(keep):
        expected = network.features(ids[row : row + 1, row_keep])[0]
        require_close(features[row, row_keep], expected, subject.tolerance, f"for sequence {row}")
