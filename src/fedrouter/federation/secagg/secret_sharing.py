"""Shamir secret sharing of secrets of any length, with a check that the recombined secret is the original.

The arithmetic is PyCryptodome's (``Crypto.Protocol.SecretSharing``: 16-byte secrets in GF(2^128), coefficients from the
operating system's random generator). A longer secret is shared block by block. The last block is a digest of the
others, so that shares which do not belong together are noticed; it is shared like the rest and reveals nothing on its
own.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from fedrouter.errors import BadMessage, MissingExtra

try:
    from Crypto.Protocol.SecretSharing import Shamir
except ImportError:
    raise MissingExtra("Secure aggregation", "secure") from None

BLOCK = 16
INDEX = 4
"""Bytes of the holder's index, from 1, at the start of a share."""


def share_length(secret_length: int) -> int:
    """Bytes of one share of a secret of this many bytes."""
    return INDEX + secret_length + BLOCK


def split(secret: bytes, threshold: int, count: int) -> list[bytes]:
    """Split a secret into ``count`` shares, of which any ``threshold`` recover it and fewer reveal nothing.

    >>> shares = split(b"sixteen or more " * 2, threshold=2, count=3)
    >>> combine(shares[1:]) == combine(shares[:2]) == b"sixteen or more " * 2
    True
    """
    if len(secret) % BLOCK or not secret:
        raise ValueError(f"a secret must have a multiple of {BLOCK} bytes, got {len(secret)}")
    if not 2 <= threshold <= count:
        raise ValueError(f"a threshold must lie between 2 and the number of shares {count}, got {threshold}")
    shares = [bytearray(holder.to_bytes(INDEX, "little")) for holder in range(1, count + 1)]
    for block in _blocks(secret + _digest(secret)):
        for holder, part in Shamir.split(threshold, count, block, False):
            shares[holder - 1] += part
    return [bytes(share) for share in shares]


def combine(shares: Sequence[bytes]) -> bytes:
    """Recover the secret from exactly as many shares as its threshold; wrong shares raise :class:`BadMessage`."""
    lengths = {len(share) for share in shares}
    if len(lengths) != 1 or (length := lengths.pop()) < INDEX + 2 * BLOCK or (length - INDEX) % BLOCK:
        raise _mismatch()
    blocks = [[(holder(share), part) for part in _blocks(share[INDEX:])] for share in shares]
    try:
        whole = b"".join(Shamir.combine(list(parts), False) for parts in zip(*blocks, strict=True))
    except ValueError:  # the same holder twice
        raise _mismatch() from None
    secret, digest = whole[:-BLOCK], whole[-BLOCK:]
    if not hmac.compare_digest(_digest(secret), digest):
        raise _mismatch()
    return secret


def holder(share: bytes) -> int:
    """Index, from 1, of the client that a share was made for."""
    return int.from_bytes(share[:INDEX], "little")


def _blocks(content: bytes) -> list[bytes]:
    return [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(b"fedrouter secret sharing" + secret).digest()[:BLOCK]


def _mismatch() -> BadMessage:
    return BadMessage("shares of a secret do not combine: a client has sent wrong ones")
