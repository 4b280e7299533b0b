"""What a member refuses, and what stays at home when it does."""

import json
import resource
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from federation.federations import ENCODER, POOL, Federation, refusal, rows_of
from fedrouter.errors import BadInput
from fedrouter.federation.epoch import TooFewLeft
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity, fingerprint
from fedrouter.federation.member import Log, Member
from fedrouter.federation.policy import Policy
from fedrouter.federation.terms import Party, Terms
from fedrouter.federation.total import Total, release_size


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path / "f", 4, epsilon=0.0)
    yield made
    made.close()


def terms_of(federation, epoch=1, previous=b"", **changes):
    members = {name: Party(federation.keys[name].public) for name in federation.names}
    settings = {"members": members, "models": dict.fromkeys(POOL.names, 4), "epsilon": 0.0, **changes}
    return Terms("test", epoch, previous, encoder=ENCODER, dimension=6, **settings)


def keys_message(federation, *terms, signer=None):
    signed = [each.sign(signer or federation.signing) for each in terms]
    chain = [{"content": each.content, "signature": each.signature} for each in signed]
    return Frame("keys", {"epoch": terms[-1].epoch, "terms": chain}).pack()


def test_terms_have_one_spelling(federation):
    terms = terms_of(federation)
    spelled = json.dumps(json.loads(terms.content)).encode()
    signature = federation.signing.sign("terms", spelled)
    message = Frame("keys", {"epoch": 1, "terms": [{"content": spelled, "signature": signature}]}).pack()
    assert refusal(federation.members["m0"], message) == "message"
    assert Terms.from_content(terms.content) == terms


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epsilon": 20.0}, "noise"),
        ({"epsilon": 0.0}, "noise"),
        ({"delta": 1e-3, "epsilon": 8.0}, "noise"),
        ({"family": "kmeans", "epsilon": 8.0}, "family"),
    ],
)
def test_what_the_policy_does_not_allow_is_refused(federation, changes, reason):
    federation.change_policy("m0", epsilon=8.0)
    assert refusal(federation.members["m0"], keys_message(federation, terms_of(federation, **changes))) == reason
    assert federation.members["m0"].journal.last_terms() is None


def test_embeddings_of_another_encoder_are_not_summed(federation):
    federation.members["m0"].close()
    member = Member(federation.folder / "m0", "m0", lambda: Log(federation.rows["m0"], "another"))
    assert refusal(member, keys_message(federation, terms_of(federation))) == "encoder"
    member.close()


def test_an_epoch_of_too_few_is_refused(federation):
    federation.change_policy("m0", least_members=5)
    assert refusal(federation.members["m0"], keys_message(federation, terms_of(federation))) == "members"
    two = {name: Party(federation.keys[name].public) for name in ("m0", "m1")}
    with pytest.raises(BadInput, match="3 to 100 members"):
        terms_of(federation, members=two).sign(federation.signing)


def test_a_stranger_cannot_sign_terms(federation):
    message = keys_message(federation, terms_of(federation), signer=Identity.new())
    assert refusal(federation.members["m0"], message) == "message"


def test_a_member_that_is_not_in_the_terms_with_its_key_refuses(federation):
    members = {name: Party(federation.keys[name].public) for name in federation.names}
    message = keys_message(federation, terms_of(federation, members={**members, "m0": Party(Identity.new().public)}))
    assert refusal(federation.members["m0"], message) == "terms"


def test_a_second_epoch_within_the_interval_is_refused(federation):
    federation.run(epsilon=0.0)
    federation.change_policy("m0", interval_days=7.0)
    federation.run(epsilon=0.0)
    assert any(event.member == "m0" and event.words == "interval" for event in federation.events)
    federation.clock = dict.fromkeys(federation.clock, 1_000_000.0 + 8 * 86_400)
    assert "m0" in federation.run(epsilon=0.0).survivors


def test_a_fork_of_the_terms_is_refused(federation):
    member = federation.members["m0"]
    first = terms_of(federation)
    assert refusal(member, keys_message(federation, first)) is None
    other = replace(first, opened=5)
    assert refusal(member, keys_message(federation, other)) == "terms"
    assert refusal(member, keys_message(federation, replace(first, epoch=2, previous=other.digest))) == "rollback"
    assert refusal(member, keys_message(federation, replace(first, epoch=2, previous=first.digest))) is None


