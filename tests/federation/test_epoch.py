"""An epoch: its total is the plain sum, it resumes after any stop, and nothing leaves a member twice."""

import math
from datetime import UTC, datetime
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from federation.federations import DIMENSION, POOL, Federation, rows_of
from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.engines.local import EXACT, LocalFederation
from fedrouter.errors import BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.federation.epoch import NeedsConsent, TooFewLeft, TooFewRows
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import NothingToLearn
from fedrouter.federation.frame import Frame
from fedrouter.federation.member import EXCHANGES
from fedrouter.federation.noise import Noise, honest
from fedrouter.federation.total import Total, verified
from fedrouter.pool import ModelPool
from fedrouter.release import Release


@pytest.fixture
def make(tmp_path):
    made = []

    def one(count=3, **settings):
        made.append(Federation(tmp_path / str(len(made)), count, **settings))
        return made[-1]

    yield one
    for each in made:
        each.close()


@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_total_without_noise_is_the_plain_sum_to_the_bit(make, count):
    federation = make(count, epsilon=0.0)
    total = federation.run(epsilon=0.0)
    assert (total.vector == federation.exact()).all()
    assert total.survivors == tuple(federation.names)
    assert total.noise == 0
    for name in federation.names:
        (saved,) = verified(federation.folder / name / "totals", federation.signing.public)
        assert (saved.vector == total.vector).all()


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_every_allowed_dropout_leaves_the_sum_of_those_who_sent(make, exchange):
    for gone in combinations(range(4), 1):
        federation = make(4, epsilon=0.0)
        lost = {f"m{index}" for index in gone}
        total = federation.run(lambda at, name, lost=lost: name in lost and at == exchange, epsilon=0.0)
        stayed = [name for name in federation.names if name not in lost or exchange in ("agree", "unmask")]
        assert list(total.survivors) == stayed
        assert (total.vector == federation.exact(stayed)).all()


def test_three_of_ten_drop_out_one_after_another(make):
    """One never sends shares, one never its vector, one is gone before the masks are opened: seven are enough."""
    federation = make(10, epsilon=0.0)
    gone = {"m1": "shares", "m4": "masked", "m7": "agree"}
    order = [*EXCHANGES, "total"]
    total = federation.run(lambda at, name: name in gone and order.index(at) >= order.index(gone[name]), epsilon=0.0)
    stayed = [name for name in federation.names if gone.get(name) not in ("shares", "masked")]
    assert list(total.survivors) == stayed
    assert (total.vector == federation.exact(stayed)).all()
    with pytest.raises(TooFewLeft, match="shares: 6 members have answered, 7 are needed"):
        federation.run(lambda at, name: at != "keys" and name in ("m0", "m1", "m2", "m3"), epsilon=0.0)


def test_clocks_that_are_days_apart_delay_nothing(make):
    """A time limit is counted from a member's own first answer; nobody compares two clocks."""
    federation = make(3)
    federation.coordinator.now = lambda: 1_000_000.0
    federation.clock |= {"m0": 1_000_000.0 - 30 * 86_400, "m2": 1_000_000.0 + 30 * 86_400}
    for number in (1, 2):
        assert federation.run().survivors == tuple(federation.names)
        assert all(len(member.journal.releases()) == number for member in federation.members.values())
    assert all(member.journal.state(2) is None for member in federation.members.values())


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_an_epoch_resumes_after_everybody_was_killed(make, exchange):
    """Replies to one exchange are lost and all processes die; the same vectors make the total, and only once."""
    federation = make(3, epsilon=0.0)
    with pytest.raises(TooFewLeft) as error:
        federation.run(lambda at, name: at == exchange, epsilon=0.0)
    assert error.value.exchange == exchange
    federation.restart_coordinator()
    for name in federation.names:
        federation.open(name)
        federation.rows[name] = rows_of(99)  # what came to the log meanwhile waits for the next epoch
    total = federation.run(epsilon=0.0)
    assert total.epoch == 1
    if EXCHANGES.index(exchange) >= 2:
        federation.rows = {name: rows_of(index) for index, name in enumerate(federation.names)}
        assert (total.vector == federation.exact()).all()
    else:
        assert not total.vector.any()  # the log that was counted is gone
    assert all(len(member.journal.releases()) == 1 for member in federation.members.values())


