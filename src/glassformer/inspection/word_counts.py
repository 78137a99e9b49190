"""Word n-gram counts of small corpora, for pictures and lessons."""

import torch
from torch import Tensor

from glassformer.baselines.markov import Config, Markov
from glassformer.nn.counts import NGramCounts, previous_ids

NOUN_COUNTS = {"directories": 2, "files": 3, "photos": 5}
SHOW_ME = [f"show me my {noun} please" for noun, count in NOUN_COUNTS.items() for _ in range(count)]
BATTERY = [
    *(["check whether the battery ran down please"] * 2),
    *(["check whether the program ran please"] * 3),
]
PROGRAM = "check the program log and find out whether it ran"
LOG = [f"{PROGRAM} please", f"{PROGRAM.replace('program', 'battery')} down please"]
CANDIDATES = ["down", "please"]  # for the next word


def count_words(lines: list[str], order: int) -> tuple[list[str], NGramCounts]:
    """The sorted words of the lines, and the counts of the next word after every `order` words."""
    words = sorted({word for line in lines for word in line.split()})
    counts = NGramCounts(len(words), order)
    texts = [torch.tensor([[words.index(word) for word in line.split()]]) for line in lines]
    contexts = [previous_ids(text[:, :-1], order) for text in texts]
    columns = [torch.cat(column) for column in zip(*contexts, strict=True)]
    counts.fit(columns, torch.cat([text[0, 1:] for text in texts]))
    return words, counts


def count_votes(masked: bool, text: str = PROGRAM) -> tuple[Tensor, Tensor]:
    """The votes of each pair of the text's last word and an earlier word, and their totals."""
    words, model = fit_log(masked=masked)
    ids = [words.index(word) for word in text.split()]
    columns = [words.index(word) for word in CANDIDATES]
    last, *earlier = [column[-1:] for column in previous_ids(torch.tensor([ids]), len(ids))]
    votes = torch.cat([model.counts.fractions([last, word]) for word in reversed(earlier)])
    return votes[:, columns], model.votes([last, *earlier])[:, columns]


def fit_log(masked: bool) -> tuple[list[str], Markov]:
    """The words of `LOG`, and the model of pairs at any distance fitted to it."""
    words = sorted({word for line in LOG for word in line.split()})
    lines = [[words.index(word) for word in line.split()] for line in LOG]
    model = Markov(Config(vocab=len(words), skips=len(PROGRAM.split()) - 1, masked=masked))
    model.fit(torch.tensor([line + [-1] * (12 - len(line)) for line in lines]))
    return words, model
