"""Folders that are written whole or not at all, and read without leaving them."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.errors import GlassError

MANIFEST = "manifest.json"


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill; it appears at `path` when all is written and safe on the disk."""
    if path.exists():
        if not overwrite:
            raise GlassError(f"{path} exists already: choose another name, or ask to overwrite it")
        if not any((path / name).is_file() for name in (MANIFEST, "config.json")):
            raise GlassError(f"{path} is not a model's folder, so it is not overwritten")
    new = path.with_name(f".{path.name}.new")
    new.mkdir(parents=True, exist_ok=True)
    with locked(new, f"{path} is being written by another process"):
        try:
            for left in new.iterdir():  # by a process that was killed
                left.unlink()
            yield new
            for file in new.iterdir():
                sync(file)
            sync(new)
            if overwrite and path.exists():
                exchange(new, path)
            else:
                new.rename(path)
            sync(path.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step, so that there is always one of them; else in three."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename and rename(here, os.fsencode(new), here, os.fsencode(old), swap) == 0:
        return
    aside = old.with_name(f".{old.name}.old")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    aside.rename(new)


def recover(path: Path) -> None:
    """Put a folder back that a killed process left aside in the middle of an exchange."""
    aside = path.with_name(f".{path.name}.old")
    if aside.exists():
        shutil.rmtree(aside) if path.exists() else aside.rename(path)


@contextlib.contextmanager
def locked(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a folder for this process alone; the lock dies with the process."""
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GlassError(otherwise) from None
        yield
    finally:
        os.close(handle)


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        sync(new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


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
    try:
        stays = Path(name).name == name and path.resolve().is_relative_to(folder.resolve())
        there = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        raise GlassError(f"{folder}: {name[:50]!r} is no name of a file") from None
    if not stays:
        raise GlassError(
            f"{folder}: {name!r} leads out of the folder, so it is not opened; if it is a link, "
            "copy the folder with its content (cp -rL)"
        )
    if not there:
        raise GlassError(f"{folder} has no file {name}")
    return path


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise GlassError(f"{path} is not UTF-8: {error}") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
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


def digest(path: Path, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first bytes."""
    with path.open("rb") as file:
        if size is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha256()
        while size > 0 and (block := file.read(min(size, 1 << 20))):
            found.update(block)
            size -= len(block)
        return found.hexdigest()
