"""New keys in an existing state directory: a client's own, or the coordinator's server key and certificate.

Everything else stays: a client's journal, with its privacy budget and what it remembers of earlier answers, and the
coordinator's authority, so that clients need no new ``ca.pem``.
"""

from __future__ import annotations

from dataclasses import replace

from fedrouter.deployment.state.config import check_host
from fedrouter.deployment.state.credentials import KeyPair, make_client_key, make_server_certificate
from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory
from fedrouter.deployment.state.process_lock import require_free
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.pinned_keys import succession
from fedrouter.files import PUBLIC, replace_file


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