def test_a_journal_restored_from_a_backup_is_noticed(federation, tmp_path):
    federation.run(epsilon=0.0)
    federation.members["m0"].close()
    shutil.copy(federation.folder / "m0" / "journal.db", tmp_path / "backup")
    federation.open("m0")
    federation.rows["m0"] = rows_of(60)
    federation.run(epsilon=0.0)
    federation.members["m0"].close()
    shutil.copy(tmp_path / "backup", federation.folder / "m0" / "journal.db")
    federation.open("m0")
    federation.run(epsilon=0.0)
    assert any(event.member == "m0" and event.words == "rollback" for event in federation.events)
    assert "restored from a backup" in federation.members["m0"].journal.refusals()[-1][3]
    assert len(federation.members["m0"].journal.releases()) == 1


@pytest.mark.parametrize("exchange", ["keys", "masked"])
def test_noise_that_is_drawn_again_after_a_journal_was_restored_within_an_epoch_is_the_same(tmp_path, exchange):
    """Two draws on the same numbers under the same masks would average out; numbers that changed get another."""
    federation = Federation(tmp_path / "f", 3, queries=100)
    journal, backup = federation.folder / "m0" / "journal.db", tmp_path / "backup"
    if exchange == "masked":
        with pytest.raises(TooFewLeft):
            federation.run(lambda at, name: at == "shares")
    federation.members["m0"].close()
    shutil.copy(journal, backup)
    federation.open("m0")
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == exchange)
    asked, shown, noise = federation.coordinator.requests(1, exchange)["m0"], set(), set()
    rows = federation.rows["m0"]
    for turn in range(4):
        federation.members["m0"].close()
        shutil.copy(backup, journal)
        federation.open("m0")
        federation.rows["m0"] = rows if turn < 3 else replace(rows, accuracy=1 - rows.accuracy)
        reply = Frame.unpack(federation.members["m0"].answer(asked))
        if exchange == "keys":
            shown.add(federation.members["m0"].journal.pending("bayes"))
            continue
        shown.add(reply.blob("masked"))
        (sent,) = federation.members["m0"].journal.releases()
        noise.add((sent.sent - sent.exact).tobytes())
    assert (len(shown), len(noise)) == ((1, 0) if exchange == "keys" else (2, 2))
    federation.close()


def test_a_journal_goes_with_its_key(federation):
    federation.members["m0"].close()
    (federation.folder / "m0" / "identity.key").unlink()
    Identity.new().write(federation.folder / "m0" / "identity.key")
    with pytest.raises(BadInput, match="another identity key"):
        federation.open("m0")


def test_an_exchange_asked_in_another_form_is_refused(federation):
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "agree", epsilon=0.0)
    member = federation.members["m0"]
    for exchange, change in (("shares", "announced"), ("masked", "sealed")):
        asked = Frame.unpack(federation.coordinator.requests(1, exchange)["m0"])
        fewer = dict(list(asked.fields[change].items())[:-1])
        assert refusal(member, Frame(exchange, {**asked.fields, change: fewer}).pack()) == "terms"
    fewer = Frame("agree", {"epoch": 1, "survivors": ["m0", "m1", "m2"]}).pack()
    assert refusal(member, fewer) == "message"
    assert len(member.journal.releases()) == 1


@pytest.mark.parametrize("exchange", ["keys", "masked"])
def test_on_a_full_disk_nothing_leaves(federation, exchange):
    """What the journal cannot write has not left: the reply is a refusal, and the same works when there is room."""
    member = federation.members["m0"]
    answer, refused = member.answer, []

    def without_room(content):
        if Frame.unpack(content).kind != exchange or refused:
            return answer(content)
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, usual[1]))
        try:
            refused.append(answer(content))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        return refused[0]

    member.answer = without_room
    total = federation.run(epsilon=0.0)
    assert Frame.unpack(refused[0]).kind == "refused"
    assert "m0" not in total.survivors
    assert not member.journal.releases()
    member.answer = answer
    assert "m0" in federation.run(epsilon=0.0).survivors


