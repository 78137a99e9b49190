"""What happens when a step fails: its gradient is not finite, or memory runs out."""

from typing import TYPE_CHECKING

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.tasks.task import Batch, Task
from glassformer.training.budget import Deadline
from glassformer.training.memory import TooLongError
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import Step

if TYPE_CHECKING:
    from glassformer.training.trainer import Trainer

PATIENCE = 3  # steps in a row whose gradient is not finite
LOWER = 0.3  # of the learning rate, after that


def skip_step(trainer: "Trainer", what: str) -> None:
    """Report a step that was not taken; after several in a row, go back."""
    state, run = trainer.state, trainer.run
    line = f"step {state.step:,} is not taken: {what} is not finite"
    trainer.reporter(line)
    run.log(line)
    run.note("skipped", step=state.step, skipped=what)
    if state.skipped >= PATIENCE:
        go_back(trainer)


def go_back(trainer: "Trainer") -> None:
    """Take up the last checkpoint with a smaller learning rate, once."""
    state = trainer.state
    failed, lr = state.step, trainer.settings.lr * state.scale
    if state.scale < 1:
        raise GlassError(
            f"step {failed}: {PATIENCE} steps in a row were not finite, with a smaller rate "
            f"too; {trainer.checkpointer.what_is_left()}. Try a smaller rate from the start "
            f"(--set train.lr={lr / 3:.1e}), more warm-up (--set train.warmup=0.2) or "
            "--set train.precision=float32"
        )
    reload(trainer)
    trainer.state.scale, trainer.state.skipped = LOWER, 0
    trainer.save()
    line = (
        f"{PATIENCE} steps in a row were not finite: back to step {trainer.state.step:,}, with "
        f"a rate of {lr * LOWER:.1e}"
    )
    trainer.reporter(line)
    trainer.run.log(line)


def make_room(trainer: "Trainer") -> None:
    """After memory ran out: go on from the last checkpoint, with batches in more pieces."""
    batch = trainer.batches.at(trainer.state.step)
    pieces = pieces_that_fit(
        trainer.step, trainer.task, batch, trainer.reporter, trainer.checkpointer.what_is_left()
    )
    reload(trainer)
    trainer.change(accumulate=pieces)
    trainer.save()


def reload(trainer: "Trainer") -> None:
    """Go back to the last checkpoint; what was found and spent since then stays so."""
    best, seconds = trainer.state.best, trainer.state.seconds
    trainer.state = trainer.checkpointer.reload(trainer.step)
    trainer.state.best, trainer.state.seconds = best, seconds
    if isinstance(trainer.budget, Deadline):
        trainer.budget.resume_at(trainer.state.step)


def pieces_that_fit(step: Step, task: Task, batch: Batch, reporter: Reporter, left: str) -> int:
    """The number of pieces in which a batch fits into memory, found by trying."""
    settings, rows = step.settings, len(next(iter(batch.values())))
    pieces = settings.accumulate
    length = step.network.context or next(iter(batch.values())).shape[-1]
    while pieces < rows:
        pieces = min(2 * pieces, rows)
        if step.fits(batch, pieces):
            break
    else:
        raise TooLongError(length, shorter_context(step, task, settings))
    problem = f"a batch of {rows} x {length} tokens needs more memory than there is"
    if not settings.shrink_on_oom:
        raise GlassError(
            f"{problem}; in {pieces} pieces it fits, with the same result (but for the chance of "
            f"dropout): --shrink-on-oom does so, or --set train.accumulate={pieces}; {left}"
        )
    reporter(f"{problem}: it is read in {pieces} pieces, with the same result (but for dropout)")
    return pieces


def shorter_context(step: Step, task: Task, settings: TrainingSettings) -> int:
    """The longest of half, a quarter, ... of a context with which one example fits; 0: none."""
    context = step.network.context or 0
    while context > 8:
        context //= 2
        batch = task.dataset.train_batches(settings.batch, context, settings.seed).at(0)
        if step.fits(batch, len(next(iter(batch.values())))):
            return context
    return 0
