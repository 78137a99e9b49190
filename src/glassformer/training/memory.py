"""The machine's memory, the peak memory of this process, and an out-of-memory error."""

import ctypes
import gc
import math
import os
import sys
from pathlib import Path

from glassformer.core.errors import GlassError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


class ContextTooLongError(GlassError):
    """A single sequence of `length` tokens does not fit in memory.

    `max_context` is a shorter context that does fit; 0 if none does.
    """

    def __init__(self, length: int, max_context: int) -> None:
        advice = (
            f"a context of {max_context} fits: --set model.context={max_context}, or "
            "--shrink-on-oom"
            if max_context
            else "no shorter context fits either: use a smaller model"
        )
        super().__init__(f"out of memory with one sequence of {length} tokens; {advice}")
        self.max_context = max_context


def total_memory() -> float:
    """Return the memory of this machine in GB; infinity if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return math.inf


def release_memory() -> None:
    """Return freed memory to the operating system, where that takes a call.

    glibc keeps blocks of up to 32 MB for later use: after counting the n-grams of 2 million tokens,
    more than the counts themselves.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def peak_memory() -> float:
    """Return the peak memory of this process in GB."""
    status = Path("/proc/self/status")  # on Linux getrusage includes the parent's peak before fork
    if status.exists():
        lines = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
        if "VmHWM" in lines:
            return int(lines["VmHWM"].split()[0]) / 1e6
    if resource is None:
        return 0.0
    unit = 1e9 if sys.platform == "darwin" else 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
