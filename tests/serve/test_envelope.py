"""The format of responses: JSON and raw numbers."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.serve.envelope import pack, unpack


def test_tensors_keep_their_numbers_and_shapes():
    response = {
        "name": "注意力",
        "list": [{"a": torch.arange(6.0).reshape(2, 3)}, torch.tensor([])],
        "number": 1.5,
        "scalar": torch.tensor(float("-inf")),
        "half": torch.tensor([0.5], dtype=torch.bfloat16),
    }
    found = unpack(pack(response))
    assert found["name"] == "注意力"
    assert found["number"] == 1.5
    assert torch.equal(found["list"][0]["a"], response["list"][0]["a"])
    assert found["list"][1].shape == (0,)
    assert found["scalar"] == float("-inf")
    assert found["half"].item() == 0.5


@given(
    st.recursive(st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_responses_without_tensors_come_back_as_they_were(response):
    is_reserved = "$tensor" in str(response)
    assert is_reserved or unpack(pack(response)) == response


def test_numbers_start_at_a_multiple_of_four_bytes():
    for name in ("a", "ab", "abc", "abcd"):
        data = pack({name: torch.ones(3)})
        assert int.from_bytes(data[:4], "little") % 4 == 0
        assert len(data) % 4 == 0
