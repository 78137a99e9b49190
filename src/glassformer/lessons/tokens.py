"""BPE and WordPiece, merge by merge, on a few words or on a user's text.

Shapes: m merges, w words, p pieces.
"""

import pydoc_data.topics
from collections import Counter
from collections.abc import Callable
from functools import cache, reduce

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.lessons.lesson import Values
from glassformer.text import by_hand
from glassformer.text.by_hand import Pair, Word
from glassformer.text.subword import BPE

CORPUS = """
walk walk walk walked walked walks talk talk talked talks talking talking
jump jumped jumping jumping
"""
NEW_WORD = "walking"  # does not occur in CORPUS
MAX_MERGES = 12
MAX_WORDS = 12  # shown in a table: the most frequent ones
MAX_PAIRS = 10
MERGE_COUNTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
VOCABULARY_SIZES = (512, 2048, 8192)
WORDS_PER_TOKEN = 0.75  # the rule that a tutorial gives


def compute_values(text: str = CORPUS) -> Values:
    text = " ".join(text.split())
    words = Counter(by_hand.bert_words(text))
    if not words:
        raise GlassError("the text is empty: give a few words")
    word = NEW_WORD if text == " ".join(CORPUS.split()) else max(words, key=len)
    shown = [word for word, _ in words.most_common(MAX_WORDS)]
    return {
        "word": word,
        "n_words": words.total(),
        "shown_words": shown,
        "word_counts": to_tensor([[words[word] for word in shown]]),
        **compute_bpe(text, word),
        **compute_wordpiece(words, word),
        "split_sizes": to_tensor([[len(words), words.total()], [len(set(text)), len(text)]]),
        "rule": WORDS_PER_TOKEN,
        **measure_words_per_token(),
    }


