"""Recurrence and convolution against loops that say what they are."""

import pytest
import torch

from glassformer.nn.cache import RecurrentState
from glassformer.nn.convolution import Convolution, convolutions
from glassformer.nn.dropout import Dropout, drop
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.recurrence import Recurrence

close = torch.testing.assert_close


def lstm(cell, x):
    """An LSTM, gate by gate."""
    h = c = torch.zeros(x.shape[0], x.shape[2])
    said = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ cell.weight_ih_l0.T + cell.bias_ih_l0
        gates = gates + h @ cell.weight_hh_l0.T + cell.bias_hh_l0
        enter, forget, new, leave = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + enter.sigmoid() * new.tanh()
        h = leave.sigmoid() * c.tanh()
        said.append(h)
    return torch.stack(said, dim=1)


def gru(cell, x):
    h, said = torch.zeros(x.shape[0], x.shape[2]), []
    for t in range(x.shape[1]):
        reset, update, new = (x[:, t] @ cell.weight_ih_l0.T + cell.bias_ih_l0).chunk(3, dim=1)
        old = (h @ cell.weight_hh_l0.T + cell.bias_hh_l0).chunk(3, dim=1)
        reset, update = (reset + old[0]).sigmoid(), (update + old[1]).sigmoid()
        h = (1 - update) * (new + reset * old[2]).tanh() + update * h
        said.append(h)
    return torch.stack(said, dim=1)


@pytest.mark.parametrize(("name", "loop"), [("lstm", lstm), ("gru", gru)])
@torch.no_grad()
def test_a_recurrence_is_a_loop(name, loop):
    x, layout = torch.randn(3, 7, 5), SequenceLayout(7, 7)
    layer = Recurrence(5, cell=name)
    close(layer(x, layout), loop(layer.cell, x))
    back = Recurrence(5, cell=name, backwards=True)
    close(back(x, layout), loop(back.cell, x.flip(1)).flip(1))


@torch.no_grad()
def test_what_is_carried_can_be_taken_back():
    layer, x, state = Recurrence(5), torch.randn(2, 6, 5), RecurrentState(None)
    whole = layer(x, SequenceLayout(6, 6))
    layer(x[:, :4], SequenceLayout(4, 4), state)
    layer(x[:, 4:5], SequenceLayout(1, 5), state)
    state.length = 4  # the pass failed somewhere else
    close(layer(x[:, 4:], SequenceLayout(2, 6), state), whole[:, 4:])


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_a_convolution_is_a_sum_over_a_window(causal):
    x, layer = torch.randn(2, 9, 4), Convolution(4, 3, 2, causal=causal)
    seen, weight = layer.norm(x), layer.window.weight  # 8 4 3
    offsets = (-4, -2, 0) if causal else (-2, 0, 2)
    for t in range(9):
        total = layer.window.bias.expand(2, -1).clone()
        for k, offset in enumerate(offsets):
            if 0 <= t + offset < 9:
                total += seen[:, t + offset] @ weight[:, :, k].T
        value, gate = total.chunk(2, dim=1)
        close(layer(x, SequenceLayout(9, 9))[:, t], x[:, t] + value * gate.sigmoid())


@torch.no_grad()
def test_each_convolution_sees_twice_as_far_as_the_one_before():
    layers = convolutions(4, 12, 3, causal=True, dropout=0.0)
    assert [layer.reach for layer in layers] == [2 * 2**i for i in range(10)] + [2, 4]


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 0.9])
def test_a_share_is_dropped_and_the_rest_made_up_for_it(chance):
    x = torch.ones(501, 997, requires_grad=True)
    y = drop(x, chance)
    assert float((y == 0).float().mean()) == pytest.approx(chance, abs=0.004)
    close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - chance)))
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # what was dropped learns nothing
    if chance:
        assert not torch.equal(drop(x, chance), drop(x, chance))
        columns = (drop(x.detach(), chance) == 0).float().mean(dim=0)
        assert float(columns.std()) == pytest.approx((chance * (1 - chance) / 501) ** 0.5, rel=0.15)


def test_nothing_is_dropped_afterwards():
    layer, x = Dropout(0.5), torch.randn(20, 20)
    assert (layer(x) == 0).any()
    assert torch.equal(layer.eval()(x), x)
    torch.manual_seed(3)
    one = drop(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.5), one)
