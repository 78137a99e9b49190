"""How a number was made: what is said to have made it, computed again, is that number."""

import copy
import random

import pytest
import torch
from torch import nn

from cases import CASES, ids, source
from glassformer import GlassError
from glassformer.inspection.why import Pass, told


def recorded(case):
    inputs = {"ids": ids(2, 6)} | ({"source": source(2)} if case.has("source") else {})
    return Pass(copy.deepcopy(case.network).double(), inputs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number_is_what_its_terms_make(case):
    """Random names and places, and from there on down: to 1e-9 in double precision."""
    run, chance = recorded(case), random.Random(3)
    names = [name for name in run.trace if run.trace[name].is_floating_point()]
    explained = unknown = 0
    for name in chance.sample(names, min(12, len(names))):
        at = [chance.randrange(n) for n in run.trace[name].shape]
        why = run.at(f"{name}[{','.join(map(str, at))}]")
        assert why.value == float(run.trace[name][tuple(at)])
        for _ in range(8):
            if why.again is not None:
                explained += 1
                assert why.again == pytest.approx(why.value, abs=1e-9, rel=1e-9, nan_ok=True)
            unknown += why.how.startswith("made by")
            if (why := why.next()) is None:
                break
    assert explained + unknown > 0
    if case.has("attends"):
        assert explained > 5 * unknown


def test_a_chain_ends_in_the_table_of_embeddings():
    lines = list(told(recorded(CASES["gpt2"]).at("blocks.0.attention.q[0,1,2,3]"), depth=20))
    assert "row × column + bias" in lines[0]
    assert any("blocks.0.attention.query.weight[" in line for line in lines)
    assert any("token.weight[" in line for line in lines)


def test_each_kind_of_operation_is_explained():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.window = nn.Conv1d(4, 6, 2, dilation=2)
            self.bilinear = nn.Parameter(torch.randn(4, 4))

        def forward(self, ids):
            x = self.table(ids)  # b t d
            y = torch.cat((x, torch.tanh(x) * 2), dim=1)[:, 1:-1]
            y = y + (x @ self.bilinear).mean(dim=1, keepdim=True)
            y = nn.functional.glu(self.window(y.mT), dim=1)  # b 3 t
            y = y.masked_fill(y > 0.5, 0.25).log_softmax(dim=-1)
            y.mul_(3.0)
            return (y - y.sum(dim=(1, 2), keepdim=True)).flatten(1)

    torch.manual_seed(0)
    run, seen = Pass(Network().double(), {"ids": torch.tensor([[1, 2, 3, 4]])}), set()
    stack = [run.at("output[0,3]")]
    for _ in range(400):
        if not stack:
            break
        why = stack.pop()
        seen.add(why.how.split(" ")[0])
        assert not why.how.startswith("made by"), why.how
        if why.again is not None:
            assert why.again == pytest.approx(why.value, abs=1e-9)
        stack += [run.why(place) for term in why.terms for place in term.places]
    assert seen >= {"−", "×", "log", "a", "window", "+", "row", "", "sum"}


def test_what_is_not_known_is_named():
    class Network(nn.Module):
        def forward(self, x):
            return x.cumsum(dim=1)

    why = Pass(Network(), {"x": torch.ones(1, 3)}).at("output[0,2]")
    assert why.how == "made by cumsum from x"
    assert why.again is None
    assert list(told(why)) == ["output[0,2] = 3   made by cumsum from x"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("blocks.0.attention.score[0,0,0,0]", "no value is named .* did you mean 'blocks.0.attent"),
        ("output[0,9,0]", r"has the shape \[2, 6, 50\]: there is no \[0, 9, 0\]"),
        ("output[0,1]", "there is no"),
        ("output", "name a value and a place in it"),
    ],
)
def test_what_is_not_there_is_said(asked, message):
    with pytest.raises(GlassError, match=message):
        recorded(CASES["gpt2"]).at(asked)
