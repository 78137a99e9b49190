"""A task is four small things: a spec, a dataset, an objective and a codec.

    spec       its name, its models, what suits them, its metrics, its baseline: plain data
    dataset    batches to train on, pure functions of (seed, step), and batches to evaluate on
    objective  from a network and a batch to losses and scores, as sums with their counts
    codec      from what a user gives to tensors, and from what a network returns to an answer

The trainer, `evaluate`, `predict` and the commands know a task only by these.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from glassformer.core.reporter import Reporter
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.text.tokenizer import Tokenizer

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Metric:
    name: str
    higher_is_better: bool = False

    def is_better(self, new: float, old: float) -> bool:
        return new > old if self.higher_is_better else new < old

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")


METRICS = {
    metric.name: metric
    for metric in (
        *(Metric(name) for name in ("loss", "perplexity", "bits_per_byte")),
        *(Metric(name, higher_is_better=True) for name in ("accuracy", "f1", "exact")),
        *(Metric(name, higher_is_better=True) for name in ("bleu", "chrf", "next_accuracy")),
    )
}


@dataclass(frozen=True)
class Artifacts:
    """What a trained model needs beside its weights to be used; saved in its folder."""

    metadata: dict[str, Any] = field(default_factory=dict)  # labels, columns, sizes of the data
    tokenizer: Tokenizer | None = None

    @property
    def text_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise TypeError("this task reads text: its artifacts have a tokenizer")
        return self.tokenizer


@dataclass
class Scores:
    """Sums over examples, and one row for each example where a metric needs them."""

    sums: dict[str, Any] = field(default_factory=dict)  # numbers or arrays that add up
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "Scores") -> None:
        for name, value in other.sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.rows += other.rows


class Batches(Protocol):
    """Batches to train on."""

    @property
    def per_epoch(self) -> int:
        """How many batches are one pass over the data."""
        ...

    @property
    def truncated(self) -> int:
        """How many examples are longer than the context."""
        ...

    def at(self, step: int) -> Batch:
        """The batch of a step: a pure function of the seed and the step."""
        ...


class Dataset(Protocol):
    """The examples of a task, split into a part to train on and one to validate on."""

    artifacts: Artifacts
    size: int  # tokens, pixels or ratings to train on
    predictions: int  # that one pass over the training part asks for
    eval_size: int  # tokens or examples to validate on

    def __init__(self, artifacts: Artifacts, folder: Path) -> None: ...

    def sizes(self) -> dict[str, int]:
        """Settings of a model that the data decides, such as `vocab`."""
        ...

    def train_batches(self, batch: int, context: int | None, seed: int) -> Batches:
        """Batches of `batch` examples, or of about `batch` tokens for a task whose train settings
        have `batch_tokens`."""
        ...

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        """The validation part, or always the same `limit` of its tokens or examples, in batches
        that suit the network; `context` overrides how much of a running text it reads at once."""
        ...

    def preview_batch(self, context: int | None) -> Batch:
        """A few examples of the validation part, to show while a network trains."""
        ...

    def fit(self, network: Network, share: float) -> float:
        """Fit a model by counting about this share of the training part: returns which share."""
        ...


class Objective(Protocol):
    """What a network is trained for, and how it is measured."""

    def __init__(self, artifacts: Artifacts) -> None: ...

    @property
    def groups(self) -> tuple[str | None, ...]:
        """Prefixes of the names of parameters that are updated in turn; None: all."""
        ...

    def count(self, batch: Batch) -> int:
        """How many predictions a batch asks for: its losses are divided by it."""
        ...

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        """The sum of the losses over a batch, for each of `groups`: its parameters are updated
        before the next one is asked for."""
        ...

    def scores(self, network: Network, batch: Batch) -> Scores: ...

    def metrics(self, scores: Scores) -> dict[str, Any]: ...


class Codec(Protocol):
    """From a user's examples to tensors, and from what a network returns to answers."""

    def __init__(self, artifacts: Artifacts) -> None: ...

    batch_size: int  # examples that are answered at once

    def encode(self, examples: Sequence[Any], context: int | None = None) -> Batch: ...

    @property
    def run(self) -> Callable[..., Any]:
        """What a network makes of a batch, given options: probabilities, or ids that it wrote."""
        ...

    def decode(self, output: Any) -> list[Any]:
        """One answer for each example."""
        ...

    def preview(self, network: Network, batch: Batch) -> str:
        """Answers to a preview batch, as lines of text."""
        ...


@dataclass(frozen=True)
class TaskSpec:
    name: str
    models: tuple[str, ...]  # the architectures that can do it; the first is the default
    model_settings: Mapping[str, Any]  # that suit the default model
    train_settings: Mapping[str, Any]
    metric: Metric  # by which it is compared with its baseline
    unit: str  # what its speed is counted in
    eval_limit: int  # tokens or examples of an evaluation during training
    prepare: Callable[[DataRequest, Path, Reporter], Artifacts]  # reads files, fills a folder
    examples: Callable[
        [DataRequest, BadRowPolicy, Reporter], Iterator[Example]
    ]  # for a look at data
    dataset: type[Dataset]
    objective: type[Objective]
    codec: type[Codec]
    final_eval_limit: int | None = None
    is_table: bool = True  # whether its data are rows, not running text
    task_variants: Mapping[str, str] = field(
        default_factory=dict
    )  # what other models become for it
    baseline_model: str | None = None
    baseline_name: str = ""  # what that is, in words
    plots: Mapping[str, Callable[[Scores, Artifacts, Path], None]] = field(default_factory=dict)

    def open(self, artifacts: Artifacts, folder: Path) -> "Task":
        """The task on data that `prepare` has written to a folder."""
        dataset = self.dataset(artifacts, folder)
        return Task(self, dataset, self.objective(artifacts), self.codec(artifacts))


@dataclass(frozen=True)
class Task:
    """A task on its data."""

    spec: TaskSpec
    dataset: Dataset
    objective: Objective
    codec: Codec

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def artifacts(self) -> Artifacts:
        return self.dataset.artifacts

    @property
    def metadata(self) -> dict[str, Any]:
        """What a folder of a model says of its task."""
        return {"name": self.name, **self.artifacts.metadata}

    @torch.inference_mode()
    def evaluate(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> tuple[dict[str, Any], Scores]:
        """The metrics of a network on the validation part, or on some of it, and their scores."""
        total = Scores()
        for batch in self.dataset.eval_batches(network, limit, context):
            total.add(self.objective.scores(network, on_device(batch, network)))
        return self.objective.metrics(total), total

    @torch.inference_mode()
    def preview(self, network: Network) -> str:
        batch = self.dataset.preview_batch(network.context)
        return self.codec.preview(network, on_device(batch, network))


def on_device(batch: Batch, network: Network) -> Batch:
    return {name: value.to(network.device) for name, value in batch.items()}
