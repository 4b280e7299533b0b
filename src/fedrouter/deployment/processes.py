"""Flower's processes as children of ours: how they are started, listened to and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedrouter.deployment.private_files import PRIVATE
from fedrouter.errors import MissingExtra

PATIENCE = 15.0
"""Seconds that a process gets to end by itself."""
LARGEST_LOG = 10_000_000
ROUTINE = ("ControlServicer.ListNodes", "/v1/control/list-nodes", '"GET /health')
"""Our own questions every few seconds, which would fill a log."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def environment(flower: Path) -> dict[str, str]:
    """Flower's surroundings: its own folder, no news of us to anyone, and our own Python's commands first."""
    # A forwarded address is believed from a proxy on this machine only: the gate depends on it.
    kept = {name: value for name, value in os.environ.items() if name != "FORWARDED_ALLOW_IPS"}
    here = Path(sys.executable).parent
    without_proxy = [kept.get("NO_PROXY") or kept.get("no_proxy") or "", "localhost", "127.0.0.1", "::1"]
    return kept | {
        "FLWR_HOME": str(flower),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{here}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "NO_PROXY": ",".join(filter(None, without_proxy)),
        "no_proxy": ",".join(filter(None, without_proxy)),
    }


class Child:
    """A Flower process with everything it says in a private log; ``heard`` is told each line of it."""

    def __init__(
        self, kind: str, arguments: list[str], flower: Path, log: Path, heard: Callable[[str], None] | None = None
    ) -> None:
        need_flower()
        self._last: deque[str] = deque(maxlen=20)
        self._log, self._heard = log, heard
        command = [sys.executable, "-m", "fedrouter.deployment.flower_process", str(os.getpid()), kind, *arguments]
        # A session of its own: Ctrl-C reaches us alone, and we end the child in order.
        self._process = subprocess.Popen(
            command,
            env=environment(flower),
            cwd=flower,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            umask=0o077,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        return self._process.pid

    def last_words(self) -> str:
        """The end of its log, for a message about its end."""
        self._listener.join(timeout=2)
        return "\n".join(self._last)

    def end(self) -> None:
        """Ask it to end; after a while, and for whatever it leaves behind, insist."""
        if not self.ended:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        # What a grandchild keeps open would hold us up otherwise.
        self._listener.join(timeout=2)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with _Log(self._log) as log:
            for line in self._process.stdout:
                line = COLOUR.sub("", line).rstrip()
                if line and not any(words in line for words in ROUTINE):
                    self._last.append(line)
                    log.write(line)
                    if self._heard is not None:
                        self._heard(line)


class _Log:
    """A private log that starts afresh when it is large, keeping the one before."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> _Log:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()
        if self._file.tell() > LARGEST_LOG:
            self._file.close()
            os.replace(self._path, self._path.with_suffix(".log.old"))
            self._open()

    def _open(self) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        self._file = os.fdopen(handle, "a", encoding="utf-8")


def need_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise MissingExtra("A federation across machines", "flower")
