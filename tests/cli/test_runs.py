"""Listing, sorting, deleting and pruning runs."""

import json
import os
import time

import pytest
from click.testing import CliRunner

from glassformer.cli import glass
from glassformer.training.run import Run

CONFIG = '[task]\nname = "{}"\n[model]\nname = "{}"\n[train]\nseed = 0\n'


def make_run(path, value, *, task="generate", metric="bits_per_byte", model="gpt2"):
    """Write the files of a finished run that the command reads."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(CONFIG.format(task, model))
    lines = [{"kind": kind, "step": 1, metric: value} for kind in ("validation", "final")]
    if value is not None:
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    age = 1_700_000_000 + len(list(path.parent.iterdir()))  # each run is newer than the last
    os.utime(path / "config.toml", (age, age))
    return path


@pytest.fixture
def folder(tmp_path):
    runs = tmp_path / "runs"
    for name, value in {"a": 3.0, "b": 1.0, "c": 2.0, "d": None}.items():
        make_run(runs / name, value)
    for name, value in {"e": 0.5, "f": 0.75}.items():
        make_run(runs / name, value, task="classify", metric="accuracy", model="text_cnn")
    return runs


def invoke(*arguments, code=0, text=""):
    result = CliRunner().invoke(glass, ["runs", *map(str, arguments)], input=text)
    assert result.exit_code == code, result.output
    return result


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def listed(*arguments):
    rows = map(json.loads, invoke(*arguments, "--json").stdout.splitlines())
    return "".join(row["run"][-1] for row in rows)


def test_runs_are_sorted_by_age_or_by_metric(folder):
    assert listed(folder) == "abcdef"
    assert listed(folder, "--sort", "metric") == "febcad"


def test_an_unreadable_run_or_backup_does_not_hide_the_others(folder):
    (folder / "a" / "metrics.jsonl").write_text("nonsense\n")
    (folder / "c" / "config.toml").write_text("= nonsense")
    (folder / "d" / "config.toml").write_text("[task]\nname = []\n")
    make_run(folder / "g", "high")
    (folder / "h" / "config.toml").mkdir(parents=True)
    make_run(folder / ".a.old", 1.0)
    result = invoke(folder)
    assert [line.split()[0][-1] for line in result.stdout.splitlines()] == ["b", "e", "f"]
    assert "config.toml is not valid TOML" in result.stderr
    assert "metrics.jsonl is corrupted" in result.stderr
    assert result.stderr.count("\n") == 4


def test_a_folder_without_runs_is_reported(tmp_path):
    result = invoke(tmp_path / "nothing")
    assert (result.stdout, "there are no runs in" in result.stderr) == ("", True)


def test_deleting_asks_and_names_the_runs_and_their_bytes(folder):
    (folder / "a" / "best").mkdir()
    (folder / "a" / "best" / "model.safetensors").write_bytes(bytes(1000))
    size = sum(file.stat().st_size for file in (folder / "a").rglob("*") if file.is_file())
    line = ("--delete", folder / "a", "--delete", folder / "a")
    for answer in ("n\n", ""):
        result = invoke(*line, code=1, text=answer)
        assert f"{folder / 'a'}: {size:,} bytes" in result.stderr
        assert f"Delete 1 run and free {size:,} bytes?" in result.stderr
        assert "nothing was deleted" in str(result.exception)
    assert names(folder) == list("abcdef")
    assert f"deleted {folder / 'a'}\n" in invoke(*line, text="y\n").stdout
    assert names(folder) == list("bcdef")
    output = invoke("--delete", folder / "b", "--yes", "--json").stdout
    assert json.loads(output).keys() == {"deleted", "bytes"}
    assert names(folder) == list("cdef")


def test_the_current_folder_can_be_deleted(folder, monkeypatch):
    monkeypatch.chdir(folder / "a")
    invoke("--delete", ".", "--yes")
    assert names(folder) == list("bcdef")


def test_pruning_keeps_the_best_runs_of_each_task(folder):
    result = invoke(folder, "--prune", "2", text="y\n")
    assert "Delete 2 runs and free" in result.stderr
    assert names(folder) == list("bcef")
    invoke(folder, "--prune", "1", "--yes")
    assert names(folder) == list("bf")
    assert "there is nothing to delete" in invoke(folder, "--prune", "1").stderr


def test_only_runs_are_deleted(folder, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "config.toml").write_text('task = "mine"\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(folder / "a")
    (tmp_path / "linked").symlink_to(folder)
    for path, message in (
        (tmp_path / "photos", "its config.toml has no task, model and train settings"),
        (tmp_path / "empty", "is not a run folder: it has no config.toml"),
        (folder, "is not a run folder: it has no config.toml"),
        (folder / "a" / "config.toml", "is not a folder"),
        (tmp_path / "nothing", "is not a folder"),
        (tmp_path / "link", f"real path, {folder / 'a'}"),
        (tmp_path / "linked" / "a", f"the symbolic link {tmp_path / 'linked'}"),
    ):
        before = sorted(tmp_path.rglob("*"))
        result = invoke("--delete", folder / "b", "--delete", path, "--yes", code=1)
        assert message in str(result.exception)
        assert sorted(tmp_path.rglob("*")) == before  # not even the valid run is deleted


def test_a_run_that_is_being_trained_is_not_deleted(folder):
    with Run(folder / "a").lock():
        result = invoke("--delete", folder / "a", "--yes", code=1)
        assert "another process is training in" in str(result.exception)
        result = invoke(folder, "--prune", "1", "--yes")
        assert "not deleted: another process is training in" in result.stderr
    assert names(folder) == list("abf")


def test_pruning_does_not_follow_links(folder, tmp_path):
    outside = make_run(tmp_path / "outside", 9.0)
    (folder / "link").symlink_to(outside)
    result = invoke(folder, "--prune", "1", "--yes")
    assert "is reached through the symbolic link" in result.stderr
    assert names(folder) == ["b", "f", "link"]
    assert names(outside) == ["config.toml", "metrics.jsonl"]


def test_the_base_model_of_an_adapter_is_not_deleted(folder):
    last = folder / "b" / "last"
    last.mkdir()
    base = str(folder / "a" / "best")
    (last / "config.toml").write_text(f'[adapter]\nrank = 2\nbase = "{base}"\nsha256 = ""\n')
    result = invoke(folder, "--delete", folder / "a", "--yes", code=1)
    assert f"is the base model of the adapter in {folder / 'b'}" in str(result.exception)
    invoke(folder, "--prune", "1", "--yes")
    assert names(folder) == list("abf")
    invoke(folder, "--delete", folder / "a", "--delete", folder / "b", "--yes")
    assert names(folder) == ["f"]


def test_delete_and_prune_cannot_be_combined(folder):
    assert "not both" in invoke("--delete", folder / "a", "--prune", "1", code=2).stderr
    assert "0 is not in the range" in invoke(folder, "--prune", "0", code=2).stderr


@pytest.mark.parametrize(
    ("task", "metric", "best"), [("generate", "bits_per_byte", 1.0), ("classify", "accuracy", 3.0)]
)
def test_the_metric_of_a_run_is_the_best_so_far_and_then_the_final_one(
    tmp_path, task, metric, best
):
    run = make_run(tmp_path / "run", None, task=task, metric=metric)
    lines = [{"kind": "validation", "step": i, metric: v} for i, v in enumerate((2.0, 1.0, 3.0))]
    lines.append({"kind": "train", "step": 3, "loss": 0.0})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = json.loads(invoke(tmp_path, "--json").stdout)
    assert (row["metric"], row["value"]) == (metric, best)
    for value in (7.0, 6.0):  # a run that was extended has two final evaluations
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"kind": "final", "step": 4, metric: value}) + "\n")
    assert json.loads(invoke(tmp_path, "--json").stdout)["value"] == 6.0


def test_the_age_of_a_run_is_shown_in_minutes_or_hours(tmp_path):
    for name, minutes in (("a", 7), ("b", 99), ("c", 150)):
        run = make_run(tmp_path / name, 1.0)
        then = time.time() - 60 * minutes
        os.utime(run / "config.toml", (then, then))
    assert [line.split("  ")[-1] for line in invoke(tmp_path).stdout.splitlines()] == [
        "2 h ago", "99 min ago", "7 min ago",
    ]  # fmt: skip
    hours = [json.loads(line)["hours"] for line in invoke(tmp_path, "--json").stdout.splitlines()]
    assert hours == pytest.approx([2.5, 1.65, 7 / 60], abs=0.02)
