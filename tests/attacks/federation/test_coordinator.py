"""What a dishonest coordinator tries at real members, each attempt run to its end: scores stay as hidden as ε says."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from attacks.federation.test_membership import Attackers
from federation.federations import DIMENSION, POOL, Federation, refusal, rows_of
from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.evaluations import Evaluations
from fedrouter.federation.epoch import TooFewLeft
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity
from fedrouter.federation.noise import Noise
from fedrouter.federation.secagg.participant import Announcement, Participant, company, listing
from fedrouter.federation.secagg.primitives import (
    from_words,
    pair_mask,
    public_key,
    shared_secret,
    unpack_words,
)
from fedrouter.federation.secagg.secret_sharing import combine
from fedrouter.federation.terms import Party, Terms
from fedrouter.release import Release

TRIALS = 120


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path / "f", 4, trust=False)
    yield made
    made.close()


def vector(rows):
    return Release.of(rows.over(POOL), map_of_width(DIMENSION)).vector() / UNIT


def scored(rows, place, score):
    """The same rows with another accuracy in one of them."""
    accuracy = rows.accuracy.copy()
    accuracy[place] = score
    return replace(rows, accuracy=accuracy)


def guessed(shown, rows, place, deviation):
    """Whether the likelier of two scores is the true one, for who knows all else; and how often it is at most."""
    wrong, right = (vector(scored(rows, place, score)) for score in (0.0, 1.0))
    apart = right - wrong
    likelier = float(((shown - (right + wrong) / 2) @ apart) > 0)
    return likelier == rows.accuracy[place], math.erfc(-np.linalg.norm(apart) / (2 * deviation) / math.sqrt(2)) / 2


def hold(found):
    """The attack succeeds as often as the noise lets it, and never more often than the claim says."""
    hits, chances = np.array(found, float).T
    slack = 3 * 0.5 / math.sqrt(len(hits))
    assert chances.max() <= Noise().auc
    assert abs(hits.mean() - chances.mean()) <= slack


@pytest.mark.slow
def test_four_cohorts_show_nobodys_scores(tmp_path):
    """Exact sums of each followed from those of abc, abd, acd, bcd; now a query leaves once, and with noise."""
    from_sums, from_one = [], []
    for trial in range(TRIALS // 4):
        federation = Federation(tmp_path / str(trial), 4)
        federation.rows = {name: rows_of(4 * trial + place) for place, name in enumerate(federation.names)}
        rows, totals = federation.rows["m3"], []
        for left_out in ("m3", "m2", "m1", "m0"):
            federation.write_roster([name for name in federation.names if name != left_out])
            totals.append(federation.run())
        federation.close()
        shown = [total.vector / UNIT for total in totals]
        for place in range(4):
            target = int(np.random.default_rng(trial).integers(len(rows))) + place
            target %= len(rows)
            solved = (shown[1] + shown[2] + shown[3] - 2 * shown[0]) / 3
            from_sums.append(guessed(solved, rows, target, totals[1].noise)[0])
            # Only m3 has anything new in the second epoch: what protects it there is the noise, and nothing else.
            from_one.append(guessed(shown[1], rows, target, totals[1].noise))
    hold(from_one)
    assert np.mean(from_sums) <= Noise().auc


@pytest.mark.slow
def test_a_log_that_grew_by_one_query_hides_its_score(tmp_path):
    federation, found = Federation(tmp_path / "f", 3, trust=False), []
    attackers, log = Attackers(federation, 8.0), rows_of(1)
    attackers.hear(log)
    for trial in range(TRIALS):
        new = rows_of(1_000 + trial, 1)
        log = Evaluations.concatenate([log, new])
        sent, _ = attackers.hear(log)
        found.append(guessed(sent / UNIT, new, 0, Noise().sigma))
    federation.close()
    hold(found)


@pytest.mark.slow
def test_a_model_with_one_row_hides_its_score(tmp_path):
    federation, found = Federation(tmp_path / "f", 3, trust=False), []
    attackers = Attackers(federation, 8.0)
    for trial in range(TRIALS):
        common = rows_of(1_000 + trial)
        common = common.take(np.flatnonzero(common.model != 2))
        rare = rows_of(5_000 + trial, 1)
        rare = replace(rare.take(np.array([0])), model=np.array([2]))
        rows = Evaluations.concatenate([common, rare])
        sent, _ = attackers.hear(rows)
        (place,) = np.flatnonzero(rows.model == 2)
        found.append(guessed(sent / UNIT, rows, place, Noise().sigma))
    federation.close()
    hold(found)


def test_members_that_a_coordinator_invents_do_not_lower_the_noise_of_a_real_one(tmp_path):
    """Seven of ten are made up: the real member's own vector still has all of the noise that ε asks for."""
    federation = Federation(tmp_path / "f", 3)
    federation.keys |= {f"s{index}": Identity.new() for index in range(7)}
    attackers = Attackers(federation, 8.0)
    rows = rows_of(3)
    sent, _ = attackers.hear(rows)
    left = sent / UNIT - vector(rows)
    federation.close()
    assert left.std() == pytest.approx(Noise().sigma, rel=5 / math.sqrt(2 * len(left)))


