"""How long training lasts: a number of steps, or a deadline on the wall clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from glassformer.core.errors import GlassError
from glassformer.core.folder import read_text, wrap_read_errors, wrap_write_errors, write_file

SCHEDULE_UNITS = 1000.0  # length of a deadline's learning-rate schedule, in arbitrary units
TENTHS = 10  # evaluations and checkpoints per run, unless an interval is set
EVAL_FRACTION = 0.075  # of a time budget: limit for the regular evaluations, and for the final one
OVERHEAD_SECONDS = 3.0  # time after the last evaluation, for plots and files

Clock = Callable[[], float]


@dataclass(frozen=True)
class Progress:
    """How far through the budget a step is."""

    position: float  # in the learning-rate schedule, from 0 to `total`
    total: float
    ends_tenth: bool  # whether a tenth of the budget ends with this step
    should_evaluate: bool  # whether to evaluate after this step, unless an interval is set


class Budget(Protocol):
    def begin(self, step: int) -> Progress:
        """Return the progress at the start of this step; steps count from 0."""
        ...

    def is_spent(self, step: int) -> bool:
        """Whether training ends after `step` steps."""
        ...

    def estimate_steps(self, step: int, seconds_per_step: float) -> int:
        """Estimate the total number of steps."""
        ...

    def seconds_left(self, step: int, seconds_per_step: float) -> float:
        """Estimate the time until training ends."""
        ...


@dataclass(frozen=True)
class StepBudget:
    total: int

    def begin(self, step: int) -> Progress:
        done = step + 1
        ends_tenth = TENTHS * done // self.total > TENTHS * (done - 1) // self.total
        return Progress(step, self.total, ends_tenth, should_evaluate=ends_tenth)

    def is_spent(self, step: int) -> bool:
        return step >= self.total

    def estimate_steps(self, step: int, seconds_per_step: float) -> int:
        return self.total

    def seconds_left(self, step: int, seconds_per_step: float) -> float:
        return seconds_per_step * (self.total - step)


class Deadline:
    """A budget in seconds, counted from the start of the command.

    The position in the learning-rate schedule is the elapsed fraction of the training time or, if
    that is larger, the fraction of `max_steps` taken. Before each step, its number, this fraction
    and whether an evaluation is due are appended to a log: when a killed run is resumed, the lost
    steps are repeated at the same positions in the schedule, so the weights are the same.
    """

    def __init__(
        self,
        seconds: float,
        log: Path,
        *,
        spent: float = 0.0,
        setup_seconds: float = 0.0,
        max_steps: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.seconds = seconds
        self.log = log
        self.clock = clock
        self.max_steps = max_steps
        self.setup_seconds = setup_seconds  # before the first step: not part of the schedule
        self.start_time = clock() - spent
        self.reserve = min(OVERHEAD_SECONDS, seconds / 4)  # seconds after the last step
        self.eval_seconds = self.total_eval_seconds = 0.0  # last evaluation, all evaluations
        self.replay = read_schedule_log(log)
        self.fraction, self.tenth = 0.0, 0  # elapsed part of the training time

    @property
    def spent(self) -> float:
        """Seconds since the start, excluding the pauses between a stop and `resume`."""
        return self.clock() - self.start_time

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return max(self.seconds - self.spent, 0.0)

    def update_fraction(self, step: int) -> float:
        """Return the fraction of the budget spent after `step` steps; it never decreases."""
        total = max(self.seconds - self.reserve - self.setup_seconds, 1e-9)
        by_steps = step / self.max_steps if self.max_steps else 0.0
        by_time = (self.spent - self.setup_seconds) / total
        self.fraction = max(self.fraction, min(max(by_time, by_steps), 1.0))
        return self.fraction

    def begin(self, step: int) -> Progress:
        previous_tenth = self.tenth
        if step in self.replay:
            self.fraction, should_evaluate = self.replay[step]
            self.tenth = int(TENTHS * self.fraction)
        else:
            self.tenth = int(TENTHS * self.update_fraction(step))
            eval_seconds = self.total_eval_seconds + self.eval_seconds
            is_affordable = eval_seconds <= EVAL_FRACTION * self.spent
            should_evaluate = self.tenth > previous_tenth and is_affordable
            with wrap_write_errors(self.log), self.log.open("a", encoding="utf-8") as file:
                file.write(f"{step} {self.fraction!r} {int(should_evaluate)}\n")
            self.replay[step] = self.fraction, should_evaluate
        position = SCHEDULE_UNITS * self.fraction
        ends_tenth = self.tenth > previous_tenth
        return Progress(position, SCHEDULE_UNITS, ends_tenth, should_evaluate)

    def is_spent(self, step: int) -> bool:
        return step > 0 and step not in self.replay and self.update_fraction(step) >= 1

    def estimate_steps(self, step: int, seconds_per_step: float) -> int:
        seconds = max(self.remaining - self.reserve, 0)
        steps = step + round(seconds / max(seconds_per_step, 1e-9))
        return steps if self.max_steps is None else min(steps, self.max_steps)

    def seconds_left(self, step: int, seconds_per_step: float) -> float:
        if self.max_steps is None:
            return self.remaining
        return min(self.remaining, seconds_per_step * (self.max_steps - step))

    def resume_at(self, step: int) -> None:
        """Continue after a step; steps that were logged after it are replayed."""
        has_replay = step in self.replay and step - 1 in self.replay
        self.fraction = self.replay[step - 1][0] if has_replay else 0.0
        self.tenth = int(TENTHS * (self.fraction if has_replay else self.update_fraction(step)))

    def record_evaluation(self, seconds: float, final_seconds: float) -> None:
        """Record how long an evaluation took, and reserve time for the final one."""
        self.total_eval_seconds += seconds
        self.reserve_time(seconds, final_seconds)

    def reserve_time(self, seconds: float, final_seconds: float) -> None:
        """Reserve time for the two evaluations after the last step, regular and final."""
        self.eval_seconds = seconds
        ending = seconds + min(final_seconds, EVAL_FRACTION * self.seconds)
        self.reserve = min(ending + OVERHEAD_SECONDS, self.seconds / 4)


def read_schedule_log(log: Path) -> dict[int, tuple[float, bool]]:
    """Read the elapsed fraction and whether to evaluate, for each step started under a deadline.

    Removes an incomplete last line, which a killed process may leave.
    """
    if not log.exists():
        return {}
    lines = read_text(log).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        write_file(log, "".join(lines[:-1]))
        lines.pop()
    entries = {}
    with wrap_read_errors(log):
        for number, line in enumerate(lines, start=1):
            step, fraction, should_evaluate = line.split()
            if not 0 <= float(fraction) <= 1:
                raise GlassError(
                    f"{log}:{number} is corrupted: expected a fraction from 0 to 1, got {fraction}"
                )
            entries[int(step)] = float(fraction), should_evaluate == "1"
    return entries
