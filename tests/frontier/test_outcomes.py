"""Doubly robust outcomes: unbiased from one answer a query, exact from all, and honest about what they cannot judge."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Grid
from fedrouter.frontier.outcomes import CELLS, LEAST_EFFECTIVE, WIDER, Log, cells, coin_toss, effective, monotone
from fedrouter.pool import ModelPool

POOL = ModelPool(["small", "medium", "large"])
CHANCE = np.array([[0.9, 0.92, 0.95], [0.2, 0.5, 0.9]])  # of a right answer to an easy and to a hard query
PRICES = np.array([0.001, 0.003, 0.01])


def is_hard(embeddings) -> np.ndarray:
    return (np.asarray(embeddings)[:, 0] > 0).astype(int)


def table(queries: int, seed: int = 0) -> tuple[np.ndarray, Grid]:
    """Embeddings whose first number says how hard a query is, and every model's answer."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, 6)).astype(np.float32)
    right = (draw.random((queries, 3)) < CHANCE[is_hard(embeddings)]).astype(float)
    return embeddings, Grid(POOL, right, PRICES * draw.lognormal(0, 0.3, (queries, 3)))


def one_answer(embeddings, grid: Grid, chance, draw) -> tuple[Evaluations, np.ndarray]:
    """One answer a query: the model is drawn with these chances ``(q, M)``; and the chance of each that was drawn."""
    asked = (draw.random((len(grid), 1)) > np.cumsum(chance, axis=1)).sum(axis=1)
    every = np.arange(len(grid))
    rows = Evaluations(POOL, embeddings, every, asked, grid.accuracy[every, asked], grid.cost[every, asked])
    return rows, chance[every, asked]


@dataclass
class ByKind:
    """A router that knows each model's mean accuracy and cost on easy and on hard queries, ``(2, M)`` each."""

    accuracy: np.ndarray
    cost: np.ndarray
    known: np.ndarray

    def estimate(self, embeddings) -> Estimates:
        kind = is_hard(embeddings)
        reasons = tuple(None if each else "never asked" for each in self.known)
        return Estimates(POOL, self.accuracy[kind], self.cost[kind], reasons)


def by_kind(rows: Evaluations) -> ByKind:
    cell = is_hard(rows.embeddings)[rows.query] * 3 + rows.model
    count = np.bincount(cell, minlength=6)
    with np.errstate(invalid="ignore"):
        accuracy, cost = ((np.bincount(cell, values, 6) / count).reshape(2, 3) for values in (rows.accuracy, rows.cost))
    return ByKind(accuracy, cost, (count.reshape(2, 3) > 0).all(axis=0))


WRONG = ByKind(np.array([[0.1, 0.8, 0.3], [0.9, 0.1, 0.2]]), np.full((2, 3), 0.02), np.ones(3, bool))
SKEWED = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])


def test_a_full_table_is_its_own_outcomes():
    embeddings, grid = table(300)
    log = Log.of(Evaluations.from_grid(grid, embeddings), 5)
    outcomes = log.outcomes(lambda _: WRONG)
    assert log.propensities == "known"
    assert outcomes.accuracy == pytest.approx(grid.accuracy, abs=1e-12)
    assert outcomes.cost == pytest.approx(grid.cost, abs=1e-12)
    assert np.allclose([point.accuracy for point in outcomes.single_points()], grid.accuracy.mean(axis=0))


def test_logged_propensities_make_means_unbiased_whatever_the_router_believes():
    embeddings, grid = table(400)
    chance, draw, found = SKEWED[is_hard(embeddings)], np.random.default_rng(1), []
    for _ in range(300):
        rows, logged = one_answer(embeddings, grid, chance, draw)
        outcomes = Log.of(rows, 5, propensity=logged).outcomes(lambda _: WRONG)
        found.append([*outcomes.accuracy.mean(axis=0), *(outcomes.cost / PRICES).mean(axis=0)])
    truth = np.array([*grid.accuracy.mean(axis=0), *(grid.cost / PRICES).mean(axis=0)])
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (abs(np.mean(found, axis=0) - truth) < 4 * error).all()


