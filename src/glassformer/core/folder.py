"""Folders that are written whole or not at all, and read without leaving them."""

import contextlib
import ctypes
import hashlib
import json
import lzma
import os
import shutil
import struct
import tokenize
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError, is_memory_error

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
UNREADABLE = (  # what reading a damaged or hostile file can raise
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError),
    *(EOFError, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)


@contextlib.contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Turn any failure to read what a file or folder holds into one line that names it."""
    try:
        yield
    except GlassError as error:
        if str(path) in str(error):
            raise
        raise GlassError(f"{path}: {error}") from error
    except OSError as error:
        raise GlassError(f"{error.filename or path}: {error.strerror or error}") from error
    except UNREADABLE as error:
        if is_memory_error(error):
            raise
        what = " ".join(str(error).split())[:200]
        raise GlassError(f"{path} is damaged: {type(error).__name__}: {what}") from error


@contextlib.contextmanager
def wrap_write_errors(path: Path) -> Iterator[None]:
    """Name the file in an error that does not: a full disk is known only by its number."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


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
    with lock_folder(new, f"{path} is being written by another process"), wrap_write_errors(path):
        try:
            for left in new.iterdir():  # by a process that was killed
                left.unlink()
            yield new
            for file in new.iterdir():
                fsync_path(file)
            fsync_path(new)
            if overwrite and path.exists():
                swap_folders(new, path)
            else:
                new.rename(path)
            fsync_path(path.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def swap_folders(new: Path, old: Path) -> None:
    """Swap two folders in one step, so that there is always one of them; else in three."""
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    rename = None
    if os.name == "posix":
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
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


def recover_folder(path: Path) -> None:
    """Put a folder back that a killed process left aside in the middle of an exchange."""
    aside = path.with_name(f".{path.name}.old")
    if aside.exists():
        shutil.rmtree(aside) if path.exists() else aside.rename(path)


@contextlib.contextmanager
def lock_folder(path: Path, otherwise: str) -> Iterator[None]:
    """Hold a folder for this process alone; the lock dies with the process.

    Windows has no such lock on a folder: there two processes are not kept apart.
    """
    if fcntl is None:
        yield
        return
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
        with wrap_write_errors(path):
            new.write_text(text, encoding="utf-8")
            fsync_path(new)
            new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def fsync_path(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        with wrap_write_errors(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def safe_join(folder: Path, name: str) -> Path:
    """The file of that name in the folder; an error if the name, or a link, leads out of it."""
    path = folder / name
    if not name.isprintable() or len(name) > 255:
        raise GlassError(f"{folder}: {name[:50]!r} is no name of a file")
    if Path(name).name != name or is_outside(folder, path):
        raise GlassError(
            f"{folder}: {name[:50]!r} leads out of the folder, so it is not opened; if it is a "
            "link, copy the folder with its content (cp -rL)"
        )
    with wrap_read_errors(path):
        there = path.is_file()
    if not there:
        raise GlassError(f"{folder} has no file {name[:50]}")
    return path


def find_subfolder(folder: Path, name: str) -> Path | None:
    """The folder of that name inside another, if there is one; a link out of it is an error."""
    path = folder / name
    if not path.is_dir():
        return None
    if is_outside(folder, path):
        raise GlassError(f"{path} is a link that leads out of {folder}, so it is not opened")
    return path


def is_outside(folder: Path, path: Path) -> bool:
    """Whether a path, links followed, is outside of the folder, or nowhere at all."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # no name that a file can have; a link to itself
        return True


def read_text(path: Path) -> str:
    with wrap_read_errors(path):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise GlassError(f"{path} is not UTF-8: {error}") from None


def read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not JSON: {error}") from None


def write_manifest(folder: Path) -> None:
    """List every file with its size and SHA-256, so that any change is found."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": hash_file(file)}
        for file in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def verify_manifest(folder: Path) -> list[str]:
    """The names in the manifest, once each file is found to be what it was."""
    match read_json(safe_join(folder, MANIFEST)):
        case {"files": dict(files)}:
            pass
        case _:
            raise GlassError(f"{folder / MANIFEST} is damaged: it lists no files")
    for name, noted in files.items():
        path = safe_join(folder, name)
        match noted:
            case {"bytes": size, "sha256": sha256}:
                pass
            case _:
                raise GlassError(f"{folder / MANIFEST} is damaged at {name}")
        with wrap_read_errors(path):
            if path.stat().st_size != size:
                raise GlassError(f"{path} is damaged: {path.stat().st_size} bytes, not {size}")
            if hash_file(path) != sha256:
                raise GlassError(f"{path} is damaged: its content is not what was saved")
    return list(files)


def hash_file(path: Path, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first bytes."""
    with path.open("rb") as file:
        if size is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        found = hashlib.sha256()
        while size > 0 and (block := file.read(min(size, 1 << 20))):
            found.update(block)
            size -= len(block)
        return found.hexdigest()
