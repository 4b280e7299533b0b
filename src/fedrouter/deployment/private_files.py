"""Files that only their owner may read, so from their first byte on."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrouter.errors import BadInput

PRIVATE, PUBLIC = 0o600, 0o644


def make_private_folder(path: Path) -> None:
    """A folder for its owner alone; one that is there keeps what is in it, but is closed to others."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as error:
        raise BadInput(f"{path}: cannot be made a private folder ({error.strerror})") from None


def write_new(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a file that must not be there yet; its mode is set by the call that makes it."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise BadInput(f"{path}: is there already, and is not overwritten") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Put new content in a file's place all at once: a reader sees the old or the new, a crash leaves one of them."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(scratch, content, mode)
    try:
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, so that none is left behind by a crash."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