def test_an_epoch_of_two_gets_nothing(federation):
    """Neither terms of two, nor terms of three of whom one never comes."""
    attackers = Attackers(federation, 8.0)
    attackers.members = {name: attackers.members[name] for name in ("m0", "m1", "m2")}
    terms = Terms("test", 1, b"", attackers.members, dict.fromkeys(POOL.names, 3), "test-encoder", DIMENSION)
    document = json.loads(terms.content)
    del document["members"]["m2"]
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    two = {"content": content, "signature": federation.signing.sign("terms", content)}
    member = federation.members["m0"]
    assert refusal(member, Frame("keys", {"epoch": 1, "terms": [two]}).pack()) == "message"
    signed = terms.sign(federation.signing)
    announced = attackers_announce(federation, terms, ("m1",))
    attackers.epoch = 1
    own = attackers.ask("keys", terms=[{"content": signed.content, "signature": signed.signature}])
    announced["m0"] = own.blob("announcement")
    assert refusal(member, Frame("shares", {"epoch": 1, "announced": announced}).pack()) == "message"
    assert not member.journal.releases()


def attackers_announce(federation, terms, names):
    parts = {name: Participant(name, federation.keys[name], terms.digest, terms.keys) for name in names}
    return {name: part.announce(0, 1).pack() for name, part in parts.items()}


def test_other_terms_to_other_members_end_before_anything_leaves(federation):
    """Each member gets terms of its own; the announcements of the others were signed under other ones."""
    members = {name: Party(key.public) for name, key in federation.keys.items()}
    announced, epoch = {}, 1
    for opened, name in enumerate(federation.names):
        models = dict.fromkeys(POOL.names, 4)
        terms = Terms("test", epoch, b"", members, models, "test-encoder", DIMENSION, opened=opened)
        signed = terms.sign(federation.signing)
        chain = [{"content": signed.content, "signature": signed.signature}]
        asked = Frame("keys", {"epoch": epoch, "terms": chain}).pack()
        announced[name] = Frame.unpack(federation.members[name].answer(asked)).blob("announcement")
    for name in federation.names:
        asked = Frame("shares", {"epoch": epoch, "announced": announced}).pack()
        assert refusal(federation.members[name], asked) == "message"
        assert not federation.members[name].journal.releases()


def test_replayed_and_respelled_messages_give_the_same_bytes_or_nothing(federation):
    federation.run()
    first = {at: federation.coordinator.requests(1, at)["m0"] for at in ("keys", "shares", "masked", "agree", "unmask")}
    replies = {at: federation.coordinator.replies(1, at)["m0"] for at in first}
    federation.rows["m0"] = rows_of(90)
    federation.run()
    member = federation.members["m0"]
    before = [each.sent.tobytes() for each in member.journal.releases()]
    for at, asked in first.items():
        assert member.answer(asked) == replies[at]
        size = int.from_bytes(asked[4:8], "little") + 1  # one space more in the header
        spelled = asked[:4] + size.to_bytes(4, "little") + asked[8:].replace(b'"epoch":1', b'"epoch": 1', 1)
        assert refusal(member, spelled) in ("terms", "rollback")
    assert [each.sent.tobytes() for each in member.journal.releases()] == before


