"""A seeded fuzzer for model folders, run folders, recipes and data files.

    python tests/fuzz.py --cases 1000 --seed 0    # many cases; prints one JSON object
    python tests/fuzz.py --case 1234 --seed 0     # one of them, with its traceback

A case copies a specimen, corrupts the copy and uses it. It passes if that succeeds or raises a
`GlassError`; any other exception, a crash, a hang, or excessive memory is a failure. Cases run in
a child process, so that a crash is reported like any other failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import torch

import glassformer
from fuzzing.damage import corrupt_file, update_checksums
from fuzzing.specimens import Specimen, Specimens, build_specimens
from glassformer import GlassError
from glassformer.core.folder import MANIFEST
from glassformer.training.run import CHECKSUMS

PACKAGE = Path(glassformer.__file__).parent
MAX_MEMORY_GROWTH = 600  # MB
MAX_ADDRESS_SPACE = 3 << 30  # bytes that a child may add to that of its parent
TIMEOUT = 60.0  # seconds until a case counts as hanging
WEIGHTS = {"model": 56, "data": 30, "recipe": 10, "run": 4}  # percent of the cases; runs are slow


@dataclass
class Outcome:
    """The result of a case. Without an error, the specimen was loaded or properly refused."""

    case: int
    damage: str
    loaded: bool = False
    seconds: float = 0.0
    error: str = ""
    where: str = ""  # the innermost line of the package in the traceback


@dataclass
class Report:
    """The results of many cases."""

    cases: int = 0
    loaded: int = 0
    refused: int = 0
    failures: list[Outcome] = field(default_factory=list)
    average: float = 0.0  # seconds per case
    slowest: tuple[float, int] = (0.0, 0)  # (seconds, case)
    peak_mb_growth: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.loaded += outcome.loaded
        self.refused += not outcome.loaded and not outcome.error
        self.failures += [outcome] if outcome.error else []
        self.average += (outcome.seconds - self.average) / self.cases
        self.slowest = max(self.slowest, (outcome.seconds, outcome.case))


# --- cases ----------------------------------------------------------------------------------------


def prepare_case(
    specimens: Specimens, case: int, seed: int, scratch: Path
) -> tuple[Specimen, Path, str]:
    """The specimen of a case, the path of its corrupted copy, and a description of the damage."""
    rng = Random(f"{seed}/{case}")
    kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    specimen = rng.choice(specimens[kind])
    path = scratch / specimen.path.name
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(specimen.path, path)
    damage = "; ".join(corrupt_file(path, rng) for _ in range(rng.choice([1, 1, 1, 1, 2, 3])))
    if rng.random() < 0.8 and MANIFEST not in damage and CHECKSUMS not in damage:
        update_checksums(path)
    return specimen, path, f"{kind} {specimen.path.parent.name}/{specimen.path.name}: {damage}"


def run_case(specimens: Specimens, case: int, seed: int, scratch: Path) -> Outcome:
    """Corrupt a copy of a specimen and use it."""
    specimen, path, damage = prepare_case(specimens, case, seed, scratch)
    outcome, start = Outcome(case, damage), time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            specimen.use(path)
        outcome.loaded = True
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic in Rust is not an Exception
        if not isinstance(error, GlassError):
            outcome.error = f"{type(error).__name__}: {error}"[:300]
            outcome.where = innermost_line(error)
    outcome.seconds = round(time.monotonic() - start, 3)
    return outcome


def innermost_line(error: BaseException) -> str:
    """The innermost line of the package in an error's traceback."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(PACKAGE):
            return f"{Path(frame.filename).relative_to(PACKAGE)}:{frame.lineno} {frame.line}"
    return "outside the package"


def run_cases(first: int, count: int, seed: int, max_seconds: float | None = None) -> Report:
    """Run cases in child processes; if a child dies, its case fails and a new child continues."""
    report = Report()
    with tempfile.TemporaryDirectory() as home:
        specimens, scratch = build_specimens(Path(home) / "specimens"), Path(home) / "scratch"
        while report.cases < count:
            cases, stderr = range(first + report.cases, first + count), Path(home) / "stderr.txt"
            outcomes = run_cases_limited(specimens, cases, seed, scratch, max_seconds)
            status = run_child(outcomes, report, stderr)
            if status:
                case = first + report.cases
                damage = prepare_case(specimens, case, seed, scratch)[2]
                where = summarize_crash(stderr)
                report.add(Outcome(case, damage, error=f"Died: {status}", where=where))
    return report


def run_child(outcomes: Iterator[tuple[Outcome, float]], report: Report, stderr: Path) -> int:
    """Run cases in a child process and add their outcomes to the report; return its exit code."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about other threads, which the child does not need
        process = os.fork()
    if process == 0:
        try:
            os.close(read_end)
            with os.fdopen(write_end, "w") as out, stderr.open("w") as errors:
                os.dup2(errors.fileno(), 2)
                for outcome, growth in outcomes:
                    out.write(json.dumps([asdict(outcome), growth]) + "\n")
                    out.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        for line in lines:
            outcome, growth = json.loads(line)
            report.add(Outcome(**outcome))
            report.peak_mb_growth = max(report.peak_mb_growth, growth)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def run_cases_limited(
    specimens: Specimens, cases: range, seed: int, scratch: Path, max_seconds: float | None
) -> Iterator[tuple[Outcome, float]]:
    """Yield outcomes and the growth of peak memory in MB; stop after the first excessive one."""
    limit_memory()
    faulthandler.enable(file=2)
    tempfile.tempdir = str(scratch.parent)  # is removed at the end, with a dead child's files
    os.chdir(scratch.parent)
    initial_peak, growth = peak_mb(), 0.0
    for case in cases:
        if growth > MAX_MEMORY_GROWTH:
            return
        faulthandler.dump_traceback_later(TIMEOUT, exit=True, file=2)
        outcome, growth = run_case(specimens, case, seed, scratch), peak_mb() - initial_peak
        if growth > MAX_MEMORY_GROWTH:
            outcome.error = outcome.error or f"Memory: {growth:.0f} MB more"
        elif max_seconds and outcome.seconds > max_seconds:
            outcome.error = outcome.error or f"Slow: {outcome.seconds} s"
        yield outcome, growth


def limit_memory() -> None:
    """Make large allocations of this process fail, and disable core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():
        limit = int(statm.read_text().split()[0]) * resource.getpagesize() + MAX_ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def summarize_crash(stderr: Path) -> str:
    """The first line of the package in a dead child's error output, and the output's first line."""
    lines = stderr.read_text(errors="replace").splitlines()
    package_lines = [line.strip() for line in lines if f'"{PACKAGE}' in line]
    return " | ".join([*package_lines[:1], *lines[:1]])[:300]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=int, help="run only this case")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="a case that takes longer is a failure")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # children are forked
    torch.set_num_threads(1)
    if args.case is None:
        report = run_cases(0, args.cases, args.seed, args.seconds)
        sys.stdout.write(json.dumps(asdict(report), indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as home:
        specimens, scratch = build_specimens(Path(home) / "specimens"), Path(home) / "scratch"
        limit_memory()
        specimen, path, damage = prepare_case(specimens, args.case, args.seed, scratch)
        sys.stderr.write(f"{damage}\n")
        specimen.use(path)


if __name__ == "__main__":
    main()
