"""From counting to attention, with the three corpora of Brandon Rohrer's tutorial."""

import torch

from glassformer.inspection.pair_features import compute_pair_features
from glassformer.inspection.word_counts import (
    BATTERY,
    CANDIDATES,
    PROGRAM,
    SHOW_ME,
    count_votes,
    count_words,
)
from glassformer.lessons.lesson import Values


def compute_values() -> Values:
    return {
        "candidates": CANDIDATES,
        "last_word": ["ran"],
        **compute_first_order(),
        **compute_second_order(),
        **compute_skips(),
        **compute_pair_features(),
    }


def compute_first_order() -> Values:
    words, counts = count_words(SHOW_ME, 1)
    one_hot = torch.eye(len(words))
    transitions = counts.fractions([torch.arange(len(words))])
    my = one_hot[words.index("my")][None]
    return {
        "words": words,
        "one_hot": one_hot,
        "word_products": one_hot @ one_hot.T,
        "transitions": transitions,
        "my": my,
        "after_my": my @ transitions,
    }


def compute_second_order() -> Values:
    words, first_order = count_words(BATTERY, 1)
    _, second_order = count_words(BATTERY, 2)
    columns = [words.index(word) for word in CANDIDATES]
    ran = torch.tensor([words.index("ran")])
    noun = torch.tensor([words.index("battery"), words.index("program")])
    return {
        "noun_pairs": ["battery ran", "program ran"],
        "after_one_word": first_order.fractions([ran])[:, columns],
        "after_two_words": second_order.fractions([ran.expand(2), noun])[:, columns],
    }


def compute_skips() -> Values:
    (votes, total), (masked, total_masked) = (count_votes(masked) for masked in (False, True))
    return {
        "program": PROGRAM,
        "skip_pairs": [f"{word}, ran" for word in PROGRAM.split()[:-1]],
        "votes": votes,
        "total_votes": total,
        "masked_votes": masked * (masked > 0.5).any(dim=1, keepdim=True),
        "total_masked_votes": total_masked,
    }