def test_a_masked_vector_with_noise_is_the_same_when_asked_again(make):
    federation = make(3)
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "masked")
    (request,) = {federation.coordinator.requests(1, "masked")["m0"]}
    first = federation.members["m0"].answer(request)
    federation.open("m0")
    assert federation.members["m0"].answer(request) == first


def test_a_query_leaves_once(make):
    federation = make(3, epsilon=0.0)
    first = federation.run(epsilon=0.0)
    again = federation.run(epsilon=0.0)
    assert first.vector.any()
    assert not again.vector.any()
    # Another model's answers to old queries stay at home, new queries leave.
    old = federation.rows["m0"]
    every = Evaluations(
        POOL,
        old.embeddings,
        np.arange(old.queries),
        np.zeros(old.queries),
        np.ones(old.queries),
        np.ones(old.queries),
        text=old.text,
    )
    federation.rows["m0"] = Evaluations.concatenate([old, every, rows_of(50, 10)])
    third = federation.run(epsilon=0.0)
    assert (third.vector == Release.of(rows_of(50, 10), map_of_width(DIMENSION)).vector()).all()


def test_only_rows_of_models_that_a_member_declares_and_the_terms_name_leave_it(make):
    """Rule 3: a query that also other models answered counts as one of these alone; what only others answered waits."""
    federation = make(3, epsilon=0.0)
    wide = ModelPool([*POOL.names, "unnamed"])
    federation.rows["m0"] = rows_of(0, 60, wide)
    federation.rows["m1"] = federation.rows["m2"] = rows_of(1, 0)
    features, rows = map_of_width(DIMENSION), federation.rows["m0"]
    federation.change_policy("m0", models=("model-0", "unnamed"))
    total = federation.run(epsilon=0.0)
    first = rows.over(ModelPool(["model-0"])).over(POOL)
    assert (total.vector == Release.of(first, features).vector()).all()
    assert federation.members["m0"].journal.releases()[0].queries == len(np.unique(first.query))
    federation.change_policy("m0", models=POOL.names)
    rest = rows.of_queries(np.setdiff1d(np.arange(rows.queries), first.query)).over(POOL)
    total = federation.run(epsilon=0.0)
    assert "unnamed" in total.terms.models  # m0 said so in the epoch before
    assert (total.vector == Release.of(rest.over(total.terms.pool), features).vector()).all()
    assert total.vector.any()


def test_a_query_is_known_by_its_text_and_by_its_features(make):
    federation = make(3, epsilon=0.0)
    federation.run(epsilon=0.0)
    rows = federation.rows["m0"]
    moved = Evaluations(
        POOL, rows.embeddings + np.float32(0.01), rows.query, rows.model, rows.accuracy, rows.cost, text=rows.text
    )
    federation.rows["m0"] = moved
    assert not federation.run(epsilon=0.0).vector.any()
    federation.rows["m0"] = Evaluations(POOL, rows.embeddings, rows.query, rows.model, rows.accuracy, rows.cost)
    assert not federation.run(epsilon=0.0).vector.any()


def test_queries_with_the_same_text_are_one_unit(make):
    federation = make(3, epsilon=0.0)
    once = rows_of(7, 1)
    twice = Evaluations.concatenate([once, once])
    journal = federation.members["m0"].journal
    found = journal.new_queries(twice, "bayes")
    assert found.rows.queries == 1
    features = map_of_width(DIMENSION)
    assert (Release.of(found.rows, features).vector() == Release.of(once, features).vector()).all()


def test_noise_of_the_total_is_what_it_says(make):
    federation = make(10)
    total = federation.run()
    noise = Noise()
    assert total.noise == pytest.approx(noise.sigma * math.sqrt(10 / honest(10)), rel=1e-6)
    left = (total.vector - federation.exact()) / UNIT
    assert left.std() == pytest.approx(total.noise, rel=5 / math.sqrt(2 * len(left)))


