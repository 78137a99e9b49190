"""Parts for images agree with plain definitions."""

import pytest
import torch
import torch.nn.functional as F

from glassformer.nn.image import (
    EVAL_ITERATIONS,
    ClassNorm,
    DownBlock,
    ImageAttention,
    RandomShift,
    SpectralConv,
    SpectralLinear,
    SpectralNorm,
    UpBlock,
    split_patches,
    to_sequence,
)

close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_patches_are_squares_of_the_image_row_by_row():
    pixels = torch.randn(2, 3, 4, 6)
    patches = split_patches(pixels, 2)
    assert patches.shape == (2, 6, 12)
    for row in range(2):
        for column in range(3):
            square = pixels[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            assert torch.equal(patches[:, 3 * row + column], square.flatten(1))


def test_a_shift_moves_each_image_as_a_whole_with_zeros_at_the_edges():
    shift, pixels = RandomShift(2), torch.randn(40, 1, 5, 5)
    assert shift.eval()(pixels) is pixels
    shifted = shift.train()(pixels)
    padded = F.pad(pixels, (2, 2, 2, 2))
    offsets = set()
    for image, original in zip(shifted, padded, strict=True):
        windows = {(y, x): original[:, y : y + 5, x : x + 5] for y in range(5) for x in range(5)}
        (found,) = [offset for offset, window in windows.items() if torch.equal(window, image)]
        offsets.add(found)
    assert len(offsets) > 10  # of 25
    assert RandomShift(0).train()(pixels) is pixels


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (8, 3, 4, 4), (1, 5)])
def test_spectral_norm_divides_by_the_largest_singular_value(shape):
    weight, norm = torch.randn(shape), SpectralNorm(shape[0])
    largest = torch.linalg.svdvals(weight.flatten(1))[0]
    for _ in range(100):
        norm.train()(weight)
    close(norm(weight), weight / largest, atol=5e-3, rtol=5e-3)
    u = norm.u.clone()
    close(norm.eval()(weight), weight / largest, atol=5e-3, rtol=5e-3)
    assert torch.equal(norm.u, u)  # an evaluation changes nothing


def test_one_training_step_is_one_iteration_of_the_power_method():
    weight, norm = torch.randn(6, 9), SpectralNorm(6).train()
    u = norm.u.clone()
    v = F.normalize(weight.mT @ u, dim=0)
    u = F.normalize(weight @ v, dim=0)
    close(norm(weight), weight / (u @ weight @ v))
    close(norm.u, u)
    assert EVAL_ITERATIONS > 1


def test_spectral_layers_are_plain_layers_with_a_normalized_weight():
    conv, linear = SpectralConv(3, 5, 3, stride=2, padding=1).eval(), SpectralLinear(7, 4).eval()
    with torch.no_grad():
        for parameter in (*conv.parameters(), *linear.parameters()):
            parameter.add_(torch.randn_like(parameter))
    image, x = torch.randn(2, 3, 6, 6), torch.randn(2, 7)
    weight = conv.weight / torch.linalg.svdvals(conv.weight.flatten(1))[0]
    loosely = {"atol": 1e-2, "rtol": 1e-2}
    close(conv(image), F.conv2d(image, weight, conv.bias, stride=2, padding=1), **loosely)
    close(linear(x), x @ (linear.weight / torch.linalg.svdvals(linear.weight)[0]).T + linear.bias,
          **loosely)  # fmt: skip


def test_spectral_layers_start_orthogonal_and_class_norms_nearly_plain():
    linear, conv = SpectralLinear(9, 4), SpectralConv(3, 5, 3)
    close(linear.weight @ linear.weight.T, torch.eye(4))
    close(conv.weight.flatten(1) @ conv.weight.flatten(1).T, torch.eye(5))
    assert not linear.bias.any()
    assert not conv.bias.any()
    norm = ClassNorm(64, 100)
    for layer in (norm.scale, norm.shift):
        assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert not layer.bias.any()


def test_a_layer_can_run_twice_before_its_gradients_are_computed():
    layer, first, second = SpectralLinear(5, 3).train(), torch.randn(2, 5), torch.randn(2, 5)
    (layer(first).sum() - layer(second).square().sum()).backward()
    assert layer.weight.grad.abs().max() > 0


def test_image_attention_agrees_with_loops_over_positions():
    attention, x = ImageAttention(16).eval(), torch.randn(2, 16, 4, 6)
    assert torch.equal(attention(x), x)  # its gain is 0 at first
    with torch.no_grad():
        attention.gain.fill_(0.7)
    q, k, v = attention.query(x), attention.key(x), attention.value(x)
    expected = torch.zeros(2, 8, 4, 6)
    for b in range(2):
        for y in range(4):
            for column in range(6):
                scores, values = [], []
                for row in range(0, 4, 2):  # keys and values: the maximum in squares of four
                    for left in range(0, 6, 2):
                        square = (b, slice(None), slice(row, row + 2), slice(left, left + 2))
                        key, value = k[square].amax((1, 2)), v[square].amax((1, 2))
                        scores.append(q[b, :, y, column] @ key / 2**0.5)
                        values.append(value)
                weights = torch.stack(scores).softmax(0)
                expected[b, :, y, column] = weights @ torch.stack(values)
    close(attention(x), x + 0.7 * attention.out(expected), atol=1e-5, rtol=1e-4)


def test_positions_become_a_sequence_row_by_row():
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(to_sequence(x)[:, 0, 7], x[:, :, 1, 2])


def test_class_norm_normalizes_groups_of_each_image_and_scales_them_by_the_condition():
    norm, x, condition = ClassNorm(16, 5), torch.randn(3, 16, 4, 4) * 3 + 1, torch.randn(3, 5)
    groups = x.reshape(3, 2, -1)
    mean, variance = groups.mean(2, keepdim=True), groups.var(2, keepdim=True, correction=0)
    plain = ((groups - mean) / (variance + 1e-5).sqrt()).reshape_as(x)
    scale, shift = (f(condition)[:, :, None, None] for f in (norm.scale, norm.shift))
    close(norm(x, condition), plain * (1 + scale) + shift)
    close(norm(x, condition)[:1], norm(x[:1], condition[:1]))  # independent of the batch


def test_blocks_double_and_halve_the_resolution():
    down, image = DownBlock(1, 8).eval(), torch.randn(2, 1, 6, 8)
    found, scores = down(image), down.conv(image)
    assert (found[scores > 0] == scores[scores > 0]).all()
    close(found[scores < 0], 0.2 * scores[scores < 0])
    assert UpBlock(16, 8, 5)(torch.randn(2, 16, 3, 4), torch.randn(2, 5)).shape == (2, 8, 6, 8)
    assert DownBlock(1, 8)(torch.randn(2, 1, 6, 8)).shape == (2, 8, 3, 4)
