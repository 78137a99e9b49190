"""Exact values of sampling, decoding, beam search and streaming, on networks with given scores."""

import math

import pytest
import torch

from cases import CASES, ids
from glassformer import GlassError
from glassformer.generate.beam import beam_search
from glassformer.generate.decode import generate_tokens, generate_until
from glassformer.generate.sampling import (
    GREEDY,
    Sampling,
    apply_repetition_penalty,
    block_repeats,
    filter_probs,
    sample_token,
)
from glassformer.generate.stream import IncrementalDecoder, decode_stream, overlap
from glassformer.text.plain import Bytes, Characters, Words


class FakeNetwork:
    """A network whose next-token probabilities are a function of the ids so far."""

    def __init__(self, probs, vocab, context=None):
        self.probs, self.vocab, self.context = probs, vocab, context
        self.decoding_limit = context
        self.read, self.capacities, self.caches = [], [], []

    def cache(self, capacity):
        self.capacities.append(capacity)
        self.caches.append(FakeCache(capacity))
        return self.caches[-1]

    def __call__(self, ids, *, keep=None, cache=None, **first):
        self.read.append((ids.tolist(), keep if keep is None else keep.tolist(), first))
        cache.texts = [
            [*old, *new]
            for old, new in zip(cache.texts or [[]] * len(ids), ids.tolist(), strict=True)
        ]
        assert cache.capacity is None or cache.length <= cache.capacity
        rows = [[math.log(p) if p else -math.inf for p in self.probs(t)] for t in cache.texts]
        return torch.tensor(rows)[:, None].expand(-1, ids.shape[1], -1)


class FakeCache:
    def __init__(self, capacity):
        self.texts, self.capacity = [], capacity

    @property
    def length(self):
        return len(self.texts[0]) if self.texts else 0

    def select_rows(self, rows):
        self.texts = [self.texts[i] for i in rows.tolist()]


def counting(text):
    """After n comes n + 1, up to 9."""
    probs = [0.0] * 10
    probs[min(text[-1] + 1, 9)] = 1.0
    return probs


def start(*rows):
    return torch.tensor(rows)


# --- sampling -------------------------------------------------------------------------------------


def test_the_default_temperature_is_eight_tenths():
    found = Sampling()
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.8, 0, 1.0, 0.0)
    assert found.repetition_penalty == 1.0
    assert Sampling(temperature=0.0) == GREEDY


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(top_p=0.5), [0.5, 0.0, 0.0, 0.0]),  # the first token alone reaches it
        (Sampling(top_p=0.51), [0.5, 0.25, 0.0, 0.0]),
        (Sampling(top_p=0.75), [0.5, 0.25, 0.0, 0.0]),
        (Sampling(min_p=0.5), [0.5, 0.25, 0.0, 0.0]),  # at least half of the maximum
        (Sampling(min_p=0.51), [0.5, 0.0, 0.0, 0.0]),
        (Sampling(min_p=0.25), [0.5, 0.25, 0.125, 0.125]),
        (Sampling(top_k=3), [0.5, 0.25, 0.125, 0.0]),  # the first of two equals
        (Sampling(top_k=9), [0.5, 0.25, 0.125, 0.125]),
        (Sampling(top_k=1, top_p=0.0, min_p=1.0), [0.5, 0.0, 0.0, 0.0]),
    ],
)
def test_the_limits_of_excluded_tokens_are_exact(sampling, kept):
    probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert filter_probs(probs, sampling).tolist() == [kept]


def test_each_row_is_filtered_independently():
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    found = filter_probs(probs, Sampling(top_k=2))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.3, 0.0], [0.0, 0.3, 0.5]]))
    found = filter_probs(probs, Sampling(min_p=0.7))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.0, 0.0], [0.0, 0.0, 0.5]]))


def test_min_p_is_a_fraction_of_the_highest_probability_of_the_same_row():
    probs = torch.tensor([[0.8, 0.15, 0.05], [0.35, 0.4, 0.25], [0.1, 0.1, 0.8]])
    found = filter_probs(probs, Sampling(min_p=0.5))  # at least 0.4, 0.2 and 0.4
    expected = torch.tensor([[0.8, 0.0, 0.0], [0.35, 0.4, 0.25], [0.0, 0.0, 0.8]])
    assert torch.equal(found, expected)


