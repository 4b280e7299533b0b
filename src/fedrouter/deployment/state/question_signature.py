"""The coordinator signs its questions with the key of the federation's authority, whose certificate clients have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedrouter.errors import BadInput, MissingExtra

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
except ImportError:
    raise MissingExtra("A federation across machines", "flower") from None


def question_signer(authority_key: Path) -> Callable[[bytes], bytes]:
    """Signs statements with the key in the coordinator's ``ca.key``."""
    try:
        key = load_pem_private_key(authority_key.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(f"{authority_key}: expected the key of the federation's authority, to sign questions with")
    return lambda statement: key.sign(statement, ec.ECDSA(hashes.SHA256()))


def question_verifier(authority: Path) -> Callable[[bytes, bytes], bool]:
    """Whether a statement has this signature of the authority in the client's ``ca.pem``."""
    key = x509.load_pem_x509_certificate(authority.read_bytes()).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadInput(f"{authority}: expected the certificate of a key of an elliptic curve")

    def verify(statement: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, statement, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    return verify
