"""Sparse attention: kernels against masked attention, and the Sparse Transformer."""

import pytest
import torch

from glassformer import MODELS, GlassError
from glassformer.nn.attention import attend, attend_reference
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal, per_head, strided, window
from glassformer.nn.sparse import (
    attend_to_chunk,
    attend_to_stride,
    attend_to_summaries,
    attend_to_window,
    join_chunks,
    local_chunk,
    local_stride,
    local_summaries,
    local_window,
    share_heads,
    split_chunks,
)

MASKS = {
    "window": local_window(4),
    "window of one": local_window(1),
    "stride": local_stride(4),
    "chunk": local_chunk(4),
    "summaries": local_summaries(4, 2),
    "shared by heads": share_heads([local_window(5), local_stride(5)], 4),
    "fixed, shared by heads": share_heads([local_chunk(3), local_summaries(3, 1)], 4),
}


def test_each_mask_has_the_kernel_of_its_rule():
    kernels = (attend_to_window, attend_to_stride, attend_to_chunk, attend_to_summaries)
    names = ("window", "stride", "chunk", "summaries")
    assert [MASKS[name].kernel.func for name in names] == list(kernels)


@pytest.mark.parametrize("length", [1, 3, 4, 17, 32])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_a_kernel_equals_masked_attention_forward_and_backward(mask, length):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, length, 8, requires_grad=True) for _ in range(3))
    weights, results = torch.randn(2, 4, length, 8), []
    layout = SequenceLayout(length, length)
    for function in (mask.kernel, lambda q, k, v: attend_reference(q, k, v, mask, layout)):
        y = function(q, k, v)
        results.append((y, *torch.autograd.grad((y * weights).sum(), (q, k, v))))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(attend(q, k, v, mask), results[0][0])


def test_a_kernel_is_used_only_for_whole_sequences_without_padding(monkeypatch):
    used = []
    kernel = local_window(2).kernel
    mask = local_window(2)
    object.__setattr__(mask, "kernel", lambda *x: used.append(len(x)) or kernel(*x))
    q, k, v = (torch.randn(1, 2, 6, 4) for _ in range(3))
    attend(q, k, v, mask)
    assert used == [3]
    attend(q[:, :, -1:], k, v, mask, SequenceLayout(1, 6))  # cached
    attend(q, k, v, mask, SequenceLayout(6, 6, keep=torch.ones(1, 6, dtype=torch.bool)))
    attend(q, k, v, mask, dropout=0.5)
    attend(q, k[:, :1], v[:, :1], mask)  # grouped queries
    assert used == [3]


def test_the_mask_of_heads_stacks_their_rules():
    mask = per_head([causal & window(2), causal & strided(3)], 4)
    expected = [(causal & window(2)).matrix(5, 7), (causal & strided(3)).matrix(5, 7)]
    assert torch.equal(mask.matrix(5, 7), torch.stack([expected[i] for i in (0, 0, 1, 1)]))
    keep = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]], dtype=torch.bool)
    padded = SequenceLayout(5, 5, keep=keep).mask_matrix(mask)
    assert padded.shape == (2, 4, 5, 5)
    assert torch.equal(padded[0, :, 2:, 2:], mask.matrix(3, 3))
    assert not padded[0, :, :, :2].any()


def test_chunks_are_padded_at_the_end_and_joined_again():
    x = torch.randn(2, 3, 7, 4)
    chunks = split_chunks(x, 3)
    assert chunks.shape == (2, 3, 3, 3, 4)
    assert torch.equal(chunks[:, :, 2, 0], x[:, :, 6])
    assert chunks[:, :, 2, 1:].eq(0).all()
    assert torch.equal(join_chunks(chunks, 7), x)


@pytest.mark.parametrize("pattern", ["strided", "fixed"])
@pytest.mark.parametrize("factorize", ["heads", "layers"])
def test_two_layers_connect_every_token_with_all_before_it(pattern, factorize):
    model_class = MODELS["sparse"]
    config = model_class.Config(vocab=9, context=36, dim=8, depth=2, heads=2, pattern=pattern,
                                stride=6, summary=1, factorize=factorize)  # fmt: skip
    reach = torch.eye(36, dtype=torch.bool)
    for mask in config.masks():
        step = mask.matrix(36, 36)
        step = step.any(dim=0) if step.ndim == 3 else step
        reach = ((step | torch.eye(36, dtype=torch.bool)).float() @ reach.float()) > 0
    lower = torch.ones(36, 36).tril().bool()
    assert torch.equal(reach, lower)


@pytest.mark.parametrize(
    ("context", "stride"), [(4096, 64), (8192, 64), (1024, 32), (100, 8), (4, 2)]
)
def test_the_default_stride_is_a_power_of_two_of_about_the_root_of_the_context(context, stride):
    config = MODELS["sparse"].Config
    assert config(context=context).chunk_size == stride
    assert config(context=context, stride=3, summary=1).chunk_size == 3


def test_the_layers_have_the_masks_of_their_pattern():
    config = MODELS["sparse"].Config
    size = {"context": 20, "stride": 4, "depth": 3, "heads": 2, "summary": 2}
    near, far = local_window(4), local_stride(4)
    layers = config(**size, factorize="layers").masks()
    assert layers == [near, far, near]
    assert config(**size).masks() == [share_heads([near, far], 2)] * 3
    assert config(**size, pattern="window").masks() == [near] * 3
    fixed = size | {"pattern": "fixed", "factorize": "layers"}
    chunks = local_chunk(4)
    assert config(**fixed).masks() == [chunks, local_summaries(4, 2), chunks]
    default = fixed | {"stride": None}  # also 4
    assert config(**default).masks() == [chunks, local_summaries(4, 2), chunks]
    assert config(**default | {"summary": 8}).masks()[1] == local_summaries(4, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stride": 64}, "stride must be at most the context, got 64 and 32"),
        ({"stride": 0}, "stride must be at least 1"),
        ({"stride": 4, "summary": 5}, "summary must be at most the stride, got 5 and 4"),
        ({"stride": 8, "heads": 1}, "heads must be even"),
    ],
)
def test_impossible_settings_are_rejected(settings, message):
    with pytest.raises(GlassError, match=message):
        MODELS["sparse"].Config(**{"vocab": 9, "context": 32, "dim": 8, "heads": 2, **settings})
