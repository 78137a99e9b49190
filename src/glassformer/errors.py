"""What went wrong, in one line for the person who can fix it."""


class GlassError(ValueError):
    """A mistake in what the program was given: a file, a setting, a text."""


def is_memory_error(error: BaseException) -> bool:
    """Whether an error of torch or Python means that memory ran out."""
    words = ("allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
