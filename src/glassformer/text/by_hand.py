"""BPE and WordPiece written out: what `subword.py` asks of a library, in lines to read."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

Word = tuple[str, ...]
Pair = tuple[str, str]

# --- both: learn merges ---------------------------------------------------------------------------


def learn(
    words: dict[Word, int],
    letters: list[str],
    size: int,
    min_count: int,
    join: Callable[[str, str], str],
) -> tuple[dict[str, int], list[Pair]]:
    """Merge the commonest pair of neighbours, again and again, until there are `size` tokens."""
    ids, merges = {letter: i for i, letter in enumerate(letters)}, []
    while len(ids) < size:
        pairs: Counter[Pair] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = min(pairs, key=lambda p: (-pairs[p], ids[p[0]], ids[p[1]]), default=None)
        if best is None or pairs[best] < min_count:
            break
        merges.append(best)
        merged = join(*best)
        ids.setdefault(merged, len(ids))
        words = {merge(word, best, merged): count for word, count in words.items()}
    return ids, merges


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
SEPARATORS = "\x1c\x1d\x1e\x1f"  # white space to Python, but not to Unicode
RUN = re.compile(r" ?(?:L+|N+|O+)|\s+(?!\S)|\s+")  # in a text of kinds, not of characters

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
REST = [byte for byte in range(256) if byte not in PRINTABLE]
SIGN = {byte: chr(byte) for byte in PRINTABLE} | {byte: chr(256 + i) for i, byte in enumerate(REST)}
BYTE = {sign: byte for byte, sign in SIGN.items()}  # each byte has a sign that one can see


def kind(character: str) -> str:
    if character.isspace() and character not in SEPARATORS:
        return " " if character == " " else "\n"
    category = unicodedata.category(character)[0]
    return category if category in "LN" else "O"


def gpt2_words(text: str) -> Iterator[str]:
    """Letters, numbers or other signs that stand together, with the space before them."""
    kinds, at = "".join(map(kind, text)), 0
    while at < len(text):
        match = CONTRACTION.match(text, at) or RUN.match(kinds, at)
        assert match, "every character has a kind"
        yield text[at : match.end()]
        at = match.end()


def signs(word: str) -> Word:
    return tuple(SIGN[byte] for byte in word.encode())


def learn_bpe(
    texts: Iterable[str], size: int, *, min_count: int = 2
) -> tuple[dict[str, int], list[Pair]]:
    words = Counter(signs(word) for text in texts for word in gpt2_words(text))
    return learn(words, sorted(BYTE), size, min_count, str.__add__)


def encode_bpe(text: str, ids: dict[str, int], merges: list[Pair]) -> list[int]:
    """Apply the merges in the order in which they were learnt."""
    rank = {pair: i for i, pair in enumerate(merges)}
    out: list[int] = []
    for word in map(signs, gpt2_words(text)):
        while known := [pair for pair in pairwise(word) if pair in rank]:
            first = min(known, key=rank.__getitem__)
            word = merge(word, first, "".join(first))
        out += (ids[symbol] for symbol in word)
    return out


def decode_bpe(numbers: Iterable[int], ids: dict[str, int]) -> str:
    tokens = {i: token for token, i in ids.items()}
    return bytes(BYTE[sign] for i in numbers for sign in tokens[i]).decode(errors="replace")


# --- WordPiece ------------------------------------------------------------------------------------


def bert_words(text: str, *, lower: bool = True) -> list[str]:
    """Words and single signs: without control characters and, in lower case, without accents."""
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
        plain = unicodedata.normalize("NFD", out)
        out = "".join(c for c in plain if unicodedata.category(c) != "Mn").lower()
    return "".join(f" {c} " if is_punctuation(c) else c for c in out).split()


def is_ideograph(character: str) -> bool:
    return unicodedata.name(character, "").startswith("CJK ") and character.isalpha()


def is_punctuation(character: str) -> bool:
    ascii_sign = "!" <= character <= "~" and not character.isalnum()
    return ascii_sign or unicodedata.category(character).startswith("P")


def pieces(word: str) -> Word:
    return (word[0], *(f"##{letter}" for letter in word[1:]))


def join_pieces(left: str, right: str) -> str:
    return left + right.removeprefix("##")


def learn_wordpiece(
    words: dict[str, int], letters: list[str], size: int, *, min_count: int = 2
) -> tuple[dict[str, int], list[Pair]]:
    """From counted words; the letters are numbered first."""
    spelled = {pieces(word): count for word, count in words.items()}
    return learn(spelled, letters, size, min_count, join_pieces)


def encode_wordpiece(text: str, ids: dict[str, int], *, lower: bool = True) -> list[int]:
    """Cut each word into the longest pieces that are known; a word with none is unknown."""
    out: list[int] = []
    for word in bert_words(text, lower=lower):
        found, start = [], 0
        while start < len(word) <= 100:
            ends = range(len(word), start, -1)
            tries = ("##" * (start > 0) + word[start:end] for end in ends)
            piece, end = next(
                ((p, e) for p, e in zip(tries, ends, strict=True) if p in ids), ("", 0)
            )
            if not piece:
                break
            found.append(ids[piece])
            start = end
        out += found if start == len(word) else [ids["[UNK]"]]
    return out
