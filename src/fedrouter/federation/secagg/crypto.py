"""The cryptography of secure aggregation: from keys to masks, and shares sealed for one reader.

All primitives are Flower's (P-384 key pairs, key agreement, Fernet, Shamir's shares) or those of `cryptography`. One of
Flower's is not used: its `pseudo_rand_gen` folds a seed to 32 bits and feeds numpy's Mersenne Twister, so whoever knows
a few numbers of a mask can try all seeds. Masks here are the key stream of AES-256 in counter mode, under a key derived
by HKDF from the whole secret. Each such key serves one mask, so the counter may start at zero.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping

import numpy as np

from fedrouter.errors import BadMessage, MissingExtra
from fedrouter.federation.message import Named, Packed
from fedrouter.federation.secagg.encoding import Vector

try:
    from cryptography.fernet import InvalidToken
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, generate_key_pairs, public_key_to_bytes
except ImportError:
    raise MissingExtra("Secure aggregation", "flower") from None

PrivateKey = ec.EllipticCurvePrivateKey
CURVE = ec.SECP384R1()
KEY_BYTES, SEED_BYTES = 48, 32


def new_key() -> tuple[bytes, bytes]:
    """A fresh key pair: the private number, and the public key as PEM."""
    private, public = generate_key_pairs()
    return private.private_numbers().private_value.to_bytes(KEY_BYTES, "big"), public_key_to_bytes(public)


def private_key(number: bytes) -> PrivateKey:
    return ec.derive_private_key(int.from_bytes(number, "big"), CURVE)


def public_half(number: bytes) -> bytes:
    return public_key_to_bytes(private_key(number).public_key())


def agreed(private: PrivateKey, public: bytes) -> bytes:
    """The secret that the owners of two keys share, and nobody else."""
    try:
        return generate_shared_key(private, bytes_to_public_key(public))
    except (AttributeError, TypeError, ValueError):
        raise BadMessage("a public key that is none on the curve P-384") from None


def common_ground(session: str, threshold: int, sealing: Named, masking: Named) -> bytes:
    """A digest of what all clients of a session must have been told alike: who takes part, by which keys.

    It enters every key that is derived. So masks and seals of clients that were told different things do not match, and
    the coordinator gains noise by telling them.
    """
    keys = [[name, sealing[name].tobytes().hex(), masking[name].tobytes().hex()] for name in sorted(sealing)]
    return hashlib.sha256(json.dumps([session, threshold, keys]).encode()).digest()


def question(verb: str, packed: Packed) -> bytes:
    """A digest of what is asked, which enters every mask.

    Otherwise the coordinator could ask one client about all its rows and the others about none, and read the total.
    """
    arrays, scalars = packed
    found = hashlib.sha256(json.dumps([verb, scalars]).encode())
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()


def _derive(secret: bytes, ground: bytes, *purpose: str) -> bytes:
    info = ground + json.dumps(purpose).encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def _stream(key: bytes, length: int) -> Vector:
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), "<u8").astype(np.uint64)


def self_mask(seed: bytes, ground: bytes, asked: bytes, length: int) -> Vector:
    """The mask of a client's own, which stays on until enough clients say that its vector has arrived."""
    return _stream(_derive(seed, ground, "self", asked.hex()), length)


def pair_mask(own: str, peer: str, secret: bytes, ground: bytes, asked: bytes, length: int) -> Vector:
    """The mask that ``own`` adds for ``peer``; the one that ``peer`` adds for ``own`` is its negative."""
    mask = _stream(_derive(secret, ground, "pair", asked.hex(), *sorted((own, peer))), length)
    return mask if own < peer else np.negative(mask)


def seal(secret: bytes, ground: bytes, sender: str, receiver: str, content: bytes) -> bytes:
    """Content for one reader; the direction is part of the key, so nothing can be sent back to who sealed it."""
    return encrypt(_sealing_key(secret, ground, sender, receiver), content)


def unseal(secret: bytes, ground: bytes, sender: str, receiver: str, sealed: bytes) -> bytes:
    try:
        return decrypt(_sealing_key(secret, ground, sender, receiver), sealed)
    except InvalidToken:
        raise BadMessage("shares that were not sealed for this client in this session") from None


def _sealing_key(secret: bytes, ground: bytes, sender: str, receiver: str) -> bytes:
    return base64.urlsafe_b64encode(_derive(secret, ground, "seal", sender, receiver))


def as_bytes(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Bytes as an array, the form in which messages carry them."""
    return np.frombuffer(content, np.uint8)


def all_different(*groups: Mapping[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]) -> bool:
    """Whether no key stands in for two."""
    keys = [array.tobytes() for group in groups for array in group.values()]
    return len(set(keys)) == len(keys)
