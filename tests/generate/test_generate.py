"""Sampling, decoding and beam search against their definitions."""

import itertools

import pytest
import torch

from cases import CASES, ids, source, with_traits
from glassformer import GlassError
from glassformer.generate.beam import beam_search
from glassformer.generate.decode import generate_tokens, generate_until
from glassformer.generate.sampling import (
    GREEDY,
    Sampling,
    apply_repetition_penalty,
    filter_probs,
    sample_token,
)
from glassformer.models.network import Trait

writers = pytest.mark.parametrize("case", [CASES[n] for n in with_traits(Trait.CACHED)], ids=str)


def given(case, batch):
    return {"source": source(batch)} if case.has(Trait.SEQ2SEQ) else {}


# --- sampling -------------------------------------------------------------------------------------

CHANCES = torch.tensor([[0.1, 0.4, 0.05, 0.3, 0.15]])


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(), {0, 1, 2, 3, 4}),
        (Sampling(top_k=2), {1, 3}),
        (Sampling(top_p=0.65), {1, 3}),
        (Sampling(top_p=0.75), {1, 3, 4}),
        (Sampling(top_p=0.0), {1}),
        (Sampling(min_p=0.5), {1, 3}),
        (Sampling(min_p=1.0), {1}),
        (Sampling(top_k=3, top_p=0.6, min_p=0.2), {1, 3}),
    ],
)
def test_what_is_unlikely_is_left_out(sampling, kept):
    left = filter_probs(CHANCES, sampling)
    assert set(left[0].nonzero().flatten().tolist()) == kept
    assert torch.equal(left[left > 0], CHANCES[left > 0])


def test_the_frequencies_are_the_probabilities():
    logits = CHANCES.log().expand(20_000, 5)
    generator = torch.Generator().manual_seed(0)
    for temperature in (1.0, 0.5):
        chosen = sample_token(logits, logits[:, :0].long(), Sampling(temperature), generator)
        expected = (CHANCES[0] ** (1 / temperature)) / (CHANCES[0] ** (1 / temperature)).sum()
        share = chosen.bincount(minlength=5) / 20_000
        torch.testing.assert_close(share, expected, atol=0.015, rtol=0)


def test_temperature_0_takes_the_best():
    assert sample_token(CHANCES.log(), torch.empty(1, 0).long(), GREEDY).tolist() == [1]


def test_what_was_said_becomes_less_likely():
    logits, generated = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 0]])
    assert apply_repetition_penalty(logits, generated, 2.0).tolist() == [[1.0, -4.0, 1.0]]
    chosen = sample_token(logits, generated, Sampling(temperature=0.0, repetition_penalty=3.0))
    assert chosen.tolist() == [2]


def test_settings_out_of_range_are_named():
    with pytest.raises(GlassError, match=r"top_p must be at least 0.0 and at most 1.0, got 1.5"):
        Sampling(top_p=1.5)


# --- decoding -------------------------------------------------------------------------------------


@writers
def test_decoding_equals_reading_everything_again(case):
    text, more = ids(2, 5), given(case, 2)
    told = torch.stack(list(generate_tokens(case.network, text, 8, sampling=GREEDY, **more)), dim=1)
    generated = text
    for _ in range(8):
        best = case.network(generated, **more)[:, -1].argmax(dim=-1, keepdim=True)
        generated = torch.cat((generated, best), dim=1)
    assert torch.equal(told, generated[:, 5:])


@writers
def test_texts_of_different_length_go_on_as_if_alone(case):
    text, more = ids(2, 6), given(case, 2)
    keep = torch.tensor([[True] * 6, [False, False, False, True, True, True]])
    together = list(generate_tokens(case.network, text, 6, keep=keep, sampling=GREEDY, **more))
    for row in range(2):
        mine = {name: value[row : row + 1] for name, value in more.items()}
        alone = generate_tokens(
            case.network, text[row : row + 1, keep[row]], 6, sampling=GREEDY, **mine
        )
        assert [int(t[row]) for t in together] == [int(t[0]) for t in alone]


@pytest.mark.parametrize("name", ["gpt2", "generator", "llama"])
def test_a_text_goes_on_beyond_the_context(name):
    network, text = CASES[name].network, ids(1, 40)
    told = [int(t) for t in generate_tokens(network, text, 30, sampling=GREEDY)]
    assert len(told) == 30
    assert told[0] == int(network(text[:, -32:])[0, -1].argmax())
    later = torch.cat((text, torch.tensor([told])), dim=1)
    assert told[1] == int(network(later[:, 41 - 16 : 41])[0, -1].argmax())


