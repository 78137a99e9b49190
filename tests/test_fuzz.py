"""A thousand damaged folders and files: each is used, or refused in one line. See `fuzz.py`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fuzz
from fuzzing import specimens as specimens_of

FUZZER = Path(fuzz.__file__)


@pytest.fixture(scope="module")
def specimens(tmp_path_factory):
    return fuzz.build_specimens(tmp_path_factory.mktemp("specimens"))


def test_a_thousand_damaged_files_are_used_or_refused():
    done = subprocess.run(
        [sys.executable, str(FUZZER), "--cases", "1000", "--seed", "0"],
        capture_output=True, text=True, check=False, timeout=20 * 60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    wrong = [
        f"{f['case']}: {f['damage']}\n  {f['error']}\n  {f['where']}" for f in report["failures"]
    ]
    again = "python tests/fuzz.py --seed 0 --case NUMBER"
    assert not wrong, f"{len(wrong)} failures; for one of them: {again}\n" + "\n".join(wrong)
    assert report["cases"] == 1000
    assert report["loaded"] > 150
    assert report["refused"] > 300
    assert report["peak_mb_growth"] < fuzz.MOST_MEMORY


def test_every_specimen_is_healthy(specimens, tmp_path):
    for kind, several in specimens.items():
        for i, specimen in enumerate(several):
            specimen.use(shutil.copytree(specimen.path, tmp_path / kind / str(i)))


def outcomes(specimens, folder, seed, count=40):
    return [fuzz.run_case(specimens, case, seed, folder / "case") for case in range(count)]


def test_a_case_is_the_same_each_time(specimens, tmp_path):
    first, again, other = (
        [(found.damage, found.error, found.loaded) for found in outcomes(specimens, tmp_path, seed)]
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("name", "bug"),
    [("glassformer.weights.read", NameError), ("glassformer.api.embed_texts", KeyError)],
)
def test_a_bug_is_found_and_its_line_named(specimens, tmp_path, monkeypatch, name, bug):
    def fail(*_args):
        raise bug("a bug")

    monkeypatch.setattr(name, fail)
    found = [found for found in outcomes(specimens, tmp_path, 0) if "a bug" in found.error]
    assert found
    assert all(failure.error.startswith(bug.__name__) for failure in found)
    assert all(name.rpartition(".")[2] in failure.where for failure in found)


@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda _: os.abort(), "Died: -6"),
        (lambda _: bytearray(700_000_000).find(1), "Memory: "),
        (lambda _: bytearray(1 << 40), "MemoryError"),
        (lambda _: sys.exit(), "SystemExit"),
    ],
)
def test_a_case_that_kills_its_process_is_one_failure(tmp_path, monkeypatch, use, error):
    healthy = tmp_path / "healthy"
    specimens_of.write(healthy / "file.txt", b"text")
    specimen = fuzz.Specimen(healthy, use)
    one = {kind: [specimen] for kind in fuzz.SHARES}
    monkeypatch.setattr(fuzz, "build_specimens", lambda _home: one)
    report = fuzz.run_cases(5, 3, 0)
    assert [failure.case for failure in report.failures] == [5, 6, 7]
    assert all(failure.error.startswith(error) for failure in report.failures)
