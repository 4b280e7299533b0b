"""SuperLink and SuperNode as child processes: started, their output logged and read, and ended."""

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

from fedrouter.engines.flower.version import check_flower
from fedrouter.files import append_to

END_TIMEOUT = 15.0
"""Seconds that a process gets to end after SIGTERM."""
MAX_LOG_BYTES = 10_000_000
ROUTINE = ("ControlServicer.ListNodes", "/v1/control/list-nodes", '"GET /health')
"""Lines about our own requests every few seconds, which would fill a log."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def environment(flower_home: Path) -> dict[str, str]:
    """Environment variables of Flower's processes: its own folder, no telemetry, no proxy on loopback."""
    # A forwarded address is trusted from a proxy on this machine only: the access filter depends on it.
    kept = {name: value for name, value in os.environ.items() if name != "FORWARDED_ALLOW_IPS"}
    # Flower starts its own commands by name: those of this Python come first.
    commands = Path(sys.executable).parent
    without_proxy = [kept.get("NO_PROXY") or kept.get("no_proxy") or "", "localhost", "127.0.0.1", "::1"]
    return kept | {
        "FLWR_HOME": str(flower_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{commands}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "NO_PROXY": ",".join(filter(None, without_proxy)),
        "no_proxy": ",".join(filter(None, without_proxy)),
    }


class FlowerProcess:
    """A SuperLink or SuperNode with all its output in a private log; ``on_line`` is called with each line."""

    def __init__(
        self,
        kind: str,
        arguments: list[str],
        flower_home: Path,
        log: Path,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        check_flower()
        self._last: deque[str] = deque(maxlen=20)
        self._log, self._on_line = log, on_line
        module = "fedrouter.engines.flower.process_entry"
        # In a session of its own: Ctrl-C reaches only us, and we end the child in order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(os.getpid()), kind, *arguments],
            env=environment(flower_home),
            cwd=flower_home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            umask=0o077,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        return self._process.pid

    def last_lines(self) -> str:
        """The end of its output, for an error message after it ended."""
        self._reader.join(timeout=2)
        return "\n".join(self._last)

    def end(self) -> None:
        """Terminate it; kill it if it does not end in time, and terminate what it leaves behind."""
        if not self.ended:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        # A grandchild may keep the pipe open.
        self._reader.join(timeout=2)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with _RotatingLog(self._log) as log:
            for line in self._process.stdout:
                line = COLOR.sub("", line).rstrip()
                if line and not any(words in line for words in ROUTINE):
                    self._last.append(line)
                    log.write(line)
                    if self._on_line is not None:
                        self._on_line(line)


class _RotatingLog:
    """A private log file that is rotated when it is large, with the previous one kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> _RotatingLog:
        self._file = append_to(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()
        if self._file.tell() > MAX_LOG_BYTES:
            self._file.close()
            os.replace(self._path, self._path.with_suffix(".log.old"))
            self._file = append_to(self._path)
