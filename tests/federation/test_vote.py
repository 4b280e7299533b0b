"""The vote on a candidate: a better router is accepted, a poisoned one is not, and a ballot gives no row away."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest

from attacks.poison import favored_model, forged, inflated
from fedrouter.engines.local import LocalFederation
from fedrouter.engines.summed import SummedFederation
from fedrouter.errors import BadInput, BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings, ask_statistics, remove_clients
from fedrouter.federation.families.kmeans import learn as learn_kmeans
from fedrouter.federation.middleware.transcript import Recorded, Shown, Transcript
from fedrouter.federation.middleware.validation import fault
from fedrouter.federation.plausibility import SHAPE, SPREAD, TOO_MANY
from fedrouter.federation.privacy.policy import CLEAR, OPEN
from fedrouter.federation.rederivation import Rederivation
from fedrouter.federation.secagg.server import Secure
from fedrouter.federation.verbs.vote import VoteRequest
from fedrouter.federation.vote import BETTER, UNDECIDED, WORSE, ask_vote
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.testing.engines import content

POOL = ModelPool(["small", "medium", "large"])
PRICES = np.array([1e-4, 1e-3, 1e-2])
# A choice changes for a whole cluster, so no query of a small log has too much say.
SETTINGS = KMeansSettings(k_local=6, k_global=8)


def log(queries=250, seed=0):
    """One answer a query; each model is good in its own direction."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, 6)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    model = draw.integers(0, 3, queries)
    accuracy = (embeddings[np.arange(queries), model] * 3 + draw.normal(0, 0.3, queries) > 0).astype(float)
    return Evaluations(POOL, embeddings, np.arange(queries), model, accuracy, PRICES[model])


LOGS = {f"client-{index}": log(seed=index) for index in range(4)}


def clients(served=None, **settings):
    return [Client(name, rows, in_service=lambda: served, **settings) for name, rows in LOGS.items()]


def learned(logs=LOGS):
    return learn_kmeans(LocalFederation([Client(name, rows) for name, rows in logs.items()]), POOL, SETTINGS, 0)


def poisoned():
    """The router that everybody would get if client-0 made the worst model look perfect, with many invented rows."""
    rows = LOGS["client-0"]
    favored = favored_model(Evaluations.concatenate(list(LOGS.values())))
    liar = Evaluations.concatenate([inflated(rows, favored, PRICES[favored])] * 20)
    return learned(LOGS | {"client-0": liar})


def subtracting(policy=CLEAR):
    """Clients that can take their own sums out of a K-Means router."""

    def without(name, rows):
        return lambda router: remove_clients(router, LocalFederation([Client(name, rows, policy)]))

    return [Client(name, rows, policy, without_own=without(name, rows)) for name, rows in LOGS.items()]


def test_what_the_others_rows_give_is_the_total_over_members_and_nobodys_own():
    router = learned()
    request = VoteRequest.of(router)
    ballots = [client.answer("vote", request) for client in subtracting()]
    assert [ballot.compared for ballot in ballots] == [250] * 4
    (total,) = Secure(LocalFederation(subtracting())).ask("vote", request).values()
    assert content(total) == content(replace(reduce(add, ballots)))
    whole = ask_vote(SummedFederation(subtracting()), router).from_others
    assert whole.queries == 1000
    assert [one["tradeoff"] for one in whole.changes] == list(request.tradeoffs)
    mean = sum(ballot.got_accuracy.totals()[0, 0] for ballot in ballots) / 1000
    first = whole.changes[0]
    assert first["accuracy"] == pytest.approx(mean)
    assert first["accuracy"] - first["accuracy_error"] > 0.02  # models are good in their own directions


def test_who_cannot_take_its_rows_out_votes_and_says_nothing_about_the_others():
    def fails(router):
        raise BadInput("another log")

    for without in (None, fails):
        members = [Client(name, rows, without_own=without) for name, rows in LOGS.items()]
        found = ask_vote(LocalFederation(members), learned())
        assert found.outcome == BETTER
        assert found.from_others is None
        assert found.to_json()["from_others"] is None


def test_a_ballot_with_impossible_gains_is_invalid():
    request = VoteRequest.of(learned())
    ballot = subtracting()[0].answer("vote", request)
    assert fault("vote", request, ballot) is None
    huge = ExactSums(ballot.got_accuracy.limbs * 10**6).carried()
    assert fault("vote", request, replace(ballot, got_accuracy=huge)) == SPREAD
    assert fault("vote", request, replace(ballot, compared=ballot.count + 1)) == TOO_MANY
    assert fault("vote", request, replace(ballot, got_cost=ExactSums.zeros((9, 2)))) == SHAPE


def test_a_router_that_beats_single_models_is_accepted_as_the_first():
    found = ask_vote(LocalFederation(clients()), learned())
    assert found.outcome == BETTER
    assert found.queries == sum(rows.queries for rows in LOGS.values())
    assert found.accuracy[0] > 0.05


