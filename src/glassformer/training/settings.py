"""The settings of a training run, and the learning-rate schedule."""

import math
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError

DEFAULT_MINUTES = 5.0  # the budget if none is set
T = TypeVar("T")


def setting(default: T, description: str) -> T:
    """Return a field with a description, which `glass models --training` shows."""
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True)
class TrainingSettings:
    steps: int | None = setting(
        None, "Budget in optimizer steps; at most one of steps, epochs and minutes may be set."
    )
    epochs: float | None = setting(None, "Budget in passes over the training data.")
    minutes: float | None = setting(
        None, "Budget in minutes of wall-clock time; 5 if no budget is set."
    )
    max_epochs: float | None = setting(
        None,
        "With a budget in minutes, training ends early after this many passes over the training "
        "data, but not before step 500; if unset, it uses the whole budget.",
    )
    batch_size: int | None = setting(
        None, "Examples per batch, for tasks that count examples; if unset, the task decides."
    )
    batch_tokens: int | None = setting(
        None,
        "Tokens per batch including padding, for tasks that count tokens; if unset, the task "
        "decides.",
    )
    accumulate: int = setting(
        1, "Micro-batches per batch: more save memory and give the same gradient; 1 means no split."
    )
    shrink_on_oom: bool = setting(
        False, "Whether to raise `accumulate`, or shorten the context, when memory runs out."
    )
    parameters: int | None = setting(
        None, "Approximate number of parameters, reached by changing the model's dim."
    )
    lr: float = setting(1e-3, "Peak learning rate; most tasks have their own default.")
    warmup: float = setting(
        0.05, "Fraction of the budget over which the learning rate rises to its peak."
    )
    schedule: Literal["cosine", "linear", "constant"] = setting(
        "cosine",
        "Shape of the learning rate after the warmup: cosine, linear, or constant, which decays in "
        "the last fifth only.",
    )
    min_lr_ratio: float = setting(0.1, "Final learning rate as a fraction of the peak.")
    weight_decay: float = setting(
        0.1, "AdamW's decoupled weight decay for matrices; biases and norm scales do not decay."
    )
    freeze: tuple[str, ...] = setting(
        (), 'Name patterns, such as "blocks.0.*", of parameters that are not trained.'
    )
    layer_lr_decay: float = setting(
        1.0, "Factor by which the learning rate falls with each block away from the output."
    )
    lora: int = setting(
        0, "Rank of LoRA adapters, trained instead of the weights; 0 means no LoRA."
    )
    optimizer: str = setting("adamw", "Name of the optimizer, such as adamw or muon.")
    beta1: float = setting(0.9, "Decay per step of AdamW's running mean of gradients.")
    beta2: float = setting(0.99, "Decay per step of AdamW's running mean of squared gradients.")
    clip: float = setting(
        1.0, "Maximum norm of the gradient; larger gradients are scaled down to it."
    )
    label_smoothing: float = setting(
        0.0, "Fraction of the target probability that is spread over all classes."
    )
    ema_decay: float = setting(
        0.0,
        "Decay per step of an exponential moving average of the weights; 0 means no average.",
    )
    baseline: bool = setting(
        True, "Whether to fit the task's baseline first, to compare the model with it."
    )
    prior: bool | None = setting(
        None, "Whether the network has a prior; if unset, yes if the task and the model support it."
    )
    best_metric: str = setting(
        "loss", "Validation metric that decides which weights are saved as the best."
    )
    patience: int | None = setting(
        None,
        "Evaluations without improvement before training stops early; 0 means never; if unset, "
        "half of the evaluations so far, but at least 5.",
    )
    eval_limit: int | None = setting(
        None,
        "Tokens or examples per evaluation during training; if unset, the task or the deadline "
        "decides.",
    )
    evaluate_every: int | None = setting(
        None, "Steps between evaluations; if unset, a tenth of the budget."
    )
    save_every: int | None = setting(
        None, "Steps between checkpoints; if unset, as many as between evaluations."
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto",
        "Floating-point type of the forward pass: float32, bfloat16, float16, or auto, which "
        "chooses the faster of the first two.",
    )
    checkpointing: bool = setting(
        False, "Whether to recompute activations in the backward pass, to save memory."
    )
    tensorboard: bool = setting(False, "Whether to also write the metrics for TensorBoard.")
    device: str = setting(
        "auto",
        "Device to train on: cpu, cuda, mps, or auto, which uses an accelerator if there is one.",
    )
    threads: int | None = setting(None, "Number of CPU threads; if unset, torch decides.")
    seed: int = setting(
        0, "Seed for the initial weights, the order of the data, dropout and the validation split."
    )

    def __post_init__(self) -> None:
        check_bounds(vars(self))
        if self.lora and self.freeze:
            raise GlassError("lora and freeze cannot be combined: lora freezes all other weights")
        if sum(b is not None for b in (self.steps, self.epochs, self.minutes)) > 1:
            raise GlassError("set only one budget: steps, epochs or minutes")

    @property
    def batch(self) -> int:
        """The size of a batch, in the unit that the task counts: examples or tokens."""
        return self.batch_tokens or self.batch_size or 32


def lr_at(position: float, total: float, settings: TrainingSettings) -> float:
    """Return the learning rate at a position in a budget; both are in steps or any other unit.

    It rises to `settings.lr` during the warmup, then decays according to `settings.schedule`.
    """
    warmup = round(total * settings.warmup)
    if settings.warmup:
        warmup = max(warmup, min(int(total) // 5, 10))  # more than a few steps in short runs
    if position < warmup:
        return settings.lr * (position + 1) / (warmup + 1)
    progress = (position - warmup) / max(total - warmup, 1)
    fraction = {
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
        "linear": 1 - progress,
        "constant": min((1 - progress) / 0.2, 1),
    }[settings.schedule]
    return settings.lr * (settings.min_lr_ratio + (1 - settings.min_lr_ratio) * fraction)