def test_a_penalty_below_1_makes_repetition_likelier_and_logits_of_0_stay():
    logits, said = torch.tensor([[2.0, -2.0, 0.0, 1.0]]), torch.tensor([[0, 1, 2]])
    assert apply_repetition_penalty(logits, said, 0.5).tolist() == [[4.0, -1.0, 0.0, 1.0]]
    assert logits.tolist() == [[2.0, -2.0, 0.0, 1.0]]
    two = apply_repetition_penalty(logits.expand(2, -1), torch.tensor([[0], [3]]), 2.0)
    assert two.tolist() == [[1.0, -2.0, 0.0, 1.0], [2.0, -2.0, 0.0, 0.5]]


def test_the_repetition_penalty_is_applied_before_the_temperature():
    logits = torch.tensor([[4.0, 3.0]]).expand(4000, -1)
    said = torch.zeros(4000, 1, dtype=torch.long)
    generator = torch.Generator().manual_seed(0)
    found = sample_token(logits, said, Sampling(0.5, repetition_penalty=2.0), generator)
    expected = math.exp(2 / 0.5) / (math.exp(2 / 0.5) + math.exp(3 / 0.5))
    assert float((found == 0).float().mean()) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("wrong", [{"temperature": -0.1}, {"top_k": -1}, {"min_p": 1.1},
                                   {"repetition_penalty": 0.0}, {"top_k": 1.5}])  # fmt: skip
def test_sampling_out_of_range_is_rejected(wrong):
    with pytest.raises(GlassError, match=next(iter(wrong))):
        Sampling(**wrong)


# --- decoding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "convolutional"])
def test_an_empty_prompt_is_rejected(name):
    with pytest.raises(GlassError, match="there are no tokens to read"):
        next(generate_tokens(CASES[name].network, ids()[:, :0], 1))


def test_the_cache_reads_the_prompt_once_and_then_one_token_at_a_time():
    network = FakeNetwork(counting, 10)
    found = generate_tokens(network, start([1, 2]), 4, sampling=GREEDY, source=start([7]))
    assert [token.tolist() for token in found] == [[3], [4], [5], [6]]
    assert [read for read, _, _ in network.read] == [[[1, 2]], [[3]], [[4]], [[5]]]
    assert [list(first) for _, _, first in network.read] == [["source"], [], [], []]
    assert network.capacities == [6]


def test_a_full_context_is_continued_from_its_second_half():
    network = FakeNetwork(counting, 10, context=4)
    found = [int(t) for t in generate_tokens(network, start([0, 1, 2]), 6, sampling=GREEDY)]
    assert found == [3, 4, 5, 6, 7, 8]
    assert [read for read, _, _ in network.read] == [
        [[0, 1, 2]], [[3]], [[3, 4]], [[5]], [[6]], [[6, 7]]
    ]  # fmt: skip
    assert network.capacities == [4, 4, 4]


def test_a_prompt_longer_than_the_context_loses_its_beginning():
    network = FakeNetwork(counting, 10, context=4)
    keep = torch.tensor([[False, False, False, True, True, True]])
    found = generate_tokens(network, start([0, 0, 0, 3, 4, 5]), 1, keep=keep, sampling=GREEDY)
    assert [int(t) for t in found] == [6]
    assert network.read[0][:2] == ([[0, 3, 4, 5]], [[False, True, True, True]])


def test_padding_is_remembered_when_a_truncated_prompt_fills_the_context_again():
    network = FakeNetwork(counting, 10, context=4)
    keep = torch.tensor([[False, True, True, True, True, True]])
    found = generate_tokens(network, start([0, 1, 2, 3, 4, 5]), 2, keep=keep, sampling=GREEDY)
    assert [int(t) for t in found] == [6, 7]
    assert network.read[1][:2] == ([[5, 6]], [[True] * 2])


