"""Identity keys (Ed25519): what members and the coordinator sign with, and the fingerprints that people compare."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from fedrouter.errors import BadInput, MissingExtra
from fedrouter.files import PRIVATE, write_new

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
except ImportError:
    raise MissingExtra("A federation", "secure") from None

KEY, SIGNATURE = 32, 64
"""Bytes of a public key and of a signature."""


@dataclass(frozen=True)
class Identity:
    """A private key. ``public`` are its 32 public bytes, by which others know it."""

    key: Ed25519PrivateKey

    @classmethod
    def new(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> Identity:
        """The key in a PEM file."""
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadInput(f"{path}: expected a private key of Ed25519 in PEM form")
        return cls(key)

    def write(self, path: Path) -> None:
        """Write the key to a new file that only its owner can read."""
        write_new(path, self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), PRIVATE)

    @property
    def public(self) -> bytes:
        return self.key.public_key().public_bytes_raw()

    def sign(self, purpose: str, *parts: bytes) -> bytes:
        return self.key.sign(statement(purpose, *parts))

    def secret(self, purpose: str) -> bytes:
        """32 bytes that follow from this key for one purpose."""
        material = self.key.private_bytes_raw()
        return HKDF(hashes.SHA256(), 32, None, f"fedrouter {purpose}".encode()).derive(material)


def signed(public: bytes, signature: bytes, purpose: str, *parts: bytes) -> bool:
    """Whether the owner of a public key has signed this statement."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement(purpose, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(purpose: str, *parts: bytes) -> bytes:
    """What is signed or hashed: a purpose and parts, none of which can pass for another."""
    return b"fedrouter 1" + b"".join(len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts))


def digest(purpose: str, *parts: bytes) -> bytes:
    return hashlib.sha256(statement(purpose, *parts)).digest()


def fingerprint(public: bytes) -> str:
    """A public key as people compare it, in the form that OpenSSH shows."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")
