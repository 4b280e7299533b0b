"""The SuperLink as a child process: started, its output logged, and ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fedrouter.engines.flower.version import check_flower
from fedrouter.files import append_to, set_aside

END_TIMEOUT = 15.0
"""Seconds that a process gets to end after SIGTERM."""
MAX_LOG_BYTES = 10_000_000
ROUTINE = re.compile(r"ControlServicer\.ListNodes|(GET /health|POST /v1/(fleet|runtime|control/list-nodes)\S*) .* 200")
"""Lines about requests that are made every few moments and were answered, which would fill a log."""
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def environment(flower_home: Path) -> dict[str, str]:
    """Environment variables of Flower's processes: its own folder, no telemetry, no proxy on loopback."""
    # A forwarded address is trusted from a proxy on this machine only: the access filter depends on it.
    kept = {name: value for name, value in os.environ.items() if name != "FORWARDED_ALLOW_IPS"}
    without_proxy = [kept.get("NO_PROXY") or kept.get("no_proxy") or "", "localhost", "127.0.0.1", "::1"]
    return kept | {
        "FLWR_HOME": str(flower_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": ",".join(filter(None, without_proxy)),
        "no_proxy": ",".join(filter(None, without_proxy)),
    }


class SuperLinkProcess:
    """A SuperLink with all its output in a private log."""

    def __init__(self, arguments: list[str], flower_home: Path, log: Path) -> None:
        check_flower()
        self._last: deque[str] = deque(maxlen=20)
        self._log = log
        # In a session of its own: Ctrl-C reaches only us, and we end the child in order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedrouter.engines.flower.superlink", str(os.getpid()), *arguments],
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
        """Terminate it; kill it if it does not end in time, and whatever it started."""
        if not self.ended:
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join(timeout=2)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            line = COLOR.sub("", line).rstrip()
            if line and not ROUTINE.search(line):
                self._last.append(line)
                set_aside(self._log, MAX_LOG_BYTES)
                with append_to(self._log) as log:
                    log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n")