def test_padding_is_remembered_when_the_context_is_read_again():
    network = FakeNetwork(counting, 10, context=6)
    keep = torch.tensor([[False, False, False, True, True]])
    list(generate_tokens(network, start([0, 0, 0, 4, 5]), 4, keep=keep, sampling=GREEDY))
    assert [(read, keep) for read, keep, _ in network.read] == [
        ([[0, 0, 0, 4, 5]], [[False, False, False, True, True]]),
        ([[6]], None),
        ([[5, 6, 7]], [[True] * 3]),
        ([[8]], None),
    ]


def test_a_prior_gets_the_ids_that_no_longer_fit_into_the_context():
    network = FakeNetwork(counting, 10, context=4)
    list(generate_tokens(network, start([0, 1, 2]), 4, sampling=GREEDY))
    past = [cache.past_ids for cache in network.caches]
    assert past[0] is None
    assert [ids.tolist() for ids in past[1:]] == [[[0, 1, 2]]]
    network = FakeNetwork(counting, 10, context=4)
    keep = torch.tensor([[False, True, True, True, True, True]])
    list(generate_tokens(network, start([0, 1, 2, 3, 4, 5]), 2, keep=keep, sampling=GREEDY))
    assert [cache.past_ids.tolist() for cache in network.caches] == [[[-1, 1]], [[-1, 1, 2, 3, 4]]]


def test_a_long_prompt_of_a_network_with_a_memory_is_read_in_chunks_with_their_padding():
    network = FakeNetwork(counting, 10, context=2)
    network.decoding_limit = None
    keep = torch.tensor([[False, True, True, True, True], [False, False, False, True, True]])
    prompt = start([0, 1, 2, 3, 4], [0, 0, 0, 1, 2])
    found = generate_tokens(network, prompt, 1, keep=keep, sampling=GREEDY, source=start([7]))
    assert [token.tolist() for token in found] == [[5, 3]]
    assert network.read == [
        ([[0, 1], [0, 0]], [[False, True], [False, False]], {"source": start([7])}),
        ([[2, 3], [0, 1]], [[True, True], [False, True]], {}),
        ([[4], [2]], [[True], [True]], {}),
    ]


def test_limits_are_exact_and_apply_to_each_text():
    network = FakeNetwork(counting, 10)
    texts = start([0], [0], [4], [7])
    found = generate_until(network, texts, [0, 2, 9, 5], eos=9, sampling=GREEDY)
    assert found == [[], [1, 2], [5, 6, 7, 8], [8]]
    assert generate_until(FakeNetwork(counting, 10), start([7]), [4], sampling=GREEDY) == [
        [8, 9, 9, 9]
    ]


def test_generation_stops_when_all_texts_are_finished():
    network = FakeNetwork(counting, 10)
    generate_until(network, start([7], [6]), [50, 50], eos=9, sampling=GREEDY)
    assert len(network.read) == 3
    network = FakeNetwork(counting, 10)
    assert generate_until(network, start([1]), [2], eos=9, sampling=GREEDY) == [[2, 3]]
    assert len(network.read) == 2


def circle(text):
    """After 1 comes 2, after 2 comes 3, after 3 comes 1; less likely, the end, 0."""
    probs = [0.2, 0.0, 0.0, 0.0]
    probs[text[-1] % 3 + 1] = 0.8
    return probs


def test_no_sequence_of_generated_tokens_is_repeated():
    generated = torch.tensor([[5, 6, 7, 5, 6], [5, 6, 7, 6, 5], [1, 1, 1, 1, 1]])
    blocked = [
        [(row == -math.inf).nonzero().flatten().tolist() for row in found]
        for found in (block_repeats(torch.zeros(3, 9), generated, n) for n in (0, 1, 2, 3, 6))
    ]
    assert blocked[0] == blocked[4] == [[], [], []]
    assert blocked[1] == [[5, 6, 7], [5, 6, 7], [1]]
    assert blocked[2] == [[7], [6], [1]]
    assert blocked[3] == [[7], [], [1]]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_token_that_would_repeat_the_very_first_sequence_is_excluded(length):
    blocked = block_repeats(torch.zeros(1, 9), torch.tensor([[4] * length]), length)
    assert (blocked[0] == -math.inf).nonzero().flatten().tolist() == [4]


