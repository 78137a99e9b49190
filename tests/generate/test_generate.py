"""Sampling, decoding and beam search compared with their definitions."""

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

cached_models = pytest.mark.parametrize(
    "case", [CASES[n] for n in with_traits(Trait.CACHED)], ids=str
)


def source_inputs(case, batch):
    return {"source": source(batch)} if case.has(Trait.SEQ2SEQ) else {}


# --- sampling -------------------------------------------------------------------------------------

PROBS = torch.tensor([[0.1, 0.4, 0.05, 0.3, 0.15]])


@pytest.mark.parametrize(
    ("sampling", "remaining"),
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
def test_unlikely_tokens_are_excluded(sampling, remaining):
    probs = filter_probs(PROBS, sampling)
    assert set(probs[0].nonzero().flatten().tolist()) == remaining
    assert torch.equal(probs[probs > 0], PROBS[probs > 0])


def test_sampled_frequencies_match_the_probabilities():
    logits = PROBS.log().expand(20_000, 5)
    generator = torch.Generator().manual_seed(0)
    for temperature in (1.0, 0.5):
        chosen = sample_token(logits, logits[:, :0].long(), Sampling(temperature), generator)
        expected = (PROBS[0] ** (1 / temperature)) / (PROBS[0] ** (1 / temperature)).sum()
        frequencies = chosen.bincount(minlength=5) / 20_000
        torch.testing.assert_close(frequencies, expected, atol=0.015, rtol=0)


def test_temperature_0_chooses_the_most_likely_token():
    assert sample_token(PROBS.log(), torch.empty(1, 0).long(), GREEDY).tolist() == [1]


def test_repetition_penalty_makes_generated_tokens_less_likely():
    logits, generated = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[0, 1, 0]])
    assert apply_repetition_penalty(logits, generated, 2.0).tolist() == [[1.0, -4.0, 1.0]]
    chosen = sample_token(logits, generated, Sampling(temperature=0.0, repetition_penalty=3.0))
    assert chosen.tolist() == [2]


def test_a_setting_out_of_range_is_rejected_with_its_bounds():
    with pytest.raises(GlassError, match=r"top_p must be at least 0.0 and at most 1.0, got 1.5"):
        Sampling(top_p=1.5)


# --- decoding -------------------------------------------------------------------------------------


@cached_models
def test_cached_decoding_equals_decoding_without_a_cache(case):
    prompt, inputs = ids(2, 5), source_inputs(case, 2)
    tokens = list(generate_tokens(case.network, prompt, 8, sampling=GREEDY, **inputs))
    generated = prompt
    for _ in range(8):
        best = case.network(generated, **inputs)[:, -1].argmax(dim=-1, keepdim=True)
        generated = torch.cat((generated, best), dim=1)
    assert torch.equal(torch.stack(tokens, dim=1), generated[:, 5:])


@cached_models
def test_prompts_of_different_lengths_are_continued_as_if_alone(case):
    prompts, inputs = ids(2, 6), source_inputs(case, 2)
    keep = torch.tensor([[True] * 6, [False, False, False, True, True, True]])
    batched = list(generate_tokens(case.network, prompts, 6, keep=keep, sampling=GREEDY, **inputs))
    for row in range(2):
        row_inputs = {name: value[row : row + 1] for name, value in inputs.items()}
        single = generate_tokens(
            case.network, prompts[row : row + 1, keep[row]], 6, sampling=GREEDY, **row_inputs
        )
        assert [int(t[row]) for t in batched] == [int(t[0]) for t in single]


@pytest.mark.parametrize("name", ["gpt2", "generator", "llama"])
def test_generation_continues_beyond_the_context(name):
    network, prompt = CASES[name].network, ids(1, 40)
    tokens = [int(t) for t in generate_tokens(network, prompt, 30, sampling=GREEDY)]
    assert len(tokens) == 30
    assert tokens[0] == int(network(prompt[:, -32:])[0, -1].argmax())
    generated = torch.cat((prompt, torch.tensor([tokens])), dim=1)
    assert tokens[1] == int(network(generated[:, 41 - 16 : 41])[0, -1].argmax())


def test_a_seed_makes_sampling_repeatable():
    network, text = CASES["gpt2"].network, ids(2, 5)

    def run(seed):
        return [t.tolist() for t in generate_tokens(network, text, 10, seed=seed)]

    assert run(3) == run(3) != run(4)


def test_seed_0_makes_sampling_repeatable():
    network, text = CASES["gpt2"].network, ids(2, 5)
    first, second = (
        [t.tolist() for t in generate_tokens(network, text, 10, seed=0)] for _ in range(2)
    )
    assert first == second


