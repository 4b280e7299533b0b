"""Primitives of the secure sum: key agreement, masks of 48-bit words, and encryption for one recipient.

All come from the package `cryptography`: X25519, HKDF-SHA256, AES-256. A mask is the key stream of AES-256 in counter
mode under a key that serves one mask of one sum, so the counter may start at zero.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage, MissingExtra
from fedrouter.federation.identity import statement

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise MissingExtra("Secure aggregation", "secure") from None

Words = npt.NDArray[np.uint64]
Sums = npt.NDArray[np.int64]
FIELD: Final = 2**255 - 19
"""X25519 public keys are numbers below this."""
WORD: Final = 6
"""Bytes of a word: sums are modulo 2^48."""
MODULUS: Final = np.uint64(2 ** (8 * WORD) - 1)
LARGEST: Final = 2 ** (8 * WORD - 1)
"""Totals lie below this in magnitude."""
NONCE, TAG = 12, 16


def new_key() -> tuple[bytes, bytes]:
    """A key pair: 32 private and 32 public bytes."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared_secret(private: bytes, public: bytes) -> bytes:
    """The secret that only the owners of two key pairs can compute."""
    # One key has one spelling, so that a key cannot stand in twice unnoticed.
    if len(public) != 32 or int.from_bytes(public, "little") >= FIELD:
        raise BadMessage("a public key that is not one of X25519")
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of low order, with which every secret would be the same
        raise BadMessage("a public key that is not one of X25519") from None


def derive(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """A key for one purpose in one context."""
    return HKDF(hashes.SHA256(), 32, None, statement(purpose, *parts)).derive(secret)


def numbers(secret: bytes, purpose: str, *parts: bytes) -> Callable[[], int]:
    """Random numbers of 128 bits, one at each call, which follow from a secret for one purpose in one context."""
    cipher = Cipher(algorithms.AES256(derive(secret, purpose, *parts)), modes.CTR(bytes(16))).encryptor()
    return lambda: int.from_bytes(cipher.update(bytes(16)), "big")


def self_mask(seed: bytes, context: bytes, length: int) -> Words:
    """A member's own mask, which is removed once enough members confirm that its vector has arrived."""
    return _stream(derive(seed, "self mask", context), length)


def pair_mask(own: str, peer: str, secret: bytes, context: bytes, length: int) -> Words:
    """The mask that ``own`` adds for ``peer``; it is the negative of the one that ``peer`` adds for ``own``."""
    first, second = sorted((own.encode(), peer.encode()))
    mask = _stream(derive(secret, "pair mask", context, first, second), length)
    return mask if own.encode() == first else np.negative(mask)


def seal(secret: bytes, context: bytes, sender: str, receiver: str, content: bytes) -> bytes:
    """Encrypt for one recipient (AES-256-GCM); the key depends on the direction, so nothing can be sent back."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + AESGCM(_direction(secret, context, sender, receiver)).encrypt(nonce, content, context)


def unseal(secret: bytes, context: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    """Decrypt what :func:`seal` encrypted for ``receiver`` in the same context."""
    try:
        return AESGCM(_direction(secret, context, sender, receiver)).decrypt(sealed[:NONCE], sealed[NONCE:], context)
    except (InvalidTag, ValueError):
        raise BadMessage("shares that were not sealed for this member in this epoch") from None


def _direction(secret: bytes, context: bytes, sender: str, receiver: str) -> bytes:
    return derive(secret, "seal", context, sender.encode(), receiver.encode())


def to_words(vector: Sums) -> Words:
    """Signed integers as words; their sums are right as long as totals lie below 2^47 in magnitude."""
    if vector.size and not -LARGEST < int(vector.min()) <= int(vector.max()) < LARGEST:
        raise OverflowError("a number that does not fit a word of 48 bits")
    return vector.astype(np.uint64) & MODULUS


def from_words(words: Words) -> Sums:
    signed = (words & MODULUS).astype(np.int64)
    return np.where(signed >= LARGEST, signed - 2 * LARGEST, signed)


def pack_words(words: Words) -> bytes:
    """Six bytes a word, the lowest first."""
    return np.ascontiguousarray((words & MODULUS).astype("<u8").view(np.uint8).reshape(-1, 8)[:, :WORD]).tobytes()


def unpack_words(content: bytes) -> Words:
    if len(content) % WORD:
        raise BadMessage("a vector that does not consist of words")
    wide = np.zeros((len(content) // WORD, 8), np.uint8)
    wide[:, :WORD] = np.frombuffer(content, np.uint8).reshape(-1, WORD)
    return wide.view("<u8").ravel().astype(np.uint64)


def _stream(key: bytes, length: int) -> Words:
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return unpack_words(cipher.update(bytes(WORD * length)))
