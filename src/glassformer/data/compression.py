"""Open files, decompressing .gz and .xz."""

import gzip
import lzma
from pathlib import Path
from typing import BinaryIO

from glassformer.core.errors import GlassError


def file_type(path: Path) -> str:
    """The extension in lower case, without compression: .csv for reviews.CSV.gz."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in (".gz", ".xz") else suffix


def open_bytes(path: Path) -> BinaryIO:
    """Open a file, decompressing .gz and .xz.

    Pipes and devices are rejected because data is read more than once.
    """
    if not path.exists():
        raise GlassError(f"{path} does not exist")
    if not path.is_file():
        raise GlassError(
            f"{path} is not a regular file; data is read more than once, so save it to a file first"
        )
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix.lower() == ".xz":
        return lzma.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")
