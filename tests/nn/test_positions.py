"""Position encodings compared with their definitions."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import (
    OTHER_SIDE_FACTOR,
    Alibi,
    Learned,
    Position,
    Relative,
    RopeScaling,
    Rotary,
    Sinusoidal,
    distances,
    frequencies,
    rotate_pairs,
    sinusoid,
    slopes,
)

close = torch.testing.assert_close


def test_sinusoids_match_the_paper():
    waves = sinusoid(torch.arange(6), 6)
    for position in range(6):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert waves[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert waves[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_padding_does_not_count_as_positions():
    keep = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    positions = SequenceLayout(5, 5, keep=keep).positions()
    assert positions[0, 2:].tolist() == positions[1, :3].tolist() == [0, 1, 2]
    for scheme in (Learned(5, 4), Sinusoidal(4)):
        vectors = scheme(SequenceLayout(5, 5, keep=keep))
        close(vectors[0, 2:], vectors[1, :3])
        close(vectors[0, 2:], scheme(SequenceLayout(3, 3)))


def test_the_base_class_encodes_no_position():
    q, k = torch.randn(2, 1, 2, 3, 4)
    scheme = Position()
    assert scheme.rotate(q, k, SequenceLayout(3, 3)) == (q, k)
    assert scheme.bias(q, SequenceLayout(3, 3)) is None


def test_rotary_positions_equal_complex_rotations():
    q, k = torch.randn(2, 1, 2, 5, 8)
    rotated, _ = Rotary(8).rotate(q, k, SequenceLayout(5, 5))
    pairs = torch.complex(q[..., :4].contiguous(), q[..., 4:].contiguous())
    angles = torch.arange(5)[:, None] * 10_000 ** (-torch.arange(4) / 4)
    expected = pairs * torch.polar(torch.ones_like(angles), angles)
    close(rotated, torch.cat((expected.real, expected.imag), dim=-1))
    close(rotate_pairs(q, angles.cos(), angles.sin()), rotated)


def test_rotary_scores_depend_only_on_distance():
    q, k = torch.randn(8).expand(1, 1, 9, 8), torch.randn(8).expand(1, 1, 9, 8)
    queries, keys = Rotary(8).rotate(q, k, SequenceLayout(9, 9))
    scores = queries @ keys.mT
    for distance in range(-4, 5):
        diagonal = scores[0, 0].diagonal(distance)
        close(diagonal, diagonal[:1].expand_as(diagonal))


def test_rope_scaling_divides_low_frequencies_and_keeps_high_ones():
    freqs = frequencies(64, 10_000.0, torch.device("cpu"))
    scaling = RopeScaling(factor=8, low_freq_factor=1, high_freq_factor=4, original_context=256)
    scaled = scaling(freqs)
    assert torch.equal(scaled[:8], freqs[:8])
    close(scaled[-8:], freqs[-8:] / 8)
    assert (scaled.diff() < 0).all()


def test_alibi_slopes_match_the_paper():
    assert slopes(8) == [2**-i for i in range(1, 9)]
    assert slopes(4) == [2**-2, 2**-4, 2**-6, 2**-8]
    halfway = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]  # every other slope of 16 heads
    assert slopes(12) == pytest.approx([2**-i for i in range(1, 9)] + halfway)


def test_alibi_bias_falls_with_distance():
    bias = Alibi(2).bias(torch.ones(1, 2, 3, 4), SequenceLayout(3, 5))
    assert bias[0, 0].tolist() == [-2 / 16, -1 / 16, 0, -1 / 16, -2 / 16]
    assert bias[1, 2, 0] == -4 / 256


def test_relative_bias_matches_its_definition():
    scheme = Relative(heads=2, head_dim=4)
    torch.nn.init.normal_(scheme.distance)
    q = torch.randn(1, 2, 3, 4)
    layout = SequenceLayout(3, 7)  # three queries after four cached keys
    bias = scheme.bias(q, layout)
    torch.nn.init.normal_(scheme.content)
    queries, keys = scheme.rotate(q, q, layout)
    close(queries, q + scheme.content)
    assert keys is q
    for h in range(2):
        for a in range(3):
            for j in range(7):
                distance = torch.tensor([4 + a - j])
                r = scheme.project(sinusoid(distance, 8))[0].reshape(2, 4)[h]
                expected = (q[0, h, a] + scheme.distance[h, 0]) @ r / 2
                close(bias[0, h, a, j], expected)


def test_distances_are_positive_for_earlier_keys():
    assert distances(SequenceLayout(2, 4), torch.device("cpu")).tolist() == [
        [2, 1, 0, -1],
        [3, 2, 1, 0],
    ]


def test_gradients_match_finite_differences():
    layout = SequenceLayout(3, 3)
    learned = Learned(4, 6).double()
    assert gradcheck(
        lambda w: torch.func.functional_call(learned, {"weight": w}, (layout,)), (learned.weight,)
    )
    q = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda q: Rotary(4).rotate(q, q, layout), (q,))
    relative = Relative(2, 4).double()
    assert gradcheck(lambda q: relative.bias(q, layout), (q,))


def test_directional_alibi_heads_favor_earlier_and_later_tokens_in_turn():
    """Heads 0 and 2 favor earlier tokens, 1 and 3 later ones, with a steeper slope elsewhere."""
    bias = Alibi(4, directional=True).bias(torch.ones(1, 4, 5, 4), SequenceLayout(5, 5))
    plain = Alibi(4).bias(torch.ones(1, 4, 5, 4), SequenceLayout(5, 5))
    for head in range(4):
        earlier, later = bias[..., head, 4, 0].item(), bias[..., head, 0, 4].item()
        favored, other = (earlier, later) if head % 2 == 0 else (later, earlier)
        assert favored == pytest.approx(-4 * slopes(4)[head])
        assert other == pytest.approx(OTHER_SIDE_FACTOR * favored)
        assert favored == pytest.approx(plain[..., head, 4, 0].item())
    assert OTHER_SIDE_FACTOR > 1