def test_several_answers_a_query_are_weighed_by_the_chance_to_be_among_them():
    embeddings, grid = table(400)
    chance, draw, found = np.array([0.9, 0.5, 0.3]), np.random.default_rng(1), []
    for _ in range(200):
        asked = draw.random((400, 3)) < chance
        masked = Grid(POOL, np.where(asked, grid.accuracy, np.nan), np.where(asked, grid.cost, np.nan))
        rows = Evaluations.from_grid(masked, embeddings)
        outcomes = Log.of(rows, 5, propensity=chance[rows.model]).outcomes(lambda _: WRONG)
        found.append(outcomes.accuracy.sum(axis=0))
    left_out = (~asked).all(axis=1).mean()  # a query that nobody answered is not in the log
    assert left_out < 0.06
    truth = grid.accuracy.sum(axis=0)
    # Of the others all is known up to chance, so sums over them are at most those of all queries.
    short = truth - np.mean(found, axis=0)
    assert (short < 0.06 * 400).all()
    assert (short > -4 * np.std(found, axis=0) / np.sqrt(len(found))).all()


def test_estimated_propensities_undo_a_skewed_log():
    """Plain means make small look good, since it was asked the easy queries."""
    embeddings, grid = table(4000)
    rows, _ = one_answer(embeddings, grid, SKEWED[is_hard(embeddings)], np.random.default_rng(1))
    plain = [rows.accuracy[rows.model == each].mean() for each in range(3)]
    assert plain[0] - grid.accuracy.mean(axis=0)[0] > 0.15
    log = Log.of(rows, 5)
    outcomes = log.outcomes(lambda left_out: by_kind(log.but(left_out)))
    assert log.propensities == "estimated"
    assert outcomes.accuracy.mean(axis=0) == pytest.approx(grid.accuracy.mean(axis=0), abs=0.04)


def test_a_router_is_never_asked_about_queries_that_it_was_learned_from():
    embeddings, grid = table(200)
    log = Log.of(Evaluations.from_grid(grid, embeddings), 5)
    seen: list[set[bytes]] = []

    class Watching(ByKind):
        def estimate(self, embeddings):
            assert not self.own & {row.tobytes() for row in embeddings}
            seen.append(self.own)
            return super().estimate(embeddings)

    def without(left_out):
        rows = log.but(left_out)
        router = Watching(WRONG.accuracy, WRONG.cost, WRONG.known)
        router.own = {row.tobytes() for row in rows.embeddings}
        return router

    assert len(log.outcomes(without)) == 200
    assert len(log.outcomes(without, frozenset({2}))) == 160
    assert [len(own) for own in seen] == [160] * 5 + [120] * 4


def test_identical_queries_are_in_one_fold_and_count_once():
    embeddings, grid = table(200)
    once = Evaluations.from_grid(grid, embeddings)
    twice = Evaluations.concatenate([once, once])
    logs = [Log.of(rows, 5) for rows in (once, twice)]
    assert logs[1].queries == 200
    assert (logs[1].fold[:200] == logs[1].fold[200:]).all()
    errors = [log.outcomes(lambda _: WRONG).single_points()[0].accuracy_error for log in logs]
    assert errors[1] == pytest.approx(errors[0])


def test_a_model_with_few_rows_is_not_judged_and_says_how_many_it_needs():
    embeddings, grid = table(400)
    rows, _ = one_answer(embeddings, grid, np.tile([0.6, 0.4, 0.0], (400, 1)), np.random.default_rng(1))
    log = Log.of(rows, 5)
    assert log.judged.tolist() == [True, True, False]
    assert log.missing == {"large": int(LEAST_EFFECTIVE)}
    outcomes = log.outcomes(lambda left_out: by_kind(log.but(left_out)))
    assert np.isnan(outcomes.singles[0][2])
    assert 2 not in outcomes.chooser.choose(0.0)


