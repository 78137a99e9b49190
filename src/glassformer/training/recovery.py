"""Recover from a failed step: a value that is not finite, or running out of memory."""

from typing import TYPE_CHECKING

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.tasks.task import Batch, Task
from glassformer.training.budget import Deadline
from glassformer.training.memory import ContextTooLongError
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import Step

if TYPE_CHECKING:
    from glassformer.training.trainer import Trainer

MAX_BAD_STEPS = 3  # consecutive steps with a non-finite loss, gradient or weight
LR_FACTOR = 0.3  # multiplies the learning rate after rolling back


def handle_skipped_step(trainer: "Trainer", cause: str) -> None:
    """Report a step that was skipped; after several in a row, roll back.

    `cause` names the loss, gradient or weight that is not finite.
    """
    state, run = trainer.state, trainer.run
    line = f"skipped step {state.step:,}: {cause} is not finite"
    trainer.reporter(line)
    run.log(line)
    run.log_metrics("skipped", step=state.step, skipped=cause)
    if state.consecutive_skips >= MAX_BAD_STEPS:
        roll_back(trainer)


def roll_back(trainer: "Trainer") -> None:
    """Return to the last checkpoint and reduce the learning rate; the second time, raise."""
    state = trainer.state
    failed = state.step
    lr = trainer.settings.lr * state.lr_scale
    if state.lr_scale < 1:
        raise GlassError(
            f"step {failed}: {MAX_BAD_STEPS} steps in a row had a non-finite loss, gradient or "
            "weight, even with a smaller learning rate; "
            f"{trainer.checkpointer.describe_checkpoint()}. Train again with a "
            f"smaller learning rate (--set train.lr={lr / 3:.1e}), more warmup "
            "(--set train.warmup=0.2) or --set train.precision=float32"
        )
    reload_checkpoint(trainer)
    trainer.state.lr_scale = LR_FACTOR
    trainer.state.consecutive_skips = 0
    trainer.save()
    line = (
        f"{MAX_BAD_STEPS} steps in a row had a non-finite loss, gradient or weight: back to step "
        f"{trainer.state.step:,}, with a learning rate of {lr * LR_FACTOR:.1e}"
    )
    trainer.reporter(line)
    trainer.run.log(line)


def shrink_micro_batches(trainer: "Trainer") -> None:
    """After running out of memory, continue from the last checkpoint with more micro-batches."""
    batch = trainer.batches.at(trainer.state.step)
    checkpoint = trainer.checkpointer.describe_checkpoint()
    count = find_micro_batch_count(trainer.step, trainer.task, batch, trainer.reporter, checkpoint)
    reload_checkpoint(trainer)
    trainer.change_settings(accumulate=count)
    trainer.save()


def reload_checkpoint(trainer: "Trainer") -> None:
    """Return to the last checkpoint, but keep the best metric and the time spent so far."""
    old = trainer.state
    trainer.state = trainer.checkpointer.reload(trainer.step)
    trainer.state.best = old.best
    trainer.state.best_step = old.best_step
    trainer.state.seconds = old.seconds
    if isinstance(trainer.budget, Deadline):
        trainer.budget.resume_at(trainer.state.step)


def find_micro_batch_count(
    step: Step, task: Task, batch: Batch, reporter: Reporter, checkpoint: str
) -> int:
    """Find, by trial and error, how many micro-batches are needed for a batch to fit in memory.

    Raises an error unless `shrink_on_oom` is set. `checkpoint` describes the last checkpoint, for
    the error message.
    """
    settings = step.settings
    rows = len(next(iter(batch.values())))
    count = settings.accumulate
    length = step.network.context or next(iter(batch.values())).shape[-1]
    while count < rows:
        count = min(2 * count, rows)
        if step.fits_in_memory(batch, count):
            break
    else:
        raise ContextTooLongError(length, find_shorter_context(step, task, settings))
    problem = f"out of memory with a batch of {rows} x {length} tokens"
    if not settings.shrink_on_oom:
        raise GlassError(
            f"{problem}; it fits when split into {count} micro-batches (same result, except for "
            f"dropout): use --shrink-on-oom or --set train.accumulate={count}; {checkpoint}"
        )
    reporter(f"{problem}: split into {count} micro-batches (same result, except for dropout)")
    return count


def find_shorter_context(step: Step, task: Task, settings: TrainingSettings) -> int:
    """Halve the context until one example fits in memory and return it; 0 if none fits."""
    context = step.network.context or 0
    while context > 8:
        context //= 2
        batch = task.train_batches(step.network, settings.batch, settings.seed, context).at(0)
        if step.fits_in_memory(batch, len(next(iter(batch.values())))):
            return context
    return 0
