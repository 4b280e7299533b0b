"""Runs a program that ends when the process that started it ends, and keeps its output in a log of limited size.

``python -m fedrouter.deployment.tether LOG COMMAND…``, with a pipe as standard input: when its other end is closed,
also by a kill, the program is ended. A SuperLink that outlived its coordinator would hold the port.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fedrouter.errors import FedrouterError
from fedrouter.files import append_to, set_aside

END_TIMEOUT = 10.0
"""Seconds that the program gets to end after SIGTERM."""
MAX_LOG_BYTES = 10_000_000
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    """Run the command until it ends or standard input does; its exit status is passed on."""
    log, *command = sys.argv[1:]
    os.umask(0o077)
    # In a session of its own: Ctrl-C reaches only whoever started us, who ends the program in order.
    program = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: program.terminate())
    threading.Thread(target=_end_with_input, args=(program,), daemon=True).start()
    copying = threading.Thread(target=_copy, args=(program, Path(log)), daemon=True)
    copying.start()
    status = program.wait()
    # Flower's executors outlive the program that started them for as long as nobody has waited for it, and then some.
    with suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    copying.join(timeout=2)
    sys.exit(status if status >= 0 else 128 - status)


def _copy(program: subprocess.Popen[bytes], log: Path) -> None:
    assert program.stdout is not None
    for content in program.stdout:
        line = COLOR.sub("", content.decode(errors="replace")).rstrip()
        with suppress(OSError, FedrouterError):  # a full disk must not end the program
            set_aside(log, MAX_LOG_BYTES)
            with append_to(log) as file:
                file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {line}\n" if line else "")


def _end_with_input(program: subprocess.Popen[bytes]) -> None:
    while os.read(0, 4096):
        pass
    program.terminate()
    try:
        program.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
