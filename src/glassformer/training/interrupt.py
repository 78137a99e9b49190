"""Ctrl-C, and being asked to end: the step is finished and saved first."""

import contextlib
import signal
from collections.abc import Callable, Iterator

# a terminal that is closed sends SIGHUP, which Windows does not have
SIGNALS = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]


@contextlib.contextmanager
def interruptible(stop: Callable[[], bool]) -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP calls `stop`; a later one, when that is false, leaves at
    once, unless it is SIGHUP, which may come twice.

    A signal that the process ignores, as SIGHUP under nohup, stays ignored.
    """

    def handle(number: int, _frame: object) -> None:
        if not stop() and number != getattr(signal, "SIGHUP", None):
            raise KeyboardInterrupt

    before = {}
    with contextlib.suppress(ValueError):  # not the main thread, where no signal arrives
        for kind in SIGNALS:
            if kind is not None and signal.getsignal(kind) is not signal.SIG_IGN:
                before[kind] = signal.signal(kind, handle)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
