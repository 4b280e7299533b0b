"""The other clients' public keys, as a client got them from those clients and not through the coordinator."""

from __future__ import annotations

from pathlib import Path

from fedrouter.deployment.homes import ClientHome
from fedrouter.errors import BadInput
from fedrouter.federation.secagg.identity import Identity


def read_peers(folder: Path) -> dict[str, str]:
    """Public keys by client name, from a folder of files ``NAME.pub``."""
    found = {file.stem: file.read_text().strip() for file in sorted(folder.glob("*.pub"))} if folder.is_dir() else {}
    if not found:
        raise BadInput(f"{folder}: expected a folder with a file NAME.pub for every client, this one's too")
    return found


def identity_of(home: ClientHome) -> Identity | None:
    """By which the client signs for its peers and knows them; None if it has not been given their keys."""
    peers = home.settings().peers
    if not peers:
        return None
    name = home.settings().name
    if peers.get(name, "").split()[:2] != home.public_key.read_text().split()[:2]:
        raise BadInput(f"{home.settings_file}, peers: expected the public key of {name} itself among them")
    return Identity.read(home.key.read_bytes(), peers)
