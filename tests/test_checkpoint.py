"""Model folders are written atomically, verified when loaded, and never trusted."""

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cases import CASES, ids
from glassformer import GlassError, load
from glassformer.api import Model
from glassformer.core.folder import (
    new_folder,
    recover_folder,
    safe_join,
    swap_folders,
    verify_manifest,
)
from glassformer.text.plain import Characters

FILES = {"config.toml", "tokenizer.json", "model.safetensors", "manifest.json"}


@pytest.fixture
def folder(tmp_path):
    Model(CASES["generator"].network, Characters("abc")).save(tmp_path / "model")
    return tmp_path / "model"


def assert_rejected(path, match):
    """Check that loading fails with a one-line message."""
    with pytest.raises(GlassError, match=match) as error:
        load(path)
    assert "\n" not in str(error.value)


def test_folder_has_four_files_and_nothing_is_left_beside_it(folder):
    assert {file.name for file in folder.iterdir()} == FILES
    assert list(folder.parent.iterdir()) == [folder]
    assert verify_manifest(folder) == sorted(FILES - {"manifest.json"})


def test_folder_can_be_moved(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere" / "copy")
    shutil.rmtree(folder)
    model = load(str(tmp_path / "elsewhere" / "copy"))
    assert model.name == "generator"
    assert "generator: " in repr(model)


def test_existing_folder_is_overwritten_only_on_request(folder):
    model = load(folder)
    with pytest.raises(GlassError, match="already exists"):
        model.save(folder)
    with torch.no_grad():
        model.network.head.bias.add_(1)
    model.save(folder, overwrite=True)
    assert torch.equal(load(folder).network.head.bias, model.network.head.bias)
    assert list(folder.parent.iterdir()) == [folder]


def test_folder_that_is_not_a_model_is_never_overwritten(tmp_path, folder):
    thesis, file = tmp_path / "thesis", tmp_path / "file.txt"
    thesis.mkdir()
    (thesis / "chapter1.txt").write_text("a year of work")
    file.write_text("more work")
    for path in (thesis, file):
        with pytest.raises(GlassError, match="is not a model folder"):
            load(folder).save(path, overwrite=True)
    assert (thesis / "chapter1.txt").exists()


@pytest.mark.parametrize("swap", [True, False])
def test_interrupted_overwrite_keeps_the_old_model(folder, monkeypatch, swap):
    rename = Path.rename

    def interrupt(self, target):
        if self.name.endswith(".new"):
            raise KeyboardInterrupt
        return rename(self, target)

    model = load(folder)
    if swap:
        monkeypatch.setattr("glassformer.core.folder.swap_folders", interrupt)
    else:
        monkeypatch.setattr("glassformer.core.folder.ctypes.CDLL", lambda *_args, **_more: object())
        monkeypatch.setattr(Path, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.save(folder, overwrite=True)
    monkeypatch.undo()
    load(folder)
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("swap", [True, False])
def test_folders_are_swapped(tmp_path, monkeypatch, swap):
    if not swap:
        monkeypatch.setattr("glassformer.core.folder.ctypes.CDLL", lambda *_args, **_more: object())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    swap_folders(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / name / "x").read_text() for name in ("a", "b")] == ["b", "a"]
    assert len(list(tmp_path.iterdir())) == 2


def test_folder_set_aside_is_recovered(tmp_path):
    (tmp_path / ".last.old").mkdir()
    recover_folder(tmp_path / "last")
    assert [p.name for p in tmp_path.iterdir()] == ["last"]
    (tmp_path / ".last.old").mkdir()
    recover_folder(tmp_path / "last")
    assert [p.name for p in tmp_path.iterdir()] == ["last"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / ".m.new").mkdir()
    (tmp_path / ".m.new" / "half").write_text("...")
    Model(CASES["generator"].network).save(tmp_path / "m")
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert not (tmp_path / "m" / "half").exists()


def test_concurrent_saves_to_one_folder_are_rejected(tmp_path):
    model = Model(CASES["generator"].network)

    def save_late():
        with new_folder(tmp_path / "m") as late:
            (late / "x").write_text("late")
            model.save(tmp_path / "m")

    with pytest.raises(GlassError, match="being written by another process"):
        save_late()
    assert not list(tmp_path.iterdir())


def test_folder_created_during_a_save_is_not_replaced(tmp_path):
    def save_late():
        with new_folder(tmp_path / "m"):
            (tmp_path / "m").mkdir()
            (tmp_path / "m" / "work").write_text("mine")

    with pytest.raises(OSError, match="not empty"):
        save_late()
    assert (tmp_path / "m" / "work").read_text() == "mine"


def test_failed_save_keeps_the_old_model(folder, monkeypatch):
    def fail(*_args, **_more):
        raise OSError("no space left on device")

    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    model = load(folder)
    monkeypatch.setattr("glassformer.weights.save_file", fail)
    with pytest.raises(OSError, match="no space"):
        model.save(folder, overwrite=True)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]