def test_the_router_in_service_is_no_better_than_itself():
    router = learned()
    found = ask_vote(LocalFederation(clients(router)), router)
    assert (found.outcome, found.low, found.high, found.objected) == (UNDECIDED, 0, 0, False)


def test_a_poisoned_router_is_rejected():
    assert ask_vote(LocalFederation(clients(learned())), poisoned()).outcome == WORSE
    assert ask_vote(LocalFederation(clients()), poisoned()).outcome == WORSE


def test_the_total_under_masks_is_the_total():
    pytest.importorskip("cryptography")
    router = learned()
    plain, secure = (ask_vote(around(LocalFederation(clients())), router) for around in (lambda wire: wire, Secure))
    assert plain == secure


def test_a_client_objects_if_it_is_worse_off_than_it_tolerates():
    bad, service = VoteRequest.of(poisoned()), learned()
    strict, lenient = (
        Client("client-1", LOGS["client-1"], in_service=lambda: service, tolerance=tolerance).answer("vote", bad)
        for tolerance in (0.0, 2.0)
    )
    assert strict.objection > 0
    assert lenient.objection == 0
    assert strict.gain == lenient.gain


def test_a_tolerance_that_is_no_number_is_refused():
    for wrong in ("much", -1, float("nan")):
        with pytest.raises(BadInput, match="tolerance: expected a number of at least 0"):
            Client("one", log(), tolerance=wrong)


class Liar(Client):
    """Votes what it likes, without the checks of an honest client."""

    def __init__(self, *parts, **ballot):
        super().__init__(*parts)
        self.ballot = ballot

    def answer(self, verb, request, hidden=False):
        return forged(super().answer(verb, request, hidden), **self.ballot)


PRAISE = {"count": 1000, "gain": ExactSums.of(np.array([1000.0, 1000.0]), np.arange(2), 2)}


def lied(router, served, **ballot):
    liar = Liar("client-0", LOGS["client-0"], **ballot)
    return ask_vote(SummedFederation([liar, *clients(served)[1:]]), router)


def test_a_liar_can_praise_a_router_and_block_one():
    router = learned()
    assert lied(router, router, **PRAISE).outcome == BETTER
    assert lied(router, None).outcome == BETTER
    assert lied(router, None, objection=1).outcome == WORSE


@pytest.mark.parametrize("guess", [0, -1, -2, -(2**39)])
def test_a_liar_cannot_cancel_an_objection(guess):
    """Under masks it can send any number, also a negative one; but it does not know what it would have to cancel."""
    try:
        assert lied(poisoned(), learned(), objection=guess, **PRAISE).outcome == WORSE
    except BadMessage:  # a total below zero shows the lie
        assert guess < 0


def test_two_objections_of_the_same_client_are_not_the_same_number():
    request, service = VoteRequest.of(poisoned()), learned()
    found = {clients(service)[1].answer("vote", request).objection for _ in range(3)}
    assert len(found) == 3


def crafted(victim, row, model, other):
    """Two routers that differ at one query of the victim, and nowhere else."""
    centres = victim.embeddings
    size = len(centres)

    def router(there):
        best = np.full(size, other)
        best[row] = there
        query, column = np.divmod(np.arange(3 * size), 3)
        rows = Evaluations(POOL, centres, query, column, column == best[query], np.full(3 * size, 1e-6))
        known = Evaluations.concatenate([rows] * 10)
        return KMeansRouter(POOL, centres, ask_statistics(LocalFederation([Client("x", known, OPEN)]), centres, POOL))

    return router(model), router(other)


def test_a_vote_is_cast_again_on_the_same_candidate():
    voter, request = clients()[0], VoteRequest.of(learned())
    first, second = (voter.answer("vote", request) for _ in range(2))
    assert first.count
    assert first.accuracy == second.accuracy


def test_votes_do_not_limit_what_learning_may_send():
    voters = clients()
    learn_kmeans(LocalFederation(voters), POOL, SETTINGS, 0)
    ask_vote(LocalFederation(voters), poisoned())
    again = learn_kmeans(LocalFederation(voters), POOL, SETTINGS, 0)
    assert all(np.array_equal(again.arrays()[name], array) for name, array in learned().arrays().items())


def test_nobody_with_enough_queries_decides_nothing():
    few = LocalFederation([Client("one", log(queries=12), OPEN)])
    assert ask_vote(few, learned()).outcome == UNDECIDED


def followed(change=lambda router: router):
    members = [Client(name, rows, rederivation=Rederivation(name)) for name, rows in LOGS.items()]
    transcript = Transcript()
    transcript.begin("kmeans", SETTINGS.to_json(), 0, POOL, tuple(LOGS))
    wire = LocalFederation(members)
    shown = Recorded(Shown(Secure(wire), transcript), transcript)
    return ask_vote(shown, change(learn_kmeans(shown, POOL, SETTINGS, 0)))
