"""The router of evidence: learned from sums, saved as sums, personal with a total beside own rows."""

import numpy as np
import pytest

from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import UNIT, FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.federation.noise import Noise
from fedrouter.pool import ModelPool
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter, Prior, weigh


def two_kinds(queries=1_500, seed=0, share=0.5):
    """Two kinds of queries; each of two cheap models is good at one, an expensive third at both."""
    draw = np.random.default_rng(seed)
    kind = (draw.random(queries) < share).astype(int)
    embeddings = (np.eye(8)[kind] + 0.05 * draw.normal(size=(queries, 8))).astype(np.float32)
    model = draw.integers(0, 3, queries)
    chance = np.array([[0.9, 0.2, 0.9], [0.2, 0.9, 0.9]])[kind, model]
    cost = np.array([1e-4, 1e-4, 1e-2])[model] * draw.lognormal(0, 0.5, queries)
    pool = ModelPool(["left", "right", "both"])
    return Evaluations(pool, embeddings, np.arange(queries), model, draw.random(queries) < chance, cost), kind


def test_it_routes_each_kind_to_the_model_that_is_good_at_it():
    rows, kind = two_kinds()
    router = BayesRouter.of(Evidence.of(rows, FeatureMap(8)))
    chosen = router.estimate(rows.embeddings).choose(10.0)
    assert (chosen == kind).mean() > 0.97


def test_costs_are_unbiased_dollars():
    rows, _ = two_kinds(6_000)
    estimates = BayesRouter.of(Evidence.of(rows, FeatureMap(8))).estimate(rows.embeddings)
    for model in range(3):
        own = rows.model == model
        assert estimates.cost[own, model].mean() == pytest.approx(rows.cost[own].mean(), rel=0.05)


def test_a_router_is_read_back_and_gives_the_same_estimates():
    rows, _ = two_kinds(300)
    features = FeatureMap(8)
    own, others = rows.of_queries(np.arange(100)), rows.of_queries(np.arange(100, 300))
    total = Noise(seed=0).on(Release.of(others, features), 3)
    prior = Prior(np.zeros((3, 2)), np.full((3, 2), 0.2))
    celled = FeatureMap(8, cells=Cells(np.eye(2, 8), np.full(2, 0.5), (2,)))
    router = BayesRouter.of(Evidence.of(own, celled), total, 0.5, prior)
    again = BayesRouter.from_arrays(rows.pool, router.arrays())
    for part in ("accuracy", "cost", "error"):
        assert (getattr(again.estimate(rows.embeddings), part) == getattr(router.estimate(rows.embeddings), part)).all()
    with pytest.raises(BadInput, match="penalties"):
        BayesRouter.from_arrays(rows.pool, {**router.arrays(), "penalties": np.zeros(3, np.int64)})


def test_a_model_without_rows_is_estimated_with_a_wide_error():
    rows, _ = two_kinds()
    router = BayesRouter.of(Evidence.of(rows, FeatureMap(8)).over(ModelPool([*rows.pool.names, "new"])))
    estimates = router.estimate(rows.embeddings[:20])
    assert estimates.usable.all()
    assert estimates.error is not None
    assert (estimates.error[:, 3] > 3 * estimates.error[:, :3].max(axis=1)).all()


def test_a_prior_says_what_a_model_without_rows_can_do():
    rows, _ = two_kinds()
    pool = ModelPool([*rows.pool.names, "new"])
    mean, error = np.zeros((4, 2)), np.full((4, 2), np.inf)
    mean[3, 0], error[3, 0] = 0.45, 0.01
    router = BayesRouter.of(Evidence.of(rows, FeatureMap(8)).over(pool), prior=Prior(mean, error))
    assert router.estimate(rows.embeddings[:50]).accuracy[:, 3].mean() == pytest.approx(0.95, abs=0.03)


def test_evaluations_without_a_score_move_costs_alone():
    rows, _ = two_kinds()
    features = FeatureMap(8)
    evidence, cheaper = Evidence.of(rows, features), Evidence.of(rows, features)
    cheaper.levels[2, 1] += np.array([3_000, 3_000 * -1.0, 3_000], np.int64) * int(UNIT) ** 2
    before, after = (BayesRouter.of(one).estimate(rows.embeddings) for one in (evidence, cheaper))
    assert (after.accuracy == before.accuracy).all()
    assert after.cost[:, 2].mean() < before.cost[:, 2].mean() / 10