def test_a_member_that_trusts_nobody_adds_all_of_the_noise(make):
    federation = make(5, trust=False)
    total = federation.run()
    assert total.noise == pytest.approx(Noise().sigma * math.sqrt(5), rel=1e-6)
    (release,) = federation.members["m0"].journal.releases()
    assert release.spent["deviation"] == pytest.approx(Noise().sigma)


def test_noise_of_others_that_trust_more_is_made_up_for(make):
    """Who trusts more members adds less noise; who counts on it must not count on more than it is."""
    federation = make(10)
    some = federation.members["m0"].policy.trusted
    federation.change_policy("m0", trusted=some[:8])
    federation.run()
    sigma, size = Noise().sigma, 10
    divisors = {name: honest(size, 8 if name == "m0" else 10) for name in federation.names}
    own = federation.members["m0"].journal.releases()[0].spent["deviation"]
    staying = honest(size, 8) - 1  # others that m0 trusts, that stay and do not collude
    assert own**2 + staying * sigma**2 / divisors["m1"] >= sigma**2 * (1 - 1e-9)


def test_too_few_rows_are_refused_and_few_need_a_word(make):
    federation = make(3, queries=30)
    with pytest.raises(TooFewRows, match=r"about \d+ new queries \(each .* with noise.*an epoch needs 1,000"):
        federation.run(least_rows=1_000)
    assert all(not member.journal.releases() for member in federation.members.values())
    federation = make(3, queries=120)
    with pytest.raises(NeedsConsent, match="noise of"):
        federation.run(consent=False)
    assert federation.run().epoch == 1


def test_a_run_too_short_after_the_last_one_says_when_and_why(make):
    """The time at which enough members take part again; one that is not there is named as what is missing, too."""
    federation = make(4, epsilon=0.0, interval_days=7.0)
    federation.clock |= {"m1": 1_000_000.0 + 3_600, "m2": 1_000_000.0 + 7_200, "m3": 1_000_000.0 + 86_400}
    federation.coordinator.now = lambda: 1_000_000.0
    federation.run(epsilon=0.0)
    with pytest.raises(TooFewLeft) as error:
        federation.run(epsilon=0.0)
    assert str(error.value) == (
        "epoch 2, keys: 0 members have answered, 3 are needed; m0, m1, m2, m3 took part too short a time ago for the "
        "policy there (`interval_days`); nothing has left. Run it again from 1970-01-19 15:47 UTC on"
    )
    with pytest.raises(TooFewLeft, match="Run it again from 1970-01-20 13:47 UTC on and when more are there, too"):
        federation.run(lambda at, name: name in ("m0", "m1"), epsilon=0.0)
    federation.change_policy("m0", interval_days=0.0)
    with pytest.raises(TooFewLeft, match=r"1 members .* m1, m2, m3 took .* from 1970-01-19 15:47 UTC on$"):
        federation.run(epsilon=0.0)
    at = datetime(1970, 1, 19, 15, 47, tzinfo=UTC).timestamp()
    federation.clock = dict.fromkeys(federation.clock, at)
    federation.coordinator.now = lambda: at
    assert federation.run(epsilon=0.0).survivors == ("m0", "m1", "m2")


def test_declared_numbers_are_rounded_and_have_noise(make):
    federation = make(3, queries=250)
    federation.run()
    declared = [member.journal.answers()[0].words for member in federation.members.values()]
    assert all("100 new queries" in words or "200 new queries" in words for words in declared)


def test_an_epoch_whose_time_is_over_is_lost_and_its_queries_with_it(make):
    federation = make(3, epsilon=0.0)
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "masked", epsilon=0.0, days=0.0001)
    federation.coordinator.now = lambda: 2e12
    total = federation.run(epsilon=0.0)
    assert total.epoch == 2
    assert not total.vector.any()


def test_a_run_that_ended_before_the_members_had_the_total_tells_them_and_opens_no_other_epoch(make):
    federation = make(3)
    total, link = None, federation.link()

    def cut(messages, seconds, on_reply):
        if Frame.unpack(next(iter(messages.values()))).kind == "total":
            raise KeyboardInterrupt
        link.exchange(messages, seconds, on_reply)

    federation.link = lambda lose: SimpleNamespace(exchange=cut)
    with pytest.raises(KeyboardInterrupt):
        federation.run()
    federation.restart_coordinator()
    federation.link = lambda lose: link
    total = federation.run()
    assert total.epoch == 1
    assert [state for _, state in federation.coordinator.history()] == ["done"]
    for member in federation.members.values():
        assert [each.pack() for each in member.totals] == [total.pack()]


