"""The counting of the lesson markov on a user's own sentences."""

from collections import Counter
from itertools import pairwise

import torch
from torch import Tensor

from glassformer.baselines.markov import Config, Markov
from glassformer.core.errors import GlassError
from glassformer.inspection.word_counts import count_words
from glassformer.lessons.lesson import Values
from glassformer.nn.counts import NGramCounts, previous_ids
from glassformer.text.sentences import split_sentences, split_words

MAX_WORDS = 16  # shown in a table: the most frequent ones
MAX_PAIRS = 12  # of the last word and an earlier word
MAX_COMPLETION = 10  # words


def compute_values(text: str) -> Values:
    sentences = [words for s in split_sentences(text) if len(words := split_words(s)) > 1]
    if not sentences:
        raise GlassError("give at least one sentence with two words: counting needs a next word")
    lines = [" ".join(words) for words in sentences]
    frequencies = Counter(word for words in sentences for word in words)
    shown = [word for word, _ in frequencies.most_common(MAX_WORDS)]
    return {
        "n_sentences": len(sentences),
        "n_words": frequencies.total(),
        "shown": shown,
        "frequencies": torch.tensor([[float(frequencies[word]) for word in shown]]),
        **compute_first_order(lines, shown),
        **compute_second_order(lines, sentences),
        **compute_skips(sentences),
        **complete(lines, sentences[0][0]),
    }


def compute_first_order(lines: list[str], shown: list[str]) -> Values:
    words, counts = count_words(lines, 1)
    columns = torch.tensor([words.index(word) for word in shown])
    return {"transitions": counts.fractions([columns])[:, columns]}


def compute_second_order(lines: list[str], sentences: list[list[str]]) -> Values:
    """What follows the word with the most different followers: after it alone, and after pairs."""
    followers: dict[str, Counter[str]] = {}
    for word, next_word in (pair for words in sentences for pair in pairwise(words)):
        followers.setdefault(word, Counter())[next_word] += 1
    word = max(followers, key=lambda w: (len(followers[w]), followers[w].total()))
    candidates = [w for w, _ in followers[word].most_common(MAX_WORDS)]
    triples = [words[i : i + 3] for words in sentences for i in range(len(words) - 2)]
    before = list(dict.fromkeys(first for first, middle, _ in triples if middle == word))
    words, first_order = count_words(lines, 1)
    _, second_order = count_words(lines, 2)
    columns = [words.index(w) for w in candidates]
    id = torch.tensor([words.index(word)])
    contexts = torch.tensor([words.index(w) for w in before[:MAX_WORDS]], dtype=torch.long)
    pairs = {pair for sentence in sentences for pair in pairwise(sentence)}
    return {
        "word": word,
        "last_word": [word],
        "followers": candidates,
        "after_one_word": first_order.fractions([id])[:, columns],
        "two_words": [f"{first} {word}" for first in before[:MAX_WORDS]],
        "after_two_words": second_order.fractions([id.expand(len(contexts)), contexts])[:, columns],
        "context_counts": torch.tensor(
            [[len(words), len(words) ** 2], [len(words), len(pairs)]], dtype=torch.float64
        ),
    }


def compute_skips(sentences: list[list[str]]) -> Values:
    """The votes of pairs for the last word of the last sentence."""
    words = sorted({word for sentence in sentences for word in sentence})
    *prompt, target = sentences[-1]
    prompt = prompt[-MAX_PAIRS - 1 :]
    ids = torch.tensor([[words.index(word) for word in prompt]])
    last, *earlier = [column[-1:] for column in previous_ids(ids, len(prompt))]
    plain, masked = (fit_pairs(sentences, words, masked=masked) for masked in (False, True))
    votes = [plain.counts.fractions([last, word])[0] for word in reversed(earlier)]
    total, masked_total = (model.votes([last, *earlier])[0] for model in (plain, masked))
    n_candidates = min(int((total > 0).sum()), MAX_WORDS)
    columns = total.argsort(descending=True, stable=True)[:n_candidates]
    return {
        "prompt": " ".join(prompt),
        "target": target,
        "pairs": [f"{word}, {prompt[-1]}" for word in prompt[:-1]],
        "candidates": [words[int(i)] for i in columns],
        "votes": torch.stack(votes)[:, columns] if votes else torch.empty(0),
        "total_votes": torch.stack((total[columns], masked_total[columns])),
    }


def fit_pairs(sentences: list[list[str]], words: list[str], *, masked: bool) -> Markov:
    longest = max(map(len, sentences))
    ids = torch.full((len(sentences), longest), -1)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = torch.tensor([words.index(word) for word in sentence])
    model = Markov(Config(vocab=len(words), skips=MAX_PAIRS, masked=masked))
    model.fit(ids)
    return model


def complete(lines: list[str], first: str) -> Values:
    """The most likely next word after two words, or after one if the two never occurred."""
    words, second_order = count_words(lines, 2)
    _, first_order = count_words(lines, 1)
    generated, probs = [first], list[float]()
    while len(probs) < MAX_COMPLETION:
        fractions = next_fractions(generated, words, first_order, second_order)
        if not fractions.any():
            break
        generated.append(words[int(fractions.argmax())])
        probs.append(float(fractions.max()))
    return {
        "completion": " ".join(generated),
        "generated": generated[1:],
        "completion_probs": torch.tensor([probs]),
    }


def next_fractions(
    generated: list[str], words: list[str], first_order: NGramCounts, second_order: NGramCounts
) -> Tensor:
    last = torch.tensor([words.index(generated[-1])])
    if len(generated) > 1:
        fractions = second_order.fractions([last, torch.tensor([words.index(generated[-2])])])
        if fractions.any():
            return fractions
    return first_order.fractions([last])
