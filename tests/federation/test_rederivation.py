"""A client that derives the questions of a run answers honest ones, to the bit, and refuses all others."""

import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation import rederivation
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings, centroids_request
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Middleware, Question
from fedrouter.federation.middleware.transcript import Recorded, Shown, Transcript
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import CLEAR
from fedrouter.federation.rederivation import MOST_UNFINISHED, TOLERANCE, Rederivation, same_question
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.cost_totals import CostTotalsRequest
from fedrouter.federation.verbs.follow import FollowRequest
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.routers.mlp import CostScale, initial_weights
from fedrouter.testing.engines import content

NAMES = tuple(f"client-{index}" for index in range(4))
POOL = drawn_evaluations().pool
EXACT = replace(CLEAR, noise=None)
SETTINGS = {
    "kmeans": KMeansSettings(k_local=4, k_global=5),
    "bayes": FAMILIES["bayes"].settings(),
    "mlp": MLPSettings(rounds=2, hidden=(8,), participation=0.8),
}


def clients(identities=None, verify=None, memory=None):
    known = identities or dict.fromkeys(NAMES)
    logs = {name: drawn_evaluations(queries=80, dimension=6, seed=seed) for seed, name in enumerate(NAMES)}
    return [
        Client(
            name,
            log,
            EXACT,
            memory=memory if name == NAMES[0] else None,
            identity=known[name],
            rederivation=Rederivation(name, known[name], verify),
        )
        for name, log in logs.items()
    ]


@pytest.fixture(scope="module")
def identities():
    """Each client's key, and those of all others, which they have exchanged."""
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    from fedrouter.federation.secagg.identity import CURVE, Identity

    keys = {name: ec.generate_private_key(CURVE) for name in NAMES}
    return {name: Identity(key, {n: k.public_key() for n, k in keys.items()}) for name, key in keys.items()}


class Unmasked(LocalFederation):
    """Totals as secure aggregation gets them, by the same checks of a question, without making masks."""

    def ask(self, verb, payload, to=None):
        from fedrouter.federation.verbs.registry import verb_named
        from fedrouter.federation.verbs.verb import SecureSum

        asked = verb_named(verb)
        if not isinstance(asked.secure_sum, SecureSum):
            return super().ask(verb, payload, to)
        names = sorted(self.clients() if to is None else to)
        vectors = [
            asked.secure_sum.flatten(payload, self._clients[name].reply_to_mask(verb, payload), len(names))
            for name in names
        ]
        return {EVERYONE: asked.secure_sum.unflatten(payload, np.sum(vectors, axis=0, dtype=np.uint64), len(names))}


def followed(family, federation, seed=3, change=None, sign=None):
    """Learn with clients that are shown the run; ``change`` bends the federation that learning asks."""
    transcript = Transcript(sign=sign)
    transcript.begin(family, SETTINGS[family].to_json(), seed, POOL, NAMES)
    shown = Shown(federation, transcript)
    recorded = Recorded(change(shown) if change else shown, transcript)
    return FAMILIES[family].learn(recorded, POOL, SETTINGS[family], seed)


@pytest.mark.parametrize("family", SETTINGS)
def test_honest_runs_are_answered_as_if_nobody_checked(family):
    trusting = Unmasked(
        Client(one.name, drawn_evaluations(queries=80, dimension=6, seed=seed), EXACT)
        for seed, one in enumerate(clients())
    )
    expected = FAMILIES[family].learn(trusting, POOL, SETTINGS[family], 3).arrays()
    found = followed(family, Unmasked(clients())).arrays()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name], equal_nan=True) for name in found)


def test_honest_runs_pass_real_masks():
    pytest.importorskip("cryptography")
    router = followed("kmeans", Secure(LocalFederation(clients())))
    assert router.sums.count.sum() == followed("kmeans", Unmasked(clients())).sums.count.sum()


