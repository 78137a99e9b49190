"""Tokenizers: text to ids and back. `TOKENIZERS` lists those that can be trained."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json
from glassformer.text.bilingual import Bilingual
from glassformer.text.components import MODELS, check_components
from glassformer.text.plain import Bytes, Characters, Words
from glassformer.text.scored import ScoredTokenizer
from glassformer.text.subword import BPE, SubwordTokenizer, WordPiece
from glassformer.text.tokenizer import Tokenizer

TOKENIZERS: dict[str, Any] = {
    "characters": Characters,
    "bytes": Bytes,
    "words": Words,
    "bpe": BPE,
    "wordpiece": WordPiece,
}


def check_tokens(tokens: Any) -> list[str]:
    """Return the tokens if they are a list of distinct strings, or raise a ValueError."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise ValueError("tokens must be a list of strings")
    if len(set(tokens)) != len(tokens):
        raise ValueError("tokens must be distinct")
    return tokens


def load(path: Path) -> Tokenizer:
    """Load a `tokenizer.json`, in Glassformer's format or that of the `tokenizers` library."""
    content = read_json(path)
    try:
        match content:
            case {"kind": "bilingual", "source": source, "target": target}:
                return Bilingual(parse(source), parse(target))
        return parse(content)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except GlassError as error:
        raise GlassError(f"{path}: {error}") from None
    except BaseException as error:  # a panic in the library's Rust code is not an Exception
        reason = " ".join(str(error).split())[:200]
        raise GlassError(f"{path} is corrupted: {reason}") from None


def parse(content: Any) -> Tokenizer:
    """Return the tokenizer with this content of a `tokenizer.json`."""
    match content:
        case {"kind": "bytes", "special_tokens": special_tokens}:
            return Bytes(check_tokens(special_tokens))
        case {
            "kind": "characters" | "words" as kind,
            "special_tokens": special_tokens,
            "tokens": tokens,
        }:
            tokenizer: Tokenizer = TOKENIZERS[kind](
                check_tokens(tokens), check_tokens(special_tokens)
            )
            return tokenizer
        case {"kind": "scored", "pieces": pieces, "scores": scores}:
            return ScoredTokenizer(
                [piece.encode("latin-1") for piece in pieces], list(map(float, scores))
            )
        case {"model": {"type": kind}} if kind in MODELS:
            check_components(content)
            subword = SubwordTokenizer(Engine.from_str(json.dumps(content)))
            subword.decode(subword.encode("a word, 一, 1\n"))  # fail now, not at first use
            return subword
    raise GlassError("it is not a tokenizer of a supported type")
