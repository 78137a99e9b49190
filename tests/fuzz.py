"""A seeded fuzzer of model folders, run folders, recipes and data files.

    python tests/fuzz.py --cases 1000 --seed 0    # many cases: one JSON object
    python tests/fuzz.py --case 1234 --seed 0     # one of them, with its traceback

A case copies a specimen, damages it and uses it. Success and `GlassError` are right; any other
exception, a crash, a hang, or much memory is a failure. Cases run in a child process, so that one
that kills its process is reported like the others.
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
from fuzzing.damage import damage_file, sign
from fuzzing.specimens import Specimen, Specimens, build_specimens
from glassformer import GlassError
from glassformer.core.folder import MANIFEST
from glassformer.training.run import CHECKSUMS

PACKAGE = Path(glassformer.__file__).parent
MOST_MEMORY = 600  # MB that the peak may grow by
ADDRESSES = 3 << 30  # bytes of address space that a child may add: it dies before the machine does
HANG = 60.0  # seconds until a case is taken for dead
SHARES = {"model": 56, "data": 30, "recipe": 10, "run": 4}  # of the cases; runs take long


@dataclass
class Outcome:
    """What came of a case; without an error it loaded, or was refused as it should be."""

    case: int
    damage: str
    loaded: bool = False
    seconds: float = 0.0
    error: str = ""
    where: str = ""  # the last line of ours that the error came through


@dataclass
class Report:
    """What came of many cases."""

    cases: int = 0
    loaded: int = 0
    refused: int = 0
    failures: list[Outcome] = field(default_factory=list)
    average: float = 0.0  # seconds
    slowest: tuple[float, int] = (0.0, 0)  # seconds, and the case
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
    """The specimen that a case is about, its damaged copy, and what was done to that."""
    choose = Random(f"{seed}/{case}")
    kind = choose.choices(list(SHARES), list(SHARES.values()))[0]
    specimen = choose.choice(specimens[kind])
    path = scratch / specimen.path.name
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(specimen.path, path)
    done = "; ".join(damage_file(path, choose) for _ in range(choose.choice([1, 1, 1, 1, 2, 3])))
    if choose.random() < 0.8 and MANIFEST not in done and CHECKSUMS not in done:
        sign(path)
    return specimen, path, f"{kind} {specimen.path.parent.name}/{specimen.path.name}: {done}"


def run_case(specimens: Specimens, case: int, seed: int, scratch: Path) -> Outcome:
    """Damage a specimen and use it."""
    specimen, path, did = prepare_case(specimens, case, seed, scratch)
    outcome, start = Outcome(case, did), time.monotonic()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            specimen.use(path)
        outcome.loaded = True
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        if not isinstance(error, GlassError):
            outcome.error = f"{type(error).__name__}: {error}"[:300]
            outcome.where = last_line(error)
    outcome.seconds = round(time.monotonic() - start, 3)
    return outcome


def last_line(error: BaseException) -> str:
    """The last line of the package that an error came through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(PACKAGE):
            return f"{Path(frame.filename).relative_to(PACKAGE)}:{frame.lineno} {frame.line}"
    return "outside of the package"


def run_cases(first: int, count: int, seed: int, seconds_per_case: float | None = None) -> Report:
    """Run cases in children; when one dies, its case has failed and another child goes on."""
    report = Report()
    with tempfile.TemporaryDirectory() as home:
        specimens, scratch = build_specimens(Path(home) / "specimens"), Path(home) / "scratch"
        while report.cases < count:
            cases, noise = range(first + report.cases, first + count), Path(home) / "noise.txt"
            work = guard_cases(specimens, cases, seed, scratch, seconds_per_case)
            status = run_child(work, report, noise)
            if status:
                case = first + report.cases
                did = prepare_case(specimens, case, seed, scratch)[2]
                report.add(Outcome(case, did, error=f"Died: {status}", where=last_said(noise)))
    return report


def run_child(work: Iterator[tuple[Outcome, float]], report: Report, noise: Path) -> int:
    """Let a child work, and report what it did; its exit status, 0 if it ended by itself."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other threads, which the child does not need
        process = os.fork()
    if process == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out, noise.open("w") as said:
                os.dup2(said.fileno(), 2)
                for outcome, growth in work:
                    out.write(json.dumps([asdict(outcome), growth]) + "\n")
                    out.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            outcome, growth = json.loads(line)
            report.add(Outcome(**outcome))
            report.peak_mb_growth = max(report.peak_mb_growth, growth)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def guard_cases(
    specimens: Specimens, cases: range, seed: int, scratch: Path, seconds: float | None
) -> Iterator[tuple[Outcome, float]]:
    """Outcomes with the growth of memory so far, up to the first that took too much of it."""
    limit_memory()
    faulthandler.enable(file=2)
    tempfile.tempdir = str(scratch.parent)  # which is cleared, even of what a dead child left
    os.chdir(scratch.parent)
    previous_ids, growth = peak_mb(), 0.0
    for case in cases:
        if growth > MOST_MEMORY:
            return
        faulthandler.dump_traceback_later(HANG, exit=True, file=2)
        outcome, growth = run_case(specimens, case, seed, scratch), peak_mb() - previous_ids
        if growth > MOST_MEMORY:
            outcome.error = outcome.error or f"Memory: {growth:.0f} MB more"
        elif seconds and outcome.seconds > seconds:
            outcome.error = outcome.error or f"Slow: {outcome.seconds} s"
        yield outcome, growth


def limit_memory() -> None:
    """Let what asks for very much memory fail in this process alone, and leave no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = Path("/proc/self/statm")
    if pages.exists():
        most = int(pages.read_text().split()[0]) * resource.getpagesize() + ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def peak_mb() -> float:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)


def last_said(noise: Path) -> str:
    """Where a child was when it died, and its first words."""
    lines = noise.read_text(errors="replace").splitlines()
    ours = [line.strip() for line in lines if f'"{PACKAGE}' in line]
    return " | ".join([*ours[:1], *lines[:1]])[:300]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--case", type=int, help="only this one")
    options.add_argument("--cases", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seconds", type=float, help="a case that takes longer is a failure")
    args = options.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # children are forked
    torch.set_num_threads(1)
    if args.case is None:
        report = run_cases(0, args.cases, args.seed, args.seconds)
        sys.stdout.write(json.dumps(asdict(report), indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as home:
        specimens, scratch = build_specimens(Path(home) / "specimens"), Path(home) / "scratch"
        limit_memory()
        specimen, path, did = prepare_case(specimens, args.case, args.seed, scratch)
        sys.stderr.write(f"{did}\n")
        specimen.use(path)


if __name__ == "__main__":
    main()
