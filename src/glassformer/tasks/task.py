"""What every task can do: the loop, the commands and `evaluate` know tasks only by this."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor, nn

from glassformer.bounds import check_bounds
from glassformer.data.files import Bad
from glassformer.data.split import held_out
from glassformer.errors import GlassError
from glassformer.live import Live
from glassformer.text.tokenizer import Tokenizer

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Data:
    """How files are to be read."""

    text: tuple[str, ...] = ()  # columns
    label: str | None = None
    group: str | None = None  # a column whose equal values stay on one side of the split
    separator: str | None = None
    tokenizer: str | None = None  # a kind
    vocab: int | None = None
    share: float = 0.1  # what is kept for validation, where no files are given for that

    def __post_init__(self) -> None:
        check_bounds({"share": self.share, "vocab": self.vocab})
        sign = self.separator
        if sign is not None and (len(sign) != 1 or sign in '\r\n"\0'):
            raise GlassError(f"the separator must be one character (or tab), not {sign!r}")


@dataclass(frozen=True)
class Given(Data):
    """What the user gave: files and how to read them. Without files a task has a sample."""

    files: tuple[Path, ...] = ()
    valid: tuple[Path, ...] = ()  # files to validate on
    seed: int = 0
    bad: Bad = field(default_factory=Bad)
    model: str | None = None  # the architecture that will learn from it
    ready: Tokenizer | None = None  # of a trained model, which reads this data
    extend: bool = False  # whether that tokenizer may learn what it does not know
    labels: tuple[str, ...] = ()  # of a model that is judged on this data

    def sides(self) -> tuple[tuple[tuple[Path, ...], str | None], ...]:
        """Files with the part that they are for; None: a part of them is kept for validation."""
        if self.valid:
            return (self.files, "train"), (self.valid, "valid")
        return ((self.files, None),)

    def part_of(self, key: str) -> str:
        """On which side of the split an example with this key is."""
        return "valid" if held_out(key, self.seed, self.share) else "train"


def is_gain(figure: str) -> bool:
    """Whether more of it is better."""
    return figure in ("accuracy", "f1", "exact", "bleu", "chrf")


class Task(Protocol):
    name: ClassVar[str]
    models: ClassVar[tuple[str, ...]]  # the architectures that can do it; the first is the default
    built_on: ClassVar[dict[str, str]]  # the architecture that another one becomes for this task
    settings: ClassVar[dict[str, Any]]  # of the default
    training: ClassVar[dict[str, Any]]  # settings of training that suit the task
    figure: ClassVar[str]  # what decides which weights are best
    peek: ClassVar[int]  # how much it is judged on while it learns: tokens, or examples
    whole: ClassVar[int | None]  # and at the end, at the most
    table: ClassVar[bool]  # whether its data are rows, not running text
    unit: ClassVar[str]  # what its speed is counted in
    counted: ClassVar[str]  # the architecture that learns it by counting: its baseline
    simple: ClassVar[str]  # what that is, in words
    verdict: ClassVar[str]  # the figure that the two are compared by

    tokenizer: Tokenizer
    facts: dict[str, Any]  # what was found in the data, and what using the model needs

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
        """Read the files once: learn a tokenizer, fill the stores in the folder."""
        ...

    def sizes(self) -> dict[str, int]:
        """Settings of a model that the data decides."""
        ...

    def start(self, batch: int, context: int, seed: int) -> None:
        """Fix how batches are made."""
        ...

    def batch(self, step: int) -> Batch: ...

    def epoch(self) -> int:
        """How many batches are one pass over the data."""
        ...

    def count(self, batch: Batch) -> int:
        """How many predictions a batch asks for."""
        ...

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        """The sum of the losses of its predictions."""
        ...

    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, Any]:
        """The figures on the validation part, or on so many of its tokens."""
        ...

    @property
    def size(self) -> int:
        """How many tokens there are to learn from, as often as each is looked at."""
        ...

    @property
    def predictions(self) -> int:
        """How many predictions one pass over all asks for."""
        ...

    def teach(self, network: nn.Module, share: float) -> float:
        """Let a model that learns in one go learn from about that share of all: which it was."""
        ...

    def sample(self, network: nn.Module) -> str:
        """Something to look at while it learns."""
        ...