def test_greedy_decoding_and_beam_search_break_a_circle():
    prompt, limits = start([2, 3, 1]), [9]
    options = {"eos": 0, "no_repeat_ngram_size": 2}
    greedy = generate_until(FakeNetwork(circle, 4), prompt, limits, sampling=GREEDY, **options)
    assert greedy == [[2, 3, 1, 2]]  # the prompt may be repeated
    (found,) = beam_search(FakeNetwork(circle, 4), prompt, limits, beam_size=1, **options)
    assert found[0][1] == [2, 3, 1, 2]
    assert generate_until(FakeNetwork(circle, 4), prompt, limits, sampling=GREEDY, eos=0) == [
        [2, 3, 1] * 3
    ]


def test_a_seed_creates_a_separate_generator():
    network, text = CASES["gpt2"].network, ids(2, 5)
    state = torch.get_rng_state()
    first = [t.tolist() for t in generate_tokens(network, text, 6, seed=5)]
    assert torch.equal(torch.get_rng_state(), state)
    generator = torch.Generator().manual_seed(5)
    said = text
    for step in range(6):
        with torch.inference_mode():
            probs = (network(said)[:, -1] / 0.8).softmax(dim=-1)
            token = torch.multinomial(filter_probs(probs, Sampling()), 1, generator=generator)
        assert token[:, 0].tolist() == first[step]
        said = torch.cat((said, token), dim=1)


# --- beam search ----------------------------------------------------------------------------------

# After token 0, token 1 is more likely than 2, but what follows 2 is certain. Token 3 is the end.
TREE = {
    (0,): [0.0, 0.6, 0.4, 0.0],
    (0, 1): [0.4, 0.3, 0.0, 0.3],
    (0, 2): [0.0, 0.0, 0.0, 1.0],
}


def tree(text):
    return TREE.get(tuple(text), [0.25, 0.25, 0.25, 0.25])


def test_a_beam_of_two_finds_what_greedy_decoding_misses():
    (found,) = beam_search(
        FakeNetwork(tree, 4), start([0]), [2], eos=3, beam_size=2, length_penalty=0.0
    )
    assert found[0] == (pytest.approx(math.log(0.4)), [2])
    greedy = generate_until(FakeNetwork(tree, 4), start([0]), [2], eos=3, sampling=GREEDY)
    assert greedy == [[1, 0]]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_scores_are_divided_by_a_power_of_the_length(penalty):
    (found,) = beam_search(
        FakeNetwork(tree, 4), start([0]), [2], eos=3, beam_size=3, length_penalty=penalty
    )
    norm = (7 / 6) ** penalty  # two tokens, including the end
    expected = sorted(
        [(math.log(0.4) / norm, [2]), (math.log(0.24) / norm, [1, 0]),
         (math.log(0.18) / norm, [1, 1])], reverse=True
    )  # fmt: skip
    assert [words for _, words in found][:2] == [words for _, words in expected][:2]
    assert [score for score, _ in found] == pytest.approx([score for score, _ in expected])


def test_beam_search_defaults_to_four_beams_and_a_length_penalty_of_0_6():
    (found,) = beam_search(FakeNetwork(tree, 4), start([0]), [3], eos=3)
    assert len(found) == 4
    assert found == sorted(found, key=lambda pair: -pair[0])
    assert found[0] == (pytest.approx(math.log(0.4) / (7 / 6) ** 0.6), [2])


def test_beam_search_ends_when_every_text_has_its_candidates():
    def ends(text):
        return [0.0, 0.1, 0.0, 0.9]

    network = FakeNetwork(ends, 4)
    beam_search(network, start([0], [0]), [50, 50], eos=3, beam_size=1)
    assert len(network.read) == 1
    network = FakeNetwork(lambda text: [0.0, 1.0, 0.0, 0.0], 4)
    (found,) = beam_search(network, start([0]), [5], eos=3, beam_size=1)
    assert found == [(0.0, [1] * 5)]
    assert len(network.read) == 5  # the last token is not read
    assert network.capacities == [6]


