"""Cryptography of secure aggregation: key agreement, masks, and encryption of shares for one recipient.

Every primitive comes from the package `cryptography`: ECDH on P-384, HKDF-SHA256, AES-256. A mask is the key stream of
AES-256 in counter mode under a key derived by HKDF from the whole secret. Each such key serves one mask, so the counter
may start at zero. Randomness comes from the operating system.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping

import numpy as np

from fedrouter.errors import BadMessage, MissingExtra
from fedrouter.federation.message import Named, Packed, packed_digest
from fedrouter.federation.secagg.encoding import Vector

try:
    from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
except ImportError:
    raise MissingExtra("Secure aggregation", "secure") from None

PrivateKey = ec.EllipticCurvePrivateKey
CURVE = ec.SECP384R1()
KEY_BYTES, SEED_BYTES = 48, 32
NONCE_BYTES = 12


def new_key() -> tuple[bytes, bytes]:
    """Generate a key pair: the private number, and the public key as PEM."""
    private = ec.generate_private_key(CURVE)
    return private.private_numbers().private_value.to_bytes(KEY_BYTES, "big"), _pem(private.public_key())


def private_key(number: bytes) -> PrivateKey:
    """The private key of a number from :func:`new_key`."""
    try:
        return ec.derive_private_key(int.from_bytes(number, "big"), CURVE)
    except ValueError:
        raise BadMessage("a private key that is not on the curve P-384") from None


def public_key(number: bytes) -> bytes:
    """The public key, as PEM, that belongs to a private number."""
    return _pem(private_key(number).public_key())


def shared_secret(private: PrivateKey, public: bytes) -> bytes:
    """ECDH: the secret that only the owners of two key pairs can compute."""
    try:
        other = load_pem_public_key(public)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        other = None
    if not isinstance(other, ec.EllipticCurvePublicKey) or other.curve.name != CURVE.name:
        raise BadMessage("a public key that is not on the curve P-384")
    if _pem(other) != public:  # one key has one spelling, so that a key cannot stand in twice unnoticed
        raise BadMessage("a public key that is not in its usual form")
    return private.exchange(ec.ECDH(), other)


def transcript(session: str, threshold: int, sealing: Named, masking: Named) -> bytes:
    """Digest of what all clients of a session must have received alike: who takes part, with which keys.

    It enters every derived key. If the coordinator sends clients different lists, their masks do not cancel and their
    shares cannot be decrypted, so it learns nothing by doing so.
    """
    keys = [[name, sealing[name].tobytes().hex(), masking[name].tobytes().hex()] for name in sorted(sealing)]
    return hashlib.sha256(json.dumps([session, threshold, keys]).encode()).digest()


def request_digest(verb: str, packed: Packed) -> bytes:
    """Digest of a request, which enters every mask.

    Without it the coordinator could ask one client about all its rows and the others about none, and read the total.
    """
    return packed_digest(packed, verb)


def self_mask(seed: bytes, context: bytes, request: bytes, length: int) -> Vector:
    """A client's own mask, which is removed once enough clients confirm that its vector has arrived."""
    return _stream(_derive(seed, context, "self", request.hex()), length)


def pair_mask(own: str, peer: str, secret: bytes, context: bytes, request: bytes, length: int) -> Vector:
    """The mask that ``own`` adds for ``peer``; it is the negative of the one that ``peer`` adds for ``own``."""
    mask = _stream(_derive(secret, context, "pair", request.hex(), *sorted((own, peer))), length)
    return mask if own < peer else np.negative(mask)


def seal(secret: bytes, context: bytes, sender: str, receiver: str, content: bytes) -> bytes:
    """Encrypt for one recipient (AES-256-GCM); the key depends on the direction, so nothing can be sent back."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(_derive(secret, context, "seal", sender, receiver)).encrypt(nonce, content, context)


def unseal(secret: bytes, context: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    """Decrypt what :func:`seal` encrypted for ``receiver`` in the same session."""
    cipher = AESGCM(_derive(secret, context, "seal", sender, receiver))
    try:
        return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise BadMessage("shares that were not sealed for this client in this session") from None


def as_bytes(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bytes as an array, the form in which messages carry them."""
    return np.frombuffer(content, np.uint8)


def all_different(*groups: Mapping[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]) -> bool:
    """Whether no key occurs twice."""
    keys = [array.tobytes() for group in groups for array in group.values()]
    return len(set(keys)) == len(keys)


def _derive(secret: bytes, context: bytes, *purpose: str) -> bytes:
    info = context + json.dumps(purpose).encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def _stream(key: bytes, length: int) -> Vector:
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), "<u8").astype(np.uint64)


def _pem(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
