"""What went wrong, in one line for the person who can fix it."""

import contextlib
from collections.abc import Iterator


class GlassError(ValueError):
    """A mistake in what the program was given: a file, a setting, a text."""


def is_memory_error(error: BaseException) -> bool:
    """Whether an error of torch or Python means that memory ran out."""
    words = ("allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


@contextlib.contextmanager
def catch_memory_errors() -> Iterator[None]:
    """Pass over an error that means that memory ran out.

    The caller sees that nothing came of its block, and acts after it: as long as an error is
    handled, it keeps everything alive that did not fit.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_memory_error(error):
            raise
