"""Word alignment compared with IBM Model 1 written with dictionaries."""

import math
from collections import defaultdict

import torch

from glassformer.baselines.phrase_table import align_words
from glassformer.nn.word_alignment import (
    DIAGONAL_STRENGTH,
    EM_ITERATIONS,
    AlignedPairs,
    WordPairs,
    alignment_probs,
    fit_alignment,
)

close = torch.testing.assert_close
TEXTS = [([1, 2, 1], [5, 6]), ([2, 3], [6, 7, 5]), ([3, 1], [7, 5])]


def join(texts):
    """Texts concatenated with -1 between them."""
    return torch.tensor([id for text in texts for id in (*text, -1)][:-1])


def test_words_that_occur_together_are_aligned():
    source = [[1, 2], [2, 3], [3, 1], [1, 3]]
    target = [[id + 4 for id in text] for text in source]
    assert align_words(join(source), join(target)) == [[(0, 0), (1, 1)]] * 4


def test_pairs_are_all_words_of_the_same_text():
    pairs = WordPairs.from_texts(*(join(texts) for texts in zip(*TEXTS, strict=True)))
    expected = [
        (text, i, j, s, t)
        for text, (source, target) in enumerate(TEXTS)
        for i, s in enumerate(source)
        for j, t in enumerate(target)
    ]
    columns = (
        *(pairs.text, pairs.source_position, pairs.target_position),
        *(pairs.source_id, pairs.target_id),
    )
    assert [*zip(*(column.tolist() for column in columns), strict=True)] == expected
    assert pairs.source_word.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 6]
    assert pairs.target_word.tolist() == [0, 1, 0, 1, 0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 5, 6]


def test_a_text_without_words_has_no_pairs():
    empty = torch.tensor([-1, -1])
    pairs = WordPairs.from_texts(empty, torch.tensor([3, -1, -1, 4]))
    assert len(pairs.text) == len(alignment_probs(pairs)) == 0


def diagonal_prior(i, j, source, target):
    distance = abs((i + 0.5) / len(source) - (j + 0.5) / len(target))
    return math.exp(-DIAGONAL_STRENGTH * distance)


def test_alignment_probs_equal_those_of_ibm_model_1_with_dictionaries():
    prob = defaultdict(lambda: 1.0)
    for _ in range(EM_ITERATIONS):
        counts, totals, expected = defaultdict(float), defaultdict(float), []
        for source, target in TEXTS:
            for i, s in enumerate(source):
                for j, t in enumerate(target):
                    priors = [diagonal_prior(k, j, source, target) for k in range(len(source))]
                    total = sum(prob[x, t] * p for x, p in zip(source, priors, strict=True))
                    expected.append(prob[s, t] * priors[i] / total)
                    counts[s, t] += expected[-1]
                    totals[s] += expected[-1]
        prob = {pair: count / totals[pair[0]] for pair, count in counts.items()}
    pairs = WordPairs.from_texts(*(join(texts) for texts in zip(*TEXTS, strict=True)))
    close(alignment_probs(pairs), torch.tensor(expected), atol=1e-5, rtol=1e-4)


def test_aligned_pairs_are_sorted_and_their_probabilities_add_up_to_one():
    pairs = WordPairs.from_texts(*(join(texts) for texts in zip(*TEXTS, strict=True)))
    aligned = fit_alignment(pairs)
    assert isinstance(aligned, AlignedPairs)
    assert torch.equal(aligned.source_id[aligned.row], pairs.source_id)
    assert torch.equal(aligned.target_id[aligned.row], pairs.target_id)
    keys = (aligned.source_id * 100 + aligned.target_id).tolist()
    assert keys == sorted(set(keys))
    totals = torch.zeros(7).index_add(0, pairs.target_word, aligned.probs)
    close(totals, torch.ones(7))


def test_swapped_pairs_align_the_source_with_the_target():
    sources, targets = (join(texts) for texts in zip(*TEXTS, strict=True))
    swapped = alignment_probs(WordPairs.from_texts(sources, targets).swap())
    pairs = WordPairs.from_texts(targets, sources)
    key = pairs.source_word * 100 + pairs.target_word
    other = WordPairs.from_texts(sources, targets)
    order = (other.target_word * 100 + other.source_word).argsort()
    close(swapped[order], alignment_probs(pairs)[key.argsort()])
