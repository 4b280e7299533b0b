"""A client at work: a SuperNode on its evaluation log, kept connected through whatever happens to the coordinator."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

from fedrouter.deployment.claims import claimed, stopping
from fedrouter.deployment.homes import ClientHome
from fedrouter.deployment.processes import Child
from fedrouter.deployment.settings import split_address

SHORTEST, LONGEST = 2.0, 60.0
"""Seconds before a new attempt: doubled from the one to the other."""
STEADY = 120.0
"""Seconds of work after which a new attempt is again made soon."""
CLOCKS = 60.0
"""Seconds that two clocks may differ; the coordinator refuses what was signed 5 s ahead or 5 min ago."""
CONNECTED, ASKED, UNKNOWN_KEY = "SuperNode ID:", "Receiving: query.", "[code: 2004]"
LOST, REGAINED = "Connection attempt failed", "Connection successful after"
"""What a SuperNode logs, as far as it is of interest here."""


def attend(home: ClientHome, connected: Callable[[], None], say: Callable[[str], None]) -> None:
    """Answer the coordinator until Ctrl-C or SIGTERM; ``say`` what goes on."""
    with claimed(home.pid_file), stopping() as asked:
        pause, said = SHORTEST, ""
        while not asked.is_set():
            began = time.monotonic()
            trouble = obstacle(home.settings().coordinator, home.authority)
            if trouble is None:
                trouble = _attend_once(home, asked, connected, say)
                if time.monotonic() - began > STEADY:
                    pause = SHORTEST
            if asked.is_set():
                return
            if trouble != said:
                say(f"{trouble}; trying again until it works")
                said = trouble
            asked.wait(pause)
            pause = min(2 * pause, LONGEST)


def obstacle(coordinator: str, authority: Path) -> str | None:
    """Why the coordinator cannot be talked to, in words, or None."""
    host, port = split_address(coordinator)
    connection = http.client.HTTPSConnection(
        host, port, timeout=10, context=ssl.create_default_context(cafile=str(authority))
    )
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
    except ssl.SSLCertVerificationError as error:
        return f"{coordinator} is not the coordinator of this federation ({error.verify_message})"
    except ssl.SSLError:
        return f"{coordinator} does not speak TLS"
    except (OSError, http.client.HTTPException) as error:
        return f"{coordinator} cannot be reached ({type(error).__name__})"
    finally:
        connection.close()
    date = answer.getheader("date")
    if date is not None:
        ahead = time.time() - parsedate_to_datetime(date).timestamp()
        if abs(ahead) > CLOCKS:
            where = "ahead of" if ahead > 0 else "behind"
            return f"this machine's clock is {abs(ahead):.0f} s {where} the coordinator's"
    return None


def _attend_once(
    home: ClientHome, asked: threading.Event, connected: Callable[[], None], say: Callable[[str], None]
) -> str:
    """Run one SuperNode to its end; why it ended."""
    refused, lost = threading.Event(), threading.Event()

    def heard(line: str) -> None:
        if CONNECTED in line:
            connected()
        elif ASKED in line:
            say(f"asked: {line.split(ASKED)[1].split(' message')[0]}")
        elif UNKNOWN_KEY in line:
            refused.set()
        elif LOST in line and not (lost.is_set() or asked.is_set()):
            lost.set()
            say("the coordinator does not answer; trying again until it does")
        elif REGAINED in line and lost.is_set():
            lost.clear()
            say("the coordinator is back")

    child = Child("supernode", _arguments(home), home.flower, home.log_file, heard)
    try:
        while not asked.wait(0.2) and not child.ended:
            pass
    finally:
        child.end()
    if refused.is_set():
        return f"the coordinator does not admit this key: give it {home.public_key} to enroll"
    return f"the connection was lost (details in {home.log_file})"


def _arguments(home: ClientHome) -> list[str]:
    return [
        f"--superlink={home.settings().coordinator}",
        f"--root-certificates={home.authority}",
        f"--auth-supernode-private-key={home.key}",
        f"--node-config=home={json.dumps(str(home.path), ensure_ascii=False)}",
        "--host=127.0.0.1",
        f"--port={_free_port()}",
    ]


def _free_port() -> int:
    """For the SuperNode's talk with its own subprocesses."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])