def test_generation_stops_at_eos():
    network, text = CASES["gpt2"].network, ids(3, 5)
    tokens = [t.tolist() for t in generate_tokens(network, text, 10, sampling=GREEDY)]
    rows = [list(row) for row in zip(*tokens, strict=True)]
    eos = rows[0][4]
    expected = [row[: row.index(eos)] if eos in row else row for row in rows]
    assert generate_until(network, text, [10] * 3, eos=eos, sampling=GREEDY) == expected


# --- beam search ----------------------------------------------------------------------------------


@cached_models
def test_a_beam_of_one_equals_greedy_decoding(case):
    if case.has(Trait.FITTED):
        pytest.skip("tokens with equal counts are equally likely: either may be chosen")
    text, inputs = ids(3, 2), source_inputs(case, 3)
    for eos in (0, 7, 13):
        results = beam_search(case.network, text, [8] * 3, eos=eos, beam_size=1, **inputs)
        greedy = generate_until(case.network, text, [8] * 3, eos=eos, sampling=GREEDY, **inputs)
        assert [hypotheses[0][1] for hypotheses in results] == greedy


class ThreeTokenModel(torch.nn.Module):
    """A network over three tokens whose logits depend on all tokens so far."""

    def __init__(self):
        super().__init__()
        self.network = CASES["gpt2"].network

    def cache(self, capacity):
        return self.network.cache(capacity)

    def forward(self, ids, cache=None):
        return self.network(ids, cache=cache)[..., :3] * 2


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
@torch.no_grad()
def test_a_large_beam_equals_exhaustive_search(length_penalty):
    network, start, eos, max_new_tokens = ThreeTokenModel(), ids(4, 2), 2, 4
    results = beam_search(
        network, start, [max_new_tokens] * 4, eos=eos, beam_size=81, length_penalty=length_penalty
    )
    for row, hypotheses in zip(start, results, strict=True):
        candidates = []
        for length in range(max_new_tokens + 1):
            for tokens in itertools.product([0, 1], repeat=length):
                generated = [*tokens, eos] if length < max_new_tokens else list(tokens)
                text = torch.tensor([[*row.tolist(), *generated]])
                probs = network(text).log_softmax(-1)[0, 1:-1]
                total = sum(float(probs[i, token]) for i, token in enumerate(generated))
                score = total / ((5 + len(generated)) / 6) ** length_penalty
                candidates.append((score, list(tokens)))
        score, tokens = max(candidates)
        assert hypotheses[0][1] == tokens
        assert hypotheses[0][0] == pytest.approx(score, abs=1e-4)
        assert len(hypotheses) == len(candidates)


@torch.no_grad()
def test_beam_search_ignores_padding_of_the_source():
    case = CASES["translator"]
    sources = source(2)
    keep = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    start = torch.ones(2, 1, dtype=torch.long)
    batched = beam_search(case.network, start, [6, 6], eos=5, source=sources, source_keep=keep)
    single = beam_search(case.network, start[:1], [6], eos=5, source=sources[1:, :4])
    assert batched[1][0][1] == single[0][0][1]
    assert batched[1][0][0] == pytest.approx(single[0][0][0], abs=1e-4)


# --- sequences in a batch -------------------------------------------------------------------------

cached_translators = pytest.mark.parametrize(
    "case", [CASES[n] for n in with_traits(Trait.CACHED, Trait.SEQ2SEQ)], ids=str
)


def padded_sources(lengths):
    """Random sources with these lengths: their ids and `keep`."""
    rows = torch.randint(4, 50, (len(lengths), max(lengths)))
    return rows, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@cached_translators
@pytest.mark.parametrize("beam_size", [1, 3])
@torch.no_grad()
def test_beam_search_does_not_depend_on_the_rest_of_the_batch(case, beam_size):
    """Each sequence has its own limit, and is done when all of its hypotheses have ended."""
    lengths, limits = [2, 7, 4, 1], [3, 14, 6, 10]
    sources, keep = padded_sources(lengths)
    start = torch.ones(len(lengths), 1, dtype=torch.long)

    def search(rows):
        return beam_search(
            case.network, start[rows], [limits[i] for i in rows], eos=3, beam_size=beam_size,
            source=sources[rows], source_keep=keep[rows],
        )  # fmt: skip

    batched = search([0, 1, 2, 3])
    for i, limit in enumerate(limits):
        (single,) = search([i])
        assert [ids for _, ids in single] == [ids for _, ids in batched[i]]
        assert all(len(ids) <= limit for _, ids in single)
        assert len(single) <= beam_size
    assert [h[0][1] for h in search([3, 1, 0, 2])] == [batched[i][0][1] for i in (3, 1, 0, 2)]
    assert any(len(hypotheses[0][1]) > 6 for hypotheses in batched)  # above the limit of others