def test_an_epoch_that_could_not_begin_gives_way_to_another_one(make):
    """A family that somebody refuses, or a member that is left out, does not block the federation for seven days."""
    federation = make(4, families=("bayes", "kmeans"))
    federation.change_policy("m0", families=("bayes",))
    federation.change_policy("m1", families=("bayes",))
    with pytest.raises(TooFewLeft):
        federation.run(family="kmeans", epsilon=0.0)
    total = federation.run()
    assert (total.epoch, total.terms.family, len(total.survivors)) == (2, "bayes", 4)
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: name in ("m2", "m3"))
    federation.write_roster(federation.names[:3])
    assert federation.run().epoch == 4
    assert [state for _, state in federation.coordinator.history()] == ["given up", "done", "given up", "done"]


def test_a_member_that_left_the_roster_is_asked_nothing_and_takes_part_again_once_it_is_back(make):
    federation = make(4, epsilon=0.0)
    federation.run(epsilon=0.0)
    asked = federation.members["m3"].journal.answers
    before = asked()
    federation.write_roster(federation.names[:3])
    federation.rows["m0"] = rows_of(50)
    assert federation.run(epsilon=0.0).survivors == ("m0", "m1", "m2")
    assert asked() == before
    assert not federation.members["m3"].journal.refusals()
    federation.write_roster(federation.names)
    federation.rows["m3"] = rows_of(60)
    total = federation.run(epsilon=0.0)
    assert total.survivors == tuple(federation.names)
    assert (total.vector == federation.exact(["m3"])).all()
    assert [each.epoch for each in federation.members["m3"].totals] == [1, 2, 3]


def test_an_epoch_in_which_numbers_were_sent_goes_on_whatever_is_asked_for(make):
    federation = make(3, epsilon=0.0)
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "masked", epsilon=0.0)
    total = federation.run(epsilon=8.0)
    assert (total.epoch, total.terms.epsilon) == (1, 0.0)
    assert (total.vector == federation.exact()).all()


def test_wrong_shares_lose_an_epoch_and_the_next_one_works(make):
    federation = make(3)
    member = federation.members["m2"]
    honest_answer = member.answer

    def liar(content):
        reply = Frame.unpack(honest_answer(content))
        if reply.kind != "unmask":
            return reply.pack()
        wrong = {name: share[:-1] + bytes([share[-1] ^ 1]) for name, share in reply.blobs("shares").items()}
        return Frame("unmask", {**reply.fields, "shares": wrong}).pack()

    member.answer = liar
    with pytest.raises(BadMessage, match="epoch 1 is lost"):
        federation.run()
    member.answer = honest_answer
    federation.rows = {name: rows_of(index + 50) for index, name in enumerate(federation.names)}
    assert federation.run().epoch == 2
    assert [state for _, state in federation.coordinator.history()] == ["lost", "done"]


def claimed(federation):
    return [event.words for event in federation.events if event.outcome == "claim"]


def test_an_epoch_says_what_it_promises_with_the_noise_that_is_in_it(make):
    """Rule 16, with the colluders that this epoch's noise is enough for, and rule 6, what trust would gain."""
    federation = make(10)
    federation.run(lambda at, name: name == "m9")
    promise, cost = claimed(federation)
    assert promise == (
        "For each query at each member, once and for ever: ε = 8 (δ = 1e-06), if no more than 4 of the 9 members in it "
        "collude with the coordinator. Somebody who knows all other queries can tell whether yours was there with AUC "
        "at most 0.86."
    )
    assert "trusted" not in cost  # everybody does
    assert f"noise of {Noise().total(10) * math.sqrt(0.9):.2f}" in cost
    federation = make(3, trust=False)
    federation.run()
    promise, cost = claimed(federation)
    assert "no more than 2 of the 3 members" in promise
    assert f"would be {Noise().total(3):.2f} if all members trusted each other" in cost


