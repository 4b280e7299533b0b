"""A file appears complete or not at all, private from its first byte, whatever happens while it is written."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fedrouter
from fedrouter.errors import BadInput
from fedrouter.files import (
    PRIVATE,
    PUBLIC,
    append_to,
    locked,
    make_private_folder,
    move_into_place,
    new_folder,
    replace_file,
    replacing,
    write_new,
)

PACKAGE = Path(fedrouter.__file__).parent


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("permissions", [PRIVATE, PUBLIC])
def test_a_replaced_file_has_the_new_content_and_its_permissions(tmp_path, permissions):
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        replace_file(path, content, permissions)
        assert path.read_bytes() == content
        assert mode(path) == permissions & ~umask()
    assert list(tmp_path.iterdir()) == [path]


def umask():
    before = os.umask(0)
    os.umask(before)
    return before


def test_an_error_while_writing_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with contextlib.suppress(RuntimeError), replacing(path) as file:
        file.write(b"half of the n")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_content_is_there_until_the_new_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    path = tmp_path / "file" / "inside"

    def lock():
        with locked(path):
            pass

    for write in (lambda: replace_file(path, b"x"), lambda: write_new(path, b"x"), lambda: append_to(path), lock):
        with pytest.raises(BadInput, match="inside: cannot be written"):
            write()


KILLED = """
import os, signal, sys
from pathlib import Path
from fedrouter.files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"n" * 100_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_while_writing_leaves_the_old_content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode < 0
    assert path.read_bytes() == b"old"


def test_a_new_file_is_never_written_over_another_or_through_a_link(tmp_path):
    write_new(tmp_path / "file", b"one")
    assert mode(tmp_path / "file") == PRIVATE
    with pytest.raises(BadInput, match="already exists"):
        write_new(tmp_path / "file", b"two")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="already exists"):
        write_new(tmp_path / "link", b"two")
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "file").read_bytes() == b"one"


def test_a_new_file_that_could_not_be_written_is_gone(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_new(tmp_path / "key", b"secret")
    assert not list(tmp_path.iterdir())


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "folder"
    with new_folder(path) as scratch:
        (scratch / "a").write_text("a")
        assert not path.exists()
    assert (path / "a").read_text() == "a"
    with contextlib.suppress(RuntimeError), new_folder(tmp_path / "deep" / "other") as scratch:
        (scratch / "a").write_text("a")
        raise RuntimeError
    assert list((tmp_path / "deep").iterdir()) == [path]


def test_a_folder_never_replaces_one_that_has_something_in_it(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    with pytest.raises(OSError, match="not empty"), new_folder(tmp_path / "folder") as scratch:
        (scratch / "other").write_text("other")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "mine").read_text() == "mine"


def test_a_complete_part_is_moved_into_its_place(tmp_path):
    (tmp_path / "file.part").write_bytes(b"content")
    move_into_place(tmp_path / "file.part", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_private_folder_shuts_others_out(tmp_path):
    (tmp_path / "folder").mkdir(mode=0o755)
    make_private_folder(tmp_path / "folder")
    assert mode(tmp_path / "folder") == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be made a private folder"):
        make_private_folder(tmp_path / "file")


COUNTER = """
import sys
from pathlib import Path
from fedrouter.files import locked, replace_file
path = Path(sys.argv[1])
for _ in range(50):
    with locked(path.with_suffix(".lock")):
        replace_file(path, str(int(path.read_bytes()) + 1).encode())
"""


def test_processes_that_lock_take_turns(tmp_path):
    path = tmp_path / "count"
    path.write_text("0")
    running = [subprocess.Popen([sys.executable, "-c", COUNTER, str(path)]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    assert path.read_text() == "150"
    with locked(path.with_suffix(".lock")):
        assert mode(path.with_suffix(".lock")) == PRIVATE
