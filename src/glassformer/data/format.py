"""How the files of a data set are written, as far as the user says so."""

from dataclasses import dataclass

from glassformer.core.errors import GlassError
from glassformer.data.encoding import check_encoding


@dataclass(frozen=True)
class FileFormat:
    """The format of text files and tables; what is None is detected."""

    encoding: str | None = None
    separator: str | None = None  # between columns
    header: bool | None = None  # whether the first row has the names of the columns
    columns: tuple[str, ...] = ()  # names that the user gave: a row that has one is a header

    def __post_init__(self) -> None:
        separator = self.separator
        if separator is not None and (len(separator) != 1 or separator in '\r\n"\0'):
            raise GlassError(f"the separator must be one character (or tab), got {separator!r}")
        if self.encoding is not None:
            check_encoding(self.encoding)


DETECT = FileFormat()