def test_lambda_meets_a_target_by_the_same_outcomes():
    embeddings, grid = table(2000)
    log = Log.of(Evaluations.from_grid(grid, embeddings), 5)
    outcomes = log.outcomes(lambda left_out: by_kind(log.but(left_out)))
    accuracy, cost, _ = outcomes.along
    budget = outcomes.of_cost(0.006)
    assert cost[budget] <= 0.006 < cost[budget - 1]
    reached = outcomes.of_accuracy(0.9)
    assert accuracy[reached] >= 0.9 > accuracy[reached + 1]
    with pytest.raises(BadInput, match=r"no λ reaches accuracy 0\.99: the most is 0\.9"):
        outcomes.of_accuracy(0.99)
    with pytest.raises(BadInput, match="no λ keeps the mean cost within 1e-05 USD"):
        outcomes.of_cost(1e-5)


def test_where_every_answer_is_known_a_quality_is_what_was_measured():
    embeddings, grid = table(2000)
    boastful = ByKind(np.array([[0.99, 0.6, 0.9], [0.99, 0.9, 0.2]]), np.full((2, 3), 0.02), np.ones(3, bool))
    outcomes = Log.of(Evaluations.from_grid(grid, embeddings), 5).outcomes(lambda _: boastful)
    least = 0.9 * outcomes.singles[0][outcomes.best]
    place, accuracy = outcomes.of_quality(0.9)
    assert accuracy == outcomes.along[0][place]
    assert accuracy >= least or place == 0


def test_a_ratio_has_the_error_of_the_delta_method():
    embeddings, grid = table(500)
    outcomes = Log.of(Evaluations.from_grid(grid, embeddings), 5).outcomes(lambda _: WRONG)
    draw = np.random.default_rng(0)
    above, below = grid.accuracy[:, 0], grid.accuracy[:, 2]
    resampled = [above[pick].mean() / below[pick].mean() for pick in draw.integers(500, size=(2000, 500))]
    share = outcomes.ratio(above, below)
    assert share.value == pytest.approx(above.mean() / below.mean())
    assert share.error == pytest.approx(WIDER * np.std(resampled), rel=0.1)


def test_a_coin_toss_is_the_cheapest_for_an_accuracy_and_the_best_for_a_cost():
    singles, costs = np.array([0.5, 0.55, 0.9, np.nan]), np.array([1.0, 3.0, 5.0, 2.0])
    toss = coin_toss(singles, costs, accuracy=0.8)  # the second lies below the line from the first to the third
    assert toss.weights == pytest.approx([0.25, 0, 0.75, 0])
    assert toss.slope == pytest.approx(10)
    toss = coin_toss(singles, costs, cost=4.0)
    assert toss.weights == pytest.approx([0.25, 0, 0.75, 0])
    assert toss.slope == pytest.approx(0.1)
    for beyond, expected in ((0.4, [1, 0, 0, 0]), (0.95, [0, 0, 1, 0])):
        toss = coin_toss(singles, costs, accuracy=beyond)
        assert (toss.weights.tolist(), toss.slope) == (expected, 0)


def test_small_parts():
    assert effective(np.array([1.0, 1.0, 0.0, 1.0])) == 3
    assert effective(np.array([3.0, 0.0, 1.0])) == pytest.approx(1.6)
    assert effective(np.zeros(4)) == 0
    assert monotone(np.array([3.0, 1.0, 2.0, 0.0])).tolist() == [3.0, 1.5, 1.5, 0.0]
    points = np.repeat(np.eye(4, dtype=np.float32), 50, axis=0)
    found = cells(points, CELLS, np.random.default_rng(0))
    assert all(len(set(found[start : start + 50])) == 1 for start in range(0, 200, 50))


@pytest.mark.parametrize(
    ("propensity", "message"),
    [([0.5], "expected one number for each of 100 evaluations"), ([0.5, 0.0] * 50, r"row 2, propensity: .* got 0\.0")],
)
def test_bad_propensities_are_refused(propensity, message):
    embeddings, grid = table(100)
    rows, _ = one_answer(embeddings, grid, np.full((100, 3), 1 / 3), np.random.default_rng(0))
    with pytest.raises(BadInput, match=message):
        Log.of(rows, 5, propensity=propensity)


def test_no_evaluations_are_refused():
    embeddings, grid = table(10)
    with pytest.raises(BadInput, match="no evaluations"):
        Log.of(Evaluations.from_grid(grid, embeddings).take([]), 5)
