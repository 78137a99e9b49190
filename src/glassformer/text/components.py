"""What a `tokenizer.json` may hold: components whose cost is bounded by the length of a text.

The library `tokenizers` runs whatever such a file describes. A regular expression can take forever
on a short text, and a replacement that doubles it, forty times over, fills any memory: so what is
not listed here is refused by name.
"""

import re
from collections.abc import Iterator
from typing import Any

from glassformer.core.bounds import MAX_SIZE
from glassformer.core.errors import GlassError

MODELS = frozenset(["BPE", "WordPiece", "Unigram", "WordLevel"])
COMPONENTS = {
    "normalizer": frozenset(
        """Sequence NFC NFD NFKC NFKD Lowercase Strip StripAccents BertNormalizer Nmt Prepend
        Replace ByteLevel""".split()
    ),
    "pre_tokenizer": frozenset(
        """Sequence ByteLevel BertPreTokenizer Whitespace WhitespaceSplit Metaspace Punctuation
        Digits Split CharDelimiterSplit UnicodeScripts""".split()
    ),
    "post_processor": frozenset(
        "Sequence BertProcessing RobertaProcessing ByteLevel TemplateProcessing".split()
    ),
    "decoder": frozenset(
        "Sequence ByteLevel WordPiece Metaspace BPEDecoder ByteFallback Fuse Strip Replace".split()
    ),
}
INSIDE = {  # where a Sequence of such components has them
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
REGEXES = frozenset(  # those of GPT-2, Llama 3 and Qwen 2, and runs of spaces
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        " {2,}",
    ]
)
MOST_COMPONENTS, MOST_GROWTH, LONGEST_WORD, LONGEST_TOKEN = 32, 64.0, 1000, 10_000


def check_components(content: dict[str, Any]) -> None:
    """Refuse a tokenizer with a component, a size or an id that is not allowed."""
    check_model(content["model"])
    for name, allowed in COMPONENTS.items():
        found = list(flatten(content.get(name), INSIDE[name]))
        if len(found) > MOST_COMPONENTS:
            raise GlassError(f"it has {len(found)} components of the kind {name}")
        growth = 1.0
        for part in found:
            if part.get("type") not in allowed:
                raise GlassError(f"its {name} is a {part.get('type')!r}, which is not supported")
            growth *= growth_of(part)
        if growth > MOST_GROWTH:
            raise GlassError(f"its {name} makes a text up to {growth:,.0f} times longer")
    for token in content.get("added_tokens") or ():
        check_token(token["content"], token["id"])


def flatten(part: Any, inside: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """A component, or those inside a sequence of components, which has them under that name."""
    if part is None:
        return
    if not isinstance(part, dict) or depth > MOST_COMPONENTS:
        raise GlassError("one of its components is not a table with a type")
    if part.get("type") != "Sequence":
        yield part
        return
    for one in part[inside]:
        yield from flatten(one, inside, depth + 1)


def growth_of(part: dict[str, Any]) -> float:
    """How many times longer a component can make a text of one character."""
    if part["type"] == "Prepend":
        return 1.0 + len(part["prepend"])
    if part["type"] == "Strip" and not 0 <= max(part.get("start", 0), part.get("stop", 0)) < 64:
        raise GlassError("it strips more than 64 characters from a token")
    if part["type"] not in ("Replace", "Split"):
        return 1.0
    match part["pattern"]:
        case {"Regex": str(regex)} if regex in REGEXES or is_linear(regex):
            length = 1
        case {"String": str(text)} if text:
            length = len(text)
        case pattern:
            raise GlassError(f"its pattern {pattern!r} is not one that is known to be harmless")
    return max(len(part["content"]) / length, 1.0) if part["type"] == "Replace" else 1.0


def is_linear(regex: str) -> bool:
    """Whether a regular expression looks at each character once, whatever the text.

    So it is without groups, if nothing comes after what may be repeated without end.
    """
    regex = re.sub(r"\[\^?(\\.|[^\]\\])+\]|\\[pP]\{\w+\}|\\.", "x", regex)  # one character each
    return all(re.fullmatch(r"([^][(){}+*?^$\\|]\??)*[+*]?", part) for part in regex.split("|"))


def check_model(model: dict[str, Any]) -> None:
    vocabulary, kind = model["vocab"], model["type"]
    if kind == "Unigram":
        for token, score in vocabulary:
            check_token(token, 0)
            if not isinstance(score, int | float):
                raise GlassError(f"the score of {token!r} is {score!r}, not a number")
        unknown = model.get("unk_id")
        if unknown is not None and not 0 <= unknown < len(vocabulary):
            raise GlassError(f"unk_id is {unknown}, which is no token")
        return
    for token, id in vocabulary.items():
        check_token(token, id, empty=True)
    unknown = model.get("unk_token")
    if unknown not in vocabulary and not (kind == "BPE" and unknown is None):
        raise GlassError(f"its unknown token {unknown!r} is not in the vocabulary")
    if not 0 < (longest := model.get("max_input_chars_per_word", 100)) <= LONGEST_WORD:
        raise GlassError(
            f"max_input_chars_per_word is {longest}; at most {LONGEST_WORD} is allowed"
        )
    if model.get("dropout"):
        raise GlassError("it leaves out merges by chance (dropout), which only training does")


def check_token(token: object, id: object, *, empty: bool = False) -> None:
    if not isinstance(token, str) or not (empty or token) or len(token) > LONGEST_TOKEN:
        raise GlassError(f"a token is {str(token)[:50]!r}")
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < MAX_SIZE:
        raise GlassError(f"the id of {token[:50]!r} is {id}; ids are from 0 to {MAX_SIZE:,}")
