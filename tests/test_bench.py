"""What the bench scripts claim, where it can be shown in little time."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))


@pytest.fixture(scope="module")
def learnt():
    import it

    parts = it.examples()
    held_out = it.encoded(parts["held out"])
    return it, parts, it.learn(*it.encoded(parts["train"]), seed=0), held_out


def test_no_pair_that_is_held_out_was_learnt(learnt):
    it, parts, _, _ = learnt
    pairs = {name: {frozenset((text[it.FIRST], text[it.SECOND])) for text, _ in part}
             for name, part in parts.items()}  # fmt: skip
    assert not pairs["train"] & pairs["held out"]
    assert len(pairs["train"] | pairs["held out"]) == 400


def test_words_without_their_order_say_nothing_of_the_answer(learnt):
    """Each bag of words occurs with either answer, and so does each word alone."""
    _, parts, _, _ = learnt
    answers = {}
    for text, answer in parts["held out"]:
        answers.setdefault(tuple(sorted(text)), []).append(answer)
    assert all(sorted(found) == [0, 1] for found in answers.values())


def test_what_it_is_is_learnt_and_one_head_knows(learnt):
    it, _, network, held_out = learnt
    assert it.share(network(held_out[0]), held_out[1]) >= 0.95
    found = it.heads(network, *held_out)
    costs = sorted(cost for _, _, cost, _ in found)
    assert costs[-1] >= 0.30
    assert sum(costs[:-1]) / len(costs[:-1]) <= 0.05
    lookers = {(name, head) for name, head, _, contrast in found if contrast > it.LOOKS_THERE}
    assert max(contrast for *_, contrast in found) >= 0.9
    assert it.cost(network, *held_out, lookers) >= 0.30
