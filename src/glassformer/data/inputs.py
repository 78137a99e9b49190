"""Read texts to predict on, each with the other columns of its row."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from glassformer.core.errors import GlassError
from glassformer.data.corpus import guess_column
from glassformer.data.files import BadRowPolicy, read_lines
from glassformer.data.format import FileFormat
from glassformer.data.tables import is_table, read_rows


@dataclass(frozen=True)
class Input:
    """One or two texts, and all columns of the row that they are from."""

    texts: tuple[str, ...]
    columns: dict[str, str]
    location: str = ""  # file:line

    @property
    def value(self) -> str | tuple[str, ...]:
        """What a model reads: the text, or the pair of texts."""
        return self.texts if len(self.texts) > 1 else self.texts[0]


def to_inputs(texts: Iterable[str | tuple[str, ...]], names: tuple[str, ...] = ()) -> list[Input]:
    """Inputs that are not from a table; `names` are the columns of a pair."""
    pairs = [(text,) if isinstance(text, str) else text for text in texts]
    names = names if len(names) > 1 else ("text",)
    return [Input(pair, dict(zip(names, pair, strict=False))) for pair in pairs]


def read_inputs(
    file: Path,
    on_bad_row: BadRowPolicy,
    format: FileFormat,
    text: tuple[str, ...],
    trained: tuple[str, ...] = (),
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Input]:
    """Yield the lines of a text file, or the rows of a table.

    The texts of a row are in the columns `text`; by default in those of the training data, or, if
    the table has none of these names, in the column with the most text, which is reported.
    """
    if not is_table(file):
        for location, line in read_lines(file, on_bad_row, format.encoding):
            yield Input((line.rstrip("\n"),), {"text": line.rstrip("\n")}, location)
        return
    columns = text
    for row in read_rows(file, on_bad_row, format):
        if not columns:
            is_like_training = trained and all(name in row.values for name in trained)
            columns = trained if is_like_training else (guess_column([file], format) or "",)
            check_number(file, columns, trained)
            if columns != trained:
                report(f'column: text = "{columns[0]}"; --text chooses another one')
        missing = [name for name in columns if name not in row.values]
        if missing:
            names = ", ".join(row.values)
            raise GlassError(f"{row.location}: no column {missing[0]!r}; the columns are {names}")
        texts = tuple(row.values[name] for name in columns)
        yield Input(texts, row.values, row.location)


def check_number(file: Path, columns: tuple[str, ...], trained: tuple[str, ...]) -> None:
    """Raise an error if columns were guessed for a model that reads pairs of texts."""
    if len(columns) < len(trained):
        names = " and ".join(map(repr, trained))
        raise GlassError(
            f"{file} has no columns {names}, which the model was trained on: name the columns with "
            "--text, twice"
        )
