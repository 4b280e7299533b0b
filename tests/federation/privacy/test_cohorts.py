"""The same question is not answered in two cohorts whose totals differ by one client."""

import json

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Question
from fedrouter.federation.middleware.transcript import Transcript
from fedrouter.federation.privacy.cohorts import Cohorts
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import CLEAR, PrivacyPolicy
from fedrouter.federation.rederivation import Rederivation
from fedrouter.federation.secagg.server import EVERYONE, Secure
from fedrouter.federation.secagg.server_session import ServerSession, TooFewLeft
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.cost_totals import CostTotalsRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.routers.mlp import CostScale, initial_weights

ALL = ("a", "b", "c", "d", "e")
MODELS = ("model-0", "model-1", "model-2")
SCALE = CostScale(np.full(3, 50), np.log([1e-5, 1e-4, 1e-3]), np.full(3, 0.3), np.ones(3))
COSTS = CostTotalsRequest(MODELS, initial_weights(6, (4,), 3, 0), SCALE)


def dollars(rows):
    """Sums of cost by model."""
    return np.bincount(rows.model, weights=rows.cost, minlength=3)


def cohorts(memory=None, rows=b"rows", least=3, gap=2):
    return Cohorts("a", memory or ShortMemory(), rows, least, gap)


def test_the_same_question_is_answered_again_in_the_same_cohort():
    mine = cohorts()
    for _ in range(2):
        mine.admit([b"question"], ALL, revealed=True)


@pytest.mark.parametrize("other", [ALL[:4], (*ALL, "f")])
def test_a_cohort_with_one_client_more_or_less_is_refused_for_the_same_question(other):
    mine = cohorts()
    mine.admit([b"question"], ALL, revealed=True)
    with pytest.raises(Refused, match="differs by 1"):
        mine.admit([b"question"], other)
    mine.admit([b"another"], other)


def test_cohorts_that_differ_by_enough_are_admitted():
    mine = cohorts()
    mine.admit([b"question"], ALL, revealed=True)
    mine.admit([b"question"], ALL[:3], revealed=True)
    with pytest.raises(Refused):
        cohorts(mine._memory, gap=3).admit([b"question"], ALL)


def test_nothing_is_remembered_before_a_total_is_revealed():
    mine = cohorts()
    mine.admit([b"question"], ALL)
    mine.admit([b"question"], ALL[:4], revealed=True)


def test_the_memory_outlives_the_object_and_counts_while_the_rows_are_the_same():
    memory = ShortMemory()
    cohorts(memory).admit([b"question"], ALL, revealed=True)
    with pytest.raises(Refused):
        cohorts(memory).admit([b"question"], ALL[:4])
    cohorts(memory, rows=b"more rows").admit([b"question"], ALL[:4])


def test_a_cohort_smaller_than_the_client_wants_is_refused():
    with pytest.raises(Refused, match="expected at least 4"):
        cohorts(least=4).admit([b"question"], ALL[:3])


def test_the_sums_of_a_client_do_not_come_back_from_two_cohorts():
    """The same question of all, and then of all but the victim; without the rule the difference is the victim's."""
    logs = {name: drawn_evaluations(queries=60, dimension=6, seed=seed) for seed, name in enumerate(ALL)}

    def totals(privacy):
        federation = LocalFederation([Client(name, log, privacy) for name, log in logs.items()])
        asked = (ALL, tuple(name for name in ALL if name != "c"))
        return [Secure(federation).ask("cost_totals", COSTS, to) for to in asked]

    every, fewer = (replies[EVERYONE] for replies in totals(PrivacyPolicy(cohort_gap=0, secure_only=False)))
    assert np.allclose((every.observed - fewer.observed).totals(), dollars(logs["c"]))
    assert totals(CLEAR)[1] == {}


def test_clients_that_were_not_asked_do_not_reveal_what_those_that_were_asked_withhold():
    """The same sum twice, the second time with the victim reported as dropped out.

    Those that were asked do not help to reveal the second total. The others hold enough shares to do it without them.
    """
    everyone = tuple("abcdefghijklmnop")
    company, victim = everyone[:4], "d"
    logs = {name: drawn_evaluations(queries=60, dimension=6, seed=seed) for seed, name in enumerate(everyone)}

    def totals(gap):
        clients = {
            name: Client(name, log, PrivacyPolicy(cohort_gap=gap, secure_only=False)) for name, log in logs.items()
        }
        session = ServerSession(everyone, 2, 0.5)
        silent = {}

        def exchange(questions):
            found = []
            for question in questions:
                asked = set(question.to or everyone) - silent.get(question.verb, set())
                replies = {name: clients[name].answer(question.verb, question.request) for name in sorted(asked)}
                if question.each is not None:
                    for name, reply in replies.items():
                        question.each(name, reply)
                found.append(replies)
            return found

        session.step(exchange, everyone)
        session.step(exchange, everyone)
        question = Question("cost_totals", COSTS)
        (every,), _ = session.total(exchange, [question], company)
        silent |= {"masked": {victim}, "unmask": set(company)}
        (fewer,), survivors = session.total(exchange, [question], company)
        assert survivors == ("a", "b", "c")
        sums = VERBS["cost_totals"].secure_sum
        return [sums.unflatten(question.request, part, size) for part, size in ((every, 4), (fewer, 3))]

    every, fewer = totals(gap=0)
    assert np.allclose((every.observed - fewer.observed).totals(), dollars(logs[victim]))
    with pytest.raises(TooFewLeft):
        totals(gap=2)


@pytest.mark.parametrize("spelling", ['{"models":  %s}', '{"models": [], "models": %s}'])
def test_a_question_that_is_spelled_otherwise_does_not_follow_from_the_run(spelling):
    """Cohorts are remembered by digests: another spelling of a question was another question, in any cohort."""
    log = drawn_evaluations(queries=60, dimension=6)
    family, transcript = FAMILIES["mlp"], Transcript()
    transcript.begin("mlp", family.settings().to_json(), 3, log.pool, ALL)
    mine = Client("a", log, rederivation=Rederivation("a"))
    first = CostScaleRequest(log.pool.names)
    asked = [first, CostScaleRequest.unpack(({}, spelling % json.dumps(log.pool.names)))]
    for request in asked:
        mine.answer("follow", transcript.question(["a"], [Question("cost_scale", request)]).request)
        if request is asked[0]:
            mine.reply_to_mask("cost_scale", request)
            continue
        with pytest.raises(Refused, match="does not follow from the run"):
            mine.reply_to_mask("cost_scale", request)
