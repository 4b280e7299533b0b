"""Keys and certificates: what they authenticate, and which files are refused in their place."""

import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedrouter.deployment.state import credentials
from fedrouter.deployment.state.config import check_host
from fedrouter.deployment.state.credentials import question_signer, question_verifier
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.errors import BadInput

STRICT = getattr(ssl, "VERIFY_X509_STRICT", 0)


def handshake(folder, authority, server, name):
    """A real TLS handshake with a server by that certificate, as a client that trusts that authority sees it."""
    (folder / "server.pem").write_bytes(server.public)
    (folder / "server.key").write_bytes(server.private)
    host = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    host.load_cert_chain(folder / "server.pem", folder / "server.key")
    guest = ssl.create_default_context(cadata=authority.public.decode())
    guest.verify_flags |= STRICT
    here, there = socket.socketpair()

    def serve():
        try:
            host.wrap_socket(there, server_side=True).close()
        except OSError:
            there.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with here, guest.wrap_socket(here, server_hostname=name) as connection:
            return connection.version()
    finally:
        serving.join()


@pytest.mark.parametrize("name", ["router.example.org", "192.0.2.7", "2001:db8::7", "localhost", "127.0.0.1", "::1"])
def test_the_server_certificate_is_good_for_its_hosts_and_for_its_own_machine(tmp_path, name):
    authority = credentials.make_authority()
    server = credentials.make_server_certificate(authority, ("router.example.org", "192.0.2.7", "2001:db8::7"))
    assert handshake(tmp_path, authority, server, name) == "TLSv1.3"


def test_it_is_not_good_for_another_name(tmp_path):
    authority = credentials.make_authority()
    server = credentials.make_server_certificate(authority, ("router.example.org",))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        handshake(tmp_path, authority, server, "other.example.org")


def test_a_certificate_of_another_federation_is_not_believed(tmp_path):
    server = credentials.make_server_certificate(credentials.make_authority(), ("router.example.org",))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"verify failed"):
        handshake(tmp_path, credentials.make_authority(), server, "router.example.org")


def test_the_server_certificate_cannot_make_others_and_lasts_as_long_as_its_authority():
    authority = credentials.make_authority()
    issued = x509.load_pem_x509_certificate(credentials.make_server_certificate(authority, ("a.example",)).public)
    issuer = x509.load_pem_x509_certificate(authority.public)
    assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    assert issued.not_valid_after_utc == issuer.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3000)


def test_a_clients_key_is_p384_in_the_form_a_supernode_reads(tmp_path):
    key = credentials.make_client_key()
    private = load_ssh_private_key(key.private, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP384R1)
    (tmp_path / "client.pub").write_bytes(key.public)
    line = credentials.read_public_key(tmp_path / "client.pub")
    assert line.startswith("ecdsa-sha2-nistp384 ")
    assert b"BEGIN PUBLIC KEY" in credentials.public_key_pem(line)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path):
    path = tmp_path / "client.pub"
    path.write_bytes(credentials.make_client_key().public)
    shown = subprocess.run(["ssh-keygen", "-l", "-f", path], capture_output=True, text=True, check=True).stdout
    assert credentials.fingerprint(credentials.read_public_key(path)) in shown


def test_a_comment_after_a_public_key_makes_no_difference(tmp_path):
    public = credentials.make_client_key().public.decode().strip()
    for number, content in enumerate([public, f"{public} someone@somewhere\n", f"{public} two words\n"]):
        path = tmp_path / f"{number}.pub"
        path.write_text(content)
        assert credentials.read_public_key(path) == public


def test_a_secret_is_not_shown_by_accident():
    key = credentials.make_client_key()
    assert key.private.decode()[40:80] not in repr(key)


def other_key(kind):
    from cryptography.hazmat.primitives.asymmetric import ed25519
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    made = ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())
    return made.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (credentials.make_client_key().private, r"holds a private key"),
        (other_key("ed25519"), r"expected a client's public key"),
        (other_key("p256"), r"expected a client's public key"),
        (b"", r"expected a client's public key"),
        (b"\xff\xfe" * 20, r"expected a client's public key"),
        (b"x" * 20_000, r"too large"),
    ],
    ids=["private", "another kind", "another curve", "nothing", "not text", "too large"],
)
def test_what_is_no_clients_public_key_is_refused_and_not_quoted(tmp_path, content, why):
    path = tmp_path / "client.pub"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=why) as refused:
        credentials.read_public_key(path)
    assert "BEGIN" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"nowhere\.pub: cannot be read"):
        credentials.read_public_key(tmp_path / "nowhere.pub")


def test_only_an_authoritys_certificate_is_taken_for_one(tmp_path):
    authority = credentials.make_authority()
    path = tmp_path / "ca.pem"
    path.write_bytes(authority.public)
    assert credentials.read_authority(path) == authority.public
    for content, why in [
        (credentials.make_server_certificate(authority, ("a.example",)).public, r"expected the certificate"),
        (authority.public + authority.private, r"holds a private key"),
        (b"rubbish", r"expected the certificate"),
    ]:
        path.write_bytes(content)
        with pytest.raises(BadInput, match=why):
            credentials.read_authority(path)


@pytest.mark.parametrize(
    "host", ["", "a b", "router.example.org:9092", "https://router", "-a.example", "ä.example", "a..b"]
)
def test_what_is_no_host_is_refused(host):
    with pytest.raises(BadInput, match=r"expected a DNS name"):
        check_host(host)


def test_a_host_is_kept_in_its_usual_form():
    given = ["Router.Example.org.", "[::1]", "2001:DB8:0::7", "10.0.0.1"]
    assert list(map(check_host, given)) == ["router.example.org", "::1", "2001:db8::7", "10.0.0.1"]


def test_a_client_verifies_with_the_authority_that_it_was_created_with(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    other = create_coordinator(tmp_path / "other", ("localhost",))
    client = create_client(tmp_path / "bank", "bank", "localhost:9092", coordinator.authority)
    verify = question_verifier(client.authority)
    signature = question_signer(coordinator.authority_key)(b"statement")
    assert verify(b"statement", signature)
    assert not verify(b"another", signature)
    assert not verify(b"statement", b"")
    assert not verify(b"statement", question_signer(other.authority_key)(b"statement"))


def test_a_coordinator_without_its_key_is_told_so(tmp_path):
    with pytest.raises(BadInput, match=r"ca\.key: expected the key of the federation's authority"):
        question_signer(tmp_path / "ca.key")
