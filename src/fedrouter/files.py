"""Files: atomic writes (write to a temporary file, then rename), private files, and locks between processes."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fedrouter.errors import BadInput

PRIVATE, PUBLIC = 0o600, 0o644
"""Permissions of a file that only its owner can read, and of one that everyone can."""


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can enter; an existing one keeps its content and loses others' access."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as error:
        raise BadInput(f"{path}: cannot be made a private folder ({error.strerror})") from None


def write_new(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Create a file that must not exist yet; its permissions hold from its first byte on."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise BadInput(f"{path}: already exists and is not overwritten") from None
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            _flush(file)
    except BaseException:  # a full disk must not leave half a file that the next attempt would refuse to overwrite
        path.unlink(missing_ok=True)
        raise


def replace_file(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replace a file's content atomically: a reader sees the old or the new, and a crash leaves one of them."""
    with replacing(path, mode) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, mode: int = PUBLIC) -> Iterator[IO[bytes]]:
    """Open a binary file for writing that replaces ``path`` when the block ends without an error."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            _flush(file)
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def move_into_place(part: Path, path: Path) -> None:
    """Rename a complete file, written over several attempts, to its final name; it is flushed to disk first."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
    _flush_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``path`` when the block ends without an error; ``path`` must not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield scratch
        for file in scratch.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        scratch.chmod(0o755)
        _flush_folder(scratch)
        os.rename(scratch, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    _flush_folder(path.parent)


def append_to(path: Path) -> IO[str]:
    """Open a private text file for appending; it is created if it does not exist."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    except OSError as error:
        raise unwritable(path, error) from None
    return os.fdopen(handle, "a", encoding="utf-8")


def set_aside(path: Path, most: int) -> None:
    """Rename a log of more than ``most`` bytes to its name and ``.old``, which replaces the one before."""
    if path.exists() and path.stat().st_size > most:
        os.replace(path, path.with_name(f"{path.name}.old"))


def unwritable(path: Path, error: OSError) -> BadInput:
    """The error for a file in a folder that is read-only, full, not ours, or not there."""
    return BadInput(f"{path}: cannot be written ({error.strerror})")


@contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Hold a lock file exclusively; the operating system releases it when the process ends.

    Raises ``TimeoutError`` if another holder keeps it for ``timeout`` seconds; by default it waits forever.
    """
    from filelock import FileLock

    lock = FileLock(path, timeout=timeout, mode=PRIVATE)
    try:
        lock.acquire()
    except TimeoutError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file right now."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that processes that only look do not see each other; filelock has no such look.
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Write a rename to disk, so that it survives a power failure."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