@pytest.mark.parametrize("family", ["kmeans", "bayes"])
def test_honest_runs_with_signed_centroids_are_answered_as_without(family, identities):
    expected = followed(family, Unmasked(clients())).arrays()
    found = followed(family, Unmasked(clients(identities))).arrays()
    assert all(np.array_equal(found[name], expected[name], equal_nan=True) for name in expected)


class Altered(Middleware):
    """A coordinator that shows other centroids than the clients sent, and learns from them."""

    def __init__(self, federation, alter):
        self.federation, self.alter = federation, alter

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        answers = self.federation.ask_all(questions, to)
        return [self.alter(dict(a)) if q.verb == "cluster" else a for q, a in zip(questions, answers, strict=True)]


def moved(replies):
    first, *rest = replies
    return {first: replace(replies[first], centres=replies[first].centres + np.float32(0.1))} | {
        name: replies[name] for name in rest
    }


def exchanged(replies):
    return {**replies, "client-0": replies["client-1"], "client-1": replies["client-0"]}


def invented(replies):
    return {**replies, "client-9": replies["client-0"]}


def unsigned(replies):
    return {name: replace(reply, signature=np.zeros(0, np.uint8)) for name, reply in replies.items()}


@pytest.mark.parametrize("alter", [moved, exchanged, invented, unsigned])
def test_only_centroids_that_members_signed_are_learned_from(identities, alter):
    with pytest.raises(Refused, match="did not sign"):
        followed("kmeans", Unmasked(clients(identities)), change=lambda shown: Altered(shown, alter))


def test_kept_centroids_of_a_member_that_does_not_take_part_are_learned_from(identities):
    """Centroids are kept from run to run, while clients come and go."""
    kept = Unmasked(clients(identities)).ask("cluster", centroids_request(SETTINGS["kmeans"], seed=3))
    transcript = Transcript()
    transcript.begin("kmeans", SETTINGS["kmeans"].to_json(), 3, POOL, NAMES[:3])
    federation = Altered(Shown(Unmasked(clients(identities)[:3]), transcript), lambda _: kept)
    router = FAMILIES["kmeans"].learn(Recorded(federation, transcript), POOL, SETTINGS["kmeans"], 3)
    assert router.sums.count.any()


def test_centroids_signed_for_another_question_are_refused(identities):
    """Those of an earlier run, which had another seed."""
    old = Unmasked(clients(identities)).ask("cluster", centroids_request(SETTINGS["kmeans"], seed=2))
    with pytest.raises(Refused, match="did not sign"):
        followed("kmeans", Unmasked(clients(identities)), change=lambda shown: Altered(shown, lambda _: old))


class Bent(Middleware):
    """A coordinator that asks something else than learning does."""

    def __init__(self, federation, bend):
        self.federation, self.bend = federation, bend

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        return self.federation.ask_all([Question(one.verb, self.bend(one.verb, one.request)) for one in questions], to)


def moved_centre(verb, request):
    if verb != "statistics":
        return request
    centres = request.centres.copy()
    centres[0] += 0.01
    return replace(request, centres=centres)


def another_order(verb, request):
    """Of models: sums would be taken for another model's."""
    return replace(request, models=request.models[::-1]) if verb == "release" else request


@pytest.mark.parametrize(("family", "bend"), [("bayes", another_order), ("kmeans", moved_centre)])
def test_a_bent_question_is_refused(family, bend):
    with pytest.raises(Refused, match="does not follow from the run"):
        followed(family, Unmasked(clients()), change=lambda shown: Bent(shown, bend))


