"""Public keys of the other clients: exchanged among the clients, or pinned when the coordinator states them first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.errors import BadInput
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.pinned_keys import PinnedKeys


def read_peers(folder: Path) -> dict[str, str]:
    """Read public keys by client name from a folder of files ``NAME.pub``."""
    found = {file.stem: file.read_text().strip() for file in sorted(folder.glob("*.pub"))} if folder.is_dir() else {}
    if not found:
        raise BadInput(f"{folder}: expected a folder with a file NAME.pub for every client, including this one")
    return found


def pinned_keys(directory: ClientDirectory, memory: Memory) -> PinnedKeys:
    """The keys of others that this client remembers in its journal."""
    return PinnedKeys(memory, directory.config().name, directory.public_key.read_text().strip())


def identity_of(directory: ClientDirectory, memory: Memory) -> Identity:
    """The key that this client signs with, and the keys of the peers it verifies: exchanged ones, or pinned ones."""
    config = directory.config()
    if not config.peers:
        return replace(Identity.read(directory.key.read_bytes(), {}), pins=pinned_keys(directory, memory))
    if config.peers.get(config.name, "").split()[:2] != directory.public_key.read_text().split()[:2]:
        raise BadInput(f"{directory.config_file}, peers: expected the public key of {config.name} itself among them")
    return Identity.read(directory.key.read_bytes(), config.peers)
