"""Readable reference implementations of BPE and WordPiece.

`subword.py` uses the `tokenizers` library instead; tests check that both give the same ids.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

Word = tuple[str, ...]
Pair = tuple[str, str]

# --- merges, for BPE and WordPiece ----------------------------------------------------------------


def train_merges(
    words: dict[Word, int],
    characters: list[str],
    size: int,
    min_count: int,
    join: Callable[[str, str], str],
) -> tuple[dict[str, int], list[Pair]]:
    """Repeatedly merge the most frequent pair of neighboring symbols until there are `size` tokens.

    Args:
        words: the count of each word, split into symbols.
        characters: the initial tokens, in the order of their ids.
        min_count: stop when the most frequent pair is rarer than this.
        join: makes the new token from the two merged ones.

    Returns: the id of each token, and the merges in order.
    """
    ids = {char: i for i, char in enumerate(characters)}
    merges = []
    while len(ids) < size:
        pairs = count_pairs(words)
        best = min(pairs, key=lambda p: (-pairs[p], ids[p[0]], ids[p[1]]), default=None)
        if best is None or pairs[best] < min_count:
            break
        merges.append(best)
        merged = join(*best)
        ids.setdefault(merged, len(ids))
        words = {merge(word, best, merged): count for word, count in words.items()}
    return ids, merges


def count_pairs(words: dict[Word, int]) -> Counter[Pair]:
    """How often each pair of neighboring symbols occurs."""
    pairs: Counter[Pair] = Counter()
    for word, count in words.items():
        for pair in pairwise(word):
            pairs[pair] += count
    return pairs


def merge(word: Word, pair: Pair, merged: str) -> Word:
    out: list[str] = []
    for symbol in word:
        if out and (out[-1], symbol) == pair:
            out[-1] = merged
        else:
            out.append(symbol)
    return tuple(out)


# --- byte-level BPE -------------------------------------------------------------------------------

CONTRACTION = re.compile("'(?:s|t|re|ve|m|ll|d)")
SEPARATORS = "\x1c\x1d\x1e\x1f"  # whitespace in Python, but not in Unicode
RUN = re.compile(r" ?(?:L+|N+|O+)|\s+(?!\S)|\s+")  # matches character classes, not characters

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
REST = [byte for byte in range(256) if byte not in PRINTABLE]
BYTE_TO_CHAR = {byte: chr(byte) for byte in PRINTABLE}  # every byte as a printable character
BYTE_TO_CHAR |= {byte: chr(256 + i) for i, byte in enumerate(REST)}
CHAR_TO_BYTE = {character: byte for byte, character in BYTE_TO_CHAR.items()}


def character_class(character: str) -> str:
    """L for letters, N for numbers, O for others, and a space or a newline for whitespace."""
    if character.isspace() and character not in SEPARATORS:
        return " " if character == " " else "\n"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "O"


def gpt2_words(text: str) -> Iterator[str]:
    """Split a text into runs of letters, numbers or other characters, with any leading space."""
    classes = "".join(map(character_class, text))
    start = 0
    while start < len(text):
        match = CONTRACTION.match(text, start) or RUN.match(classes, start)
        assert match, "every character has a class"
        yield text[start : match.end()]
        start = match.end()


def split_bytes(word: str) -> Word:
    return tuple(BYTE_TO_CHAR[byte] for byte in word.encode())


def train_bpe(
    texts: Iterable[str], size: int, *, min_count: int = 2
) -> tuple[dict[str, int], list[Pair]]:
    words = Counter(split_bytes(word) for text in texts for word in gpt2_words(text))
    return train_merges(words, sorted(CHAR_TO_BYTE), size, min_count, str.__add__)


def encode_bpe(text: str, ids: dict[str, int], merges: list[Pair]) -> list[int]:
    """Apply the merges in the order in which they were learned."""
    rank = {pair: i for i, pair in enumerate(merges)}
    out: list[int] = []
    for word in map(split_bytes, gpt2_words(text)):
        while mergeable := [pair for pair in pairwise(word) if pair in rank]:
            first = min(mergeable, key=rank.__getitem__)
            word = merge(word, first, "".join(first))
        out += (ids[symbol] for symbol in word)
    return out


def decode_bpe(token_ids: Iterable[int], ids: dict[str, int]) -> str:
    tokens = {i: token for token, i in ids.items()}
    return bytes(CHAR_TO_BYTE[c] for i in token_ids for c in tokens[i]).decode(errors="replace")


# --- WordPiece ------------------------------------------------------------------------------------


def bert_words(text: str, *, lower: bool = True) -> list[str]:
    """Split a text into words, punctuation marks and ideographs, without control characters.

    With `lower`, also lowercase it and remove accents.
    """
    out = ""
    for character in text:
        control = unicodedata.category(character).startswith("C") and character not in "\t\n\r"
        if control or character == "\ufffd":
            continue
        if character.isspace():
            out += " "
        else:
            out += f" {character} " if is_ideograph(character) else character
    if lower:
        decomposed = unicodedata.normalize("NFD", out)
        out = "".join(c for c in decomposed if unicodedata.category(c) != "Mn").lower()
    return "".join(f" {c} " if is_punctuation(c) else c for c in out).split()


def is_ideograph(character: str) -> bool:
    return unicodedata.name(character, "").startswith("CJK ") and character.isalpha()


def is_punctuation(character: str) -> bool:
    is_ascii = "!" <= character <= "~" and not character.isalnum()
    return is_ascii or unicodedata.category(character).startswith("P")


def split_characters(word: str) -> Word:
    return (word[0], *(f"##{char}" for char in word[1:]))


def join_pieces(left: str, right: str) -> str:
    return left + right.removeprefix("##")


def train_wordpiece(
    words: dict[str, int], characters: list[str], size: int, *, min_count: int = 2
) -> tuple[dict[str, int], list[Pair]]:
    """Train on the counts of words; `characters` are the initial tokens."""
    split_words = {split_characters(word): count for word, count in words.items()}
    return train_merges(split_words, characters, size, min_count, join_pieces)


def encode_wordpiece(text: str, ids: dict[str, int], *, lower: bool = True) -> list[int]:
    """Split each word greedily into the longest pieces in `ids`; else it is [UNK]."""
    out: list[int] = []
    for word in bert_words(text, lower=lower):
        word_ids, start = [], 0
        while start < len(word) <= 100:
            ends = range(len(word), start, -1)
            candidates = ("##" * (start > 0) + word[start:end] for end in ends)
            piece, end = next(
                ((p, e) for p, e in zip(candidates, ends, strict=True) if p in ids), ("", 0)
            )
            if not piece:
                break
            word_ids.append(ids[piece])
            start = end
        out += word_ids if start == len(word) else [ids["[UNK]"]]
    return out
