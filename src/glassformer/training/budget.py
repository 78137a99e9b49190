"""How long training goes on: a number of steps, or a deadline by the clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from glassformer.core.errors import GlassError
from glassformer.core.folder import read_text, wrap_read_errors, wrap_write_errors, write_file

UNITS = 1000.0  # of a deadline, in which the schedule counts
TENTHS = 10  # evaluations and checkpoints in a run, unless another interval is given
EVALUATION = 0.075  # of a deadline, that evaluations during training may take; and the final one
OVERHEAD = 3.0  # seconds at the end for plots and files

Clock = Callable[[], float]


@dataclass(frozen=True)
class Moment:
    """Where in its budget a step is."""

    position: float  # of the schedule, out of `total`
    total: float
    is_tenth: bool  # whether another tenth of the budget ends here
    should_evaluate: bool  # at the end of that tenth, unless another interval is given


class Budget(Protocol):
    def begin(self, step: int) -> Moment:
        """The moment of a step, which is about to be taken."""
        ...

    def is_spent(self, step: int) -> bool:
        """Whether no further step is to be taken after so many."""
        ...

    def steps(self, step: int, pace: float) -> int:
        """About how many steps there are in all, at a pace in seconds for each."""
        ...

    def seconds_left(self, step: int, pace: float) -> float: ...


@dataclass(frozen=True)
class StepBudget:
    total: int

    def begin(self, step: int) -> Moment:
        done = step + 1
        is_tenth = TENTHS * done // self.total > TENTHS * (done - 1) // self.total
        return Moment(step, self.total, is_tenth, should_evaluate=is_tenth)

    def is_spent(self, step: int) -> bool:
        return step >= self.total

    def steps(self, step: int, pace: float) -> int:
        return self.total

    def seconds_left(self, step: int, pace: float) -> float:
        return pace * (self.total - step)


class Deadline:
    """A budget in seconds, counted from when the command began.

    The schedule follows the share of the time for training that is gone. This share, and whether
    an evaluation is due, is logged before each step: a run that was killed takes the steps that it
    had taken at the same points of its schedule again, and so comes to the same weights. Only the
    clock ends it.
    """

    def __init__(
        self,
        seconds: float,
        log: Path,
        *,
        spent: float = 0.0,
        setup: float = 0.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self.seconds, self.log, self.clock = seconds, log, clock
        self.setup = setup  # seconds before the first step, in which no schedule goes on
        self.started = clock() - spent
        self.reserve = min(OVERHEAD, seconds / 4)  # for what comes after the last step
        self.evaluation = self.evaluated = 0.0  # seconds: of the next evaluation, of all so far
        self.replay = read_log(log)
        self.share, self.tenth = 0.0, 0  # of the time that is gone; and the last tenth that began

    @property
    def spent(self) -> float:
        """Seconds since the beginning, without pauses between a stop and its resumption."""
        return self.clock() - self.started

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self.seconds - self.spent, 0.0)

    def now(self) -> float:
        """The share of the time for training that is gone; it never falls."""
        total = max(self.seconds - self.reserve - self.setup, 1e-9)
        self.share = max(self.share, min((self.spent - self.setup) / total, 1.0))
        return self.share

    def begin(self, step: int) -> Moment:
        before = self.tenth
        if step < len(self.replay):
            self.share, should_evaluate = self.replay[step]
            self.tenth = int(TENTHS * self.share)
        else:
            self.tenth = int(TENTHS * self.now())
            affordable = self.evaluated + self.evaluation <= EVALUATION * self.spent
            should_evaluate = self.tenth > before and affordable
            with wrap_write_errors(self.log), self.log.open("a", encoding="utf-8") as file:
                file.write(f"{self.share!r} {int(should_evaluate)}\n")
            self.replay.append((self.share, should_evaluate))
        return Moment(UNITS * self.share, UNITS, self.tenth > before, should_evaluate)

    def is_spent(self, step: int) -> bool:
        return step > 0 and step >= len(self.replay) and self.now() >= 1

    def steps(self, step: int, pace: float) -> int:
        return step + round(max(self.left - self.reserve, 0) / max(pace, 1e-9))

    def seconds_left(self, step: int, pace: float) -> float:
        return self.left

    def resume_at(self, step: int) -> None:
        """Go on after a step: what was logged beyond it is taken again."""
        replays = 0 < step < len(self.replay)
        self.share = self.replay[step - 1][0] if replays else 0.0
        self.tenth = int(TENTHS * (self.share if replays else self.now()))

    def add_evaluation(self, seconds: float, final: float) -> None:
        """Note how long an evaluation took, and how long the final one will take."""
        self.evaluation, self.evaluated = seconds, self.evaluated + seconds
        self.plan_end(seconds, final)

    def plan_end(self, evaluation: float, final: float) -> None:
        """Keep time for the evaluations after the last step."""
        self.evaluation = evaluation
        ending = evaluation + min(final, EVALUATION * self.seconds)
        self.reserve = min(ending + OVERHEAD, self.seconds / 4)


def read_log(log: Path) -> list[tuple[float, bool]]:
    """What was logged; a last line that was cut short by a kill is taken away."""
    if not log.exists():
        return []
    lines = read_text(log).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        write_file(log, "".join(lines[:-1]))
        lines.pop()
    found = []
    with wrap_read_errors(log):
        for number, line in enumerate(lines, start=1):
            share, should_evaluate = line.split()
            if not 0 <= float(share) <= 1:
                raise GlassError(f"{log}:{number} is damaged: {share} is not a share")
            found.append((float(share), should_evaluate == "1"))
    return found