def test_a_claim_is_never_more_than_the_noise_that_any_honest_members_keep():
    noise = Noise()
    variance = noise.sigma**2
    assert "no more than 1 of the 4" in noise.claim([variance, variance / 2, variance / 3, variance / 3])
    assert "no more than 0 of the 2" in noise.claim([variance, variance / 2])
    assert "too little" in noise.claim([variance / 3] * 2)


def test_terms_of_a_member_that_missed_epochs_come_with_those_between(make):
    federation = make(4, epsilon=0.0)
    federation.run(epsilon=0.0)
    for _ in range(2):
        federation.run(lambda at, name: name == "m3", epsilon=0.0)  # it answers, and nobody hears it
    federation.run(epsilon=0.0)
    assert federation.members["m3"].journal.last_terms().epoch == 4
    assert {total.epoch for total in federation.members["m3"].totals} == {1, 2, 3, 4}


def test_a_reply_of_garbage_counts_as_none(make):
    federation = make(4, epsilon=0.0)
    member = federation.members["m2"]
    honest_answer = member.answer

    def garbage(content):
        reply = Frame.unpack(honest_answer(content))
        return reply.pack() if reply.kind != "masked" else Frame("masked", {**reply.fields, "masked": b"123456"}).pack()

    member.answer = garbage
    total = federation.run(epsilon=0.0)
    assert total.survivors == ("m0", "m1", "m3")
    assert any(event.outcome == "invalid" for event in federation.events)


def test_a_total_is_read_back_and_an_altered_one_is_refused(make, tmp_path):
    federation = make(3)
    total = federation.run()
    total.save(tmp_path / "totals")
    again = Total.load(tmp_path / "totals", 1)
    again.verify(federation.signing.public)
    assert again.pack() == Total.unpack(total.pack()).pack()
    again.vector[0] += 1
    with pytest.raises(BadMessage, match="did not sign"):
        again.verify(federation.signing.public)


FIXED, CHOSEN, NETWORK = {"k_local": 4, "k_global": 3}, {"k_local": 4}, {"hidden": [8], "rounds": 2}


@pytest.mark.parametrize(
    ("family", "settings", "cut"),
    [
        ("kmeans", FIXED, None),
        ("kmeans", CHOSEN, "ask 1"),
        ("kmeans", FIXED, "masked"),
        ("mlp", NETWORK, None),
        ("mlp", NETWORK, "ask 2"),
    ],
)
def test_a_family_of_the_paper_learns_over_the_wire_what_it_learns_in_process(make, family, settings, cut):
    """To the bit, also where all replies to an exchange were lost and everybody was killed."""
    federation = make(4, families=("bayes", "kmeans", "mlp"), epsilon=0.0)
    settings = {**settings, "seed": 3}
    if cut:
        lost = set()

        def lose(at, name):
            number = federation.coordinator.requests(1, cut)
            if at == cut.split()[0] and number and name not in lost:
                lost.add(name)
                return True
            return False

        with pytest.raises(TooFewLeft):
            federation.run(lose, family=family, settings=settings)
        federation.restart_coordinator()
        for name in federation.names:
            federation.open(name)
    total = federation.run(family=family, settings=settings)
    kind = FAMILIES[family]
    chosen = kind.settings.from_json(settings)
    expected = kind.learn(LocalFederation(federation.rows, EXACT), POOL, chosen, 3)
    found = total.made().arrays()
    assert found.keys() == expected.arrays().keys()
    assert all(np.array_equal(array, found[name]) for name, array in expected.arrays().items())
    assert all(len(member.journal.releases()) == 1 for member in federation.members.values())
    # The same rows once more: they have taken part in this family, but not in another one.
    with pytest.raises(NothingToLearn):
        federation.run(family=family, settings=settings)


def test_members_answer_nothing_of_a_family_that_their_policy_does_not_list(make):
    federation = make(3)
    with pytest.raises(TooFewLeft):
        federation.run(family="kmeans")
    assert [event.words for event in federation.events if event.member] == ["family"] * 3  # and nobody was silent
