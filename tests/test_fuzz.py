"""A thousand corrupted folders and files are used or properly refused. See `fuzz.py`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz
from fuzzing.specimens import write

FUZZER = Path(fuzz.__file__)


@pytest.fixture(scope="module")
def specimens(tmp_path_factory):
    return fuzz.build_specimens(tmp_path_factory.mktemp("specimens"))


def test_a_thousand_corrupted_files_are_used_or_refused():
    process = subprocess.run(
        [sys.executable, str(FUZZER), "--cases", "1000", "--seed", "0"],
        capture_output=True, text=True, check=False, timeout=20 * 60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    failures = [
        f"{f['case']}: {f['damage']}\n  {f['error']}\n  {f['where']}" for f in report["failures"]
    ]
    command = "python tests/fuzz.py --seed 0 --case NUMBER"
    message = f"{len(failures)} failures; to reproduce one: {command}\n" + "\n".join(failures)
    assert not failures, message
    assert report["cases"] == 1000
    assert report["loaded"] > 150
    assert report["refused"] > 300
    assert report["peak_mb_growth"] < fuzz.MAX_MEMORY_GROWTH


def test_every_specimen_is_usable(specimens, tmp_path):
    assert specimens
    assert all(specimens.values())
    for kind, specimens_of_kind in specimens.items():
        for i, specimen in enumerate(specimens_of_kind):
            specimen.use(shutil.copytree(specimen.path, tmp_path / kind / str(i)))


def run_cases(specimens, folder, seed, count=40):
    return [fuzz.run_case(specimens, case, seed, folder / "case") for case in range(count)]


def test_cases_are_deterministic(specimens, tmp_path):
    first, again, other = (
        [(case.damage, case.error, case.loaded) for case in run_cases(specimens, tmp_path, seed)]
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("name", "bug"),
    [("glassformer.weights.read", NameError), ("glassformer.api.embed_texts", KeyError)],
)
def test_a_bug_is_reported_with_its_line(specimens, tmp_path, monkeypatch, name, bug):
    def fail(*_args):
        raise bug("a bug")

    monkeypatch.setattr(name, fail)
    failures = [case for case in run_cases(specimens, tmp_path, 0) if "a bug" in case.error]
    assert failures
    assert all(failure.error.startswith(bug.__name__) for failure in failures)
    assert all(name.rpartition(".")[2] in failure.where for failure in failures)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda _: os.abort(), "Died: -6"),
        (lambda _: bytearray(700_000_000).find(1), "Memory: "),
        (lambda _: bytearray(1 << 40), "MemoryError"),
        (lambda _: sys.exit(), "SystemExit"),
    ],
)
def test_each_case_that_kills_its_process_is_one_failure(tmp_path, monkeypatch, use, error):
    write(tmp_path / "valid" / "file.txt", b"text")
    specimen = fuzz.Specimen(tmp_path / "valid", use)
    specimens = {kind: [specimen] for kind in fuzz.WEIGHTS}
    monkeypatch.setattr(fuzz, "build_specimens", lambda _home: specimens)
    report = fuzz.run_cases(5, 3, 0)
    assert [failure.case for failure in report.failures] == [5, 6, 7]
    assert all(failure.error.startswith(error) for failure in report.failures)