def test_files_are_synced_before_the_folder_appears(tmp_path, monkeypatch):
    events, fsync, rename = [], os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (events.append("fsync"), fsync(handle)))
    monkeypatch.setattr(Path, "rename", lambda a, b: (events.append("rename"), rename(a, b)))
    Model(CASES["generator"].network).save(tmp_path / "model")
    files = len(list((tmp_path / "model").iterdir()))
    assert events == ["fsync"] * (files + 1) + ["rename", "fsync"]
    events.clear()
    swap = lambda a, b: (events.append("swap"), swap_folders(a, b))
    monkeypatch.setattr("glassformer.core.folder.swap_folders", swap)
    Model(CASES["generator"].network).save(tmp_path / "model", overwrite=True)
    assert events == ["fsync"] * (files + 1) + ["swap", "fsync"]


def test_any_flipped_bit_is_detected(folder):
    for name in sorted(FILES):
        file = folder / name
        content = file.read_bytes()
        for at in range(0, len(content), max(1, len(content) // 25)):
            flipped = bytearray(content)
            flipped[at] ^= 1 << at % 8
            file.write_bytes(flipped)
            try:
                load(folder)
            except GlassError as error:
                assert name in str(error) or name == "manifest.json"  # noqa: PT017
                assert "\n" not in str(error)  # noqa: PT017
            else:  # whitespace in the manifest has no meaning
                assert json.loads(flipped) == json.loads(content)
        file.write_bytes(content)
    load(folder)


@pytest.mark.parametrize("name", sorted(FILES))
def test_error_names_a_missing_empty_or_truncated_file(folder, name):
    content = (folder / name).read_bytes()
    for truncated in (b"", content[:-2], content[: len(content) // 2]):
        (folder / name).write_bytes(truncated)
        assert_rejected(folder, name)
    (folder / name).unlink()
    assert_rejected(folder, name)


def rewrite_manifest(folder):
    """Make the manifest agree with files that were changed on purpose."""
    from glassformer.core.folder import write_manifest

    (folder / "manifest.json").unlink()
    write_manifest(folder)


def test_config_that_does_not_fit_the_weights_is_rejected(folder):
    config = folder / "config.toml"
    original = config.read_text()
    for old, new, message in (
        ("vocab = 50", "vocab = 60", r"token.weight: expected shape .* got \(50, 32\)"),
        (
            "depth = 2",
            "depth = 3",
            r"is missing the tensors blocks.2.attention.key.weight, .* and \d+ more",
        ),
        ("depth = 2", "depth = 1", "has unexpected tensors"),
        ("depth = 2", "depth = 2000000", "depth must be at least 1 and at most 1,000"),
        ("dim = 32", "dim = 'x'", "model.dim must be an integer"),
        ("dim = 32", "dims = 32", "unknown setting 'model.dims'"),
        ('name = "generator"', 'name = "os.system"', "unknown model 'os.system'"),
        ('name = "generator"', "", "has no model name"),
        ("[model]", "[other]", "has no model name"),
        ("vocab = 50", "vocab = 9999999999999", "vocab must be at least 1"),
    ):
        config.write_text(original.replace(old, new))
        rewrite_manifest(folder)
        assert_rejected(folder, message)


def test_manifest_cannot_name_files_outside_the_folder(folder, tmp_path):
    outside = tmp_path / "secret.toml"
    outside.write_text("[model]\n")
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("a\0b", "x" * 5000, "\ud800"):
        changed = {"files": {name: {"bytes": 8, "sha256": ""}}}
        (folder / "manifest.json").write_text(json.dumps(changed))
        assert_rejected(folder, "is not a valid file name|is missing|does not exist")
    for name in ("../secret.toml", str(outside), "..", "a/b"):
        changed = {"files": {**manifest["files"], name: {"bytes": 8, "sha256": ""}}}
        (folder / "manifest.json").write_text(json.dumps(changed))
        assert_rejected(folder, "points outside the folder")
    for wrong in ({"files": {"config.toml": 3}}, {"files": 3}, [], {"files": {}}):
        (folder / "manifest.json").write_text(json.dumps(wrong))
        assert_rejected(folder, "corrupted")


def test_link_to_a_file_outside_the_folder_is_rejected(folder, tmp_path):
    outside = tmp_path / "weights"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)
    assert_rejected(folder, "points outside the folder")
    with pytest.raises(GlassError, match="points outside"):
        safe_join(folder, "../weights")


def test_path_that_is_not_a_model_is_rejected(folder, tmp_path):
    (folder / "model.safetensors").write_bytes(b"\x80\x04\x95 a pickle, perhaps")
    rewrite_manifest(folder)
    assert_rejected(folder, "not a safetensors file")
    assert_rejected(tmp_path / "nowhere", "does not exist")
    (tmp_path / "empty").mkdir()
    assert_rejected(tmp_path / "empty", "is not a model folder")


def test_half_precision_loads_as_float32(folder):
    state = load_file(folder / "model.safetensors")
    save_file({k: v.bfloat16() for k, v in state.items()}, folder / "model.safetensors")
    rewrite_manifest(folder)
    network = load(folder).network
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert network(ids()).isfinite().all()


def test_tensors_of_wrong_types_are_rejected(folder):
    state = load_file(folder / "model.safetensors")
    for dtype in (torch.int64, torch.bool, torch.complex64):
        save_file(
            {**state, "head.bias": state["head.bias"].to(dtype)}, folder / "model.safetensors"
        )
        rewrite_manifest(folder)
        assert_rejected(folder, "head.bias: expected floating point, got ")
    save_file({**state, "head.bias": state["head.bias"].double()}, folder / "model.safetensors")
    rewrite_manifest(folder)
    assert load(folder).network(ids()).dtype == torch.float32


def test_double_precision_is_preserved(tmp_path):
    network = copy.deepcopy(CASES["generator"].network).double()
    Model(network).save(tmp_path / "model")
    loaded = load(tmp_path / "model").network
    pairs = zip(network.parameters(), loaded.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_unfinished_folder_is_removed_after_an_exception(tmp_path):
    def fail():
        with new_folder(tmp_path / "x") as folder:
            (folder / "half").write_text("...")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not list(tmp_path.iterdir())


def test_loading_runs_no_code_and_uses_no_pickle(folder):
    """Loading works in a new process in which unpickling is an error."""
    code = (
        "import pickle, sys, glassformer.api\n"
        "def no(*a, **k): raise SystemExit('unpickled')\n"
        "class No: __init__ = no\n"
        "pickle.load = pickle.loads = no\n"
        "pickle.Unpickler = No\n"
        "import torch; torch.load = no\n"
        "print(glassformer.api.load(sys.argv[1]).name, 'torch._dynamo' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert process.stdout == "generator False\n", process.stderr  # nor is the compiler imported
