"""Write folders atomically, verify them by checksum, and reject paths that point outside them."""

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
READ_ERRORS = (  # exceptions that a corrupted or hostile file can cause
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError),
    *(EOFError, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)


@contextlib.contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Turn any error while reading a file or folder into a one-line `GlassError` that names it.

    Out-of-memory errors pass through.
    """
    try:
        yield
    except GlassError as error:
        if str(path) in str(error):
            raise
        raise GlassError(f"{path}: {error}") from error
    except OSError as error:
        raise GlassError(f"{error.filename or path}: {error.strerror or error}") from error
    except READ_ERRORS as error:
        if is_memory_error(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise GlassError(f"{path} is corrupted: {type(error).__name__}: {reason}") from error


@contextlib.contextmanager
def wrap_write_errors(path: Path) -> Iterator[None]:
    """Add the file name to an `OSError` without one, such as "No space left on device"."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill, and move it to `path` once its files are synced to disk.

    If the block fails, `path` is unchanged. Only model folders can be overwritten.
    """
    if path.exists():
        if not overwrite:
            raise GlassError(f"{path} already exists: choose another name, or overwrite it")
        if not any((path / name).is_file() for name in (MANIFEST, "config.json")):
            raise GlassError(f"{path} is not a model folder, so it is not overwritten")
    new = path.with_name(f".{path.name}.new")
    new.mkdir(parents=True, exist_ok=True)
    with lock_folder(new, f"{path} is being written by another process"), wrap_write_errors(path):
        try:
            for leftover in new.iterdir():  # from a process that was killed
                leftover.unlink()
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
    """Swap two folders: atomically if the system supports it (Linux), else by three renames."""
    at_fdcwd, rename_exchange = -100, 2
    rename = None
    if os.name == "posix":
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    paths = os.fsencode(new), os.fsencode(old)
    if rename and rename(at_fdcwd, paths[0], at_fdcwd, paths[1], rename_exchange) == 0:
        return
    backup = old.with_name(f".{old.name}.old")
    old.rename(backup)
    try:
        new.rename(old)
    except BaseException:
        backup.rename(old)
        raise
    backup.rename(new)


def recover_folder(path: Path) -> None:
    """Restore a folder whose swap was interrupted because the process was killed."""
    backup = path.with_name(f".{path.name}.old")
    if backup.exists():
        shutil.rmtree(backup) if path.exists() else backup.rename(path)


@contextlib.contextmanager
def lock_folder(path: Path, message: str) -> Iterator[None]:
    """Hold an exclusive lock on a folder, or raise a `GlassError` with `message` if it is locked.

    The lock is released when the process ends. On Windows, where folders cannot be locked, this
    does nothing.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GlassError(message) from None
        yield
    finally:
        os.close(handle)


def write_file(path: Path, text: str) -> None:
    """Write a file atomically."""
    new = path.with_name(f".{path.name}.new")
    try:
        with wrap_write_errors(path):
            new.write_text(text, encoding="utf-8")
            fsync_path(new)
            new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def fsync_path(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        with wrap_write_errors(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def safe_join(folder: Path, name: str) -> Path:
    """Return the path of an existing file in a folder; raise an error if it points outside."""
    path = folder / name
    if not name.isprintable() or len(name) > 255:
        raise GlassError(f"{folder}: {name[:50]!r} is not a valid file name")
    if Path(name).name != name or is_outside(folder, path):
        raise GlassError(
            f"{folder}: {name[:50]!r} points outside the folder, so it is not opened; if it is a "
            "link, copy the folder with the files it links to (cp -rL)"
        )
    with wrap_read_errors(path):
        is_file = path.is_file()
    if not is_file:
        raise GlassError(f"{folder} has no file {name[:50]}")
    return path


def find_subfolder(folder: Path, name: str) -> Path | None:
    """Return a subfolder, or None if it does not exist; raise an error if it points outside."""
    path = folder / name
    if not path.is_dir():
        return None
    if is_outside(folder, path):
        raise GlassError(f"{path} is a link that points outside {folder}, so it is not opened")
    return path


def is_outside(folder: Path, path: Path) -> bool:
    """Whether a path, with links resolved, is outside the folder or cannot be resolved."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # an invalid name, or a link to itself
        return True


def read_text(path: Path) -> str:
    with wrap_read_errors(path):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise GlassError(f"{path} is not valid UTF-8: {error}") from None


def read_json(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not valid JSON: {error}") from None


def write_manifest(folder: Path) -> None:
    """Write a manifest that lists every file in a folder with its size and SHA-256."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": hash_file(file)}
        for file in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", encoding="utf-8")


def verify_manifest(folder: Path) -> list[str]:
    """Check every file against the manifest, and return the file names in it."""
    match read_json(safe_join(folder, MANIFEST)):
        case {"files": dict(files)}:
            pass
        case _:
            raise GlassError(f"{folder / MANIFEST} is corrupted: it lists no files")
    for name, entry in files.items():
        path = safe_join(folder, name)
        match entry:
            case {"bytes": size, "sha256": sha256}:
                pass
            case _:
                raise GlassError(f"{folder / MANIFEST} is corrupted: invalid entry for {name}")
        with wrap_read_errors(path):
            actual_size = path.stat().st_size
            if actual_size != size:
                raise GlassError(f"{path} is corrupted: expected {size} bytes, got {actual_size}")
            if hash_file(path) != sha256:
                raise GlassError(f"{path} is corrupted: its SHA-256 differs from the manifest's")
    return list(files)


def hash_file(path: Path, size: int | None = None) -> str:
    """The SHA-256 of a file, or of its first `size` bytes."""
    with path.open("rb") as file:
        if size is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest = hashlib.sha256()
        while size > 0 and (block := file.read(min(size, 1 << 20))):
            digest.update(block)
            size -= len(block)
        return digest.hexdigest()
