"""A program of Flower's as a child process: started, its output logged, ended with us."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrouter.errors import BadInput

END_TIMEOUT = 15.0
LAST_LINES = 12


class Program:
    """A running program; ``user``: whose rights it has, if not ours."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str], user: str | None = None
    ) -> None:
        self._log = log
        group = None if user is None else _group_of(user)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fedrouter.deployment.tether", str(log), *command],
                env=dict(environment),
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )
        except (PermissionError, FileNotFoundError) as error:
            raise BadInput(f"{command[0]}: cannot be run as {user or 'this user'} ({error.strerror})") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def last_lines(self) -> str:
        """The end of its log, for a message after it ended."""
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-LAST_LINES:])

    def end(self) -> None:
        """Ask it to end, and end it after a while."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def check_user(user: str, folder: Path) -> None:
    """Raise BadInput unless we may start programs as ``user`` and that user can run Python and enter ``folder``."""
    try:
        subprocess.run(
            [sys.executable, "-c", "import os, sys, fedrouter; os.listdir(sys.argv[1])", str(folder)],
            user=user,
            group=_group_of(user),
            extra_groups=[],
            cwd="/",
            check=True,
            capture_output=True,
        )
    except PermissionError:
        raise BadInput(
            f"--supernode-user {user}: this process cannot start a program as {user}, or {user} cannot run "
            f"{sys.executable}"
        ) from None
    except subprocess.CalledProcessError:
        raise BadInput(
            f"--supernode-user {user}: {user} cannot read the installed fedrouter, or enter {folder}"
        ) from None


def _group_of(user: str) -> int:
    import pwd

    try:
        return int(pwd.getpwnam(user).pw_gid)
    except KeyError:
        raise BadInput(f"--supernode-user {user}: no such user on this machine") from None
