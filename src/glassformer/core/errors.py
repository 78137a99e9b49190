"""The error type whose message is shown to the user, and detection of out-of-memory errors."""

import contextlib
from collections.abc import Iterator


class GlassError(ValueError):
    """Invalid input, such as a file, a setting or a text. The user sees its one-line message."""


def is_memory_error(error: BaseException) -> bool:
    """Whether an error from torch or Python means out of memory."""
    phrases = ("allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(phrase in str(error) for phrase in phrases)


@contextlib.contextmanager
def catch_memory_errors() -> Iterator[None]:
    """Suppress out-of-memory errors.

    The caller checks after the block whether it produced a result, and retries there: inside an
    `except` clause, the traceback would keep alive the tensors that did not fit.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
