"""Detect the encoding of a text file."""

import codecs
import re
from functools import lru_cache
from pathlib import Path

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.data.compression import open_bytes

SAMPLE_BYTES = 1 << 20  # at the start of a file
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its first half
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
UTF8 = "utf-8-sig"  # also reads files without a byte order mark


def detect_encoding(path: Path) -> str:
    """The encoding of a file: UTF-8 unless its first megabyte is clearly something else."""
    with wrap_read_errors(path):
        stat = path.stat()
        return detect_unchanged(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def detect_unchanged(path: Path, _modified: int, _size: int) -> str:
    """Detect the encoding of a file once, unless it changes."""
    with open_bytes(path) as file:
        return detect_bytes(file.read(SAMPLE_BYTES))


def detect_bytes(sample: bytes) -> str:
    """The encoding of a text that starts with these bytes.

    A text with a few invalid bytes is UTF-8 if it also has valid characters beyond ASCII; so is one
    whose only invalid bytes are 0xFE and 0xFF, which are rare in text of any encoding.
    """
    for mark, encoding in BYTE_ORDER_MARKS:
        if sample.startswith(mark):
            return encoding
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(sample)
    if text.isascii() and "\0" not in text:
        return UTF8
    invalid = [ord(c) & 0xFF for c in re.findall("[\udc80-\udcff]", text)]
    n_valid = sum(not c.isascii() for c in text) - len(invalid)
    looks_like_utf16 = text.count("\0") > len(text) / 5
    if not looks_like_utf16 and (n_valid >= len(invalid) or set(invalid) <= {0xFE, 0xFF}):
        return UTF8
    return guess_legacy_encoding(sample)


def guess_legacy_encoding(sample: bytes) -> str:
    """The encoding that the text's letters suggest; UTF-8 if there is none that can decode it."""
    import chardet

    era = chardet.EncodingEra.MODERN_WEB  # the encodings of Windows, rather than of older systems
    encoding = chardet.detect(sample, encoding_era=era)["encoding"]
    if encoding is None:
        return UTF8
    try:
        codecs.getincrementaldecoder(encoding)("strict").decode(sample)
    except UnicodeDecodeError:
        return UTF8
    return codecs.lookup(encoding).name


def check_encoding(name: str) -> None:
    """Raise an error if Python does not know this encoding of text."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        raise GlassError(
            f"unknown encoding {name!r}; common ones are utf-8, utf-16, cp1252, cp1250, cp1251, "
            "gb18030, shift_jis"
        ) from None
