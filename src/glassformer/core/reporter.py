"""Progress output: permanent lines, and a status line that is overwritten."""

import contextlib
import os
import shutil
import sys
import time
from typing import TextIO

from glassformer.core.i18n import localize, tr


def format_count(count: int, noun: str) -> str:
    """A count and its noun, such as "1 text" or "2 texts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class Reporter:
    """Writes progress to standard error.

    On a terminal and in a notebook the status line is overwritten in place; elsewhere it is written
    as a new line at most once every `status_interval` seconds. A closed or broken stream is not an
    error: output just stops.
    """

    def __init__(self, status_interval: float = 10.0) -> None:
        self.stream: TextIO | None = sys.stderr  # None in a process without stderr
        self.is_notebook = "ipykernel" in sys.modules
        self.is_terminal = self.is_notebook or is_terminal(self.stream)
        self.status_interval = status_interval
        self.last_status = time.monotonic() - (status_interval if self.is_terminal else 0)

    def __call__(self, text: str) -> None:
        """Write a permanent line."""
        text = localize(text)
        self.write(f"{self.erase}{text}\n" if self.is_terminal else text + "\n")

    def status(self, text: str) -> None:
        """Write the status line, which the next line replaces."""
        now = time.monotonic()
        if self.is_terminal and now - self.last_status > 0.1:
            columns = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be replaced
            self.write(f"{self.erase}{localize(text)[:columns]}")
            self.last_status = now
        elif not self.is_terminal and now - self.last_status > self.status_interval:
            self.write(localize(text) + "\n")
            self.last_status = now

    def clear(self) -> None:
        """Erase the status line."""
        if self.is_terminal:
            self.write(self.erase)

    @property
    def erase(self) -> str:
        """The characters that erase the current line; notebooks interpret only \\r."""
        columns = shutil.get_terminal_size().columns - 1
        return f"\r{' ' * columns}\r" if self.is_notebook else "\r\x1b[K"

    def write(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            try:
                self.stream.write(text)
            except UnicodeError:  # the stream's encoding lacks a character
                self.stream.write(text.encode("ascii", "replace").decode())
            self.stream.flush()
        except (OSError, ValueError):  # a broken pipe, a lost terminal, a closed file
            self.stream = None


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (ValueError, AttributeError):  # it is closed, or is not a real stream
        return False


def discard_output(stream: TextIO) -> None:
    """Redirect a stream whose pipe is broken to the null device.

    Its buffer is then discarded without an error when the process exits. Call this only at the end
    of a command.
    """
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as null:  # noqa: PTH123
        os.dup2(null.fileno(), stream.fileno())


class NullReporter(Reporter):
    """Writes nothing."""

    def __call__(self, text: str) -> None:
        pass

    def status(self, text: str) -> None:
        pass

    def clear(self) -> None:
        pass


class ProgressBar:
    """A status line with the completed fraction of a task and the estimated time left."""

    def __init__(self, reporter: Reporter, label: str, total: float) -> None:
        self.reporter = reporter
        self.label = label
        self.total = max(total, 1)
        self.done, self.start = 0.0, time.monotonic()

    def add(self, amount: float) -> None:
        self.done += amount
        fraction = min(self.done / self.total, 1)
        seconds_left = (time.monotonic() - self.start) * (1 / max(fraction, 1e-9) - 1)
        filled = round(fraction * 24)
        bar = "█" * filled + "░" * (24 - filled)
        eta = "" if fraction <= 0.02 else tr("  {time} left", time=format_duration(seconds_left))
        self.reporter.status(f"{localize(self.label)} {bar} {fraction:4.0%}{eta}")


def format_duration(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def format_value(value: object) -> str:
    """A metric or setting, with thousands separators or four significant digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
