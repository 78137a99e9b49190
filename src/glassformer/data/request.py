"""The user's data files and the options for reading them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.data.files import BadRowPolicy
from glassformer.data.format import FileFormat
from glassformer.data.split import is_held_out
from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class DataOptions:
    """How to read the files."""

    text: tuple[str, ...] = ()  # columns
    label: str | None = None  # a column
    group: str | None = None  # a column; rows with equal values are in the same split
    encoding: str | None = None  # of text files; detected
    separator: str | None = None  # between the columns of a table; detected
    header: bool | None = None  # whether tables start with the names of the columns; detected
    multi_label: bool = False  # whether a label cell can have several labels: a|b
    class_weights: bool = False  # whether rare labels weigh as much in the loss as frequent ones
    image_size: int | None = None  # pixels; images are cropped and scaled to squares of this size
    tokenizer: str | None = None  # a name in TOKENIZERS
    vocab: int | None = None
    source_tokenizer: str | None = None  # of a translator with a vocabulary for each language
    source_vocab: int | None = None
    valid_fraction: float = 0.1  # held out for validation, unless validation files are given
    scale: tuple[float, ...] | None = None  # the lowest and highest rating; default: as they occur

    def __post_init__(self) -> None:
        check_bounds(
            {
                "valid_fraction": self.valid_fraction,
                "vocab": self.vocab,
                "source_vocab": self.source_vocab,
                "image_size": self.image_size,
            }
        )
        if self.scale is not None:
            is_scale = len(self.scale) == 2 and self.scale[0] < self.scale[1]
            if not is_scale or not all(map(math.isfinite, self.scale)):
                raise GlassError(f"scale must be a lower and a higher rating, got {self.scale}")
        _ = self.format  # checks the encoding and the separator

    @property
    def format(self) -> FileFormat:
        columns = (*self.text, *(name for name in (self.label, self.group) if name))
        return FileFormat(self.encoding, self.separator, self.header, columns)

    @property
    def has_source_vocab(self) -> bool:
        """Whether sources get a vocabulary of their own."""
        return bool(self.source_tokenizer or self.source_vocab)


@dataclass(frozen=True)
class DataRequest(DataOptions):
    """Files and how to read them. Without files, a task uses its built-in sample."""

    files: tuple[Path, ...] = ()
    valid: tuple[Path, ...] = ()  # validation files
    seed: int = 0
    on_bad_row: BadRowPolicy = field(default_factory=BadRowPolicy)
    model: str | None = None  # the architecture to train
    base_tokenizer: Tokenizer | None = None  # tokenizer of the trained model, if any
    extend: bool = False  # whether to add new tokens to base_tokenizer
    labels: tuple[str, ...] = ()  # labels of the trained model to evaluate
    trained_text: tuple[str, ...] = ()  # the columns that it was trained on
    trained_label: str | None = None
    trained_target: str | None = None
    trained_metadata: Mapping[str, Any] = field(default_factory=dict)  # all metadata of that model
    is_evaluation: bool = False  # whether a trained model is evaluated on all of the data

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.valid_fraction == 1 and not self.is_evaluation:
            raise GlassError("valid_fraction must be below 1: otherwise, there is no training data")

    def split_files(self) -> tuple[tuple[tuple[Path, ...], str | None], ...]:
        """Files and their split, train or valid; None if `assign_split` splits their examples."""
        if self.valid:
            return (self.files, "train"), (self.valid, "valid")
        return ((self.files, None),)

    def assign_split(self, key: str) -> str:
        """The split, train or valid, of all examples with this key."""
        return "valid" if is_held_out(key, self.seed, self.valid_fraction) else "train"
