"""The protocols that make up a task: a spec, a dataset, an objective and a codec.

    spec       names, default settings, metric and baseline: plain data
    dataset    training batches, each a pure function of (seed, step), and validation batches
    objective  losses and scores of a network on a batch, as sums with their counts
    codec      from a user's examples to tensors, and from a network's output to predictions

The trainer, `evaluate`, `predict` and the commands use a task only through these.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy
from glassformer.data.request import DataRequest
from glassformer.models.network import Network, Trait
from glassformer.tasks.bootstrap import SampledMetric
from glassformer.text.tokenizer import Tokenizer

Batch = dict[str, Tensor]
FitFunction = Callable[[Network], float]


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
        *(Metric(name) for name in ("loss", "perplexity", "bits_per_byte", "frechet", "rmse")),
        *(Metric(name, higher_is_better=True) for name in ("accuracy", "f1", "exact")),
        *(
            Metric(name, higher_is_better=True)
            for name in ("bleu", "chrf", "token_accuracy", "next_accuracy", "recognized")
        ),
        *(Metric(name, higher_is_better=True) for name in ("rouge_1", "rouge_2", "rouge_l")),
        *(Metric(name, higher_is_better=True) for name in ("hit_rate_10", "ndcg_10")),
    )
}


@dataclass(frozen=True)
class Artifacts:
    """What a trained model needs besides its weights; saved in the model's folder."""

    metadata: dict[str, Any] = field(default_factory=dict)  # labels, columns, data sizes
    tokenizer: Tokenizer | None = None

    @property
    def text_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise GlassError("this model has no tokenizer, so it cannot read text")
        return self.tokenizer


@dataclass
class Scores:
    """Sums over examples, and what is kept of each example: rows, or arrays with one row each."""

    sums: dict[str, Any] = field(default_factory=dict)  # numbers or arrays
    rows: list[dict[str, Any]] = field(default_factory=list)
    arrays: dict[str, list[NDArray[Any]]] = field(default_factory=dict)  # to be concatenated

    def add(self, other: "Scores") -> None:
        for name, value in other.sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.rows += other.rows
        for name, parts in other.arrays.items():
            self.arrays.setdefault(name, []).extend(parts)

    def array(self, name: str) -> NDArray[Any]:
        """Return the values with this name for all examples."""
        return np.concatenate(self.arrays[name])


class Batches(Protocol):
    """Training batches."""

    @property
    def per_epoch(self) -> int:
        """Number of batches in one pass over the training data."""
        ...

    @property
    def truncated(self) -> int:
        """Number of training examples that are longer than the context."""
        ...

    def at(self, step: int) -> Batch:
        """Return the batch for a step, a pure function of the seed and the step."""
        ...


class Dataset(Protocol):
    """The examples of a task, in a training split and a validation split.

    It reads only what `TaskSpec.prepare` wrote to `folder`; the split never changes.
    """

    artifacts: Artifacts
    size: int  # training tokens; for data that is not text, input values
    n_targets: int  # targets in one pass over the training split
    eval_size: int  # validation tokens or examples

    def __init__(self, artifacts: Artifacts, folder: Path) -> None: ...

    def sizes(self) -> dict[str, int]:
        """Return the model settings that the data determines, such as `vocab`."""
        ...

    def train_batches(self, batch_size: int, context: int | None, seed: int) -> Batches:
        """Return the training batches.

        `batch_size` counts examples, or tokens (approximately) if the task's train settings
        include `batch_tokens`. `context` is the maximum sequence length; None means unlimited.
        """
        ...

    def eval_batches(
        self, network: Network, limit: int | None = None, context: int | None = None
    ) -> Iterator[Batch]:
        """Yield the validation split in batches that suit the network.

        With `limit`, yield a fixed subset of that many tokens or examples. `context` overrides the
        window length on running text. No randomness: equal arguments give equal batches.
        """
        ...

    def preview_batch(self, context: int | None) -> Batch:
        """Return a few validation examples to show during training."""
        ...

    def fit(self, network: Network, fraction: float) -> float:
        """Fit a baseline directly to about this fraction of the training split.

        Returns the fraction actually used, which may be smaller to save memory.
        """
        ...


