"""Our tokenizers as a `tokenizer.json` of the `tokenizers` library, for use without Glassformer."""

import warnings
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Engine

from glassformer.core.i18n import localize
from glassformer.text.by_hand import CHAR_TO_BYTE
from glassformer.text.plain import LIBRARY_WORD, UNKNOWN, Bytes, Characters, ListTokenizer, Words
from glassformer.text.subword import SubwordTokenizer
from glassformer.text.tokenizer import CLS, SEP, SEPARATORS, Tokenizer

FILE = "tokenizer.json"


def write_tokenizer(folder: Path, tokenizer: Tokenizer | None) -> bool:
    """Write a `tokenizer.json` to a folder; return False if there is none to write."""
    engine = None if tokenizer is None else to_engine(tokenizer)
    if engine is not None:
        (folder / FILE).write_text(engine.to_str(), encoding="utf-8")
        return True
    if tokenizer is not None:
        message = f"left out the tokenizer: cannot export one of kind {tokenizer.kind!r}"
        warnings.warn(localize(message), stacklevel=4)
    return False


def to_engine(tokenizer: Tokenizer) -> Engine | None:
    """An engine of the library with the same ids, or None if there is none.

    Unlike our tokenizers, it also puts the special tokens around a text and between two texts, as
    in training.
    """
    match tokenizer:
        case SubwordTokenizer():
            engine = Engine.from_str(tokenizer.to_json())
        case Bytes():
            engine = Engine(models.BPE(dict(CHAR_TO_BYTE), []))
            engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            engine.decoder = decoders.ByteLevel()
        case Characters():
            engine = make_word_level(tokenizer)
            engine.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
            engine.decoder = decoders.Fuse()
        case Words():
            engine = make_word_level(tokenizer)
            engine.pre_tokenizer = pre_tokenizers.Split(Regex(LIBRARY_WORD), "removed", invert=True)
        case _:
            return None
    special = tokenizer.special_tokens
    if not isinstance(tokenizer, SubwordTokenizer):
        engine.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if engine.num_special_tokens_to_add(is_pair=True) == 0:
        add_template(engine, special)
    return engine


def make_word_level(tokenizer: ListTokenizer) -> Engine:
    """An engine with the ids of the tokens."""
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    return Engine(models.WordLevel(ids, unk_token=UNKNOWN))


def add_template(engine: Engine, special: dict[str, int]) -> None:
    """Add special tokens to a text and to a pair of texts: [CLS] A [SEP] B [SEP], or A <sep> B."""
    separator = next((token for token in SEPARATORS if token in special), None)
    if separator is None:
        return
    single = "$A"
    pair = f"$A {separator} $B"
    tokens = [separator]
    if separator == SEP and CLS in special:
        single = f"{CLS} $A {SEP}"
        pair = f"{CLS} $A {SEP} $B:1 {SEP}:1"
        tokens = [CLS, SEP]
    engine.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, special[token]) for token in tokens]
    )
