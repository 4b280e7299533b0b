"""A client's long-term key, and those of its peers: how clients know each other without trusting who stands between.

The key is the one by which the client's node is enrolled (ECDSA P-384, in OpenSSH's form), the roster what the clients
have told each other on another way than through the coordinator. Otherwise it could put its own keys in their place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.supercore.primitives.asymmetric import sign_message, verify_signature

from fedrouter.errors import BadInput
from fedrouter.federation.secagg.crypto import CURVE


@dataclass(frozen=True)
class Identity:
    """``key`` signs for this client; ``roster`` holds the public keys by which others' signatures are verified."""

    key: ec.EllipticCurvePrivateKey
    roster: Mapping[str, ec.EllipticCurvePublicKey]

    @classmethod
    def read(cls, key: bytes, roster: Mapping[str, str]) -> Identity:
        """From a private key file's content and lines ``ecdsa-sha2-nistp384 …`` by client name."""
        try:
            private = load_ssh_private_key(key, None)
        except (ValueError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.curve.name != CURVE.name:
            raise BadInput("client key: expected a private key of ECDSA P-384 in OpenSSH's form")
        return cls(private, {name: _public(name, line) for name, line in roster.items()})

    def sign(self, *what: str) -> bytes:
        return sign_message(self.key, _message(what))

    def signed(self, name: str, signature: bytes, *what: str) -> bool:
        """Whether this client, who must be on the roster, has signed this."""
        return name in self.roster and verify_signature(self.roster[name], _message(what), signature)


def _message(what: tuple[str, ...]) -> bytes:
    # The same key signs in to the coordinator: what is signed for one purpose must not pass for the other.
    return json.dumps(["fedrouter secure aggregation", *what]).encode()


def _public(name: str, line: str) -> ec.EllipticCurvePublicKey:
    try:
        public = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != CURVE.name:
        raise BadInput(f"roster, client {name!r}: expected one line 'ecdsa-sha2-nistp384 …'")
    return public
