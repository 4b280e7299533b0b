"""What a log covers, counted; what joining adds, and errors on own rows that are not those of memory."""

import json
import math

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.coverage import (
    cover,
    errors,
    half_width,
    join,
    own_regions,
    partners,
    summary,
)
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families import auto, kmeans, query_blind
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.personalization import personalize
from fedrouter.pool import ModelPool


def federation(*logs):
    return LocalFederation(Client(f"client-{place}", log, OPEN) for place, log in enumerate(logs))


def test_every_row_is_in_one_cell_and_every_query_in_one_region():
    log = drawn_evaluations(200, 3, per_query=2)
    own = cover(log, own_regions(log, 20))
    assert own.rows == len(log) == 400
    assert own.queries.sum() == 200
    assert own.count.sum(axis=0).tolist() == np.bincount(log.model, minlength=3).tolist()
    assert [sum(many for _, many in tasks) for tasks in own.tasks] == own.queries.tolist()
    assert own.mean_distance > 0


def test_a_cells_accuracy_is_the_mean_of_its_rows_and_an_empty_cell_has_none():
    embeddings = np.array([[0.0], [0.1], [9.0]], np.float32)
    log = Evaluations(ModelPool(["a", "b"]), embeddings, [0, 1, 2], ["a", "a", "b"], [1.0, 0.0, 1.0], [0.1] * 3)
    own = cover(log, np.array([[0.0], [9.0]], np.float32))
    assert own.count.tolist() == [[2, 0], [0, 1]]
    assert own.accuracy[0, 0] == 0.5
    assert np.isnan(own.accuracy[own.count == 0]).all()
    assert own.half_width[0, 0] == pytest.approx(math.sqrt(math.log(40) / 4))
    assert np.isinf(own.half_width[0, 1])


def test_regions_are_as_many_as_the_queries_carry_the_largest_first():
    for queries, expected in ((1, 1), (49, 1), (100, 4), (2000, 20)):
        log = drawn_evaluations(queries, 3)
        centres = own_regions(log, 20)
        assert len(centres) == expected
        sizes = cover(log, centres).queries
        assert sizes.tolist() == sorted(sizes, reverse=True)
    assert len(own_regions(drawn_evaluations(2000, 3), 7)) == 7


def test_shares_of_cells_are_those_of_the_counts():
    found = summary(np.array([[0, 1, 4], [5, 0, 200]]))
    assert (found["empty"], found["few"], found["enough"]) == pytest.approx((2 / 6, 2 / 6, 2 / 6))
    assert (found["n_min"], found["median_rows"], found["median_filled"]) == (1, 2.5, 4.5)
    assert found["concentration"] == pytest.approx(2 * math.sqrt(math.log(2 * 6 / 0.05) / 2))
    assert found["median_half_width"] == pytest.approx(float(half_width(4.5)))


def test_regions_everybody_shares_are_found_in_a_router_a_blend_and_a_personal_one():
    log = drawn_evaluations(200, 3)
    router = kmeans.learn(federation(log), log.pool)
    assert router.cells().count is router.sums.count
    blend = auto.BlendRouter(log.pool, (query_blind.learn(federation(log), log.pool), router), (0.5, 0.5))
    assert blend.cells().centres is router.centres
    assert blend.cells().count is router.sums.count
    personal = personalize(router, log, "query_blind", query_blind.QueryBlindSettings())
    assert personal.federated_router() is router
    assert personal.cells().count is router.sums.count
    assert query_blind.learn(federation(log), log.pool).cells() is None