def test_a_personal_router_weighs_a_total_by_its_own_rows():
    features = FeatureMap(8)
    mine, _ = two_kinds(200, seed=1)
    honest = Release.of(two_kinds(3_000, seed=2)[0], features)
    liar = two_kinds(3_000, seed=3)[0]
    liar = Evaluations(liar.pool, liar.embeddings, liar.query, liar.model, 1 - liar.accuracy, liar.cost)
    poisoned = Noise(seed=0).on(Release.of(liar, features), 10)
    own = BayesRouter.of(Evidence.of(mine, features))
    friends = [Noise(seed=seed).on(honest, 10) for seed in range(4)]
    assert (np.mean([weigh(own, each, most=500) for each in friends], axis=0) > 0.05).all()
    assert (weigh(own, poisoned, most=500) == 0.0).all()


def test_a_total_counts_as_at_most_so_many_rows_a_model():
    features = FeatureMap(8)
    own = BayesRouter.of(Evidence.of(two_kinds(200)[0], features))
    total = Release.of(two_kinds(30_000, seed=2)[0], features)
    assert (weigh(own, total, most=500) <= 500 / 9_000).all()


def test_a_total_counts_for_models_without_own_rows_as_for_the_others():
    features = FeatureMap(8)
    rows = two_kinds(400)[0]
    own = BayesRouter.of(Evidence.of(rows.take(np.flatnonzero(rows.model != 2)), features))
    total = Release.of(two_kinds(3_000, seed=2)[0], features)
    counted = weigh(own, total, most=500) * total.count
    assert counted[:2].min() - 1 <= counted[2] <= counted[:2].max() + 1
    nothing = BayesRouter.of(Evidence.none(rows.pool, features))
    assert weigh(nothing, total, most=500) * total.count == pytest.approx(np.minimum(total.count, 500))


def changed(name, value, place=...):
    def of(arrays):
        arrays[name][place] = value

    return of


LARGEST, SMALLEST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@pytest.mark.parametrize(
    "change",
    [
        changed("evidence.gram", SMALLEST),
        changed("evidence.gram", 2**61, (0, 2)),
        changed("evidence.products", LARGEST),
        changed("total.products", LARGEST),
        changed("total.noise", 1e300),
        changed("prior.mean", np.nan),
        changed("prior.mean", 1e6),
        changed("prior.error", 1e-320),
        changed("penalties", 9_999),
        changed("penalties", SMALLEST),
        changed("evidence.scales", 1e-320),
        changed("evidence.scales", np.inf),
        changed("evidence.widths", 60_000, 0),
        changed("evidence.widths", 2**40, 0),
    ],
)
def test_arrays_from_which_no_estimates_follow_are_refused(change):
    rows, features = two_kinds(60)[0], FeatureMap(8)
    prior = Prior(np.zeros((3, 2)), np.ones((3, 2)))
    router = BayesRouter.of(Evidence.of(rows, features), Release.of(rows, features), 1.0, prior)
    arrays = {name: array.copy() for name, array in router.arrays().items()}
    assert BayesRouter.from_arrays(router.pool, arrays).estimate(rows.embeddings[:2]).cost.max() < 1
    change(arrays)
    with pytest.raises(BadInput):
        BayesRouter.from_arrays(router.pool, arrays)


@pytest.mark.parametrize(("cell", "share"), [(np.nan, 0.5), (1e300, 0.5), (0.5, np.nan), (0.5, 1e300)])
def test_cells_that_no_queries_have_are_refused(cell, share):
    with pytest.raises(BadInput, match="centers of finite numbers"):
        Cells(np.full((2, 8), cell), np.full(2, share), (2,))


def test_cells_and_models_beyond_memory_are_not_allocated():
    features = FeatureMap(8)
    arrays = BayesRouter.of(Evidence.none(ModelPool(["a"]), features)).arrays()
    cells = Cells(np.zeros((20_000, 8)), np.zeros(20_000), (20_000,))
    arrays |= {f"evidence.cells.{name}": array for name, array in cells.arrays().items()}
    with pytest.raises(BadInput, match="expected integers of shape"):
        BayesRouter.from_arrays(ModelPool(f"m{number}" for number in range(1_000)), arrays)
