"""How much memory there is, how much was used, and the error when too little is left."""

import math
import os
import sys
from pathlib import Path

from glassformer.core.errors import GlassError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


class TooLongError(GlassError):
    """Not even one text of this length fits; one of `fits` tokens does, unless that is 0."""

    def __init__(self, length: int, fits: int) -> None:
        way = (
            f"{fits} do: --set model.context={fits}, or --shrink-on-oom"
            if fits
            else "no shorter one does"
        )
        super().__init__(f"one text of {length} tokens needs more memory than there is; {way}")
        self.fits = fits


def total_memory() -> float:
    """The memory of this machine in GB; infinite where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return math.inf


def peak_memory() -> float:
    """The most that this process ever held, in GB."""
    status = Path("/proc/self/status")  # getrusage on Linux says at least what its parent held
    if status.exists():
        lines = dict(line.partition(":")[::2] for line in status.read_text().splitlines())
        if "VmHWM" in lines:
            return int(lines["VmHWM"].split()[0]) / 1e6
    if resource is None:
        return 0.0
    unit = 1e9 if sys.platform == "darwin" else 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
