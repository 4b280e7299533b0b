"""Credentials of TLS and of nodes: the federation's certificate authority, the coordinator's certificate, node keys.

The SuperLink, or the proxy in front of it, proves itself with a certificate of the federation's own authority; a
SuperNode signs its requests with its node key. Neither protects what members send: that is the business of the identity
keys (:mod:`fedrouter.federation.identity`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fedrouter.deployment.address import LOOPBACK
from fedrouter.errors import BadInput, MissingExtra

try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
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
    return KeyPair(_pem(key), built.public_bytes(Encoding.PEM))


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
    return KeyPair(_pem(key), built.public_bytes(Encoding.PEM))


def make_node_key() -> KeyPair:
    """Create the key of a member's SuperNode: ECDSA P-384 in OpenSSH format; the public part is one line."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), public + b"\n")


def check_node_key(line: str) -> str:
    """Validate a node's public key, one line ``ecdsa-sha2-nistp384 …``."""
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise BadInput("expected a node's public key (ECDSA P-384, one line 'ecdsa-sha2-nistp384 …')")
    return " ".join(line.split()[:2])


def authority_der(certificate: bytes) -> bytes:
    """The certificate of an authority (PEM) in its shortest form, for an invitation."""
    return x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)


def authority_pem(content: bytes) -> bytes:
    """The certificate of an authority that an invitation has, as PEM."""
    try:
        certificate = x509.load_der_x509_certificate(content)
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound):
        authority = False
    if not authority:
        raise BadInput("expected the certificate of a certificate authority")
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise BadInput(f"its authority has expired, on {certificate.not_valid_after_utc:%Y-%m-%d}; ask for a new one")
    return certificate.public_bytes(Encoding.PEM)


def valid_until(certificate: bytes) -> datetime:
    """When a certificate (PEM) expires."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


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
