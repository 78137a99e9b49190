"""Stop on Ctrl-C and termination signals, after finishing and saving the current step."""

import contextlib
import signal
from collections.abc import Callable, Iterator

# Closing a terminal sends SIGHUP, which does not exist on Windows.
SIGNALS = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]


@contextlib.contextmanager
def stop_on_signal(stop: Callable[[], bool]) -> Iterator[None]:
    """Call `stop` on SIGINT, SIGTERM or SIGHUP; raise KeyboardInterrupt if it returns false.

    `stop` returns true on its first call. A repeated SIGHUP never raises, because a terminal may
    send it twice. A signal that the process ignores, such as SIGHUP under nohup, stays ignored.
    """

    def handle(number: int, _frame: object) -> None:
        if not stop() and number != getattr(signal, "SIGHUP", None):
            raise KeyboardInterrupt

    previous_handlers = {}
    with contextlib.suppress(ValueError):  # only the main thread receives signals
        for number in SIGNALS:
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                previous_handlers[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
