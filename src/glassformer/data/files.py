"""Read the lines of files, each with its location. A `BadRowPolicy` handles bad ones."""

import contextlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.data.compression import open_bytes
from glassformer.data.encoding import UTF8, detect_encoding

MAX_LINE_LENGTH = 10_000_000  # characters
MAX_REPORTED_BAD_ROWS = 10
PIPE_TIMEOUT = 10.0  # seconds to wait for the first data from a pipe


@dataclass(frozen=True)
class Row:
    """One row of a table: its values by column, and its location (file:line)."""

    location: str
    values: dict[str, str]


@dataclass
class BadRowPolicy:
    """Handles rows that cannot be used: raises an error, or logs and counts them.

    Without `log`, a call raises a `GlassError` with the row's location and the reason. With
    `log`, it appends the row to that JSONL file, and the caller skips the row.
    """

    log: Path | None = None
    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        if self.log is None:
            hint = "fix it, or skip such rows with --skip-bad"
            raise GlassError(f"{location}: {reason}; {hint}")
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        entry = {"location": location, "reason": reason, "content": content[:1000]}
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


@dataclass
class CountBadRows(BadRowPolicy):
    """Counts bad rows, which the caller skips, and records where the first ones are."""

    first: list[str] = field(default_factory=list)

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        self.count += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if len(self.first) < MAX_REPORTED_BAD_ROWS:
            self.first.append(f"{location}: {reason}")


class IgnoreBadRows(BadRowPolicy):
    """Ignores bad rows, because another pass over the data reports them."""

    def __call__(self, location: str, reason: str, content: str = "") -> None:
        pass


def save_streams(files: tuple[Path, ...], folder: Path, *, name: str = "input") -> tuple[Path, ...]:
    """Copy standard input ("-") and pipes to files in the folder, so that they can be read twice.

    Returns the paths to read.
    """
    paths = []
    for number, file in enumerate(files):
        if str(file) != "-" and not file.is_fifo():
            paths.append(file)
            continue
        copy = folder / f"{name}-{number}.txt"
        with copy.open("wb") as out:
            if str(file) == "-":
                shutil.copyfileobj(sys.stdin.buffer, out)
            else:
                copy_pipe(file, out)
        paths.append(copy)
    return tuple(paths)


def copy_pipe(path: Path, out: BinaryIO) -> None:
    """Copy a pipe's data; raise an error if no process opens it within `PIPE_TIMEOUT`."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(handle, "rb", buffering=0) as pipe:  # noqa: PTH123
        deadline = time.monotonic() + PIPE_TIMEOUT
        # None means that a writer is connected but has not sent anything yet
        while not (block := pipe.read(1 << 16)):
            if block is not None and time.monotonic() > deadline:
                raise GlassError(
                    f"{path} is a pipe, and no data arrived within {PIPE_TIMEOUT:g} seconds"
                )
            time.sleep(0.01)
        os.set_blocking(handle, True)
        while block:
            out.write(block)
            block = pipe.read(1 << 20)


def read_lines(
    path: Path, on_bad_row: BadRowPolicy, encoding: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the location and text of each line, including its newline, if any.

    Lines end with \\n or \\r\\n, or with \\r if the file has no \\n near its start. Without
    `encoding`, it is detected. A byte order mark is removed.
    """
    with wrap_read_errors(path), wrap_decoding_errors(path, encoding), open_bytes(path) as file:
        encoding = encoding or detect_encoding(path)
        errors = "replace" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"
        start = file.peek(1 << 16)[: 1 << 16].decode(encoding, "replace")  # type: ignore[attr-defined]
        end = "\r" if "\r" in start and "\n" not in start else "\n"
        text = io.TextIOWrapper(file, encoding, errors, newline=end)
        number = 0
        while line := text.readline(MAX_LINE_LENGTH):
            number += 1
            if line.endswith(end):
                line = line.removesuffix(end).removesuffix("\r") + "\n"
            location = f"{path}:{number}"
            if len(line) == MAX_LINE_LENGTH and not line.endswith("\n"):
                while (rest := text.readline(MAX_LINE_LENGTH)) and not rest.endswith(end):
                    pass
                limit = f"{MAX_LINE_LENGTH // 1_000_000} million characters"
                on_bad_row(location, f"the line is longer than {limit}")
            elif is_text(line, encoding, location, on_bad_row):
                yield location, line


@contextlib.contextmanager
def wrap_decoding_errors(path: Path, encoding: str | None) -> Iterator[None]:
    """Turn the error of a file that is not in the given encoding at all into a `GlassError`."""
    try:
        yield
    except UnicodeError as error:
        raise GlassError(
            f"{path} cannot be read as {encoding}: leave out --encoding, or name another one"
        ) from error


def is_text(line: str, encoding: str, location: str, on_bad_row: BadRowPolicy) -> bool:
    """Whether a line could be decoded and has no NUL characters; if not, report it as a bad row.

    The line was decoded with surrogateescape, so invalid bytes are lone surrogates in it.
    """
    if "\0" in line:
        on_bad_row(location, "the line has a NUL character", line)
        return False
    try:
        line.encode()
    except UnicodeEncodeError as error:
        name = "UTF-8" if encoding == UTF8 else encoding
        byte = ord(line[error.start]) - 0xDC00
        content = f"byte 0x{byte:02x} at character {error.start + 1}: {line[:200]!r}"
        reason = f"the line is not valid {name} (for another encoding: --encoding)"
        on_bad_row(location, reason, content)
        return False
    return True
