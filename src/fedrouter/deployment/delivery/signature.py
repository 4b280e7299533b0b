"""Requests for bundles are signed with the client's enrolled key, so that only members get the federation's routers."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping

from fedrouter.errors import MissingExtra

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
except ImportError:
    raise MissingExtra("A federation across machines", "flower") from None

NAME, TIME, SIGNATURE = "x-fedrouter-client", "x-fedrouter-time", "x-fedrouter-signature"
LIFETIME = 300.0
"""Seconds by which the clocks may differ; within them a request that was overheard could be repeated, over TLS."""

MOST_DIGITS = 12
"""Digits of a time: longer numbers are none, and not every one can be subtracted from one."""


def sign(private_key: bytes, name: str, path: str, now: Callable[[], float] = time.time) -> dict[str, str]:
    """The headers with which the client ``name`` asks for a path."""
    key = load_ssh_private_key(private_key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    at = str(int(now()))
    signature = key.sign(_statement(name, path, at), ec.ECDSA(hashes.SHA256()))
    return {NAME: name, TIME: at, SIGNATURE: base64.b64encode(signature).decode()}


def signed_by(
    headers: Mapping[str, str], path: str, keys: Mapping[str, str], now: Callable[[], float] = time.time
) -> str | None:
    """The enrolled client that signed a request for this path, by ``keys``, their public keys by name; or None."""
    name, at = headers.get(NAME, ""), headers.get(TIME, "")
    if name not in keys or not (at.isascii() and at.isdigit() and len(at) <= MOST_DIGITS):
        return None
    if abs(now() - int(at)) > LIFETIME:
        return None
    key = load_ssh_public_key(keys[name].encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    try:
        signature = base64.b64decode(headers.get(SIGNATURE, ""), validate=True)
        key.verify(signature, _statement(name, path, at), ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        return None
    return name


def _statement(name: str, path: str, at: str) -> bytes:
    # The same key signs for other purposes; a signature for one must not be valid for another.
    return json.dumps(["fedrouter delivery", name, path, at]).encode()
