"""What a person sees while something takes long: lines that stay, and one that is written over."""

import contextlib
import os
import shutil
import sys
import time
from typing import TextIO


class Reporter:
    """Writes progress to standard error; where that is no terminal, the moving line comes rarely.

    Progress never stops the work: once the stream is closed or its reader is gone, nothing more is
    written.
    """

    def __init__(self, every: float = 10.0) -> None:
        self.stream: TextIO | None = sys.stderr  # None in a process without one
        self.terminal, self.every = is_terminal(self.stream), every
        self.last = time.monotonic() - (every if self.terminal else 0)

    def __call__(self, text: str) -> None:
        """A line that stays."""
        self.write(f"\r\x1b[K{text}\n" if self.terminal else text + "\n")

    def line(self, text: str) -> None:
        """A line that the next one replaces."""
        now = time.monotonic()
        if self.terminal and now - self.last > 0.1:
            room = shutil.get_terminal_size().columns - 1  # one that wraps could not be replaced
            self.write(f"\r\x1b[K{text[:room]}")
            self.last = now
        elif not self.terminal and now - self.last > self.every:
            self.write(text + "\n")
            self.last = now

    def clear(self) -> None:
        """Nothing in place of the line that the next one replaces."""
        if self.terminal:
            self.write("\r\x1b[K")

    def write(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            try:
                self.stream.write(text)
            except UnicodeError:  # a log that cannot hold every character
                self.stream.write(text.encode("ascii", "replace").decode())
            self.stream.flush()
        except (OSError, ValueError):  # a broken pipe, a lost terminal, a closed file
            self.stream = None


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # it is closed, or is not quite a stream
        return False


def discard_output(stream: TextIO) -> None:
    """Point a stream that nobody reads at the null device, so that what it still holds is lost
    without an error when the process ends. For the end of a command: the stream is not ours."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), stream.fileno())


class NullReporter(Reporter):
    """Says nothing."""

    def __call__(self, text: str) -> None:
        pass

    def line(self, text: str) -> None:
        pass

    def clear(self) -> None:
        pass


class ProgressBar:
    """How much of something is done, and how long the rest will take."""

    def __init__(self, live: Reporter, what: str, total: float) -> None:
        self.live, self.what, self.total = live, what, max(total, 1)
        self.done, self.start = 0.0, time.monotonic()

    def add(self, amount: float) -> None:
        self.done += amount
        share = min(self.done / self.total, 1)
        left = (time.monotonic() - self.start) * (1 / max(share, 1e-9) - 1)
        filled = round(share * 24)
        bar = "█" * filled + "░" * (24 - filled)
        eta = f"  {format_duration(left)} left" if share > 0.02 else ""
        self.live.line(f"{self.what} {bar} {share:4.0%}{eta}")


def format_duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def format_value(value: object) -> str:
    """A figure as a person reads it."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
