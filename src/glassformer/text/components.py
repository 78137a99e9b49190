"""Check that a `tokenizer.json` has only components whose cost is linear in the text's length.

The `tokenizers` library runs everything that such a file describes. A regular expression can take
forever on a short text, and forty replacements that each double the text exhaust the memory.
Therefore only the components listed here are accepted.
"""

import re
from collections.abc import Iterator
from typing import Any

from glassformer.core.bounds import MAX_SIZE
from glassformer.core.errors import GlassError
from glassformer.text.plain import LIBRARY_WORD

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
SEQUENCE_KEYS = {  # the key under which a Sequence lists its components
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}
REGEXES = frozenset(  # those of GPT-2, Llama 3 and Qwen 2, one for runs of spaces, and our words
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        " {2,}",
        LIBRARY_WORD,
    ]
)
MAX_COMPONENTS = 32  # of each type
MAX_GROWTH = 64.0  # factor by which the length of a text may grow
MAX_WORD_LENGTH, MAX_TOKEN_LENGTH = 1000, 10_000  # characters


def check_components(content: dict[str, Any]) -> None:
    """Raise a `GlassError` if a tokenizer has an unsupported component, size or id."""
    check_model(content["model"])
    for name, allowed in COMPONENTS.items():
        components = list(flatten(content.get(name), SEQUENCE_KEYS[name]))
        if len(components) > MAX_COMPONENTS:
            raise GlassError(
                f"its {name} has {len(components)} components; at most {MAX_COMPONENTS} are allowed"
            )
        growth = 1.0
        for component in components:
            if component.get("type") not in allowed:
                raise GlassError(f"its {name} {component.get('type')!r} is not supported")
            growth *= max_growth(component)
        if growth > MAX_GROWTH:
            raise GlassError(
                f"its {name} makes a text up to {growth:,.0f} times longer; "
                f"at most {MAX_GROWTH:.0f} times is allowed"
            )
    for token in content.get("added_tokens") or ():
        check_token(token["content"], token["id"])


def flatten(component: Any, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a component, or if it is a Sequence, the components that it lists under `key`."""
    if component is None:
        return
    if depth > MAX_COMPONENTS:
        raise GlassError(f"one of its components is nested more than {MAX_COMPONENTS} levels deep")
    if not isinstance(component, dict):
        raise GlassError("one of its components is not a JSON object with a type")
    if component.get("type") != "Sequence":
        yield component
        return
    for child in component[key]:
        yield from flatten(child, key, depth + 1)


def max_growth(component: dict[str, Any]) -> float:
    """The largest factor by which a component can lengthen a text."""
    kind = component["type"]
    if kind == "Prepend":
        return 1.0 + len(component["prepend"])
    if kind == "Strip":
        stripped = max(component.get("start", 0), component.get("stop", 0))
        if not 0 <= stripped < 64:
            raise GlassError(
                f"it strips {stripped} characters from a token; at most 63 are allowed"
            )
    if kind not in ("Replace", "Split"):
        return 1.0
    match component["pattern"]:
        case {"Regex": str(regex)} if regex in REGEXES or is_linear(regex):
            length = 1
        case {"String": str(text)} if text:
            length = len(text)
        case pattern:
            raise GlassError(f"its pattern {pattern!r} is not known to run in linear time")
    return max(len(component["content"]) / length, 1.0) if kind == "Replace" else 1.0


def is_linear(regex: str) -> bool:
    """Whether a regular expression provably never backtracks.

    True only for alternatives without groups in which nothing follows an unbounded repetition.
    """
    regex = re.sub(r"\[\^?(\\.|[^\]\\])+\]|\\[pP]\{\w+\}|\\.", "x", regex)  # one character each
    return all(re.fullmatch(r"([^][(){}+*?^$\\|]\??)*[+*]?", part) for part in regex.split("|"))


def check_model(model: dict[str, Any]) -> None:
    vocabulary, kind = model["vocab"], model["type"]
    if kind == "Unigram":
        for token, score in vocabulary:
            check_token(token, 0)
            if not isinstance(score, int | float):
                raise GlassError(f"the score of {token!r} must be a number, got {score!r}")
        unknown = model.get("unk_id")
        if unknown is not None and not 0 <= unknown < len(vocabulary):
            raise GlassError(f"unk_id {unknown} is not the id of a token")
        return
    for token, id in vocabulary.items():
        check_token(token, id, allow_empty=True)
    unknown = model.get("unk_token")
    if unknown not in vocabulary and not (kind == "BPE" and unknown is None):
        raise GlassError(f"its unknown token {unknown!r} is not in the vocabulary")
    if not 0 < (max_length := model.get("max_input_chars_per_word", 100)) <= MAX_WORD_LENGTH:
        raise GlassError(
            f"max_input_chars_per_word is {max_length}; at most {MAX_WORD_LENGTH} is allowed"
        )
    if model.get("dropout"):
        raise GlassError("it drops merges at random (dropout), which is only for training")


def check_token(token: object, id: object, *, allow_empty: bool = False) -> None:
    if not isinstance(token, str) or not (allow_empty or token) or len(token) > MAX_TOKEN_LENGTH:
        raise GlassError(f"{str(token)[:50]!r} is not a valid token")
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < MAX_SIZE:
        raise GlassError(f"the id of {token[:50]!r} must be from 0 to {MAX_SIZE - 1:,}, got {id}")
