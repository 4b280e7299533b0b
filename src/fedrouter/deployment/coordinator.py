"""The coordinator: a SuperLink that admits the clients on the roster and no one else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from fedrouter.deployment.claims import claimed, running, stopping
from fedrouter.deployment.control import Control, Node, Unreachable
from fedrouter.deployment.credentials import public_key_pem
from fedrouter.deployment.homes import CoordinatorHome
from fedrouter.deployment.processes import Child
from fedrouter.deployment.settings import Charter, Enrolled, check_name, split_address
from fedrouter.errors import BadInput, FedrouterError

START = 60.0
"""Seconds that a SuperLink gets to answer for the first time."""
LOOK = 3.0
"""Seconds between two looks at who is there."""


def coordinate(home: CoordinatorHome, ready: Callable[[Charter], None], say: Callable[[str], None]) -> None:
    """Run a SuperLink until Ctrl-C or SIGTERM; ``ready`` once it takes clients, ``say`` who comes and goes."""
    with claimed(home.pid_file), stopping() as asked:
        child = Child("superlink", _arguments(home), home.flower, home.log_file)
        try:
            control = Control(home)
            until = time.monotonic() + START
            while not control.ready():
                if child.ended or time.monotonic() > until:
                    raise FedrouterError(
                        f"the SuperLink did not start; the end of {home.log_file}:\n{child.last_words()}"
                    )
                if asked.wait(0.2):
                    return
            ready(bring_in_line(home, control))
            there: set[str] = set()
            while not asked.wait(LOOK):
                if child.ended:
                    raise FedrouterError(f"the SuperLink ended; the end of {home.log_file}:\n{child.last_words()}")
                there = _look(home, control, there, say)
        finally:
            child.end()


def enroll(home: CoordinatorHome, name: str, public_key: str) -> Enrolled:
    """Put a client on the roster; admitted at once if the coordinator runs, else when it starts."""
    with home.changing() as charter:
        if check_name(name) in charter.roster:
            raise BadInput(f"client {name!r}: is on the roster already; `fedrouter federation unenroll` takes it off")
        same = [other for other, one in charter.roster.items() if one.public_key == public_key]
        if same:
            raise BadInput(f"client {name!r}: its key is on the roster already, as {same[0]!r}")
        node = Control(home).register(public_key) if running(home.pid_file) else None
        charter = charter.with_client(name, public_key, node)
        home.write_charter(charter)
    return charter.roster[name]


def unenroll(home: CoordinatorHome, name: str) -> None:
    """Take a client off the roster, for good: its key is not admitted again."""
    with home.changing() as charter:
        if name not in charter.roster:
            raise BadInput(f"client {name!r}: not on the roster; `fedrouter federation status` shows it")
        home.write_charter(charter.without_client(name))
        if running(home.pid_file):
            key = public_key_pem(charter.roster[name].public_key)
            control = Control(home)
            for node in control.nodes():
                if node.public_key == key:
                    control.unregister(node.number)


def bring_in_line(home: CoordinatorHome, control: Control) -> Charter:
    """Make the SuperLink admit exactly the keys on the roster, whatever either has forgotten or missed."""
    with home.changing() as charter:
        known = {node.public_key: node.number for node in control.nodes()}
        roster = {}
        for name, one in charter.roster.items():
            number = known.pop(public_key_pem(one.public_key), None)
            roster[name] = replace(one, node=control.register(one.public_key) if number is None else number)
        for number in known.values():
            control.unregister(number)
        charter = replace(charter, roster=roster)
        home.write_charter(charter)
    return charter


def nodes_by_name(charter: Charter, nodes: list[Node]) -> dict[str, Node]:
    """The roster's clients as the SuperLink sees them."""
    by_key = {node.public_key: node for node in nodes}
    found = {name: by_key.get(public_key_pem(one.public_key)) for name, one in charter.roster.items()}
    return {name: node for name, node in found.items() if node is not None}


def _look(home: CoordinatorHome, control: Control, before: set[str], say: Callable[[str], None]) -> set[str]:
    try:
        nodes = control.nodes()
    except Unreachable:
        # Busy, or ending; whether it has ended is seen elsewhere.
        return before
    now = {name for name, node in nodes_by_name(home.charter(), nodes).items() if node.online}
    for name in sorted(now - before):
        say(f"{name} is online")
    for name in sorted(before - now):
        say(f"{name} is offline")
    return now


def _arguments(home: CoordinatorHome) -> list[str]:
    host, port = split_address(home.charter().listen)
    return [
        f"--host={host}",
        f"--port={port}",
        f"--database={home.database}",
        f"--ssl-ca-certfile={home.authority}",
        f"--ssl-certfile={home.certificate}",
        f"--ssl-keyfile={home.key}",
        "--enable-supernode-auth",
        # The run's code comes with fedrouter; nothing is fetched.
        "--disable-runtime-dependency-installation",
    ]
