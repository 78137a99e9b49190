"""Which data a user gave, and how they are to be read."""

from dataclasses import dataclass, field
from pathlib import Path

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.data.files import BadRowPolicy
from glassformer.data.split import is_held_out
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class DataOptions:
    """How files are to be read."""

    text: tuple[str, ...] = ()  # columns
    label: str | None = None
    group: str | None = None  # a column whose equal values stay on one side of the split
    separator: str | None = None
    tokenizer: str | None = None  # a kind
    vocab: int | None = None
    valid_fraction: float = 0.1  # what is kept for validation, where no files are given for that

    def __post_init__(self) -> None:
        check_bounds({"valid_fraction": self.valid_fraction, "vocab": self.vocab})
        sign = self.separator
        if sign is not None and (len(sign) != 1 or sign in '\r\n"\0'):
            raise GlassError(f"the separator must be one character (or tab), not {sign!r}")


@dataclass(frozen=True)
class DataRequest(DataOptions):
    """What the user gave: files and how to read them. Without files a task has a sample."""

    files: tuple[Path, ...] = ()
    valid: tuple[Path, ...] = ()  # files to validate on
    seed: int = 0
    on_bad_row: BadRowPolicy = field(default_factory=BadRowPolicy)
    model: str | None = None  # the architecture that will be trained on it
    base_tokenizer: Tokenizer | None = None  # of a trained model, which reads this data
    extend: bool = False  # whether that tokenizer may learn what it does not know
    labels: tuple[str, ...] = ()  # of a model that is evaluated on this data

    def split_files(self) -> tuple[tuple[tuple[Path, ...], str | None], ...]:
        """Files with the part that they are for; None: a part of them is kept for validation."""
        if self.valid:
            return (self.files, "train"), (self.valid, "valid")
        return ((self.files, None),)

    def assign_part(self, key: str) -> str:
        """On which side of the split an example with this key is."""
        return "valid" if is_held_out(key, self.seed, self.valid_fraction) else "train"
