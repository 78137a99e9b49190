"""Recurrence and convolution compared with plain loops, and dropout."""

import pytest
import torch
import torch.nn.functional as F

from glassformer import MODELS
from glassformer.nn.cache import RecurrentState
from glassformer.nn.convolution import Convolution, convolutions
from glassformer.nn.dropout import Dropout, drop
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.recurrence import Recurrence, state_tensors

close = torch.testing.assert_close


def lstm(cell, x):
    """An LSTM, gate by gate."""
    h = c = torch.zeros(x.shape[0], x.shape[2])
    outputs = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ cell.weight_ih_l0.T + cell.bias_ih_l0
        gates = gates + h @ cell.weight_hh_l0.T + cell.bias_hh_l0
        input_gate, forget_gate, new, output_gate = gates.chunk(4, dim=1)
        c = forget_gate.sigmoid() * c + input_gate.sigmoid() * new.tanh()
        h = output_gate.sigmoid() * c.tanh()
        outputs.append(h)
    return torch.stack(outputs, dim=1)


def gru(cell, x):
    """A GRU, gate by gate."""
    h, outputs = torch.zeros(x.shape[0], x.shape[2]), []
    for t in range(x.shape[1]):
        reset, update, new = (x[:, t] @ cell.weight_ih_l0.T + cell.bias_ih_l0).chunk(3, dim=1)
        old = (h @ cell.weight_hh_l0.T + cell.bias_hh_l0).chunk(3, dim=1)
        reset, update = (reset + old[0]).sigmoid(), (update + old[1]).sigmoid()
        h = (1 - update) * (new + reset * old[2]).tanh() + update * h
        outputs.append(h)
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize(("name", "loop"), [("lstm", lstm), ("gru", gru)])
@torch.no_grad()
def test_a_recurrent_layer_equals_a_loop_over_tokens(name, loop):
    x, layout = torch.randn(3, 7, 5), SequenceLayout(7, 7)
    layer = Recurrence(5, cell=name)
    close(layer(x, layout), loop(layer.cell, x))
    reverse = Recurrence(5, cell=name, reverse=True)
    close(reverse(x, layout), loop(reverse.cell, x.flip(1)).flip(1))


def test_an_lstm_state_has_two_tensors_and_a_gru_state_one():
    h, c = torch.zeros(2, 1, 3, 5)
    assert state_tensors((h, c)) == (h, c)
    assert state_tensors(h) == (h,)
    assert state_tensors(None) == ()


@torch.no_grad()
def test_a_recurrent_state_can_go_back_by_one_pass():
    layer, x, state = Recurrence(5), torch.randn(2, 6, 5), RecurrentState(None)
    expected = layer(x, SequenceLayout(6, 6))
    layer(x[:, :4], SequenceLayout(4, 4), state)
    layer(x[:, 4:5], SequenceLayout(1, 5), state)
    state.length = 4  # as after a pass that failed in another layer
    close(layer(x[:, 4:], SequenceLayout(2, 6), state), expected[:, 4:])


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_a_convolution_equals_a_gated_sum_over_its_window(causal):
    x, layer = torch.randn(2, 9, 4), Convolution(4, 3, 2, causal=causal)
    inputs, weight = layer.norm(x), layer.window.weight  # 8 4 3
    offsets = (-4, -2, 0) if causal else (-2, 0, 2)
    for t in range(9):
        total = layer.window.bias.expand(2, -1).clone()
        for k, offset in enumerate(offsets):
            if 0 <= t + offset < 9:
                total += inputs[:, t + offset] @ weight[:, :, k].T
        value, gate = total.chunk(2, dim=1)
        close(layer(x, SequenceLayout(9, 9))[:, t], x[:, t] + value * gate.sigmoid())


@torch.no_grad()
def test_dilations_double_from_layer_to_layer():
    layers = convolutions(4, 12, 3, causal=True, dropout=0.0)
    assert [layer.reach for layer in layers] == [2 * 2**i for i in range(10)] + [2, 4]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_a_fraction_is_dropped_and_the_rest_scaled_up(p):
    x = torch.ones(501, 997, requires_grad=True)
    y = drop(x, p)
    assert float((y == 0).float().mean()) == pytest.approx(p, abs=0.004)
    close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)))
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # dropped elements get no gradient
    if p:
        assert not torch.equal(drop(x, p), drop(x, p))
        columns = (drop(x.detach(), p) == 0).float().mean(dim=0)
        assert float(columns.std()) == pytest.approx((p * (1 - p) / 501) ** 0.5, rel=0.15)


def test_nothing_is_dropped_in_eval_mode_and_a_seed_makes_dropout_repeatable():
    layer, x = Dropout(0.5), torch.randn(20, 20)
    assert (layer(x) == 0).any()
    assert torch.equal(layer.eval()(x), x)
    torch.manual_seed(3)
    first = drop(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.5), first)


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 5])
def test_the_phrases_of_text_cnn_are_a_convolution(kernel_size):
    model_class = MODELS["text_cnn"]
    network = model_class(model_class.Config(vocab=50, dim=8, kernel_size=kernel_size)).eval()
    ids = torch.randint(0, 50, (3, 7))
    weight = network.convolution.weight.unflatten(1, (kernel_size, 8)).mT  # d_out d_in k
    padded = F.pad(network.token(ids).mT, ((kernel_size - 1) // 2, kernel_size // 2))
    expected = F.conv1d(padded, weight, network.convolution.bias)
    close(network.features(ids), expected.mT.relu())
