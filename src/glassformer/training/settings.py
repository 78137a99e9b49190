"""The settings of a training run, and the rate at each step."""

import math
from dataclasses import dataclass
from typing import Literal

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError

MINUTES = 5.0  # the budget where none is given


@dataclass(frozen=True)
class TrainingSettings:
    steps: int | None = None  # one of steps, epochs, minutes is the budget
    epochs: float | None = None
    minutes: float | None = None
    batch_size: int | None = None  # examples in a batch, for tasks that count in examples
    batch_tokens: int | None = None  # tokens in a batch, padding included, for the other tasks
    accumulate: int = 1  # pieces that a batch is read in: the same result in less memory
    shrink_on_oom: bool = False  # whether to do so by itself when memory runs out
    parameters: int | None = None  # about so many: the width is chosen for that
    lr: float = 1e-3
    warmup: float = 0.05  # of the steps
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    min_lr_ratio: float = (
        0.1  # of the rate, at the end; a constant rate falls to it in the last fifth
    )
    weight_decay: float = 0.1  # of the weights
    freeze: tuple[str, ...] = ()  # patterns of the names of weights that stay as they are
    layer_lr_decay: float = 1.0  # of the rate, for each block further from the end
    lora: int = 0  # the rank of what is trained beside weights that stay; 0: all weights learn
    optimizer: str = "adamw"  # by its name in OPTIMIZERS
    beta2: float = 0.99
    clip: float = 1.0  # the largest norm of a gradient
    label_smoothing: float = 0.0  # of the labels
    ema_decay: float = 0.0  # how much of the averaged weights stays at each step (EMA); 0: none
    baseline: bool = True  # whether to see first what counting alone reaches
    best_metric: str = "loss"  # of the validation: it decides which weights are best
    patience: int | None = None  # evaluations without a better one until it stops; 0: never;
    # unless given: half of all so far, and at least 5
    eval_limit: int | None = None  # tokens or examples of an evaluation during training
    evaluate_every: int | None = None
    save_every: int | None = None
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    checkpointing: bool = False  # blocks are computed again on the way back, to save memory
    tensorboard: bool = False  # figures for TensorBoard as well
    device: str = "auto"
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_bounds(vars(self))
        if self.lora and self.freeze:
            raise GlassError("lora leaves all other weights as they are: freeze says nothing more")
        if sum(b is not None for b in (self.steps, self.epochs, self.minutes)) > 1:
            raise GlassError("give one budget: steps, epochs or minutes")

    @property
    def batch(self) -> int:
        """The size of a batch, in the unit that the task counts in."""
        return self.batch_tokens or self.batch_size or 32


def lr_at(position: float, total: float, settings: TrainingSettings) -> float:
    """The learning rate at a position in a budget, in steps or any other unit.

    It rises to `rate` during the warm-up, then falls as the schedule says.
    """
    warm = round(total * settings.warmup)
    if settings.warmup:
        warm = max(warm, min(int(total) // 5, 10))  # a few steps would be a leap
    if position < warm:
        return settings.lr * (position + 1) / (warm + 1)
    done = (position - warm) / max(total - warm, 1)
    share = {
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "linear": 1 - done,
        "constant": min((1 - done) / 0.2, 1),
    }[settings.schedule]
    return settings.lr * (settings.min_lr_ratio + (1 - settings.min_lr_ratio) * share)
