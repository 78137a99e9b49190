"""Local and memory-compressed attention and the copy head, compared with plain loops."""

import math

import pytest
import torch

from glassformer import MODELS
from glassformer.nn.compressed import (
    CompressedAttention,
    CompressedCache,
    Compression,
    attend_to_windows,
    earlier_windows,
    later_tokens,
)
from glassformer.nn.copying import MIN_PROB, CopyHead
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import Mask
from glassformer.nn.norms import LayerNorm
from glassformer.nn.positions import Rotary
from glassformer.nn.sparse import local_chunk
from glassformer.trace import Trace

close = torch.testing.assert_close


def plain_attention(q, k, v, window_k, window_v, size):
    """One query after another: its own window up to itself, and all earlier windows: t e."""
    rows = []
    for i, query in enumerate(q):
        n = i // size  # windows that are complete before that of the query
        keys = [*window_k[:n], *k[n * size : i + 1]]
        values = [*window_v[:n], *v[n * size : i + 1]]
        scores = torch.stack([query @ key / math.sqrt(len(query)) for key in keys])
        rows.append(scores.softmax(0) @ torch.stack(values))
    return torch.stack(rows)


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("length", [1, 3, 4, 13])
def test_attention_to_windows_equals_a_loop_over_queries(length, size):
    windows = length // size
    q, k, v = (torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3))
    window_k, window_v = (torch.randn(2, 3, windows, 8, requires_grad=True) for _ in range(2))
    inputs = (q, k, v, window_k, window_v)
    actual = attend_to_windows(*inputs, size=size)
    expected = torch.stack(
        [
            torch.stack([plain_attention(*(x[b, h] for x in inputs), size) for h in range(3)])
            for b in range(2)
        ]
    )
    close(actual, expected)
    weights = torch.randn_like(actual)
    gradients = [
        torch.autograd.grad((y * weights).sum(), inputs, allow_unused=True, materialize_grads=True)
        for y in (actual, expected)
    ]
    for first, second in zip(*gradients, strict=True):
        close(first, second)


def test_compression_equals_a_strided_convolution_and_starts_as_the_mean():
    compression, x = Compression(4, 3), torch.randn(2, 2, 11, 4)
    means = torch.stack([x[:, :, 3 * i : 3 * i + 3].mean(2) for i in range(3)], dim=2)
    close(compression(x), means)
    torch.nn.init.normal_(compression.weight)
    kernel = torch.unflatten(compression.weight, 1, (3, 4)).transpose(1, 2)  # out, in, window
    convolve = torch.nn.functional.conv1d
    expected = convolve(x.flatten(0, 1).mT, kernel, stride=3).mT
    close(compression(x).flatten(0, 1), expected)
    close(compression.slide(x, 11)[:, :, 2::3], compression(x))
    assert compression(x[:, :, :2]).shape == (2, 2, 0, 4)


def build_attention():
    attention = CompressedAttention(
        12, 3, window=4, position=Rotary(4, 100.0), norm=lambda dim: LayerNorm(dim, axes="b h t")
    )
    for compression in (attention.compress_key, attention.compress_value):
        torch.nn.init.normal_(compression.weight, std=0.3)
    return attention


@pytest.mark.parametrize("length", [1, 4, 11, 16])
def test_the_fast_path_the_reference_and_decoding_with_a_cache_are_equal(length):
    attention, x = build_attention(), torch.randn(2, length, 12)
    layout = SequenceLayout(length, length)
    fast = attention(x, layout)
    keep = torch.ones(2, length, dtype=torch.bool)
    close(attention(x, SequenceLayout(length, length, keep=keep)), fast)
    cache, steps = CompressedCache(length), []
    for i in range(length):
        steps.append(attention(x[:, i : i + 1], SequenceLayout(1, i + 1), layer_cache=cache))
    close(torch.cat(steps, dim=1), fast)
    cache = CompressedCache(length)
    attention(x, layout, layer_cache=cache)
    cache.select_rows(torch.tensor([1, 1]))
    assert torch.equal(cache.windows.keys[0], cache.windows.keys[1])


