"""Joint sums: one exchange if everyone answers, nothing readable if not, and only of what needs no masks."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from federation.secagg.test_secure_sums import (
    EXACT,
    NAMES,
    POOL,
    STATISTICS,
    TOTALS,
    Counting,
    Wire,
    clients,
    masked_request,
    prepared,
    table,
    unmask_request,
)
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Question
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.secagg.graph import COMPLETE
from fedrouter.federation.secagg.server import Secure
from fedrouter.federation.secagg.server_session import TooFewLeft
from fedrouter.federation.secagg.session import Session
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.masked import MaskedRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.verb import MinimumSizes, SecureSum
from fedrouter.federation.vote import ask_vote


@pytest.mark.parametrize(
    ("name", "settings", "learning"),
    [
        ("kmeans", FAMILIES["kmeans"].settings(), 3),
        ("bayes", FAMILIES["bayes"].settings(), 4),
    ],
)
def test_a_run_takes_three_exchanges_for_kmeans_and_four_for_bayes_and_one_to_vote(name, settings, learning):
    federation = Counting(clients(EXACT))
    secure = Secure(federation)
    secure.ask("hello", HelloRequest())
    router = FAMILIES[name].learn(secure, POOL, settings, 0)
    assert len(federation.exchanges) == learning
    plain = FAMILIES[name].learn(LocalFederation(clients(EXACT)), POOL, settings, 0)
    for key, array in router.arrays().items():
        assert array.tobytes() == plain.arrays()[key].tobytes()
    assert ask_vote(secure, router).queries
    assert len(federation.exchanges) == learning + 1


def test_questions_that_masks_ease_are_never_asked_jointly():
    federation = Counting(clients())
    secure = Secure(federation)
    for _ in range(2):
        secure.ask_all([Question("statistics", STATISTICS), Question("cost_totals", TOTALS)])
    assert federation.exchanges[2:] == [["deliver", "masked"], ["unmask"], ["masked"], ["unmask"]]


@pytest.mark.parametrize("lost", [["client-2"], [NAMES[0]]])
def test_if_one_does_not_answer_the_others_are_asked_again_for_a_total_of_theirs(lost):
    wire = Wire(clients(), "masked", lost)
    secure = Secure(wire)
    total = secure.ask("statistics", STATISTICS)
    left = [name for name in NAMES if name not in lost]
    assert secure.answered == tuple(left)
    assert wire.asked["masked"].index == 1
    assert not wire.asked["masked"].joint
    assert table(total) == table(LocalFederation(clients()).ask("statistics", STATISTICS, to=left))
    wire.lost = ()
    assert table(secure.ask("statistics", STATISTICS)) == table(
        LocalFederation(clients()).ask("statistics", STATISTICS)
    )


def test_if_too_few_answer_nothing_more_is_asked():
    wire = Wire(clients(), "masked", NAMES[:2])
    with pytest.raises(TooFewLeft, match=r"4 clients were left at the step 'masked'"):
        Secure(wire).ask("statistics", STATISTICS)
    assert "unmask" not in wire.sent


def test_a_joint_sum_without_one_vector_is_noise_and_no_client_helps_to_read_it():
    group = prepared()
    joint = replace(masked_request(), joint=True)
    vectors = {client.name: client.answer("masked", joint).vector for client in group}
    whole, rest = (
        np.median(np.abs(np.sum([vectors[name] for name in names], axis=0, dtype=np.uint64).view(np.int64)))
        for names in (NAMES, NAMES[1:])
    )
    assert whole < 2**40  # sums of a few hundred rows
    assert rest > 2**60  # masks
    for client, survivors in zip(group, (NAMES, NAMES[:5]), strict=False):
        with pytest.raises(Refused, match=r"no sum is open at this step"):
            client.answer("unmask", unmask_request(survivors))


def test_who_was_not_asked_for_a_joint_sum_does_not_reveal_the_keys_of_those_that_were():
    """The shares that it holds are of other keys: with them, no mask of the joint sum can be computed."""
    group = prepared()
    some = tuple(NAMES[:5])
    sent = group[0].answer("masked", replace(masked_request(company=some), joint=True)).vector
    revealed = group[5].answer("unmask", unmask_request(NAMES[1:5], company=some))
    assert set(revealed.keys) == {NAMES[0]}
    again = prepared()
    assert not np.array_equal(sent, again[0].answer("masked", masked_request(company=some)).vector)
    held = Session.take(group[0]._memory)
    assert held.masking[0] == held.joint[0] == held.seeds[0] == ""


def eased():
    return [
        name
        for name, verb in VERBS.items()
        if isinstance(verb.secure_sum, SecureSum)
        and isinstance(verb.disclosure, MinimumSizes)
        and verb.disclosure.eased_by_masks
    ]


def test_a_client_refuses_a_joint_sum_of_what_masks_ease():
    assert set(eased()) == {"train", "cost_totals"}
    questions = [("cost_totals", TOTALS.pack())]
    with pytest.raises(Refused, match=r"only for what needs no masks"):
        prepared()[0].answer("masked", MaskedRequest.of("session", 0, tuple(NAMES), questions, joint=True))


def test_a_client_refuses_a_joint_sum_that_was_not_prepared():
    group = prepared()
    session = Session.take(group[0]._memory)
    session.joint = []
    session.keep(group[0]._memory)
    with pytest.raises(Refused, match=r"only for what needs no masks"):
        group[0].answer("masked", replace(masked_request(), joint=True))


def test_a_joint_vector_is_sent_once():
    group = prepared()
    group[0].answer("masked", replace(masked_request(), joint=True))
    with pytest.raises(Refused, match=r"this sum was asked for before"):
        group[0].answer("masked", masked_request())


def test_beyond_a_complete_graph_sums_are_unmasked():
    many = [client for part in range(3) for client in renamed(clients(), part)]
    assert len(many) > COMPLETE
    federation = Counting(many)
    Secure(federation).ask("cost_scale", CostScaleRequest(POOL.names))
    assert federation.exchanges == [["keys"], ["shares"], ["deliver", "masked"], ["unmask"]]


def renamed(group, part):
    return [Client(f"{client.name}-{part}", drawn_evaluations(queries=20, seed=part), OPEN) for client in group]