def test_a_seed_makes_it_repeatable():
    network, text = CASES["gpt2"].network, ids(2, 5)

    def run(seed):
        return [t.tolist() for t in generate_tokens(network, text, 10, seed=seed)]

    assert run(3) == run(3) != run(4)


def test_the_seed_0_is_a_seed():
    network, text = CASES["gpt2"].network, ids(2, 5)
    first, second = (
        [t.tolist() for t in generate_tokens(network, text, 10, seed=0)] for _ in range(2)
    )
    assert first == second


def test_a_text_ends_at_the_end():
    network, text = CASES["gpt2"].network, ids(3, 5)
    free = [t.tolist() for t in generate_tokens(network, text, 10, sampling=GREEDY)]
    rows = [list(row) for row in zip(*free, strict=True)]
    eos = rows[0][4]
    expected = [row[: row.index(eos)] if eos in row else row for row in rows]
    assert generate_until(network, text, [10] * 3, eos=eos, sampling=GREEDY) == expected


# --- beam search ----------------------------------------------------------------------------------


@writers
def test_a_beam_of_one_is_greedy(case):
    if case.has(Trait.FITTED):
        pytest.skip("equal counts make equal chances, of which either may be taken")
    text, more = ids(3, 2), given(case, 3)
    for eos in (0, 7, 13):
        found = beam_search(case.network, text, [8] * 3, eos=eos, beam_size=1, **more)
        greedy = generate_until(case.network, text, [8] * 3, eos=eos, sampling=GREEDY, **more)
        assert [answers[0][1] for answers in found] == greedy


class Tiny(torch.nn.Module):
    """A network over three tokens whose scores depend on all that was said."""

    def __init__(self):
        super().__init__()
        self.network = CASES["gpt2"].network

    def cache(self, capacity):
        return self.network.cache(capacity)

    def forward(self, ids, cache=None):
        return self.network(ids, cache=cache)[..., :3] * 2


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
@torch.no_grad()
def test_a_wide_beam_finds_what_exhaustive_search_finds(length_penalty):
    network, start, eos, max_new_tokens = Tiny(), ids(4, 2), 2, 4
    found = beam_search(
        network, start, [max_new_tokens] * 4, eos=eos, beam_size=81, length_penalty=length_penalty
    )
    for row, answers in zip(start, found, strict=True):
        every = []
        for length in range(max_new_tokens + 1):
            for words in itertools.product([0, 1], repeat=length):
                generated = [*words, eos] if length < max_new_tokens else list(words)
                text = torch.tensor([[*row.tolist(), *generated]])
                probs = network(text).log_softmax(-1)[0, 1:-1]
                total = sum(float(probs[i, token]) for i, token in enumerate(generated))
                every.append((total / ((5 + len(generated)) / 6) ** length_penalty, list(words)))
        score, words = max(every)
        assert answers[0][1] == words
        assert answers[0][0] == pytest.approx(score, abs=1e-4)
        assert len(answers) == len(every)


@torch.no_grad()
def test_a_translator_searches_with_padded_sources():
    case = CASES["translator"]
    long = source(2)
    keep = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    start = torch.ones(2, 1, dtype=torch.long)
    both = beam_search(case.network, start, [6, 6], eos=5, source=long, source_keep=keep)
    alone = beam_search(case.network, start[:1], [6], eos=5, source=long[1:, :4])
    assert both[1][0][1] == alone[0][0][1]
    assert both[1][0][0] == pytest.approx(alone[0][0][0], abs=1e-4)


# --- one text among others ------------------------------------------------------------------------

with_source = pytest.mark.parametrize(
    "case", [CASES[n] for n in with_traits(Trait.CACHED, Trait.SEQ2SEQ)], ids=str
)


def padded_sources(lengths):
    """Sources of several lengths: ids and where they are real."""
    rows = torch.randint(4, 50, (len(lengths), max(lengths)))
    return rows, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@with_source
@pytest.mark.parametrize("width", [1, 3])
@torch.no_grad()
def test_an_answer_does_not_depend_on_the_other_texts_of_its_batch(case, width):
    """Each text has a limit of its own, and is done when it has all of its answers."""
    lengths, limits = [2, 7, 4, 1], [3, 14, 6, 10]
    read, keep = padded_sources(lengths)
    start = torch.ones(len(lengths), 1, dtype=torch.long)

    def search(rows):
        return beam_search(
            case.network, start[rows], [limits[i] for i in rows], eos=3, beam_size=width,
            source=read[rows], source_keep=keep[rows],
        )  # fmt: skip

    together = search([0, 1, 2, 3])
    for i, limit in enumerate(limits):
        (alone,) = search([i])
        assert [ids for _, ids in alone] == [ids for _, ids in together[i]]
        assert all(len(ids) <= limit for _, ids in alone)
        assert len(alone) <= width
    assert [a[0][1] for a in search([3, 1, 0, 2])] == [together[i][0][1] for i in (3, 1, 0, 2)]
    assert any(len(answers[0][1]) > 6 for answers in together)  # some are longer than others may be


