"""Credentials of a federation: its certificate authority, the coordinator's certificate, and each client's key.

The coordinator authenticates with a certificate of the federation's own authority. A client authenticates by signing
with its private key, whose public key the coordinator has enrolled. A private key never leaves its directory. The
coordinator signs its questions with the key of the authority, whose certificate clients have.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedrouter.deployment.state.config import LOOPBACK
from fedrouter.errors import BadInput, MissingExtra

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
        load_ssh_public_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MissingExtra("A federation across machines", "flower") from None

LIFETIME = timedelta(days=3650)
SKEW = timedelta(hours=1)
"""A certificate is valid from shortly before it was issued, for machines whose clocks are behind."""
MAX_FILE_BYTES = 10_000
SUCCESSION = re.compile(r"[A-Za-z0-9+/=]{100,300}:[A-Za-z0-9+/=]{80,200}(,[A-Za-z0-9+/=:]{200,500}){0,7}")
"""In the place of a comment: earlier keys of the client, each with its signature of the next."""


@dataclass(frozen=True)
class KeyPair:
    """A private key, to be written to a private file and nowhere else, and its public part."""

    private: bytes
    public: bytes

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public!r})"


def make_authority() -> KeyPair:
    """Create a certificate authority for one federation: PEM of its key and of its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("fedrouter federation authority")
    built = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(_pem(key), _certificate_pem(built))


def make_server_certificate(authority: KeyPair, hosts: tuple[str, ...]) -> KeyPair:
    """Create the coordinator's key and certificate, valid for ``hosts`` and for loopback."""
    issuer = x509.load_pem_x509_certificate(authority.public)
    issuer_key = load_pem_private_key(authority.private, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    built = (
        _builder(_subject("fedrouter coordinator"), issuer.subject, key, until=issuer.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return KeyPair(_pem(key), _certificate_pem(built))


def make_client_key() -> KeyPair:
    """Create a client's ECDSA P-384 key in OpenSSH format, which a SuperNode reads; the public part is one line."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), public + b"\n")


def read_public_key(path: Path) -> str:
    """Read a client's public key as one line ``ecdsa-sha2-nistp384 …``.

    A comment is dropped, unless it tells which keys this one takes the place of
    (:func:`fedrouter.federation.secagg.pinned_keys.succession`).
    """
    content = _read(path)
    if b"PRIVATE KEY" in content:
        raise BadInput(f"{path}: holds a private key, which must not leave its client: expected the file client.pub")
    try:
        key = load_ssh_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise BadInput(f"{path}: expected a client's public key (ECDSA P-384, one line 'ecdsa-sha2-nistp384 …')")
    algorithm, public, *comment = content.decode(errors="replace").split()
    told = [comment[0]] if comment and SUCCESSION.fullmatch(comment[0]) else []
    return " ".join([algorithm, public, *told])


def public_key_pem(line: str) -> bytes:
    """Convert a public key line to PEM, the form in which a SuperLink stores it."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_authority(path: Path) -> bytes:
    """Read the certificate of a federation's authority (``ca.pem`` of the coordinator)."""
    content = _read(path)
    if b"PRIVATE KEY" in content:
        raise BadInput(f"{path}: holds a private key: expected the certificate ca.pem alone")
    try:
        certificate = x509.load_pem_x509_certificate(content)
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        authority = False
    if not authority:
        raise BadInput(f"{path}: expected the certificate of a certificate authority (ca.pem of the coordinator)")
    return _certificate_pem(certificate)


def valid_until(certificate: bytes) -> datetime:
    """When a certificate (PEM) expires."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def fingerprint(public_key: str) -> str:
    """Fingerprint that two people compare over another channel, in the format of ``ssh-keygen -l``."""
    return _formatted(hashlib.sha256(base64.b64decode(public_key.split()[1])).digest())


def authority_fingerprint(certificate: bytes) -> str:
    """Fingerprint of the authority's certificate, to be compared over another channel."""
    return _formatted(x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()))


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


def _formatted(digest: bytes) -> str:
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_FILE_BYTES:
        raise BadInput(f"{path}: too large for a key or a certificate")
    return content


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(until or now + LIFETIME)
    )


def _subject(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(**allowed: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names})


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)
