"""Record which functions of the package call which, while something runs."""

import inspect
import sys
from contextlib import contextmanager
from pathlib import Path

import glassformer

PACKAGE = f"{Path(glassformer.__file__).parent}/"


class Calls:
    """The calls between functions of the package, in the order in which they run.

    Functions are named as in docs/architecture.md: `training/step.py: Step.backward`, and a class
    stands for its constructor. Lambdas, comprehensions and functions of other libraries are left
    out: what they call is called by the function that runs them. The body of a generator is called
    by the function that pulls its items.
    """

    def __init__(self):
        self.runs = {}  # (caller, callee) -> the times of the first and the last call
        self.names = {}  # code -> name
        self.time = 0

    def name(self, code):
        """Return the name of a function, or None if it is left out."""
        if code not in self.names:
            self.names[code] = name_code(code)
        return self.names[code]

    def __call__(self, frame, event, _argument):
        if event != "call" or (callee := self.name(frame.f_code)) is None:
            return
        caller = frame.f_back
        while caller is not None and self.name(caller.f_code) is None:
            caller = caller.f_back
        edge = caller and self.name(caller.f_code), callee
        self.time += 1
        self.runs[edge] = self.runs.get(edge, (self.time,))[0], self.time

    @property
    def functions(self):
        return {callee for _, callee in self.runs}


def name_code(code):
    *outer, name = code.co_qualname.split(".")
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not name.startswith("<")
    if not is_function or not code.co_filename.startswith(PACKAGE):
        return None  # also for the body of a class or a module
    names = [part for part in outer if not part.startswith("<")]
    names += [] if name == "__init__" else [name]
    return f"{code.co_filename.removeprefix(PACKAGE)}: {'.'.join(names)}"


@contextmanager
def record_calls():
    """Record the calls of this thread."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(before)