def test_a_limit_of_0_gives_one_empty_hypothesis():
    found = beam_search(FakeNetwork(tree, 4), start([0], [0]), [0, 2], eos=3, beam_size=2)
    assert found[0] == [(0.0, [])]
    assert found[1] == beam_search(FakeNetwork(tree, 4), start([0]), [2], eos=3, beam_size=2)[0]
    assert beam_search(FakeNetwork(tree, 4), start([0]), [0], eos=3) == [[(0.0, [])]]


def test_impossible_beams_are_not_candidates():
    """Only one token is possible, so there is only one beam."""
    network = FakeNetwork(lambda text: [0.0, 1.0, 0.0, 0.0], 4)
    (found,) = beam_search(network, start([0]), [3], eos=3, beam_size=3)
    assert [words for _, words in found] == [[1, 1, 1]]


def test_beam_search_passes_further_inputs_only_with_the_prompt():
    network = FakeNetwork(tree, 4)
    beam_search(network, start([0]), [3], eos=3, beam_size=2, source=start([5]))
    assert [list(first) for _, _, first in network.read] == [["source"], [], []]
    assert [len(read) for read, _, _ in network.read] == [1, 2, 2]


# --- tokens to text -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word", "length"),
    [("abc", "cd", 1), ("abc", "bcd", 2), ("abc", "abc", 0), ("abc", "x", 0), ("aab", "aba", 2),
     ("aba", "abab", 3), ("", "a", 0)],
)  # fmt: skip
def test_the_end_of_a_text_may_be_the_beginning_of_a_stop_string(text, word, length):
    assert overlap(text, word) == length


def decode_pieces(text, stop=(), before=""):
    words = Characters.train(["abcdefgh "])
    return list(decode_stream(iter(words.encode(text)), words, words.encode(before), stop))


def test_text_that_may_begin_a_stop_string_is_held_back():
    assert decode_pieces("abcd", ["cx"]) == ["a", "b", "cd", ""]
    assert decode_pieces("abcd", ["cd"]) == ["a", "b", ""]
    assert decode_pieces("abcd", [""]) == ["a", "b", "c", "d", ""]
    assert decode_pieces("abc", ["cd"]) == ["a", "b", "c"]
    assert "".join(decode_pieces("abcdef", ["ef", "cde"])) == "ab"
    assert "".join(decode_pieces("aab", ["ab"])) == "a"


def test_a_stop_string_that_begins_in_the_prompt_does_not_count():
    assert "".join(decode_pieces("cd", ["bc"], before="ab")) == "cd"


def test_a_word_is_joined_to_the_one_before_it():
    words = Words.train(["the cat sat"])
    decoder = IncrementalDecoder(words, words.encode("the"))
    assert [decoder.add(token) for token in words.encode("cat sat")] == [" cat", " sat"]
    assert IncrementalDecoder(words).add(words.encode("cat")[0]) == "cat"


def test_an_incomplete_character_is_yielded_at_the_end_at_the_latest():
    whole = list("aä".encode())
    decoder = IncrementalDecoder(Bytes())
    assert [decoder.add(token) for token in whole] == ["a", "", "ä"]
    assert list(decode_stream(iter(whole[:2]), Bytes(), [])) == ["a", "\ufffd"]


def test_the_rest_of_a_character_that_a_long_prompt_begins_is_no_text_of_its_own():
    prompt = [*b"0123456789", 0xC3]
    assert "".join(decode_stream([0xA9, *b"ab"], Bytes(), prompt)) == "ab"


def test_a_long_prompt_does_not_change_what_follows():
    words = Words.train(["the cat sat on a mat"])
    text = words.encode("the cat sat on a mat the cat sat on a mat")
    decoder = IncrementalDecoder(words, text)
    assert "".join(decoder.add(token) for token in text) == " " + words.decode(text)