class Objective(Protocol):
    """How a network is trained and evaluated on batches of the dataset."""

    def __init__(self, artifacts: Artifacts) -> None: ...

    @property
    def groups(self) -> tuple[str | None, ...]:
        """Parameter-name prefixes of the groups that are updated in turn; None means all."""
        ...

    def count(self, batch: Batch) -> int:
        """Return the number of predictions in a batch, by which its losses are divided."""
        ...

    def losses(
        self, network: Network, batch: Batch, *, label_smoothing: float = 0.0
    ) -> Iterator[Tensor]:
        """Yield one scalar per entry of `groups`: the loss summed over the batch.

        The parameters of a group are updated before the next loss is computed.
        """
        ...

    def scores(self, network: Network, batch: Batch) -> Scores:
        """Return the scores of one batch; the scores of a dataset are the sum over its batches."""
        ...

    def metrics(self, scores: Scores) -> dict[str, Any]:
        """Return metrics by name from the summed scores, including `TaskSpec.metric`."""
        ...


class Codec(Protocol):
    """Converts a user's examples to tensors, and a network's output to predictions.

    `decode(run(network, encode(examples)))` has one prediction per example, in the same order.
    """

    def __init__(self, artifacts: Artifacts) -> None: ...

    batch_size: int  # maximum number of examples per call to `encode`

    def encode(self, examples: Sequence[Any], context: int | None = None) -> Batch:
        """Return the examples as one batch, truncated to `context` if the task truncates."""
        ...

    @property
    def run(self) -> Callable[..., Any]:
        """The function (network, batch, **options) that returns probabilities or generated ids."""
        ...

    def decode(self, output: Any) -> list[Any]:
        """Return one prediction per example from the output of `run`."""
        ...

    def preview(self, network: Network, batch: Batch) -> str:
        """Return the predictions for a preview batch as lines of text."""
        ...


@dataclass(frozen=True)
class TaskSpec:
    """The plain data of a task and its component classes.

    `prepare` reads the user's files, writes the encoded data to a folder and returns the artifacts.
    `examples` yields the raw examples for `check-data`. Each function in `plots` draws the scores
    of an evaluation to a file.
    """

    name: str
    models: tuple[str, ...]  # architectures; the first is the default
    model_settings: Mapping[str, Any]  # defaults for the default model
    train_settings: Mapping[str, Any]
    metric: Metric  # to compare with the baseline
    unit: str  # what the training speed counts per second, such as tokens
    eval_limit: int  # tokens or examples per evaluation during training
    prepare: Callable[[DataRequest, Path, Reporter], Artifacts]
    examples: Callable[[DataRequest, BadRowPolicy, Reporter], Iterator[Example]]
    dataset: type[Dataset]
    objective: type[Objective]
    codec: type[Codec]
    final_eval_limit: int | None = None  # tokens or examples; None means all
    is_table: bool = True  # rows rather than running text
    command: str = ""  # of `glass`, if the task shares it with another; by default the name
    # Whether the task is for these files, for tasks that share a command. Without files, the task
    # of that name is chosen, unless the model is one of another task.
    accepts: Callable[[Sequence[Path]], bool] | None = None
    example_input: str = '"a text"'  # what to give to the command, shown after training
    shortening: str = "truncated"  # what happens to texts that are longer than the context
    reads_text: bool = True  # with a tokenizer; otherwise `Dataset.size` counts values
    task_variants: Mapping[str, str] = field(default_factory=dict)  # base model -> model to train
    data_variants: tuple[str, ...] = ()  # models for which `prepare` makes another tokenizer
    long_context_model: str | None = None  # default for contexts that are long for dense attention
    baseline_model: str | None = None
    baseline_name: str = ""  # shown to users
    # Sets initial weights from the data, such as the biases of ratings. Takes (dataset, network).
    initialize: Callable[[Any, Network], None] | None = None
    # Training batches for a network with the trait SEGMENT_MEMORY: consecutive segments of streams.
    # Takes the dataset and the arguments of `Dataset.train_batches`.
    stream_batches: Callable[..., Batches] | None = None
    # Fits the prior of a network, adding a prior if it has none. Takes (dataset, network, fit),
    # where `fit` fits a model directly to as much data as time allows and returns the fraction.
    # Returns the baseline and the fraction of the data that was used, or None if the prior is not a
    # model of its own.
    fit_prior: Callable[[Any, Any, FitFunction], tuple[Network, float] | None] | None = None
    # Fits the mixture weights of a prior to validation data before each evaluation during training.
    # Takes (dataset, network, limit); `limit` is as in `Dataset.eval_batches`.
    fit_mixture_weights: Callable[[Any, Any, int | None], None] | None = None
    # Fits the temperature of the model to the scores of an evaluation, in the artifacts' metadata.
    calibrate: Callable[[Scores, Artifacts], None] | None = None
    sampled_metric: SampledMetric | None = None  # for the interval of `metric`
    # The spec for certain artifacts, such as another metric if a text can have several labels.
    variant: Callable[["TaskSpec", Artifacts], "TaskSpec"] | None = None
    # What `evaluate` reports besides the metrics, such as the scores of each class.
    details: Callable[[Scores, Artifacts], dict[str, Any]] | None = None
    # The columns of the prediction for each example of an evaluation, by its index in the split.
    predictions: Callable[[Scores, Artifacts], dict[int, dict[str, Any]]] | None = None
    plots: Mapping[str, Callable[[Scores, Artifacts, Path], None]] = field(default_factory=dict)

    @property
    def verb(self) -> str:
        """The command that trains and uses the models of this task."""
        return self.command or self.name

    def open(self, artifacts: Artifacts, folder: Path) -> "Task":
        """Open the data that `prepare` wrote to a folder."""
        dataset = self.dataset(artifacts, folder)
        spec = self if self.variant is None else self.variant(self, artifacts)
        return Task(spec, dataset, self.objective(artifacts), self.codec(artifacts))


