"""Attention compared with its definition, one query at a time."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from glassformer.nn.attention import (
    AdditiveScore,
    Attention,
    PlainAttention,
    attend,
    attend_reference,
    dot,
    scaled_dot,
)
from glassformer.nn.cache import LayerCache
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal, edges, fixed, full, strided, window
from glassformer.nn.positions import Alibi, Position, Relative, Rotary
from glassformer.trace import Trace

close = torch.testing.assert_close
MASKS = [
    full,
    causal,
    window(3),
    causal & window(3),
    causal & (window(2) | strided(3)),
    causal & fixed(4),
    edges([(0, 1), (4, 2), (8, 8), (8, 3)]) | window(1),
]
RELATIVE = Relative(heads=4, head_dim=8)
for parameter in (RELATIVE.content, RELATIVE.distance):
    torch.nn.init.normal_(parameter)
POSITIONS = [Position(), Rotary(8), Alibi(4), RELATIVE]
masks = pytest.mark.parametrize("mask", MASKS, ids=str)
positions = pytest.mark.parametrize("position", POSITIONS, ids=lambda p: type(p).__name__)


def slow_attention(q, k, v, allowed):
    """The definition of attention in a loop over the queries."""
    out = torch.zeros_like(q)
    for i in range(q.shape[2]):
        scores = (k @ q[:, :, i, :, None]).squeeze(-1) / math.sqrt(q.shape[-1])  # b h s
        weights = scores.masked_fill(~allowed[i], -math.inf).softmax(-1)
        out[:, :, i] = (weights[..., None] * v).sum(2)
    return out


@masks
def test_attend_matches_its_definition(mask):
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    allowed = torch.tensor(
        [[bool(mask.allow(*map(torch.tensor, (i, j)))) for j in range(9)] for i in range(9)]
    )
    if mask == causal:
        allowed = torch.ones(9, 9).tril().bool()
    close(attend(q, k, v, mask), slow_attention(q, k, v, allowed))


@masks
@pytest.mark.parametrize("queries", [1, 4, 9])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_fused_attention_equals_the_reference(mask, queries, biased, padded):
    q, k, v = torch.randn(2, 4, queries, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    keep = torch.arange(9) >= torch.tensor([[0], [5]]) if padded else None
    bias = torch.randn(4, queries, 9) if biased else None
    outputs = [
        function(q, k, v, mask, SequenceLayout(queries, 9, keep=keep), bias=bias)
        for function in (attend, attend_reference)
    ]
    close(*outputs)


def test_grouped_heads_equal_repeated_ones():
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    repeated = attend(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), causal)
    close(attend(q, k, v, causal), repeated)


@positions
@masks
def test_tracing_does_not_change_the_output(mask, position):
    layer, x = Attention(32, 4, mask=mask, position=position).eval(), torch.randn(2, 9, 32)
    layout = SequenceLayout(9, 9)
    with Trace(layer, "pattern") as trace:
        traced = layer(x, layout)
    close(traced, layer(x, layout))
    close(trace["pattern"].sum(-1), torch.ones(2, 4, 9))


@positions
@pytest.mark.parametrize("kernel", ["fused", "reference"])
def test_the_output_of_a_query_without_keys_is_zero(position, kernel):
    layer, x = Attention(32, 4, mask=causal, position=position), torch.randn(1, 3, 32)
    x.requires_grad_()
    layout = SequenceLayout(
        3, 3, keep=torch.tensor([[False, True, True]])
    )  # the first query has no key
    with Trace(layer, "head_outputs", *(["pattern"] if kernel == "reference" else [])) as trace:
        layer(x, layout).sum().backward()
    assert not trace["head_outputs"][:, :, 0].any()
    assert trace["head_outputs"][:, :, 1:].all()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@positions
@pytest.mark.parametrize("mask", [causal, causal & window(3)], ids=str)
def test_cached_chunks_equal_one_pass(mask, position):
    layer, x = Attention(32, 4, mask=mask, position=position).eval(), torch.randn(2, 9, 32)
    layer_cache, steps = LayerCache(9), []
    for start, end in ((0, 4), (4, 5), (5, 9)):
        steps.append(
            layer(x[:, start:end], SequenceLayout(end - start, end), layer_cache=layer_cache)
        )
    close(torch.cat(steps, dim=1), layer(x, SequenceLayout(9, 9)))


@positions
def test_attending_to_a_source_that_ends_with_the_queries_equals_one_pass(position):
    layer, x = Attention(32, 4, mask=causal, position=position).eval(), torch.randn(2, 9, 32)
    last = layer(x[:, 6:], SequenceLayout(3, 9), source=x)
    close(last, layer(x, SequenceLayout(9, 9))[:, 6:])


def test_keys_of_a_cached_source_are_not_computed_again():
    layer, x, source = Attention(32, 4).eval(), torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    layer_cache, layout = LayerCache(None), SequenceLayout(3, 5)
    first = layer(x, layout, source=source, layer_cache=layer_cache)
    with Trace(layer, "k", "key", allow_missing=True) as trace:
        again = layer(x, layout, layer_cache=layer_cache)
    assert torch.equal(first, again)
    assert not trace.visits


def test_additive_scores_match_their_definition():
    score = AdditiveScore(heads=2, head_dim=4)
    q, k = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 6, 4)
    scores = score(q, k)
    for b, h, t, s in ((0, 0, 0, 0), (2, 1, 4, 5), (1, 0, 3, 2)):
        close(scores[b, h, t, s], score.v[h, :, 0] @ torch.tanh(q[b, h, t] + k[b, h, s]))
    layer = Attention(8, 2, score=score)
    assert "score.v" in layer.state_dict()
    close(layer(torch.randn(1, 5, 8), SequenceLayout(5, 5)).shape, torch.Size([1, 5, 8]))


def test_dot_products_grow_with_head_dim_and_scaled_ones_do_not():
    q, k = torch.randn(2, 1, 1, 500, 256)
    assert dot(q, k).std() == pytest.approx(16, rel=0.05)
    assert scaled_dot(q, k).std() == pytest.approx(1, rel=0.05)


def test_plain_attention_matches_its_definition():
    x = torch.randn(2, 5, 8)
    expected = (x @ x.mT).softmax(dim=-1) @ x
    close(PlainAttention()(x, SequenceLayout(5, 5)), expected)
    layer_cache = LayerCache(5)
    steps = [
        PlainAttention(mask=causal)(
            x[:, i : i + 1], SequenceLayout(1, i + 1), layer_cache=layer_cache
        )
        for i in range(5)
    ]
    close(torch.cat(steps, dim=1), PlainAttention(mask=causal)(x, SequenceLayout(5, 5)))
    assert not list(PlainAttention().parameters())


@positions
def test_positions_work_the_same_with_a_cached_source(position):
    layer, x, source = (
        Attention(32, 4, position=position),
        torch.randn(2, 3, 32),
        torch.randn(2, 5, 32),
    )
    layer_cache, layout = LayerCache(None), SequenceLayout(3, 5)
    close(
        layer(x, layout, source=source, layer_cache=layer_cache),
        layer(x, layout, layer_cache=layer_cache),
    )


@masks
@positions
def test_padding_on_either_side_does_not_change_the_output(mask, position):
    layer, x = Attention(32, 4, mask=mask, position=position).eval(), torch.randn(1, 6, 32)
    expected, padding = layer(x, SequenceLayout(6, 6)), torch.randn(1, 3, 32)
    left, right = torch.ones(1, 9).bool(), torch.ones(1, 9).bool()
    left[:, :3] = right[:, 6:] = False
    close(layer(torch.cat((padding, x), 1), SequenceLayout(9, 9, keep=left))[:, 3:], expected)
    close(layer(torch.cat((x, padding), 1), SequenceLayout(9, 9, keep=right))[:, :6], expected)


def test_dropout_is_applied_to_the_pattern():
    q, k, v = torch.randn(3, 1, 1, 64, 8)
    with Trace(torch.nn.Identity(), "nothing"):
        dropped = attend_reference(q, k, v, full, SequenceLayout(64, 64), dropout=0.5)
    full_output = attend_reference(q, k, v, full, SequenceLayout(64, 64))
    assert not torch.allclose(dropped, full_output)
    samples = torch.stack(
        [attend_reference(q, k, v, full, SequenceLayout(64, 64), dropout=0.5) for _ in range(400)]
    )
    close(samples.mean(0), full_output, atol=0.12, rtol=0.1)


def test_dropout_is_applied_only_in_training_mode():
    layer, x, layout = Attention(8, 2, dropout=0.5), torch.randn(1, 4, 8), SequenceLayout(4, 4)
    assert not torch.equal(layer(x, layout), layer(x, layout))
    layer.eval()
    assert torch.equal(layer(x, layout), layer(x, layout))


@positions
@pytest.mark.parametrize("kernel", ["fused", "reference"])
def test_gradients_match_finite_differences(position, kernel):
    layer = Attention(8, 2, mask=causal, position=position_for_two_heads(position)).double()
    x = torch.randn(2, 4, 8, dtype=torch.float64, requires_grad=True)
    layout = SequenceLayout(4, 4, keep=torch.tensor([[True] * 4, [False, True, True, True]]))
    with Trace(layer, "pattern" if kernel == "reference" else "output"):
        assert gradcheck(lambda x: layer(x, layout), (x,))


def position_for_two_heads(position):
    sizes = {Rotary: (4,), Alibi: (2,), Relative: (2, 4)}
    return type(position)(*sizes.get(type(position), ()))


def test_gradients_of_scores_match_finite_differences():
    q, k = torch.randn(2, 1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(AdditiveScore(2, 4).double(), (q, k))
    assert gradcheck(lambda x: PlainAttention()(x[0], SequenceLayout(3, 3)), (q,))


def test_multi_head_attention_equals_that_of_torch():
    ours, theirs = (
        Attention(32, 4).eval(),
        torch.nn.MultiheadAttention(32, 4, batch_first=True).eval(),
    )
    parts = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    x = torch.randn(2, 7, 32)
    with Trace(ours, "pattern") as trace:
        y = ours(x, SequenceLayout(7, 7))
    expected, pattern = theirs(x, x, x, average_attn_weights=False)
    close(y, expected)
    close(trace["pattern"], pattern)


def test_one_new_token_needs_no_mask(monkeypatch):
    monkeypatch.setattr(
        SequenceLayout, "mask_matrix", lambda *_: pytest.fail("a mask matrix was built")
    )
    q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 8)
    close(attend(q, k, v, causal, SequenceLayout(1, 9)), F.scaled_dot_product_attention(q, k, v))


def test_dropout_may_leave_out_the_pattern():
    layer = Attention(8, 2, dropout=0.5, pattern_dropout=0.0).train()
    x = torch.randn(2, 5, 8)
    with Trace(layer, "head_outputs") as training:
        output = layer(x, SequenceLayout(5, 5))
    with Trace(layer.eval(), "head_outputs") as evaluation:
        layer(x, SequenceLayout(5, 5))
    close(training["head_outputs"], evaluation["head_outputs"])
    assert (output == 0).any()
