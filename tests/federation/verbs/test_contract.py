"""Every verb keeps the contract: complete records, honest sizes, true sums, stated protection, explicit refusals."""

from dataclasses import fields, replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from federation.verbs.requests import requests
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import STATISTICS
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.validation import Checked, fault, most_bytes, odd_ones_out
from fedrouter.federation.privacy.policy import CLEAR, OPEN, PrivacyPolicy
from fedrouter.federation.secagg.server import Secure
from fedrouter.federation.verbs.agree import Agreement, AgreeRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.verb import (
    MinimumSizes,
    NoRows,
    OwnNoise,
    SecureSum,
    ShowsEmbeddings,
)
from fedrouter.testing.verbs import check_messages, check_record, check_verb

REQUESTS = requests()
STEPS = ("shares", "deliver", "masked", "agree", "unmask")


@pytest.mark.parametrize("name", REQUESTS)
def test_a_verb_keeps_the_contract(name):
    check_verb(VERBS[name], drawn_evaluations(queries=200, seed=4), REQUESTS[name])


@pytest.fixture(scope="module")
def session():
    """The messages of one secure aggregation, and of the step that is only taken by clients with long-term keys."""

    seen = {}

    class Recorder(LocalFederation):
        def ask(self, verb, payload, to=None):
            replies = super().ask(verb, payload, to)
            seen[verb] = (payload, replies)
            return replies

    members = Recorder(Client(f"client-{seed}", drawn_evaluations(seed=seed), OPEN) for seed in range(4))
    Secure(Checked(members), joint=False).ask("costs", REQUESTS["costs"])
    seen["agree"] = (AgreeRequest("a session", 0, ("a", "b"), ("a", "b")), {"a": Agreement(np.ones(96, np.uint8))})
    return seen


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_secure_aggregation_keeps_the_contract(name, session):
    check_record(VERBS[name])
    request, replies = session[name]
    assert replies
    for reply in replies.values():
        check_messages(VERBS[name], request, reply)


def test_every_verb_is_checked():
    assert set(VERBS) == {*REQUESTS, *STEPS}


@pytest.mark.parametrize(
    "wrong",
    [
        {"secure_sum": None},
        {"embeddings": None},
        {"faults": None},
        {"leaves": " "},
        {"name": "two words"},
        {"request": int},
        {"disclosure": NoRows("")},
        {"disclosure": MinimumSizes((), "applies none, but may read rows")},
        {"disclosure": MinimumSizes(("rows",), "a size that there is not")},
        {"disclosure": MinimumSizes("cell", "its letters are no sizes")},
        {"disclosure": OwnNoise(" ")},
        {"secure_sum": SecureSum(None, None, None, True)},
        {"embeddings": ShowsEmbeddings(None, None)},
    ],
)
def test_a_record_that_leaves_something_out_is_refused(wrong):
    with pytest.raises(BadInput, match="verb"):
        replace(STATISTICS, **wrong)


def test_an_unknown_verb_is_refused_everywhere(tmp_path):
    members = LocalFederation(Client(f"client-{seed}", drawn_evaluations(seed=seed), OPEN) for seed in range(4))
    request = CostsRequest(("model-0",))
    reply = members.ask("costs", request)["client-0"]
    for federation in (
        members,
        Checked(members),
        Secure(members),
        Checkpointed(members, tmp_path),
    ):
        with pytest.raises(BadMessage, match="unknown verb 'dump'"):
            federation.ask("dump", request)
    for refused in (
        lambda: fault("dump", request, reply),
        lambda: most_bytes("dump", request),
        lambda: odd_ones_out("dump", {"client-0": reply}),
        lambda: Client("one", drawn_evaluations(), OPEN).answer("dump", request),
    ):
        with pytest.raises(BadMessage, match="unknown verb 'dump'"):
            refused()
    assert not any(path.suffix for path in tmp_path.iterdir())


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), None])
def test_a_verb_whose_largest_reply_is_no_whole_number_is_refused(changed_verb, limit):
    changed_verb(most_bytes=lambda request: limit)
    with pytest.raises(BadInput, match="most_bytes"):
        fault("statistics", REQUESTS["statistics"], ask_statistics(OPEN))


@pytest.fixture
def changed_verb(monkeypatch):
    """Puts a changed record of ``statistics`` in the place of the true one."""

    def change(**changes):
        record = replace(STATISTICS, **changes)
        monkeypatch.setitem(VERBS._loaded, record.name, record)
        return record

    return change


def ask_statistics(privacy=CLEAR):
    return Client("one", drawn_evaluations(queries=200), privacy).answer("statistics", REQUESTS["statistics"])


def test_an_answer_that_reads_rows_although_it_states_none_is_refused(changed_verb):
    changed_verb(disclosure=NoRows("so it says"))
    for privacy in (CLEAR, OPEN):
        with pytest.raises(Refused, match="reads no rows"):
            ask_statistics(privacy)


def test_an_answer_that_passes_on_the_reply_to_another_verb_is_refused(changed_verb):
    other = REQUESTS["costs"]
    changed_verb(disclosure=NoRows("so it says"), answer=lambda client, request: client.answer_hidden("costs", other))
    for privacy in (OPEN, PrivacyPolicy(secure_only=True)):
        client = Client("one", drawn_evaluations(queries=200), privacy)
        with pytest.raises(Refused, match="masks the reply"):
            client.answer("statistics", REQUESTS["statistics"], hidden=True)


def test_an_answer_of_another_type_than_stated_is_refused(changed_verb):
    other = VERBS["costs"].answer
    changed_verb(answer=other)
    with pytest.raises(Refused, match="its answer is a Costs"):
        ask_statistics(OPEN)


def test_sums_of_disjoint_rows_are_the_sums_of_all_rows():
    rows = drawn_evaluations(queries=200, seed=3)
    halves = [rows.take(np.flatnonzero(rows.query % 2 == side)) for side in (0, 1)]
    for name in ("statistics", "costs", "release"):
        whole, one, other = (Client("one", own, OPEN).answer(name, REQUESTS[name]) for own in (rows, *halves))
        for part in (part for part in fields(whole) if part.name not in ("width", "dimension")):
            assert np.array_equal(content(getattr(one + other, part.name)), content(getattr(whole, part.name)))


def content(value):
    return value.limbs if hasattr(value, "limbs") else value
