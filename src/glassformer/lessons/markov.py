"""From counting to attention, with the three corpora of Brandon Rohrer's tutorial."""

import torch
from torch import Tensor

from glassformer.baselines.markov import Config, Markov
from glassformer.inspection.word_counts import SHOW_ME, count_words
from glassformer.lessons.lesson import Values
from glassformer.nn.counts import previous_ids

BATTERY = {
    "check whether the battery ran down please": 2,
    "check whether the program ran please": 3,
}
PROGRAM = "check the program log and find out whether it ran"
LOG = [f"{PROGRAM} please", f"{PROGRAM.replace('program', 'battery')} down please"]
CANDIDATES = ["down", "please"]  # for the next word


def compute_values() -> Values:
    return {
        "candidates": CANDIDATES,
        "last_word": ["ran"],
        **compute_first_order(),
        **compute_second_order(),
        **compute_skips(),
        **compute_attention(),
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
    lines = [line for line, count in BATTERY.items() for _ in range(count)]
    words, first_order = count_words(lines, 1)
    _, second_order = count_words(lines, 2)
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


def count_votes(masked: bool) -> tuple[Tensor, Tensor]:
    """The votes of each pair of the last word and an earlier word, and their totals."""
    words = sorted({word for line in LOG for word in line.split()})
    lines = [[words.index(word) for word in line.split()] for line in LOG]
    ids = [words.index(word) for word in PROGRAM.split()]
    columns = [words.index(word) for word in CANDIDATES]
    model = Markov(Config(vocab=len(words), skips=len(ids) - 1, masked=masked))
    model.fit(torch.tensor([line + [-1] * (12 - len(line)) for line in lines]))
    last, *earlier = [column[-1:] for column in previous_ids(torch.tensor([ids]), len(ids))]
    votes = torch.cat([model.counts.fractions([last, word]) for word in reversed(earlier)])
    return votes[:, columns], model.votes([last, *earlier])[:, columns]


def compute_attention() -> Values:
    """Attention as a lookup: which words before “ran” matter, and what their pairs predict."""
    query = torch.tensor([[0.0, 0, 0, 1]])
    keys = torch.zeros(4, 4)
    keys[3, :2] = 1  # “ran” attends to “battery” and “program”
    earlier_words = torch.tensor([[1.0, 0, 1, 1]])
    attended = earlier_words * (query @ keys) + query
    w = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]])
    w_2 = torch.tensor([[1.0, 0], [0, 1], [0, 0]])
    sums = attended @ w - 1
    features = sums.clamp(min=0)
    return {
        "attended_words": ["battery", "program", "log", "ran"],
        "pairs": ["battery, ran", "program, ran", "program, log"],
        "query": query,
        "keys": keys,
        "scores": query @ keys,
        "attended": attended,
        "w": w,
        "sums": sums,
        "features": features,
        "w_2": w_2,
        "next_word": features @ w_2,
    }