def test_joining_adds_the_federations_rows_cell_by_cell():
    theirs = drawn_evaluations(300, 4, seed=1)
    router = kmeans.learn(federation(theirs), theirs.pool)
    mine = drawn_evaluations(60, 2, seed=2)  # of the federation's first two models
    extra = Evaluations(
        ModelPool([*theirs.pool.names, "my-own"]),
        mine.embeddings,
        np.append(mine.query, 0),
        np.append(mine.model, 4),
        np.append(mine.accuracy, 1.0),
        np.append(mine.cost, 0.1),
    )
    own = cover(extra, router.centres)
    assert own.never_asked == ["model-2", "model-3"]
    joined = join(own, router.pool, router.cells(), took_part=False)
    assert joined.together.sum() == 300 + 61
    assert joined.federated[:, 4].sum() == 0
    assert joined.learned == ["model-2", "model-3"]
    empty = own.count == 0
    assert joined.filled == (empty & (joined.together > 0)).sum() > 0
    document = json.loads(json.dumps(joined.to_json(), allow_nan=False))
    assert document["after"]["empty"] < document["before"]["empty"]


def test_rows_that_may_be_in_the_bundle_already_are_not_counted_twice():
    log = drawn_evaluations(200, 3)
    router = kmeans.learn(federation(log, drawn_evaluations(200, 3, seed=1)), log.pool)
    own = cover(log, router.centres)
    for took_part in (True, None):
        assert join(own, router.pool, router.cells(), took_part).together.tolist() == router.sums.count.tolist()


def test_partners_under_the_stated_assumption():
    own = cover(log := drawn_evaluations(300, 3), own_regions(log, 4))
    found = {entry["partners"]: entry for entry in partners(own)}
    assert list(found) == [0, 1, 3, 10]
    assert found[0]["rows_per_cell"] == 300 / 12
    assert found[3]["concentration"] == pytest.approx(found[0]["concentration"] / 2)
    assert found[3]["half_width"] == pytest.approx(found[0]["half_width"] / 2)


def test_a_router_learnt_from_far_more_rows_of_the_same_kind_errs_less_than_ones_own():
    everyone = drawn_evaluations(4000, 3, seed=1)
    router = kmeans.learn(federation(everyone), everyone.pool)
    mine = drawn_evaluations(120, 3, seed=2)
    found = errors(mine, router, "kmeans", kmeans.KMeansSettings())
    assert found["rows"] + found["only_federated"] == 120
    assert found["gain_squared"]["mean"] > 0
    assert found["accuracy_squared"]["federated"] < found["accuracy_squared"]["alone"]
    assert sum(entry["rows"] for entry in found["models"]) == found["rows"]
    assert json.dumps(found, allow_nan=False)


def test_a_router_of_ones_own_is_not_judged_on_rows_it_remembers():
    """Answers by the toss of a coin: whoever has not seen them errs by at least a quarter, squared."""
    drawn = drawn_evaluations(200, 2, seed=3)
    coin = np.random.default_rng(0).integers(0, 2, len(drawn)).astype(float)
    log = Evaluations(drawn.pool, drawn.embeddings, drawn.query, drawn.model, coin, drawn.cost)
    settings = kmeans.KMeansSettings(k_local=100, k_global=100, paper=True)
    router = kmeans.learn(federation(log), log.pool, settings)
    found = errors(log, router, "kmeans", settings)
    assert found["accuracy_squared"]["alone"] > 0.25
    assert found["accuracy_squared"]["federated"] < 0.2  # it took part: why the report says that this flatters


def test_rows_of_a_model_that_only_the_federation_knows_are_told_apart():
    everyone = drawn_evaluations(600, 3, seed=1)
    router = kmeans.learn(federation(everyone), everyone.pool)
    mine = drawn_evaluations(60, 2, seed=2)
    rare = mine.over(everyone.pool)
    once = Evaluations(
        everyone.pool,
        rare.embeddings,
        np.append(rare.query, 0),
        np.append(rare.model, 2),
        np.append(rare.accuracy, 1.0),
        np.append(rare.cost, 0.1),
    )
    found = errors(once, router, "kmeans", kmeans.KMeansSettings())
    assert found["only_federated"] == 1
    assert "model-2" not in {entry["model"] for entry in found["models"]}
