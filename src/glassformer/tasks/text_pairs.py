"""One or two texts as the ids that a classifier reads: separators, truncation, padding."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassformer.core.errors import GlassError
from glassformer.data.batches import pad_rows
from glassformer.tasks.task import Batch
from glassformer.text.tokenizer import CLS, SEP, SEPARATORS, Tokenizer

UNLIMITED = 10**9  # tokens; stands for a context of None

Ids = NDArray[np.int64]


def encode_pair(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[int]:
    """Return the ids of one or two texts: [CLS] A [SEP] B [SEP], or A <sep> B."""
    special = tokenizer.special_tokens
    (first, *second) = map(tokenizer.encode, texts)
    if CLS in special:
        if SEP not in special:
            raise GlassError(f"the tokenizer has the special token {CLS} but not {SEP}")
        ids = [special[CLS], *first, special[SEP]]
        return ids + [i for rest in second for i in (*rest, special[SEP])]
    separator = find_separator(tokenizer)
    if second and separator < 0:
        names = ", ".join(SEPARATORS)
        raise GlassError(
            f"the tokenizer has no special token to separate two texts; it needs one of {names}"
        )
    return first + [i for rest in second for i in (separator, *rest)]


def find_separator(tokenizer: Tokenizer) -> int:
    """Return the id of the special token that separates two texts, or -1."""
    special = tokenizer.special_tokens
    return next((special[t] for t in SEPARATORS if t in special), -1)


def truncate(ids: Ids, limit: int, separator: int) -> Ids:
    """Truncate to `limit` ids: in a pair, the longer text is cut; a final separator stays."""
    if len(ids) <= limit:
        return ids
    closing = ids[-1:] if ids[-1] == separator else ids[:0]
    ids = ids[: len(ids) - len(closing)]
    limit = limit - len(closing)
    separators = np.flatnonzero(ids == separator)
    middle = int(separators[0]) if len(separators) else len(ids)
    second = min(len(ids) - middle, max(limit // 2, limit - middle))
    return np.concatenate((ids[:middle][: limit - second], ids[middle:][:second], closing))


def collate(tokenizer: Tokenizer, rows: Sequence[Ids], context: int | None) -> Batch:
    """Truncate rows of ids to the context and pad them into a batch; an empty text becomes id 0.

    If the tokenizer has [SEP], segments are 0 up to the first one and 1 after it. If a row was
    truncated, `untruncated_ids` are the rows before truncation, padded with -1.
    """
    separator = find_separator(tokenizer)
    empty = np.zeros(1, dtype=np.int64)
    truncated = [truncate(row, context or UNLIMITED, separator) for row in rows]
    ids, keep = pad_rows([row if len(row) else empty for row in truncated])
    batch = {"ids": ids, "keep": keep}
    if sum(map(len, truncated)) < sum(map(len, rows)):
        batch["untruncated_ids"], _ = pad_rows(list(rows), fill=-1)
    if SEP in tokenizer.special_tokens:
        ends = (ids == tokenizer.special_tokens[SEP]).long()
        batch["segments"] = (ends.cumsum(dim=1) - ends).clamp(max=1)
    return batch