@cached_translators
@torch.no_grad()
def test_greedy_translation_does_not_depend_on_the_rest_of_the_batch(case):
    lengths, limits = [2, 7, 4, 1], [3, 14, 6, 10]
    sources, keep = padded_sources(lengths)
    start = torch.ones(len(lengths), 1, dtype=torch.long)
    batched = generate_until(
        case.network, start, limits, eos=3, sampling=GREEDY, source=sources, source_keep=keep
    )
    for i, limit in enumerate(limits):
        row = slice(i, i + 1)
        (single,) = generate_until(
            case.network, start[row], [limit], eos=3, sampling=GREEDY, source=sources[row],
            source_keep=keep[row],
        )  # fmt: skip
        assert single == batched[i]
        assert len(single) <= limit


@pytest.mark.parametrize(
    "case", [CASES[n] for n in with_traits(Trait.CAUSAL_LM, Trait.CACHED)], ids=str
)
@torch.no_grad()
def test_generation_does_not_depend_on_the_rest_of_the_batch(case):
    texts, lengths = ids(3, 6), [6, 2, 4]
    keep = torch.arange(6) >= 6 - torch.tensor(lengths)[:, None]  # padded on the left
    batched = generate_until(case.network, texts, [8] * 3, keep=keep, sampling=GREEDY)
    for row, length in enumerate(lengths):
        single = generate_until(case.network, texts[row : row + 1, 6 - length :], [8],
                                sampling=GREEDY)  # fmt: skip
        assert single[0] == batched[row]


def test_finished_hypotheses_do_not_depend_on_the_limit():
    """A network that almost always ends: its hypotheses end before the lower limit."""

    class EndingModel(ThreeTokenModel):
        def forward(self, ids, cache=None):
            super().forward(ids, cache=cache)
            return torch.tensor([-5.0, -5.0, -5.0, 5.0]).expand(*ids.shape, 4)

    network, start = EndingModel(), torch.ones(1, 1, dtype=torch.long)
    low_limit = beam_search(network, start, [5], eos=3, beam_size=2)
    high_limit = beam_search(network, start, [50], eos=3, beam_size=2)
    assert low_limit == high_limit
    assert low_limit[0][0][1] == []


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_is_applied_before_unlikely_tokens_are_excluded(temperature):
    """top_p, top_k and min_p are applied to the probabilities at that temperature."""
    logits = PROBS.log().expand(20_000, 5)
    probs = PROBS[0] ** (1 / temperature) / (PROBS[0] ** (1 / temperature)).sum()
    for sampling in (
        Sampling(temperature, top_p=0.7), Sampling(temperature, min_p=0.45),
        Sampling(temperature, top_k=2), Sampling(temperature, top_p=0.9, min_p=0.2),
    ):  # fmt: skip
        expected, total = torch.zeros(5), 0.0
        for rank, i in enumerate(probs.argsort(descending=True).tolist()):
            passes_min_p = probs[i] >= sampling.min_p * probs.max()
            if total < sampling.top_p and passes_min_p and rank < (sampling.top_k or 5):
                expected[i] = probs[i]
            total += float(probs[i])
        generator = torch.Generator().manual_seed(0)
        chosen = sample_token(logits, logits[:, :0].long(), sampling, generator)
        frequencies = chosen.bincount(minlength=5) / 20_000
        torch.testing.assert_close(frequencies, expected / expected.sum(), atol=0.015, rtol=0)


def test_logits_that_are_not_finite_are_rejected():
    with pytest.raises(GlassError, match="logits are not finite"):
        sample_token(torch.full((1, 5), float("nan")), torch.empty(1, 0).long(), Sampling(0.8))


@torch.no_grad()
def test_repetition_penalty_applies_to_every_token_so_far():
    network, text = CASES["gpt2"].network, ids(2, 5)
    sampling = Sampling(temperature=0.0, repetition_penalty=1.7)
    tokens = torch.stack(list(generate_tokens(network, text, 12, sampling=sampling)), dim=1)
    generated = text
    for step in range(12):
        token = apply_repetition_penalty(network(generated)[:, -1], generated, 1.7).argmax(dim=-1)
        assert torch.equal(token, tokens[:, step])
        generated = torch.cat((generated, token[:, None]), dim=1)
    plain = torch.stack(list(generate_tokens(network, text, 12, sampling=GREEDY)), dim=1)
    assert not torch.equal(plain, tokens)
