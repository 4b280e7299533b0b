"""Cryptography of secure aggregation: key agreement, masks, and encryption of shares for one recipient.

Every primitive comes from the package `cryptography`: X25519, HKDF-SHA256, AES-256. A mask is the key stream of AES-256
in counter mode under a key derived by HKDF from the whole secret. Each such key serves one mask, so the counter may
start at zero. Randomness comes from the operating system.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Sequence

import numpy as np

from fedrouter.errors import BadMessage, MissingExtra
from fedrouter.federation.message import Named, Packed, packed_digest
from fedrouter.federation.secagg.byte_arrays import KEY
from fedrouter.federation.secagg.encoding import Vector

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise MissingExtra("Secure aggregation", "secure") from None

FIELD = 2**255 - 19
"""X25519 public keys are numbers below this."""
SEED_BYTES = 32
NONCE_BYTES = 12


def new_key() -> tuple[bytes, bytes]:
    """Generate a key pair: 32 private bytes, and the 32 bytes of the public key."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def private_key(private: bytes) -> X25519PrivateKey:
    """The private key of 32 bytes from :func:`new_key`."""
    return X25519PrivateKey.from_private_bytes(private)


def public_key(private: bytes) -> bytes:
    """The public key that belongs to a private one."""
    return private_key(private).public_key().public_bytes_raw()


def shared_secret(private: X25519PrivateKey, public: bytes) -> bytes:
    """The secret that only the owners of two key pairs can compute."""
    # One key has one spelling, so that a key cannot stand in twice unnoticed.
    if len(public) != KEY or int.from_bytes(public, "little") >= FIELD:
        raise BadMessage("a public key that is not one of X25519")
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of low order, with which every secret would be the same
        raise BadMessage("a public key that is not one of X25519") from None


def transcript(session: str, *keys: Named) -> bytes:
    """Digest of what all clients of a session must have received alike: who takes part, with which keys.

    It enters every derived key. If the coordinator sends clients different lists, their masks do not cancel and their
    shares cannot be decrypted, so it learns nothing by doing so.
    """
    listed = [[name, *(group[name].tobytes().hex() for group in keys)] for name in sorted(keys[0])]
    return hashlib.sha256(json.dumps([session, listed]).encode()).digest()


def question_digests(questions: Iterable[tuple[str, Packed]]) -> list[bytes]:
    """A digest of each question: of its verb and its packed request."""
    return [packed_digest(packed, verb) for verb, packed in questions]


def sum_digest(index: int, company: Sequence[str], questions: Sequence[bytes]) -> bytes:
    """Digest of one sum, which enters every mask of it: its number, who is in it, and what is asked.

    Without it the coordinator could ask one client about all its rows and the others about none, and read the total.
    """
    return hashlib.sha256(json.dumps([index, sorted(company), [each.hex() for each in questions]]).encode()).digest()


def self_mask(seed: bytes, context: bytes, asked: bytes, length: int) -> Vector:
    """A client's own mask, which is removed once enough clients confirm that its vector has arrived."""
    return _stream(_derive(seed, context, "self", asked.hex()), length)


def pair_mask(own: str, peer: str, secret: bytes, context: bytes, asked: bytes, length: int) -> Vector:
    """The mask that ``own`` adds for ``peer``; it is the negative of the one that ``peer`` adds for ``own``."""
    mask = _stream(_derive(secret, context, "pair", asked.hex(), *sorted((own, peer))), length)
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


def all_different(*groups: Named) -> bool:
    """Whether no key occurs twice; an array holds one key in each row."""
    keys = [row.tobytes() for group in groups for array in group.values() for row in np.atleast_2d(array)]
    return len(set(keys)) == len(keys)


def _derive(secret: bytes, context: bytes, *purpose: str) -> bytes:
    info = context + json.dumps(purpose).encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def _stream(key: bytes, length: int) -> Vector:
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), "<u8").astype(np.uint64)
