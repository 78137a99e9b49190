"""Ctrl-C, and being asked to end: the step is finished and saved first."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def interruptible(stop: Callable[[], bool]) -> Iterator[None]:
    """The first SIGINT or SIGTERM calls `stop`; a later one, when that is false, leaves at once."""

    def handle(_number: int, _frame: object) -> None:
        if not stop():
            raise KeyboardInterrupt

    kinds = (signal.SIGINT, signal.SIGTERM)
    try:
        before = [signal.signal(kind, handle) for kind in kinds]
    except ValueError:  # not the main thread, where no signal arrives
        before = []
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=False):
            signal.signal(kind, handler)
