"""Shamir secret sharing of 32-byte secrets, with a check that the recombined secret is the original.

A secret and 15 bytes of its digest are one number below the prime 2^384 - 317: the constant term of a random
polynomial, of which each holder gets one value. The digest makes shares that do not belong together noticeable; it is
shared like the rest and reveals nothing on its own.

Written here because the time counts: a coordinator combines one secret for each client. PyCryptodome's Shamir, which
works in GF(2^128) bit by bit, took 26 s where this took 0.07 s (30 secrets, each split into 30 shares and combined from
21, on one core).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from functools import lru_cache

from fedrouter.errors import BadMessage

PRIME = 2**384 - 317
SECRET, DIGEST = 32, 15
INDEX, VALUE = 4, 48
"""Bytes of the holder's index, from 1, at the start of a share; and of the polynomial's value there."""


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Split a secret into ``count`` shares, of which any ``threshold`` recover it and fewer reveal nothing.

    >>> shares = split(bytes(range(32)), threshold=2, count=3)
    >>> combine(shares[1:]) == combine(shares[:2]) == bytes(range(32))
    True
    """
    if len(secret) != SECRET:
        raise ValueError(f"a secret must have {SECRET} bytes, got {len(secret)}")
    if not 2 <= threshold <= count:
        raise ValueError(f"a threshold must lie between 2 and the number of shares {count}, got {threshold}")
    constant = int.from_bytes(secret + _digest(secret), "big")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    shares = []
    for at in range(1, count + 1):
        value = 0
        for coefficient in (*coefficients, constant):  # Horner's rule, from the highest power down
            value = (value * at + coefficient) % PRIME
        shares.append(at.to_bytes(INDEX, "little") + value.to_bytes(VALUE, "big"))
    return shares


def combine(shares: Sequence[bytes]) -> bytes:
    """Recover the secret from exactly as many shares as its threshold; wrong shares raise :class:`BadMessage`."""
    holders = tuple(map(holder, shares))
    if any(len(share) != INDEX + VALUE for share in shares) or len(set(holders)) != len(holders) or 0 in holders:
        raise _mismatch()
    values = [int.from_bytes(share[INDEX:], "big") for share in shares]
    whole = sum(weight * value for weight, value in zip(_weights(holders), values, strict=True)) % PRIME
    if whole >> 8 * (SECRET + DIGEST):
        raise _mismatch()
    content = whole.to_bytes(SECRET + DIGEST, "big")
    secret, digest = content[:SECRET], content[SECRET:]
    if not hmac.compare_digest(_digest(secret), digest):
        raise _mismatch()
    return secret


def holder(share: bytes) -> int:
    """Index, from 1, of the holder that a share was made for."""
    return int.from_bytes(share[:INDEX], "little")


@lru_cache(maxsize=4096)
def _weights(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's coefficients at zero: the constant term is the sum of the values with these weights."""
    weights = []
    for own in holders:
        above, below = 1, 1
        for other in holders:
            if other != own:
                above = above * other % PRIME
                below = below * (other - own) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(b"fedrouter secret sharing" + secret).digest()[:DIGEST]


def _mismatch() -> BadMessage:
    return BadMessage("shares of a secret do not combine: a client has sent wrong ones")
