"""The roster of enrolled clients, and how the SuperLink is made to admit exactly these."""

from __future__ import annotations

import time
from dataclasses import replace

from fedrouter.deployment.state.config import EnrolledClient, FederationConfig, check_name
from fedrouter.deployment.state.credentials import public_key_pem
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.deployment.state.process_lock import running
from fedrouter.engines.flower.control import ControlClient, Node
from fedrouter.errors import BadInput
from fedrouter.federation.secagg.pinned_keys import same_key

START_TIMEOUT = 60.0
"""Seconds that a SuperLink gets to answer for the first time."""


def control_of(directory: CoordinatorDirectory) -> ControlClient:
    """A client of the control API of this coordinator's SuperLink."""
    return ControlClient(directory.config().local_address, directory.authority)


def wait_until_ready(directory: CoordinatorDirectory) -> ControlClient:
    """The same, once a coordinator that is starting has finished; one that does not run is not waited for."""
    control = control_of(directory)
    deadline = time.monotonic() + START_TIMEOUT
    while running(directory.pid_file) and not control.ready() and time.monotonic() < deadline:
        time.sleep(0.2)
    return control


def enroll(directory: CoordinatorDirectory, name: str, public_key: str, new_key: bool = False) -> EnrolledClient:
    """Put a client on the roster; it is admitted at once if the coordinator runs, otherwise when it starts.

    With ``new_key`` the client is on the roster, and this key takes the place of its old one.
    """
    with directory.editing() as config:
        before = config.roster.get(check_name(name))
        if before is not None and not new_key:
            raise BadInput(
                f"client {name!r}: already on the roster; --new-key replaces its key, `fedrouter federation unenroll` "
                "removes it"
            )
        if before is None and new_key:
            raise BadInput(f"client {name!r}: not on the roster, so there is no key to replace; enroll it")
        same = [other for other, client in config.roster.items() if same_key(client.public_key, public_key)]
        if same:
            raise BadInput(f"client {name!r}: its key is already on the roster, as {same[0]!r}")
        node = None
        if running(directory.pid_file):
            control = wait_until_ready(directory)
            node = control.register(public_key_pem(public_key))
        config = config.with_client(name, public_key, node)
        directory.write_config(config)
        if before is not None and node is not None:
            _unregister(control, before.public_key)
    return config.roster[name]


def unenroll(directory: CoordinatorDirectory, name: str) -> None:
    """Remove a client from the roster, permanently: its key is not admitted again."""
    with directory.editing() as config:
        if name not in config.roster:
            raise BadInput(f"client {name!r}: not on the roster; `fedrouter federation status` lists it")
        directory.write_config(config.without_client(name))
        if running(directory.pid_file):
            _unregister(wait_until_ready(directory), config.roster[name].public_key)


def _unregister(control: ControlClient, public_key: str) -> None:
    """Make the SuperLink no longer admit a key."""
    key = public_key_pem(public_key)
    for node in control.nodes():
        if node.public_key == key:
            control.unregister(node.id)


def synchronize(directory: CoordinatorDirectory, control: ControlClient) -> FederationConfig:
    """Make the SuperLink admit exactly the keys on the roster, whatever changed while either was not running."""
    with directory.editing() as config:
        known = {node.public_key: node.id for node in control.nodes()}
        roster = {}
        for name, client in config.roster.items():
            key = public_key_pem(client.public_key)
            node = known.pop(key, None)
            roster[name] = replace(client, node=control.register(key) if node is None else node)
        for node in known.values():
            control.unregister(node)
        config = replace(config, roster=roster)
        directory.write_config(config)
    return config


def nodes_by_name(config: FederationConfig, nodes: list[Node]) -> dict[str, Node]:
    """The nodes of the clients on the roster that the SuperLink knows, by client name."""
    by_key = {node.public_key: node for node in nodes}
    found = {name: by_key.get(public_key_pem(client.public_key)) for name, client in config.roster.items()}
    return {name: node for name, node in found.items() if node is not None}
