"""Text to ids and back. `TOKENIZERS` lists the kinds that can be trained."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json
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


def words(values: Any) -> list[str]:
    """A list of different strings, as a file should hold it."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("tokens must be a list of strings")
    if len(set(values)) != len(values):
        raise ValueError("tokens must differ from each other")
    return values


def load(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`, ours or that of the library `tokenizers`."""
    content = read_json(path)
    try:
        match content:
            case {"kind": "bytes", "special_tokens": special_tokens}:
                return Bytes(words(special_tokens))
            case {
                "kind": "characters" | "words" as kind,
                "special_tokens": special_tokens,
                "tokens": tokens,
            }:
                listed: Tokenizer = TOKENIZERS[kind](words(tokens), words(special_tokens))
                return listed
            case {"kind": "scored", "pieces": pieces, "scores": scores}:
                return ScoredTokenizer(
                    [piece.encode("latin-1") for piece in pieces], list(map(float, scores))
                )
            case {"model": {"type": kind}} if kind in MODELS:
                check_components(content)
                subwords = SubwordTokenizer(Engine.from_str(json.dumps(content)))
                subwords.decode(subwords.encode("a word, 一, 1\n"))  # what always fails, fails here
                return subwords
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except GlassError as error:
        raise GlassError(f"{path}: {error}") from None
    except BaseException as error:  # the library raises bare Exception, and panics with less
        what = " ".join(str(error).split())[:200]
        raise GlassError(f"{path} is damaged: {what}") from None
    raise GlassError(f"{path} holds no tokenizer that Glassformer knows")