def to_tensor(rows: list[list[float]] | list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


# --- BPE ------------------------------------------------------------------------------------------


def compute_bpe(text: str, word: str) -> Values:
    counts = Counter(map(by_hand.split_bytes, by_hand.gpt2_words(text)))
    ids, all_merges = by_hand.train_bpe([text], 256 + MERGE_COUNTS[-1])
    if not all_merges:
        raise GlassError("no two characters follow each other twice: give a longer text")
    merges = all_merges[:MAX_MERGES]
    pairs = by_hand.count_pairs(counts).most_common(MAX_PAIRS)
    pieces = by_hand.encode_bpe(f" {word}", ids, merges)
    tokens = {i: token for token, i in ids.items()}
    return {
        "pairs": [f"{show_bytes(a)} + {show_bytes(b)}" for (a, b), _ in pairs],
        "pair_counts": to_tensor([[count for _, count in pairs]]),
        **describe_merges(counts, merges, "bpe", join=str.__add__, show=show_bytes),
        "word_history": show_history(by_hand.split_bytes(f" {word}"), merges),
        "bpe_pieces": [show_bytes(tokens[i]) for i in pieces],
        "bpe_ids": to_tensor([pieces]),
        **compute_sizes(counts, all_merges, len(text.split())),
    }


def compute_sizes(counts: Counter[Word], merges: list[Pair], n_words: int) -> Values:
    """Vocabulary, tokens in the text and words per token after more and more merges."""
    rows = []
    names = []
    words = dict(counts)
    for done in range(len(merges) + 1):
        if done in MERGE_COUNTS or done == len(merges):
            n_tokens = sum(count * len(pieces) for pieces, count in words.items())
            rows.append([256 + done, n_tokens, n_words / n_tokens])
            names.append(str(done))
        if done < len(merges):
            words = merge_all(words, merges[done], str.__add__)
    return {"merge_counts": names, "sizes": to_tensor(rows)}


def merge_all(
    words: dict[Word, int], pair: Pair, join: Callable[[str, str], str]
) -> dict[Word, int]:
    """The counts of all words after one merge."""
    return {by_hand.merge(word, pair, join(*pair)): count for word, count in words.items()}


def describe_merges(
    counts: dict[Word, int],
    merges: list[Pair],
    prefix: str,
    *,
    join: Callable[[str, str], str],
    show: Callable[[str], str],
) -> Values:
    """For each merge: the count of its pair, the tokens left (m 2), and the pieces per word (m w).

    Only the most frequent words are shown.
    """
    words = dict(Counter(counts).most_common())
    names = [show(reduce(join, word)) for word in words][:MAX_WORDS]
    rows, lengths = [], []
    for pair in merges:
        pair_count = by_hand.count_pairs(words)[pair]
        words = merge_all(words, pair, join)
        rows.append([pair_count, sum(count * len(word) for word, count in words.items())])
        lengths.append([len(word) for word in words][:MAX_WORDS])
    return {
        f"{prefix}_merges": [f"{i}: {show(a)} + {show(b)}" for i, (a, b) in enumerate(merges, 1)],
        f"{prefix}_counts": to_tensor(rows),
        f"{prefix}_words": names,
        f"{prefix}_lengths": to_tensor(lengths),
    }


def show_history(word: Word, merges: list[Pair]) -> str:
    """The pieces of a word before the first merge and after each merge that changes it."""
    states = [word]
    for pair in merges:
        merged = by_hand.merge(states[-1], pair, "".join(pair))
        if merged != states[-1]:
            states.append(merged)
    return " → ".join(" ".join(map(show_bytes, pieces)) for pieces in states)


def show_bytes(piece: str) -> str:
    """A piece of BPE as text, with ␣ for a space; an incomplete character as bytes: <e4 b8>."""
    data = bytes(by_hand.CHAR_TO_BYTE[character] for character in piece)
    try:
        return data.decode().replace(" ", "␣")
    except UnicodeDecodeError:
        return f"<{data.hex(' ')}>"


# --- WordPiece ------------------------------------------------------------------------------------


def compute_wordpiece(words: Counter[str], word: str) -> Values:
    counts = {by_hand.split_characters(w): count for w, count in words.items()}
    characters = sorted({symbol for symbols in counts for symbol in symbols})
    size = len(characters) + MAX_MERGES
    ids, merges = by_hand.train_wordpiece(dict(words), characters, size)
    ids |= {"[UNK]": len(ids)}
    pieces = by_hand.encode_wordpiece(word, ids)
    tokens = {i: token for token, i in ids.items()}
    candidates = list_candidates(word, ids)
    return {
        **describe_merges(counts, merges, "wordpiece", join=by_hand.join_pieces, show=str),
        "candidates": candidates,
        "is_token": to_tensor([[float(candidate in ids)] for candidate in candidates]),
        "wordpiece_pieces": [tokens[i] for i in pieces],
        "wordpiece_ids": to_tensor([pieces]),
        "wordpiece_split": " ".join(tokens[i] for i in pieces),
    }


def list_candidates(word: str, ids: dict[str, int]) -> list[str]:
    """The pieces that the greedy search tries, in order: from each start, the longest first."""
    candidates, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            candidates.append("##" * (start > 0) + word[start:end])
            if candidates[-1] in ids:
                break
        else:
            break  # not even the character is known: the word is [UNK]
        start = end
    return candidates


# --- words per token ------------------------------------------------------------------------------


@cache
def measure_words_per_token() -> Values:
    """Words per token of BPE tokenizers of growing size, on the text that they were trained on."""
    texts = list(pydoc_data.topics.topics.values())
    n_words = sum(len(text.split()) for text in texts)
    tokenizers = [BPE.train(texts, vocab=size) for size in VOCABULARY_SIZES]
    rows = [
        [tokenizer.vocab, n_words / sum(len(tokenizer.encode(text)) for text in texts)]
        for tokenizer in tokenizers
    ]
    return {"documentation_words": n_words, "documentation_sizes": to_tensor(rows)}
