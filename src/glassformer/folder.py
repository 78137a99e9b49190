"""Folders that are written whole or not at all, and read without leaving them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.errors import GlassError

MANIFEST = "manifest.json"


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill; it appears at `path` when all is written and safe on the disk."""
    if path.exists() and not overwrite:
        raise GlassError(f"{path} exists already: choose another name, or ask to overwrite it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as hidden:
        whole = Path(hidden) / "new"
        whole.mkdir()
        yield whole
        for file in whole.iterdir():
            sync(file)
        sync(whole)
        if path.exists():
            path.rename(Path(hidden) / "old")
        whole.rename(path)
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def inside(folder: Path, name: str) -> Path:
    """The file of that name in the folder; an error if the name, or a link, leads out of it."""
    path = folder / name
    if Path(name).name != name or not path.resolve().is_relative_to(folder.resolve()):
        raise GlassError(f"{folder}: {name!r} leads out of the folder, so it is not opened")
    if not path.is_file():
        raise GlassError(f"{folder} has no file {name}")
    return path


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise GlassError(f"{path} is not JSON: {error}") from None


def write_manifest(folder: Path) -> None:
    """List every file with its size and SHA-256, so that any change is found."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": digest(file)}
        for file in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def verify(folder: Path) -> list[str]:
    """The names in the manifest, once each file is found to be what it was."""
    match read_json(inside(folder, MANIFEST)):
        case {"files": dict(files)}:
            pass
        case _:
            raise GlassError(f"{folder / MANIFEST} is damaged: it lists no files")
    for name, noted in files.items():
        path = inside(folder, name)
        match noted:
            case {"bytes": size, "sha256": sha256}:
                pass
            case _:
                raise GlassError(f"{folder / MANIFEST} is damaged at {name}")
        if path.stat().st_size != size:
            raise GlassError(f"{path} is damaged: {path.stat().st_size} bytes, not {size}")
        if digest(path) != sha256:
            raise GlassError(f"{path} is damaged: its content is not what was saved")
    return list(files)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
