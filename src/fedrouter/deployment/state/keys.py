"""Keys in a state directory: whom a client trusts, and new keys for a client or the coordinator.

With a new key everything else stays: a client's journal, with what it remembers of earlier
answers, and the coordinator's authority, so that clients need no new ``ca.pem``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedrouter.deployment.state.config import check_host
from fedrouter.deployment.state.credentials import KeyPair, make_client_key, make_server_certificate
from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory
from fedrouter.deployment.state.process_lock import require_free
from fedrouter.errors import BadInput
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.pinned_keys import PinnedKeys, succession
from fedrouter.files import PUBLIC, replace_file


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


def rekey_client(directory: ClientDirectory) -> None:
    """Give a client that does not run a new key; the old one is no longer needed once the new one is enrolled.

    The old key signs the new one, in its ``client.pub``, so that other clients, which know the old one, accept it.
    """
    require_free(directory.pid_file)
    config, key = directory.config(), make_client_key()
    old = Identity.read(directory.key.read_bytes(), {})
    line = succession(config.name, old, directory.public_key.read_text(), key.public.decode())
    replace_file(directory.key, key.private)
    replace_file(directory.public_key, f"{line}\n".encode(), PUBLIC)
    if config.name in config.peers:
        own = {config.name: line}
        directory.write_config(replace(config, peers={**config.peers, **own}))


def rekey_coordinator(directory: CoordinatorDirectory, more_hosts: tuple[str, ...] = ()) -> None:
    """Give a coordinator that does not run a new server key and certificate, valid for further hosts as well."""
    require_free(directory.pid_file)
    with directory.editing() as config:
        hosts = tuple(dict.fromkeys((*config.hosts, *(check_host(host) for host in more_hosts))))
        authority = KeyPair(directory.authority_key.read_bytes(), directory.authority.read_bytes())
        server = make_server_certificate(authority, hosts)
        replace_file(directory.key, server.private)
        replace_file(directory.certificate, server.public, PUBLIC)
        directory.write_config(replace(config, hosts=hosts))