@pytest.fixture(scope="module")
def coordinator():
    """Signs as a coordinator, and verifies it."""
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hashes import SHA256

    key = ec.generate_private_key(ec.SECP256R1())

    def verify(statement, signature):
        try:
            key.public_key().verify(signature, statement, ec.ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True

    return (lambda statement: key.sign(statement, ec.ECDSA(SHA256()))), verify


@pytest.mark.parametrize("family", ["kmeans", "bayes"])
def test_signed_runs_are_answered_as_without_signatures(family, coordinator):
    sign, verify = coordinator
    expected = followed(family, Unmasked(clients())).arrays()
    found = followed(family, Unmasked(clients(verify=verify)), sign=sign).arrays()
    assert all(np.array_equal(found[name], expected[name], equal_nan=True) for name in expected)


@pytest.mark.parametrize("sign", [None, lambda statement: b"somebody else's"])
def test_a_run_that_the_coordinator_did_not_sign_is_refused(coordinator, sign):
    with pytest.raises(Refused, match="did not sign"):
        followed("kmeans", Unmasked(clients(verify=coordinator[1])), sign=sign)


class BentBelow(Unmasked):
    """Asks a little else than it has signed: within the rounding that the derivation allows."""

    def ask(self, verb, payload, to=None):
        if verb == "statistics":
            payload = replace(payload, centres=payload.centres + np.float32(1e-6))
        return super().ask(verb, payload, to)


def test_a_question_that_is_not_the_signed_one_is_refused(coordinator):
    sign, verify = coordinator
    followed("kmeans", BentBelow(clients()), sign=sign)
    with pytest.raises(Refused, match="does not follow from the run"):
        followed("kmeans", BentBelow(clients(verify=verify)), sign=sign)


def test_what_was_asked_and_shown_before_is_part_of_what_is_signed(coordinator):
    sign, verify = coordinator
    member, transcript = clients(verify=verify)[0], Transcript(sign=sign)
    transcript.begin("kmeans", SETTINGS["kmeans"].to_json(), 3, POOL, NAMES)
    asking = [Question("cluster", centroids_request(SETTINGS["kmeans"], 3))]
    member.answer("follow", transcript.question(NAMES[:1], asking).request)
    transcript.add(asking, [{NAMES[0]: member.answer("cluster", asking[0].request)}])
    honest = transcript.question(NAMES[:1]).request

    def signed_again(**changes):
        changed = replace(honest, **changes)
        return replace(changed, signature=sign(changed.statement()).hex())

    for lie, why in (
        (replace(honest, asked=(*honest.asked[:1], "a")), "did not sign"),
        (replace(honest, job=honest.job.replace('"seed": 3', '"seed": 4')), "another job"),
        (signed_again(before="a"), "signed another run than it shows"),
        (signed_again(asked=("a", "b")), "other questions than were asked"),
    ):
        with pytest.raises(Refused, match=why):
            member.answer("follow", lie)
    assert member.answer("follow", honest).known == 1


def test_the_journal_keeps_what_the_coordinator_signed(coordinator, tmp_path):
    """So that clients can compare: two chains that differ, both signed, prove that one of them was shown a forgery."""
    sign, verify = coordinator
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        followed("kmeans", Unmasked(clients(verify=verify, memory=journal)), sign=sign)
        kept = [journal.question(one.number)[1] for one in journal.questions() if one.verb == "follow"]
        digests = [one.digest for one in journal.questions() if one.verb != "follow"]
    proofs = [FollowRequest.unpack(packed) for packed in kept]
    assert [proof.step for proof in proofs] == [0, 1]
    assert all(verify(proof.statement(), bytes.fromhex(proof.signature)) for proof in proofs)
    assert digests == [digest for proof in proofs for digest in proof.asked[-1].split()]
    assert not any(proof.arrays or proof.exchanges for proof in proofs)


def test_a_question_of_another_run_is_refused():
    """The seed decides where K-means starts; a client that is shown one seed does not answer for another."""
    federation, transcript = Unmasked(clients()), Transcript()
    transcript.begin("kmeans", SETTINGS["kmeans"].to_json(), 3, POOL, NAMES)
    recorded = Recorded(Shown(federation, transcript), transcript)
    with pytest.raises(Refused):
        FAMILIES["mlp"].learn(recorded, POOL, SETTINGS["mlp"], 3)


def test_what_was_shown_cannot_be_shown_otherwise():
    member = clients()[0]
    transcript = Transcript()
    transcript.begin("mlp", {}, 0, POOL, NAMES)
    reply = member.reply_to_mask("cost_scale", CostScaleRequest(POOL.names))
    shown, other = ((("cost_scale", {EVERYONE: total}),) for total in (reply, reply + reply))
    assert member.answer("follow", FollowRequest.of("run", transcript.job, 0, [shown])).known == 1
    with pytest.raises(Refused, match="other replies than were shown before"):
        member.answer("follow", FollowRequest.of("run", transcript.job, 0, [other]))
    with pytest.raises(Refused, match="another job"):
        member.answer("follow", FollowRequest.of("run", transcript.job + " ", 1, []))


def test_without_a_run_masks_do_not_lift_the_rule_on_the_say():
    few = drawn_evaluations(queries=7, per_query=3, dimension=6)
    small = Client("client-0", few, rederivation=Rederivation("client-0"))
    scale = CostScale(np.full(3, 50), np.log([1e-5, 1e-4, 1e-3]), np.full(3, 0.3), np.ones(3))
    request = CostTotalsRequest(POOL.names, initial_weights(6, (4,), 3, 0), scale)
    assert not small.reply_to_mask("cost_totals", request).observed.limbs.any()
    assert Client("client-0", few).reply_to_mask("cost_totals", request).observed.limbs.any()


def test_a_client_that_restarts_is_shown_the_run_again():
    """Its part in the exchange under way is lost; the next one shows everything from the start."""
    transcript = Transcript()
    transcript.begin("kmeans", SETTINGS["kmeans"].to_json(), 3, POOL, NAMES)
    assert transcript.question(NAMES).request.start == 0
    transcript.exchanges, transcript.asked = [(("cluster", {}),), (("statistics", {}),)], ["a", "b"]
    transcript.known = {"client-0": 2, "client-1": 1}
    assert transcript.question(["client-0"]).request.start == 2
    assert len(transcript.question(["client-0", "client-1"]).request.exchanges) == 1
    assert transcript.question(NAMES).request.start == 0


def test_runs_that_compute_without_end_are_not_followed_side_by_side(monkeypatch):
    """A job may state any settings, and a coordinator may start run after run."""
    done = threading.Event()

    def endless(federation, *_):
        federation.ask("cluster", centroids_request(SETTINGS["kmeans"], 0))
        done.wait()

    monkeypatch.setattr(rederivation, "FAMILIES", {"kmeans": replace(FAMILIES["kmeans"], learn=endless)})
    run = Rederivation("client-0")
    for number in range(MOST_UNFINISHED + 1):
        transcript = Transcript()
        transcript.begin("kmeans", SETTINGS["kmeans"].to_json(), number, POOL, NAMES)
        transcript.add([Question("cluster", centroids_request(SETTINGS["kmeans"], 0))], [{}])
        request = transcript.question(["client-0"]).request
        if number < MOST_UNFINISHED:
            assert run.follow(request) == 1
        else:
            with pytest.raises(Refused, match="earlier runs still compute"):
                run.follow(request)
    done.set()


def test_rounding_is_tolerated_and_more_is_not():
    centres = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    most = np.abs(centres).max()
    asked = StatisticsRequest(centres, POOL.names)
    assert same_question(StatisticsRequest(centres + np.float32(most * TOLERANCE / 2), POOL.names), asked)
    assert not same_question(StatisticsRequest(centres + np.float32(most * TOLERANCE * 2), POOL.names), asked)
    assert not same_question(StatisticsRequest(centres, POOL.names[:2]), asked)
    assert not same_question(StatisticsRequest(centres[:2], POOL.names), asked)


def test_exchanges_survive_being_sent():
    replies = {
        one.name: one.answer("statistics", StatisticsRequest(np.zeros((1, 6), np.float32), POOL.names))
        for one in clients()
    }
    request = FollowRequest.of("run", "{}", 0, [(("statistics", replies),)])
    ((verb, back),) = FollowRequest.unpack(request.pack()).shown()[0]
    assert verb == "statistics"
    assert {name: content(reply) for name, reply in back.items()} == {n: content(r) for n, r in replies.items()}
