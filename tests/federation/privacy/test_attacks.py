"""The attack suite: what leaves a client is attacked with floors and without, and must give nothing away with them.

Each claim stands beside the same attack without floors, which succeeds: an attack that never does shows nothing.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from attacks.forged import forged_weights
from attacks.hostile import CRAFTED, STOPPED, UnderMasks, evaluations
from attacks.passive import (
    MEMBERSHIP,
    SIZES,
    VICTIM,
    match,
    membership,
    observe,
    one_model_each,
    vectors_sent,
)
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.message import Request
from fedrouter.federation.privacy.policy import CLEAR, OPEN, PrivacyPolicy
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.frontier import sweep

FLOORS = CLEAR
SMALL = {"mlp": MLPSettings(rounds=2, hidden=(16,), participation=1.0)}
"""Settings that keep the quick tests quick."""


def company(log: Evaluations, rows: int, seed: int = 0):
    """A victim with so many queries, three others, and queries of the same kind that nobody has."""
    order = np.random.default_rng(seed).permutation(log.queries)
    victim, rest = np.split(order, [rows])
    logs = {VICTIM: one_model_each(log, victim, seed)}
    logs |= {f"other-{place}": one_model_each(log, rest[place * 60 : (place + 1) * 60], place) for place in range(3)}
    return logs, one_model_each(log, rest[-700:], seed)


def matched(log: Evaluations, rows: int, family: str, privacy: PrivacyPolicy):
    logs, _ = company(log, rows)
    heard = observe(family, logs, privacy, SMALL.get(family))
    return match(vectors_sent(heard, VICTIM, log.dimension), logs[VICTIM].embeddings)


@pytest.fixture(scope="module")
def mmlu(real_data):
    return read(real_data / "mmlu_pro.parquet").evaluations


@pytest.mark.parametrize("rows", SIZES)
def test_with_floors_no_centroid_is_an_embedding(world, rows):
    found = matched(world.evaluations, rows, "kmeans", FLOORS)
    assert found.sent
    assert found.equal == found.close == 0


def test_without_floors_a_small_client_sends_embeddings(world):
    assert matched(world.evaluations, 30, "kmeans", OPEN).equal > 3


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"kmeans"}))
def test_with_floors_nothing_that_any_family_sends_is_an_embedding(world, family):
    for rows in (30, 300):
        found = matched(world.evaluations, rows, family, FLOORS)
        assert found.equal == found.close == 0


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", SIZES)
def test_with_floors_nothing_that_any_family_sends_is_a_real_embedding(mmlu, family, rows):
    found = matched(mmlu, rows, family, FLOORS)
    assert found.sent or family != "kmeans"
    assert found.equal == found.close == 0


@pytest.fixture(scope="module")
def told(world):
    """The areas of each membership attack on a client of 100 queries, by what the client insists on."""
    logs, strangers = company(world.evaluations, 100)

    def areas(privacy, families, secure=False):
        found = {}
        for family in families:
            heard = observe(family, logs, privacy, SMALL.get(family), secure)
            attacks = [name for name, (sender, _) in MEMBERSHIP.items() if sender == family]
            found |= {name: membership(name, heard, logs[VICTIM], strangers)[0] for name in attacks}
        return found

    exact = replace(FLOORS, noise=None)
    return {
        "open": areas(OPEN, ["kmeans"]) | areas(exact, ["bayes"]),
        "floors": areas(FLOORS, ["kmeans", "bayes"]),
        "secure": areas(FLOORS, ("kmeans",), secure=True),
    }


def test_without_floors_members_can_be_told(told):
    assert told["open"]["statistics"] > 0.75
    assert told["open"]["centroids"] > 0.75
    assert told["open"]["release"] > 0.6


def test_with_floors_sums_tell_little_of_members(told):
    assert told["floors"]["statistics"] < 0.65


def test_with_noise_a_release_tells_little_of_members(told):
    assert told["floors"]["release"] < 0.6


def test_with_floors_centroids_tell_less_of_members(told):
    assert told["floors"]["centroids"] < told["open"]["centroids"] - 0.05


def test_under_secure_aggregation_statistics_tell_no_more_than_with_floors(told):
    assert told["secure"]["statistics"] < 0.6


@pytest.mark.parametrize("name", STOPPED)
def test_floors_stop_what_works_without_them(name):
    tries, won = STOPPED[name](OPEN)
    assert won == tries > 0
    tries, won = STOPPED[name](FLOORS)
    assert (won, tries > 0) == (0, True)


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_questions_work_without_protection_and_fail_with_it(name):
    tries, won = CRAFTED[name](OPEN, 3)
    assert won == tries
    assert CRAFTED[name](FLOORS, 3)[1] == 0
    for shown in ("", "kmeans"):  # masks alone, and with an honest run shown before
        assert CRAFTED[name](UnderMasks(shown=shown), 3)[1] == 0


def test_errors_about_bent_requests_hold_nothing_of_the_rows():
    """Every verb is asked with arrays of wrong widths, kinds, sizes and values, by a client whose rows are marked."""
    drawn = evaluations(0)
    marked = np.full_like(drawn.embeddings, 0.0)
    marked[:, 0] = 0.7351918
    canary = "zanzibar umbrella 7351"
    cost = np.full(len(drawn), 0.31415926)
    rows = Evaluations(
        drawn.pool, marked, drawn.query, drawn.model, drawn.accuracy, cost, text=(canary,) * drawn.queries
    )
    heard = []
    for privacy in (OPEN, FLOORS):
        client = Client("one", rows, privacy)
        for verb, request in bent_requests():
            try:
                client.answer(verb, request)
            except FedrouterError as error:
                heard.append(str(error))
    assert len(heard) > 10
    for secret in (canary, "7351918", "3141592"):
        assert not any(secret in text for text in heard)


def bent_requests():
    draw = np.random.default_rng(0)
    asked = ("model-0", "model-1", "model-2")
    for width in (1, 7, 9, 500):
        yield "statistics", StatisticsRequest(draw.normal(size=(3, width)).astype(np.float32), asked)
    for verb in VERBS:
        yield verb, Request()
        yield f"{verb}?", Request()
    for arrays in ({}, {"centres": np.zeros((2, 8), np.float64)}, {"centres": np.full((2, 8), np.nan, np.float32)}):
        for verb, record in VERBS.items():
            try:
                yield verb, record.request.unpack((arrays, json.dumps({"models": asked, "seed": 1})))
            except FedrouterError:
                continue  # refused before a client sees it


@pytest.mark.slow
def test_floors_cost_kmeans_less_than_a_hundredth(mmlu):
    losses = []
    for seed in range(3):
        clients = partition(mmlu, seed=seed)
        test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
        areas = []
        for privacy in (OPEN, FLOORS):
            federation = LocalFederation(Client(client.name, client.train, privacy) for client in clients)
            router = FAMILIES["kmeans"].learn(federation, mmlu.pool, FAMILIES["kmeans"].settings(), seed)
            areas.append(sweep(router.estimate(test.embeddings), test.grid()).measures.aiq)
        losses.append(areas[0] - areas[1])
    assert np.mean(losses) < 0.01


def test_weights_from_forged_updates_are_not_trained_on():
    pytest.importorskip("torch")
    assert forged_weights(OPEN, 1) == (1, 1)
    assert forged_weights(UnderMasks(), 3) == (3, 0)