def test_a_window_has_the_column_of_its_last_token():
    matrix = earlier_windows(3).matrix(8, 8)
    expected = [[j in (2, 5) and j // 3 < i // 3 for j in range(8)] for i in range(8)]
    assert matrix.tolist() == expected
    assert later_tokens(2, torch.device("cpu")).tolist() == [[False, True], [False, False]]


def test_local_attention_of_a_block_is_causal_attention_within_it():
    mask = local_chunk(4)
    expected = Mask("", lambda i, j: (j <= i) & (i // 4 == j // 4)).matrix(10, 10)
    assert torch.equal(mask.matrix(10, 10), expected)


def test_a_summarizer_reads_ten_thousand_tokens_at_once():
    config = MODELS["summarizer"].Config(
        vocab=50, context=16_384, dim=8, depth=2, heads=1, block=256, compression=64, dropout=0.0
    )
    network = MODELS["summarizer"](config).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ids = torch.randint(50, (1, 10_000))
    last = torch.full((1, 1), 9_999)
    with torch.no_grad():
        before = network(ids, positions=last)
        ids[0, 64:128] = (ids[0, 64:128] + 1) % 50  # far outside the last block
        after = network(ids, positions=last)
    assert before.shape == (1, 1, 50)
    assert not torch.equal(before, after)


SEP = 9


@torch.no_grad()
def copy_scores(head, ids, t, query, keys):
    """The scores of the tokens of the document that may follow ids[: t + 1], by position."""
    document = ids[: ids.index(SEP)] if SEP in ids else ids
    follows = [j for j in range(1, len(document)) if j <= t and ids[j - 1] == ids[t]]
    scores = {}
    for j in range(min(len(document), t + 1)):
        features = (
            j in follows,
            j in follows and t > 0 and j > 1 and ids[j - 2] == ids[t - 1],
            j == 0 and not follows,
            ids[j] in ids[len(document) : t + 1],
        )
        weights = zip(features, head.feature_weights.tolist(), strict=True)
        scores[j] = float(keys[j] @ query) / math.sqrt(6) + sum(x * w for x, w in weights)
    return scores


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 1, 6, 2, 1, SEP, 2, 1],
        [3, 3, 3, 4, 4, SEP, 0, 3, 7],
        [5, 1, 2, 5, 1, 2, 5, 1, 8],
    ],
)
def test_the_copy_head_equals_its_definition(ids):
    head = CopyHead(6, SEP)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    logits, features, keys = torch.randn(1, 9, 10), torch.randn(1, 9, 6), torch.randn(1, 9, 6)
    actual = head(logits, features, keys, torch.tensor([ids]), torch.arange(9)[None])
    for t in range(9):
        scores = copy_scores(head, ids, t, head.query(features[0, t]), keys[0])
        pattern = torch.tensor([*scores.values()]).softmax(0)
        gate = torch.sigmoid(head.gate(features[0, t])).item()
        probs = (1 - gate) * logits[0, t].softmax(0)
        for j, weight in zip(scores, pattern, strict=True):
            probs[ids[j]] += gate * weight
        close(actual[0, t], probs.log())
    close(actual.exp().sum(-1), torch.ones(1, 9))
    last = head(
        logits[:, 7:], features[:, 7:], keys, torch.tensor([ids]), torch.tensor([[7, 8]])
    )  # as in decoding
    close(last, actual[:, 7:])


def test_an_untrained_copy_head_copies_the_document_from_its_start():
    head, ids = CopyHead(4, SEP), [5, 1, 2, 1, 3, 4, SEP]
    for expected in (5, 1, 2, 1, 3, 4):
        n = len(ids)
        index = torch.tensor([[n - 1]])
        inputs = torch.zeros(1, 1, 10), torch.randn(1, 1, 4), torch.randn(1, n, 4)
        log_probs = head(*inputs, torch.tensor([ids]), index)
        assert log_probs.argmax() == expected
        others = torch.zeros(1, 1, 10), torch.randn(1, 1, 4), torch.randn(1, n, 4)
        close(head(*others, torch.tensor([ids]), index), log_probs)  # positions decide
        ids.append(expected)


def test_a_row_without_tokens_to_copy_stays_finite():
    head, ids = CopyHead(4, SEP), torch.tensor([[-1, -1, -1], [SEP, 1, 2]])
    inputs = torch.randn(2, 2, 10), torch.randn(2, 2, 4), torch.randn(2, 3, 4)
    result = head(*inputs, ids, torch.tensor([[1, 2], [1, 2]]))
    assert result.isfinite().all()
    assert (result >= math.log(MIN_PROB)).all()


def test_a_trace_shows_what_is_copied():
    config = MODELS["summarizer"].Config(vocab=20, context=16, dim=8, depth=2, heads=2)
    network = MODELS["summarizer"](config).eval()
    with Trace(network) as trace, torch.no_grad():
        network(torch.randint(20, (1, 9)))
    assert {"copy.pattern", "copy.copied", "copy.copy_gate"} <= trace.keys()
    close(trace["copy.pattern"].sum(-1), torch.ones(1, 1, 9))
    assert trace["blocks.1.attention.pattern"].shape == (1, 2, 9, 9)