@dataclass(frozen=True)
class Task:
    """A task bound to its data."""

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
        """The task table in the config of a saved model."""
        return {"name": self.name, **self.artifacts.metadata}

    def train_batches(
        self, network: Network, batch_size: int, seed: int, context: int | None = None
    ) -> Batches:
        """Return the training batches for a network; by default, with the network's context."""
        make_batches = self.dataset.train_batches
        if network.has(Trait.SEGMENT_MEMORY) and self.spec.stream_batches is not None:
            make_batches = partial(self.spec.stream_batches, self.dataset)
        return make_batches(batch_size, context or network.context, seed)

    @torch.inference_mode()
    def evaluate(
        self,
        network: Network,
        limit: int | None = None,
        context: int | None = None,
        *,
        calibrate: bool = False,
    ) -> tuple[dict[str, Any], Scores]:
        """Return the metrics on the validation split, or on a subset, and the summed scores.

        With `calibrate`, the probabilities of the model are first calibrated to these scores, if
        the task does that.
        """
        total = Scores()
        for batch in self.dataset.eval_batches(network, limit, context):
            total.add(self.objective.scores(network, move_to_device(batch, network)))
        if calibrate and self.spec.calibrate is not None:
            self.spec.calibrate(total, self.artifacts)
        return self.objective.metrics(total), total

    def fit_mixture_weights(self, network: Network, limit: int | None) -> None:
        """Fit the mixture weights of the prior, if any, to part of the validation split."""
        if self.spec.fit_mixture_weights is not None:
            self.spec.fit_mixture_weights(self.dataset, network, limit)

    @torch.inference_mode()
    def preview(self, network: Network) -> str:
        batch = self.dataset.preview_batch(network.context)
        return self.codec.preview(network, move_to_device(batch, network))


CALIBRATION = {"temperature": 1.0, "threshold": 0.5}  # what may be calibrated, with its default


def select_calibration(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return what `TaskSpec.calibrate` fitted, from the metadata of a saved model."""
    return {name: metadata[name] for name in CALIBRATION if name in metadata}


def read_calibration(metadata: Mapping[str, Any], name: str) -> float:
    """The value that was fitted for a name in CALIBRATION, or its default."""
    value = metadata.get(name, CALIBRATION[name])
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise GlassError(f"the model's {name} must be a positive number, got {value!r}")
    return float(value)


def move_to_device(batch: Batch, network: Network) -> Batch:
    return {name: value.to(network.device) for name, value in batch.items()}