def test_a_second_list_of_survivors_is_opened_by_nobody(federation):
    """All vectors have come; one half is asked to agree to one list, the other half to another one."""
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "agree")
    lists = (["m0", "m1", "m2"], ["m1", "m2", "m3"], ["m0", "m1", "m2", "m3"])
    signatures = {index: {} for index in range(len(lists))}
    for index, survivors in enumerate(lists):
        for name in survivors:
            asked = Frame("agree", {"epoch": 1, "survivors": survivors}).pack()
            reply = Frame.unpack(federation.members[name].answer(asked))
            if reply.kind == "agree":
                signatures[index][name] = reply.blob("signature")
    # They had signed the full list before its replies were lost, so nobody signs another one.
    assert [len(each) for each in signatures.values()] == [0, 0, 4]
    some = dict(list(signatures[2].items())[:2])
    for name, member in federation.members.items():
        asked = Frame("unmask", {"epoch": 1, "signatures": some}).pack()
        assert refusal(member, asked) == "message", name
    assert federation.run().survivors == tuple(federation.names)


def test_a_member_that_did_not_drop_out_is_not_unmasked(federation):
    """The coordinator has its vector, says that it dropped out, and removes its pair masks: its own mask stays."""
    link = federation.link()
    heard = {}

    def exchange(messages, seconds, on_reply):
        def keep(name, reply):
            frame = Frame.unpack(reply)
            heard.setdefault(frame.kind, {})[name] = reply
            if (frame.kind, name) != ("masked", "m3"):  # heard, and denied
                on_reply(name, reply)

        link.exchange(messages, seconds, keep)

    federation.link = lambda lose: type("Denying", (), {"exchange": staticmethod(exchange)})
    total = federation.run()
    assert total.survivors == ("m0", "m1", "m2")
    terms = total.terms
    announced = {
        name: Announcement.unpack(Frame.unpack(each).blob("announcement")) for name, each in heard["keys"].items()
    }
    key = combine([Frame.unpack(heard["unmask"][name]).blobs("shares")["m3"] for name in total.survivors])
    assert public_key(key) == announced["m3"].mask
    masked = unpack_words(Frame.unpack(heard["masked"]["m3"]).blob("masked"))
    masks = company(listing(terms.digest, announced), list(announced))
    for other in total.survivors:
        masked = masked - pair_mask("m3", other, shared_secret(key, announced[other].mask), masks, len(masked))
    exact = vector(federation.rows["m3"])
    found = from_words(masked) / UNIT
    assert np.median(np.abs(found)) > 1e6 * np.abs(exact).max()
    # Its seed would open the rest; who has shares of it gives them for a list with m3 only, and has signed one without.
    for name in total.survivors:
        asked = Frame("agree", {"epoch": 1, "survivors": federation.names}).pack()
        assert refusal(federation.members[name], asked) in ("message", "over")


def test_a_journal_from_a_backup_and_an_old_state_of_the_coordinator_give_no_second_release_of_the_same_epoch(
    federation, tmp_path
):
    """Both sides go back to the day before; the member's next terms name a release that its journal does not have."""
    federation.run()
    member = federation.members["m0"]
    member.close()
    shutil.copy(federation.folder / "m0" / "journal.db", tmp_path / "backup")
    federation.open("m0")
    federation.rows["m0"] = rows_of(60)
    federation.run()
    sent = federation.members["m0"].journal.releases()[-1].sent
    federation.members["m0"].close()
    shutil.copy(tmp_path / "backup", federation.folder / "m0" / "journal.db")
    federation.open("m0")
    for at in ("keys", "shares", "masked"):  # the messages of the second epoch once more: a second draw of noise?
        reason = refusal(federation.members["m0"], federation.coordinator.requests(2, at)["m0"])
        if at != "keys":
            assert reason is not None
    assert not any((each.sent == sent).all() for each in federation.members["m0"].journal.releases())
    assert len(federation.members["m0"].journal.releases()) == 1
