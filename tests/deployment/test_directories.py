"""State directories, credentials, invitations: what is made, who may read it, and what is refused."""

import ssl
import stat

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from fedrouter.deployment import coordinator as coordinator_process
from fedrouter.deployment.address import check_host, check_name, split_address
from fedrouter.deployment.credentials import check_node_key, make_authority, make_node_key, make_server_certificate
from fedrouter.deployment.directories import create_coordinator, create_member, open_coordinator, open_directory
from fedrouter.deployment.invitation import Invitation, JoinRequest, read_word
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.flower.programs import FlowerError
from fedrouter.engines.flower.server_app import nodes_by_member
from fedrouter.errors import BadInput
from fedrouter.federation.coordinator import Coordinator
from fedrouter.federation.identity import Identity

STATIC = EncoderIdentity("static", 275, True)
SETTINGS = {"epsilon": 8.0, "delta": 1e-6, "days": 7}


@pytest.fixture
def coordinator(tmp_path):
    return create_coordinator(tmp_path / "coordinator", ["router.example.org"], 9092, None, STATIC, SETTINGS)


@pytest.fixture
def member(coordinator, tmp_path):
    invited = Invitation.unpack(coordinator.invitation())
    return create_member(tmp_path / "bank", invited, "bank", ["a", "b"], {"log": "x.csv", "encoder": "static"})


def test_only_certificates_and_the_request_can_be_read_by_others(coordinator, member):
    public = {"ca.pem", "server.pem", "request", "invitation", "policy.yaml"}
    for directory in (coordinator.path, member.path):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for path in directory.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o644 if path.name in public else 0o600), path


def test_the_protocol_reads_the_coordinators_directory(coordinator, member):
    request = JoinRequest.unpack(member.request.read_text().strip())
    with coordinator.editing_roster() as roster:
        roster["bank"] = request
    own = Coordinator(coordinator.path)
    try:
        assert own.roster.members["bank"].identity == request.identity
        assert own.roster.members["bank"].models == request.models == ("a", "b")
        assert (own.roster.encoder, own.roster.dimension) == ("static", 275)
        assert own.identity.public == coordinator.signer.public
    finally:
        own.close()
    assert open_coordinator(coordinator.path).roster()["bank"].fingerprint == member.fingerprint


class AdmittingNodes:
    """Flower's SuperLink as far as nodes go; a node cannot be unregistered, because its key would not come back."""

    def __init__(self):
        self.ids = {}

    def nodes(self):
        return dict.fromkeys(self.ids.values(), "online")

    def register(self, file):
        key = file.read_text().strip()
        if key in self.ids:
            raise FlowerError("public key already in use")
        return self.ids.setdefault(key, 100 + len(self.ids))


def test_the_node_of_a_member_that_left_stays_admitted_and_has_messages_for_nobody(coordinator, member, monkeypatch):
    link, said = AdmittingNodes(), []
    monkeypatch.setattr(coordinator_process, "Flwr", lambda path: link)
    request = JoinRequest.unpack(member.request.read_text().strip())
    for members in ({"bank": request}, {}, {"bank": request}):
        with coordinator.editing_roster() as roster:
            roster.clear()
            roster.update(members)
        coordinator_process.admit(coordinator, said.append)
        assert link.nodes() == {100: "online"}
        assert nodes_by_member(coordinator.path) == dict.fromkeys(members, 100)
        assert coordinator_process.connected(coordinator) == dict.fromkeys(members, True)
    assert said == ["bank may connect"]


def test_a_directory_with_anything_in_it_is_not_overwritten(coordinator, member):
    with pytest.raises(BadInput, match="not empty"):
        create_coordinator(coordinator.path, ["localhost"], 9092, None, STATIC, SETTINGS)
    with pytest.raises(BadInput, match="not a state directory"):
        open_directory(coordinator.path.parent)
    with pytest.raises(BadInput, match="directory of a member"):
        open_coordinator(member.path)


def test_the_superlink_has_a_port_of_its_own_unless_all_are_on_this_machine(coordinator, tmp_path):
    assert coordinator.port == 9093
    local = create_coordinator(tmp_path / "local", ["localhost"], 9100, None, STATIC, SETTINGS)
    assert local.port == 9100


def test_an_invitation_has_the_address_the_authority_and_the_key(coordinator):
    text = coordinator.invitation()
    found = Invitation.unpack(text)
    assert found.address == "router.example.org:9092"
    assert found.fingerprint == coordinator.fingerprint
    assert found.authority == coordinator.authority.read_bytes()
    assert found.encoder == "static"
    assert text.replace("-", "").replace("_", "").isalnum()
    assert len(text) < 1_200


@pytest.mark.parametrize("change", [lambda text: text[:-3], lambda text: text[:-3] + "AAA", lambda text: "x" + text])
def test_a_changed_invitation_or_request_is_refused(coordinator, member, change):
    for kind, text in ((Invitation, coordinator.invitation()), (JoinRequest, member.request.read_text().strip())):
        with pytest.raises(BadInput, match="whole and unchanged"):
            kind.unpack(change(text))


def test_a_request_in_the_place_of_an_invitation_is_refused(coordinator, member):
    with pytest.raises(BadInput, match="expected an invitation"):
        Invitation.unpack(read_word(str(member.request)))
    assert read_word(coordinator.invitation()) == coordinator.invitation()
    with pytest.raises(BadInput, match="neither a file nor a string"):
        read_word("no-such-file")


def test_a_request_for_a_name_that_no_report_can_show_is_refused():
    signer = Identity.new()
    text = JoinRequest("a\nb", signer.public, make_node_key().public.decode().strip(), ()).pack(signer)
    with pytest.raises(BadInput, match="not one of this version"):
        JoinRequest.unpack(text)


def test_tls_accepts_the_certificate_for_its_hosts_and_for_loopback_only(tmp_path):
    authority = make_authority()
    server = make_server_certificate(authority, ("router.example.org", "192.0.2.7"))
    paths = {}
    for name, content in (("ca", authority.public), ("crt", server.public), ("key", server.private)):
        paths[name] = tmp_path / name
        paths[name].write_bytes(content)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(paths["crt"], paths["key"])
    for host, fits in (("router.example.org", True), ("192.0.2.7", True), ("localhost", True), ("other.org", False)):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=str(paths["ca"])).wrap_bio(incoming, outgoing, server_hostname=host)
        other = listening.wrap_bio(outgoing, incoming, server_side=True)
        if fits:
            shake(client, other)
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                shake(client, other)


def shake(*sides):
    left = list(sides)
    for _ in range(6):
        for side in list(left):
            try:
                side.do_handshake()
                left.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not left


@pytest.mark.parametrize("line", ["", "ssh-ed25519 AAAA", "not a key", "ecdsa-sha2-nistp256 AAAA"])
def test_a_key_of_another_kind_is_no_nodes(line):
    with pytest.raises(BadInput, match="P-384"):
        check_node_key(line)


def test_names_hosts_and_addresses_are_checked():
    assert check_host("Router.Example.org.") == "router.example.org"
    assert check_host("[::1]") == "::1"
    assert split_address("[::1]:9092") == ("::1", 9092)
    for check, wrong in ((check_name, "../x"), (check_host, "a b"), (split_address, "host"), (split_address, "h:0")):
        with pytest.raises(BadInput):
            check(wrong)