@with_source
@torch.no_grad()
def test_a_greedy_answer_does_not_depend_on_the_other_texts_of_its_batch(case):
    lengths, limits = [2, 7, 4, 1], [3, 14, 6, 10]
    read, keep = padded_sources(lengths)
    start = torch.ones(len(lengths), 1, dtype=torch.long)
    together = generate_until(
        case.network, start, limits, eos=3, sampling=GREEDY, source=read, source_keep=keep
    )
    for i, limit in enumerate(limits):
        some = slice(i, i + 1)
        (alone,) = generate_until(
            case.network, start[some], [limit], eos=3, sampling=GREEDY, source=read[some],
            source_keep=keep[some],
        )  # fmt: skip
        assert alone == together[i]
        assert len(alone) <= limit


@pytest.mark.parametrize(
    "case", [CASES[n] for n in with_traits(Trait.CAUSAL_LM, Trait.CACHED)], ids=str
)
@torch.no_grad()
def test_a_continuation_does_not_depend_on_the_other_texts_of_its_batch(case):
    texts, lengths = ids(3, 6), [6, 2, 4]
    keep = torch.arange(6) >= 6 - torch.tensor(lengths)[:, None]  # padded on the left
    together = generate_until(case.network, texts, [8] * 3, keep=keep, sampling=GREEDY)
    for row, length in enumerate(lengths):
        alone = generate_until(case.network, texts[row : row + 1, 6 - length :], [8],
                               sampling=GREEDY)  # fmt: skip
        assert alone[0] == together[row]


def test_a_text_that_has_all_its_answers_gets_no_unfinished_ones():
    """A network that ends at once or never: what ended is the answer, whatever the limit."""

    class Ends(Tiny):
        def forward(self, ids, cache=None):
            super().forward(ids, cache=cache)
            return torch.tensor([-5.0, -5.0, -5.0, 5.0]).expand(*ids.shape, 4)

    found = beam_search(Ends(), torch.ones(1, 1, dtype=torch.long), [5], eos=3, beam_size=2)
    free = beam_search(Ends(), torch.ones(1, 1, dtype=torch.long), [50], eos=3, beam_size=2)
    assert found == free
    assert found[0][0][1] == []


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_comes_before_the_choice_of_the_likeliest(temperature):
    """What top-p, top-k and min-p leave is decided by the probabilities at that temperature."""
    logits = CHANCES.log().expand(20_000, 5)
    heated = CHANCES[0] ** (1 / temperature) / (CHANCES[0] ** (1 / temperature)).sum()
    for sampling in (
        Sampling(temperature, top_p=0.7), Sampling(temperature, min_p=0.45),
        Sampling(temperature, top_k=2), Sampling(temperature, top_p=0.9, min_p=0.2),
    ):  # fmt: skip
        expected, total = torch.zeros(5), 0.0
        for rank, i in enumerate(heated.argsort(descending=True).tolist()):
            near = heated[i] >= sampling.min_p * heated.max()
            if total < sampling.top_p and near and rank < (sampling.top_k or 5):
                expected[i] = heated[i]
            total += float(heated[i])
        generator = torch.Generator().manual_seed(0)
        chosen = sample_token(logits, logits[:, :0].long(), sampling, generator)
        share = chosen.bincount(minlength=5) / 20_000
        torch.testing.assert_close(share, expected / expected.sum(), atol=0.015, rtol=0)


def test_scores_that_are_not_finite_are_an_error_and_not_a_token():
    with pytest.raises(GlassError, match="scores are not finite"):
        sample_token(torch.full((1, 5), float("nan")), torch.empty(1, 0).long(), Sampling(0.8))


@torch.no_grad()
def test_every_token_so_far_becomes_less_likely_not_only_the_last():
    network, text = CASES["gpt2"].network, ids(2, 5)
    sampling = Sampling(temperature=0.0, repetition_penalty=1.7)
    found = torch.stack(list(generate_tokens(network, text, 12, sampling=sampling)), dim=1)
    generated = text
    for step in range(12):
        token = apply_repetition_penalty(network(generated)[:, -1], generated, 1.7).argmax(dim=-1)
        assert torch.equal(token, found[:, step])
        generated = torch.cat((generated, token[:, None]), dim=1)
    plain = torch.stack(list(generate_tokens(network, text, 12, sampling=GREEDY)), dim=1)
    assert not torch.equal(plain, found)
