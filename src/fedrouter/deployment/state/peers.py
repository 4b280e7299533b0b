"""Public keys of the other clients, exchanged among the clients and not through the coordinator."""

from __future__ import annotations

from pathlib import Path

from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.errors import BadInput
from fedrouter.federation.secagg.identity import Identity


def read_peers(folder: Path) -> dict[str, str]:
    """Read public keys by client name from a folder of files ``NAME.pub``."""
    found = {file.stem: file.read_text().strip() for file in sorted(folder.glob("*.pub"))} if folder.is_dir() else {}
    if not found:
        raise BadInput(f"{folder}: expected a folder with a file NAME.pub for every client, including this one")
    return found


def identity_of(directory: ClientDirectory) -> Identity | None:
    """The key that this client signs with and the peers it verifies; None if it has no peers' keys."""
    config = directory.config()
    if not config.peers:
        return None
    if config.peers.get(config.name, "").split()[:2] != directory.public_key.read_text().split()[:2]:
        raise BadInput(f"{directory.config_file}, peers: expected the public key of {config.name} itself among them")
    return Identity.read(directory.key.read_bytes(), config.peers)
