"""The settings of a training run, and the learning-rate schedule."""

import math
from dataclasses import dataclass
from typing import Literal

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError

DEFAULT_MINUTES = 5.0  # the budget if none is set


@dataclass(frozen=True)
class TrainingSettings:
    """Each setting is described by the comment above it."""

    # Budget in optimizer steps; at most one of steps, epochs and minutes may be set.
    steps: int | None = None
    # Budget in passes over the training data.
    epochs: float | None = None
    # Budget in minutes of wall-clock time; 5 if no budget is set.
    minutes: float | None = None
    # With a budget in minutes, training ends early after this many passes over the training data,
    # but not before step 500; if unset, it uses the whole budget.
    max_epochs: float | None = None
    # Examples per batch, for tasks that count examples; if unset, the task decides.
    batch_size: int | None = None
    # Tokens per batch including padding, for tasks that count tokens; if unset, the task decides.
    batch_tokens: int | None = None
    # Micro-batches per batch: more save memory and give the same gradient; 1 means no splitting.
    accumulate: int = 1
    # Whether to raise `accumulate`, or shorten the context, when memory runs out; off by default.
    shrink_on_oom: bool = False
    # Approximate number of parameters, reached by changing the model's dim; unset keeps dim.
    parameters: int | None = None
    # Peak learning rate; most tasks have their own default.
    lr: float = 1e-3
    # Fraction of the budget over which the learning rate rises to its peak.
    warmup: float = 0.05
    # Shape of the learning rate after the warmup; "constant" decays in the last fifth only.
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    # Final learning rate as a fraction of the peak.
    min_lr_ratio: float = 0.1
    # AdamW's decoupled weight decay for matrices; biases and norm scales do not decay.
    weight_decay: float = 0.1
    # Name patterns (as in "blocks.0.*") of parameters that are not trained; none by default.
    freeze: tuple[str, ...] = ()
    # Factor by which the learning rate falls with each block away from the output; 1 means none.
    layer_lr_decay: float = 1.0
    # Rank of LoRA adapters, trained instead of the weights; 0 means no LoRA.
    lora: int = 0
    # Name of the optimizer, one of OPTIMIZERS.
    optimizer: str = "adamw"
    # Decay per step of AdamW's running mean of squared gradients.
    beta2: float = 0.99
    # Maximum norm of the gradient; larger gradients are scaled down to it.
    clip: float = 1.0
    # Fraction of the target probability that is spread over all classes; 0 means none.
    label_smoothing: float = 0.0
    # Decay per step of an exponential moving average of the weights; 0 means no average.
    ema_decay: float = 0.0
    # Whether to fit the task's baseline first, to compare the model with it.
    baseline: bool = True
    # Whether the network starts from the baseline's counts; if unset, yes if the task supports it.
    prior: bool | None = None
    # Validation metric that decides which weights are saved as the best.
    best_metric: str = "loss"
    # Evaluations without improvement before training stops early; 0 means never; if unset,
    # half of the evaluations so far, but at least 5.
    patience: int | None = None
    # Tokens or examples per evaluation during training; if unset, the task or the deadline decides.
    eval_limit: int | None = None
    # Steps between evaluations; if unset, a tenth of the budget.
    evaluate_every: int | None = None
    # Steps between checkpoints; if unset, as many as between evaluations.
    save_every: int | None = None
    # Floating-point type of the forward pass; "auto" chooses the faster of float32 and bfloat16.
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    # Whether to recompute activations in the backward pass, to save memory at the cost of time.
    checkpointing: bool = False
    # Whether to also write the metrics for TensorBoard.
    tensorboard: bool = False
    # Device to train on, such as "cuda"; "auto" uses an accelerator if there is one, else the CPU.
    device: str = "auto"
    # Number of CPU threads; if unset, torch decides.
    threads: int | None = None
    # Seed for the initial weights, the order of the data, dropout and the validation split.
    seed: int = 0

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