def test_a_total_of_others_than_on_the_list_that_a_member_signed_is_refused(federation):
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "unmask", epsilon=0.0)
    member, terms = federation.members["m0"], federation.coordinator.open_terms()
    vector = np.zeros(release_size(terms.terms), np.int64)
    others = Total(terms, ("m0", "m1", "m2"), 0, 0, vector).sign(federation.signing)
    message = Frame("total", {"totals": {"1": others.pack()}}).pack()
    assert refusal(member, message) == "terms"
    assert not member.totals
    assert federation.run(epsilon=0.0).survivors == tuple(federation.names)
    assert len(member.totals) == 1


def test_a_release_cannot_be_taken_back(federation):
    federation.run(epsilon=0.0)
    database = sqlite3.connect(federation.folder / "m0" / "journal.db")
    for statement in (
        "UPDATE queries SET released = NULL",
        "DELETE FROM queries",
        "UPDATE releases SET epoch = 9",
        "DELETE FROM releases",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            database.execute(statement)
    database.close()


def test_secrets_go_when_the_total_is_there_or_the_time_is_over(federation):
    federation.run(epsilon=0.0)
    assert federation.members["m0"].journal.state(1) is None
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "masked", epsilon=0.0)
    member = federation.members["m0"]
    assert member.journal.state(2) is not None
    federation.clock["m0"] += 8 * 86_400
    member.answer(federation.coordinator.requests(2, "keys")["m0"])
    assert member.journal.state(2) is None


def test_no_text_of_a_log_is_in_the_journal_or_in_a_reply(federation):
    federation.run(epsilon=0.0)
    for name in federation.names:
        content = (federation.folder / name / "journal.db").read_bytes()
        assert b"query 0" not in content
        assert rows_of(0).embeddings[0].tobytes() not in content


@pytest.mark.parametrize("content", [b"", b"garbage", Frame("nonsense").pack(), Frame("keys", {"epoch": "x"}).pack()])
def test_garbage_is_answered_with_a_refusal(federation, content):
    assert refusal(federation.members["m0"], content) == "message"


def test_a_log_that_cannot_be_read_is_a_refusal_without_details(tmp_path):
    federation = Federation(tmp_path / "f", 3, epsilon=0.0)

    def broken():
        raise BadInput("row 7: the secret of a customer")

    federation.members["m0"].close()
    member = Member(federation.folder / "m0", "m0", broken)
    reply = member.answer(keys_message(federation, terms_of(federation)))
    assert Frame.unpack(reply).fields == {"reason": "log"}
    assert b"customer" not in reply
    member.close()


def test_a_policy_is_a_file_for_people(tmp_path):
    policy = Policy("ab" * 32, trusted=("SHA256:x",), models=("a", "b"), epsilon=4.0)
    policy.write(tmp_path / "policy.yaml")
    assert Policy.read(tmp_path / "policy.yaml") == policy
    text = (tmp_path / "policy.yaml").read_text()
    assert "# no epoch that protects less" in text
    for wrong, words in (
        (text + "extra: 1\n", "'extra' is no setting"),
        (text.replace("least_members: 3", "least_members: 2"), "at least 3"),
        (text.replace("epsilon: 4.0", "epsilon: much"), "epsilon: expected a number"),
        ("- a\n", "settings by name"),
        ("coordinator: [", "expected YAML"),
    ):
        (tmp_path / "policy.yaml").write_text(wrong)
        with pytest.raises(BadInput, match=words):
            Policy.read(tmp_path / "policy.yaml")
    (tmp_path / "policy.yaml").write_text(f"coordinator: {'ab' * 32}\ndelta: 1e-6\n")
    assert Policy.read(tmp_path / "policy.yaml").delta == 1e-6


def test_sybils_do_not_count(tmp_path):
    """However many members a coordinator makes up, a member's own noise follows from those that it trusts."""
    federation = Federation(tmp_path / "f", 3)
    own = federation.members["m0"]
    invented = {f"s{index}": Party(Identity.new().public) for index in range(90)}
    members = {name: Party(federation.keys[name].public) for name in federation.names} | invented
    terms = terms_of(federation, members=members, epsilon=8.0)
    assert own.policy.divisor(terms, "m0") == 1
    assert fingerprint(federation.keys["m1"].public) in own.policy.trusted
    federation.close()
