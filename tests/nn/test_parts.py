"""Masks, layouts, caches, feed-forward, norms, blocks and heads compared with their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck

from glassformer.nn import init
from glassformer.nn.attention import Attention, bias_term
from glassformer.nn.block import Block, CrossBlock, post_norm, pre_norm, residual_taps
from glassformer.nn.cache import Cache, LayerCache
from glassformer.nn.feedforward import (
    ACTIVATIONS,
    FeedForward,
    GatedFeedForward,
    activation_name,
    relu_squared,
)
from glassformer.nn.heads import MaskedHead, Pooler, mean_pool
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask, causal, edges, fixed, full, per_head, strided, window
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.trace import Trace

close = torch.testing.assert_close

# --- masks ----------------------------------------------------------------------------------------

EDGES = [(1, 0), (6, 1), (1, 3), (3, 1), (3, 5), (0, 8)]
RULES = {
    full: lambda i, j: True,
    causal: lambda i, j: j <= i,
    window(3): lambda i, j: abs(i - j) < 3,
    strided(3): lambda i, j: (i - j) % 3 == 0,
    fixed(4): lambda i, j: i // 4 == j // 4 or j % 4 == 3,
    fixed(4, 2): lambda i, j: i // 4 == j // 4 or j % 4 in (2, 3),
    causal & window(2): lambda i, j: j <= i and abs(i - j) < 2,
    causal & (window(2) | strided(3)): lambda i, j: j <= i and (i - j < 2 or (i - j) % 3 == 0),
    edges(EDGES): lambda i, j: (i, j) in EDGES,
    causal & edges(EDGES): lambda i, j: j <= i and (i, j) in EDGES,
    edges(EDGES) | window(1): lambda i, j: i == j or (i, j) in EDGES,
    edges([]): lambda i, j: False,
}


@pytest.mark.parametrize("mask", RULES, ids=str)
def test_a_mask_matrix_holds_the_rule_for_each_pair(mask):
    expected = [[RULES[mask](i, j) for j in range(10)] for i in range(10)]
    assert mask.matrix(10, 10).tolist() == expected
    assert mask.matrix(3, 10).tolist() == expected[-3:]


def test_masks_are_equal_if_their_rules_are():
    assert causal & window(3) == causal & window(3)
    assert window(3) != window(4)
    assert repr(causal & (window(2) | strided(3))) == "causal & (window(2) | strided(3))"
    assert len({causal, causal & window(3), causal & window(3)}) == 2


def test_edges_are_equal_in_any_order_and_positions_start_at_zero():
    assert edges(EDGES) == edges([*reversed(EDGES), EDGES[0]])
    assert edges(EDGES) != edges(EDGES[1:])
    assert per_head([edges(EDGES), full], 2).matrix(9, 9)[0].equal(edges(EDGES).matrix(9, 9))
    with pytest.raises(ValueError, match=r"pairs of positions from 0, got \(-1, 2\)"):
        edges([(3, 4), (-1, 2)])
    with pytest.raises(ValueError, match=r"from 0, got \(3, -1\)"):
        edges([(0, 1), (3, -1)])


def test_heads_are_shared_equally_by_masks():
    with pytest.raises(ValueError, match="3 heads cannot be shared equally by 2 masks"):
        per_head([full, causal], 3)


def test_padding_on_the_left_does_not_move_the_edges():
    keep = torch.tensor([[False, False, True, True, True, True]])
    matrix = SequenceLayout(6, 6, keep=keep).mask_matrix(edges([(0, 3), (3, 1)]))[0, 0]
    assert matrix.nonzero().tolist() == [[2, 5], [5, 3]]


def test_layers_with_a_graph_as_a_mask_reach_as_far_as_its_paths():
    """After n layers, a token depends on exactly the tokens that are at most n edges away."""
    mask = edges(EDGES) | window(1)
    distance = {(i, i): 0 for i in range(9)}
    for n in range(1, 9):
        for i, j in [(i, j) for i, k in [*distance] for m, j in EDGES if m == k]:
            distance.setdefault((i, j), n)
    layers, layout = [Attention(8, 2, mask=mask) for _ in range(3)], SequenceLayout(9, 9)
    x = torch.randn(1, 9, 8, requires_grad=True)
    y = x
    for n, layer in enumerate(layers, start=1):
        y = layer(y, layout)
        for i in range(9):
            (grad,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
            reached = {j for j in range(9) if grad[0, j].any()}
            assert reached == {j for j in range(9) if distance.get((i, j), 99) <= n}


def test_a_mask_can_have_a_custom_rule():
    even = Mask("even", lambda i, j: j % 2 == 0)
    assert (even & causal).matrix(3, 3).int().tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1]]


def test_a_mask_can_have_more_queries_than_keys():
    assert full.matrix(5, 2).tolist() == [[True, True]] * 5


# --- layout ---------------------------------------------------------------------------------------


def test_a_layout_computes_each_value_once():
    layout, calls = SequenceLayout(4, 4), []
    for _ in range(3):
        layout.compute_once("key", lambda: calls.append(1))
        assert layout.mask_matrix(causal) is layout.mask_matrix(causal)
    assert calls == [1]


def test_padding_is_masked_in_the_mask_matrix():
    keep = torch.tensor([[False, True, True]])
    assert SequenceLayout(3, 3, keep=keep).mask_matrix(causal)[0, 0].tolist() == [
        [False, False, False],
        [False, True, False],
        [False, True, True],
    ]


def test_keep_must_have_the_shape_of_ids():
    with pytest.raises(ValueError, match=r"expected \(1, 3\), got \(1, 2\)"):
        SequenceLayout.from_ids(torch.zeros(1, 3).long(), torch.ones(1, 2).bool())


# --- cache ----------------------------------------------------------------------------------------


def test_a_layer_cache_returns_all_keys_and_values_so_far():
    layer_cache, k, v = LayerCache(6), *torch.randn(2, 2, 3, 6, 4)
    for end in (2, 3, 6):
        keys, values = layer_cache.extend(
            k[:, :, layer_cache.length : end], v[:, :, layer_cache.length : end]
        )
        assert torch.equal(keys, k[:, :, :end])
        assert torch.equal(values, v[:, :, :end])


def test_a_cache_rejects_more_tokens_than_its_capacity_and_a_source_is_complete_after_one_pass():
    layer_cache, k = LayerCache(2), torch.randn(1, 1, 3, 4)
    with pytest.raises(ValueError, match=r"it has \d+ of at most 2 tokens, got \d+ more"):
        layer_cache.extend(k, k)
    source = LayerCache(None)
    assert not source.is_complete
    source.extend(k, k)
    assert source.is_complete
    assert not LayerCache(3).is_complete


def test_select_rows_selects_from_layers_padding_and_source():
    cache = Cache(1, 4, source=Cache(1, None))
    k, rows = torch.randn(3, 1, 2, 4), torch.tensor([2, 2, 0])
    keep = torch.tensor([[True, True], [True, False], [False, True]])
    for part in (cache, cache.source):
        part.start_pass(keep, 3, 2)
        part.layers[0].extend(k, k)
    cache.select_rows(rows)
    for part in (cache, cache.source):
        assert torch.equal(part.layers[0].contents()[0], k[rows])
        assert torch.equal(part.keep, keep[rows])


def test_the_cache_stores_padding_from_the_first_padded_pass():
    cache, k = Cache(1, 4), torch.randn(1, 1, 2, 4)
    assert cache.start_pass(None, 1, 2) == (0, None)
    cache.layers[0].extend(k, k)
    past, keep = cache.start_pass(torch.tensor([[False]]), 1, 1)
    assert (past, keep.tolist()) == (2, [[True, True, False]])


# --- feed-forward, norms, heads -------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_feed_forward_matches_its_definition(name):
    act, x = ACTIVATIONS[name], torch.randn(2, 3, 8)
    plain, gated = FeedForward(8, 16, activation=act), GatedFeedForward(8, 16, activation=act)
    close(
        plain(x),
        act(x @ plain.up.weight.T + plain.up.bias) @ plain.down.weight.T + plain.down.bias,
    )
    hidden = act(gated.gate(x)) * gated.up(x)
    close(gated(x), hidden @ gated.down.weight.T + gated.down.bias)
    with Trace(gated, "hidden") as trace:
        gated(x)
    close(trace["hidden"], hidden)


def test_activations_match_their_formulas():
    x = torch.linspace(-4, 4, 33)
    close(ACTIVATIONS["gelu"](x), x * (1 + torch.erf(x / math.sqrt(2))) / 2)
    tanh = torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    close(ACTIVATIONS["gelu_tanh"](x), x * (1 + tanh) / 2, atol=1e-6, rtol=1e-5)
    close(ACTIVATIONS["silu"](x), x / (1 + torch.exp(-x)))
    close(ACTIVATIONS["relu"](x), x.clamp(min=0))


@pytest.mark.parametrize("norm", [LayerNorm(8), RMSNorm(8)], ids=lambda n: type(n).__name__)
def test_tracing_does_not_change_a_norm(norm):
    nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 8) * 5 + 2
    with Trace(norm, "normalized", "std") as trace:
        traced = norm(x)
    close(traced, norm(x))
    close(trace["normalized"].square().mean(-1), torch.ones(2, 3), atol=1e-4, rtol=1e-4)
    if isinstance(norm, LayerNorm):
        close(trace["std"][..., 0], x.std(-1, correction=0), atol=1e-4, rtol=1e-4)


def test_mean_pool_averages_real_tokens_only():
    x, keep = torch.randn(2, 4, 3), torch.tensor([[True, True, False, False], [False] * 4])
    close(mean_pool(x, keep)[0], x[0, :2].mean(dim=0))
    assert not mean_pool(x, keep)[1].any()
    close(mean_pool(x), x.mean(dim=1))


def test_bert_heads_match_their_definitions():
    x, token = torch.randn(2, 3, 8), torch.randn(11, 8)
    pooler, head = Pooler(8), MaskedHead(8, 11, activation=F.gelu, eps=1e-12)
    nn.init.normal_(head.offset)
    close(pooler(x), torch.tanh(pooler.dense(x[:, 0])))
    keep = torch.tensor([[False, True, True], [True, True, False]])
    first = torch.stack((x[0, 1], x[1, 0]))
    close(pooler(x, keep), torch.tanh(pooler.dense(first)))
    features = F.layer_norm(F.gelu(head.dense(x)), (8,), eps=1e-12)
    close(head(x, token), features @ token.T + head.offset)


# --- blocks ---------------------------------------------------------------------------------------


def test_pre_norm_and_post_norm_match_their_definitions():
    x = torch.randn(3)
    close(pre_norm("attention", x, lambda x: x * 2, lambda x: x + 1), x + (x * 2 + 1))
    close(post_norm("attention", x, lambda x: x * 2, lambda x: x + 1), (x + x + 1) * 2)


def torch_layer(layer_class, **options):
    return layer_class(16, 2, 32, dropout=0.0, batch_first=True, **options).eval()


def copy_attention(theirs, ours):
    parts = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        theirs.in_proj_bias.copy_(torch.randn(48))
        for part, bias in zip(parts, theirs.in_proj_bias.chunk(3), strict=True):
            part.bias.copy_(bias)
        theirs.out_proj.load_state_dict(ours.out.state_dict())


@pytest.mark.parametrize("residual", [pre_norm, post_norm])
def test_blocks_equal_those_of_torch(residual):
    feedforward = lambda: FeedForward(16, 32, activation=F.relu)
    block = Block(16, Attention(16, 2), feedforward(), residual=residual)
    cross = CrossBlock(
        16, Attention(16, 2, mask=causal), Attention(16, 2), feedforward(), residual=residual
    )
    norm_first = residual is pre_norm
    encoder = torch_layer(nn.TransformerEncoderLayer, norm_first=norm_first)
    decoder = torch_layer(nn.TransformerDecoderLayer, norm_first=norm_first)
    for ours, theirs in ((block, encoder), (cross, decoder)):
        copy_attention(theirs.self_attn, ours.attention)
        theirs.linear1.load_state_dict(ours.feedforward.up.state_dict())
        theirs.linear2.load_state_dict(ours.feedforward.down.state_dict())
    copy_attention(decoder.multihead_attn, cross.cross)

    x, source, keep = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.ones(2, 7).bool()
    keep[1, 5:] = False
    close(block(x, SequenceLayout(5, 5)), encoder(x))
    expected = decoder(
        x,
        source,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
        tgt_is_causal=True,
        memory_key_padding_mask=~keep,
    )
    close(cross(x, SequenceLayout(5, 5), source, SequenceLayout(5, 7, keep=keep)), expected)


def test_gradients_of_every_layer_match_finite_differences():
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    layout, attention = SequenceLayout(3, 3), lambda: Attention(4, 2, mask=causal)
    token = torch.randn(5, 4, dtype=torch.float64)
    head = MaskedHead(4, 5, activation=F.gelu, eps=1e-12).double()
    keep = torch.tensor([[True, True, False]])
    parts = {
        "feed-forward": FeedForward(4, 8),
        "gated": GatedFeedForward(4, 8),
        "layer norm": LayerNorm(4),
        "rms norm": RMSNorm(4),
        "pooler": Pooler(4),
    }
    for part in parts.values():
        assert gradcheck(part.double(), (x,))
    for residual in (pre_norm, post_norm):
        block = Block(4, attention(), FeedForward(4, 8), residual=residual).double()
        cross = CrossBlock(4, attention(), Attention(4, 2), FeedForward(4, 8), residual=residual)
        cross.double()
        assert gradcheck(lambda x, b=block: b(x, layout), (x,))
        source = torch.randn_like(x).requires_grad_()
        assert gradcheck(lambda x, s, c=cross: c(x, layout, s, layout), (x, source))
    assert gradcheck(lambda x: head(x, token), (x,))
    assert gradcheck(lambda x: mean_pool(x, keep), (x,))


# --- init -----------------------------------------------------------------------------------------


@torch.no_grad()
def test_normal_init_is_small_and_xavier_init_keeps_the_variance():
    network = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 256))
    init.normal(network)
    assert network[1].weight.std() == pytest.approx(0.02, rel=0.05)
    assert not network[1].bias.any()
    init.xavier(network)
    assert network[0].weight.std() == pytest.approx(1 / 16, rel=0.05)
    assert network[1](torch.randn(1000, 256)).std() == pytest.approx(1, rel=0.1)


# --- formulas -------------------------------------------------------------------------------------


def test_formulas_describe_activations_biases_and_residuals():
    assert [activation_name(a) for a in ACTIVATIONS.values()] == [
        "ReLU", "GELU", "GELU_tanh", "SiLU", "ReLU²",
    ]  # fmt: skip
    assert activation_name(torch.sigmoid) == "activation"
    assert relu_squared(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [0.0, 0.0, 9.0]
    with_bias, without_bias = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
    assert (bias_term(with_bias, "₁"), bias_term(without_bias)) == (" + b₁", "")
    assert residual_taps(pre_norm, "cross")["cross_residual"].formula == "x + cross(norm(x))"
    assert residual_taps(post_norm, "cross")["cross_residual"].formula == "x + cross(x)"
