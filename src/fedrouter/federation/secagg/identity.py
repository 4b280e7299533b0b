"""A client's long-term signing key and those of its peers, so that clients authenticate each other directly.

The key is the one with which the client is enrolled (ECDSA P-384, OpenSSH format). The roster holds the public keys
that the clients exchanged without the coordinator, or those that the coordinator stated first
(:mod:`~fedrouter.federation.secagg.pinned_keys`): from then on it cannot substitute its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedrouter.errors import BadInput, MissingExtra

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
except ImportError:
    raise MissingExtra("Secure aggregation", "secure") from None

if TYPE_CHECKING:
    from fedrouter.federation.secagg.pinned_keys import PinnedKeys

CURVE = ec.SECP384R1()


@dataclass(frozen=True)
class Roster:
    """Public keys by client name, to verify signatures with."""

    keys: Mapping[str, ec.EllipticCurvePublicKey]

    @classmethod
    def read(cls, lines: Mapping[str, str]) -> Roster:
        """Load lines ``ecdsa-sha2-nistp384 …`` by client name."""
        return cls({name: _public(name, line) for name, line in lines.items()})

    def signed(self, name: str, signature: bytes, *statement: str) -> bool:
        """Whether the client ``name``, which must be on the roster, has signed this statement."""
        if name not in self.keys:
            return False
        try:
            self.keys[name].verify(signature, _message(statement), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Identity:
    """``key`` signs for this client; ``roster`` holds the public keys that verify the signatures of others.

    With ``pins`` the clients have not exchanged keys: the roster of a run is what the coordinator states
    (:meth:`meeting`), as far as it agrees with what it stated before.
    """

    key: ec.EllipticCurvePrivateKey
    roster: Mapping[str, ec.EllipticCurvePublicKey]
    pins: PinnedKeys | None = None

    @classmethod
    def read(cls, key: bytes, roster: Mapping[str, str]) -> Identity:
        """Load the content of a private key file, and lines ``ecdsa-sha2-nistp384 …`` by client name."""
        try:
            private = load_ssh_private_key(key, None)
        except (ValueError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.curve.name != CURVE.name:
            raise BadInput("client key: expected a private key of ECDSA P-384 in OpenSSH format")
        return cls(private, {name: _public(name, line) for name, line in roster.items()})

    def sign(self, *statement: str) -> bytes:
        """Sign a statement with this client's key (ECDSA with SHA-256)."""
        return self.key.sign(_message(statement), ec.ECDSA(hashes.SHA256()))

    def signed(self, name: str, signature: bytes, *statement: str) -> bool:
        """Whether the client ``name``, which must be on the roster, has signed this statement."""
        return Roster(self.roster).signed(name, signature, *statement)

    @property
    def exchanged(self) -> bool:
        """Whether the clients have exchanged their keys without the coordinator."""
        return self.pins is None

    def meeting(self, stated: Mapping[str, str]) -> Identity:
        """The identity in a run whose members' public keys the coordinator states so; raises Refused if they changed.

        Where keys were exchanged, what the coordinator states does not matter.
        """
        if self.pins is None:
            return self
        return replace(self, roster=Roster.read(self.pins.admit(stated)).keys)


def _message(statement: tuple[str, ...]) -> bytes:
    # The same key authenticates to the coordinator: a signature for one purpose must not be valid for the other.
    return json.dumps(["fedrouter secure aggregation", *statement]).encode()


def _public(name: str, line: str) -> ec.EllipticCurvePublicKey:
    try:
        public = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != CURVE.name:
        raise BadInput(f"roster, client {name!r}: expected one line 'ecdsa-sha2-nistp384 …'")
    return public
