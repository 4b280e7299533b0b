"""The verdict: routing must beat the coin toss between single models by more than chance."""

from dataclasses import replace

import numpy as np
import pytest

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Grid
from fedrouter.frontier import judge, mix, sweep
from fedrouter.frontier.curve import TRADEOFFS, choices
from fedrouter.frontier.verdict import LEAST_QUERIES, gain_by_query
from fedrouter.pool import ModelPool

POOL = ModelPool(["small", "large"])


def two_kinds(queries: int = 400, small: float = 0.2) -> Grid:
    """Easy and hard queries: the small model answers the easy ones as well as the large one, at a tenth of its cost.

    ``small`` is its chance of answering a hard one.
    """
    draw = np.random.default_rng(0)
    chance = np.where(hard(queries)[:, None], [small, 0.9], [0.9, 0.9])
    return Grid(POOL, (draw.random((queries, 2)) < chance).astype(float), np.tile([0.001, 0.01], (queries, 1)))


def hard(queries: int) -> np.ndarray:
    return np.arange(queries) % 2 == 1


def knowing(queries: int = 400) -> Estimates:
    """A router that can tell hard from easy queries."""
    accuracy = np.where(hard(queries)[:, None], [0.2, 0.9], [0.85, 0.9])
    return Estimates(POOL, accuracy, np.tile([0.001, 0.01], (queries, 1)))


def ignorant(queries: int = 400) -> Estimates:
    """A router that draws its estimates."""
    draw = np.random.default_rng(7)
    return Estimates(POOL, draw.random((queries, 2)), np.tile([0.001, 0.01], (queries, 1)))


def test_a_router_that_tells_queries_apart_is_worthwhile():
    verdict = judge(knowing(), two_kinds())
    assert verdict.worthwhile
    assert 0 < verdict.interval[0] < verdict.gain < verdict.interval[1]
    assert verdict.best == "large"
    assert verdict.cost_to_match["0.95"] < verdict.mix_cost_to_match["0.95"]
    assert "of the price of large buys 95% of its accuracy" in verdict.text
    assert "a coin toss between single models needs" in verdict.text


def test_numbers_are_those_of_the_frontier_and_of_the_mix():
    grid = two_kinds()
    verdict, ours, toss = judge(knowing(), grid), sweep(knowing(), grid).measures, mix(grid).measures
    assert (verdict.aiq, verdict.mix_aiq) == (ours.aiq, toss.aiq)
    assert verdict.gain == pytest.approx(ours.aiq - toss.aiq, abs=0.02)
    assert (verdict.cost_to_match, verdict.mix_cost_to_match) == (ours.cost_to_match, toss.cost_to_match)


def test_a_router_that_knows_nothing_is_not():
    verdict = judge(ignorant(), two_kinds())
    assert not verdict.worthwhile
    assert verdict.text.startswith("do not route: use large")


def test_a_gain_within_chance_is_not_enough():
    verdict = judge(knowing(40), two_kinds(40, small=0.75))
    assert verdict.gain > 0 >= verdict.interval[0]
    assert verdict.text.startswith("do not route")


def test_too_few_queries_are_no_evidence():
    queries = LEAST_QUERIES - 1
    right = np.tile([[1.0, 0.0], [0.0, 1.0]], (queries, 1))[:queries]
    cost = np.tile([0.001, 0.002], (queries, 1))
    verdict = judge(Estimates(POOL, right, cost), Grid(POOL, right, cost))
    assert verdict.aiq > verdict.mix_aiq
    assert (verdict.worthwhile, verdict.gain, verdict.interval) == (False, None, None)
    assert verdict.text == f"do not route: use small; {queries} test queries are too few, {LEAST_QUERIES} the least"


def test_a_router_that_draws_its_choices_rarely_passes():
    """Its best of 100 points lies above the coin toss on most test sets; settings chosen on other queries do not."""
    pool = ModelPool("abcde")
    accuracy, cost = np.array([0.4, 0.55, 0.65, 0.72, 0.75]), np.array([1, 2, 4, 8, 16]) * 1e-4
    seemed, passed = 0, 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        shape = (150, 5)
        truth = Grid(pool, (draw.random(shape) < accuracy).astype(float), cost * draw.lognormal(0, 0.3, shape))
        verdict = judge(Estimates(pool, accuracy + draw.normal(0, 0.02, shape), np.tile(cost, (150, 1))), truth)
        seemed += verdict.aiq > verdict.mix_aiq
        passed += verdict.worthwhile
    assert seemed > 30
    assert passed <= 4


def test_the_verdict_hardly_depends_on_how_queries_are_divided_into_folds():
    draw = np.random.default_rng(3)
    pool = ModelPool("abcde")
    accuracy, cost = np.array([0.4, 0.55, 0.65, 0.72, 0.75]), np.array([1, 2, 4, 8, 16]) * 1e-4
    truth = Grid(pool, (draw.random((150, 5)) < accuracy).astype(float), cost * draw.lognormal(0, 0.3, (150, 5)))
    estimates = Estimates(
        pool, accuracy + 0.2 * truth.accuracy + draw.normal(0, 0.3, (150, 5)), np.tile(cost, (150, 1))
    )
    verdicts = [judge(estimates, truth, seed) for seed in range(8)]
    low, high = verdicts[0].interval
    assert np.std([verdict.gain for verdict in verdicts], ddof=1) < (high - low) / 20


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    grid = two_kinds(1000)
    offered, chosen = choices(knowing(1000), grid, TRADEOFFS)
    gains = gain_by_query(offered, chosen, np.random.default_rng(0))
    verdict = judge(knowing(1000), grid)
    half = 1.96 * gains.std() / np.sqrt(1000)
    assert verdict.gain == pytest.approx(gains.mean())
    assert verdict.interval == pytest.approx((gains.mean() - half, gains.mean() + half), abs=half / 5)


def test_the_same_data_gives_the_same_interval():
    assert judge(knowing(), two_kinds()) == judge(knowing(), two_kinds())


def test_a_model_that_hardly_answered_is_no_obstacle():
    grid = two_kinds(60)
    accuracy, cost = grid.accuracy.copy(), grid.cost.copy()
    third = np.full((60, 1), np.nan)
    third[0] = 0.5  # one answer only, which the rest of the folds does not have
    pool = ModelPool(["small", "large", "rare"])
    holed = Grid(pool, np.hstack([accuracy, third]), np.hstack([cost, third / 100]))
    verdict = judge(knowing(60).over(pool), holed)
    assert np.isfinite(verdict.interval).all()


def test_one_model_is_not_routing():
    pool = ModelPool(["only"])
    ones = np.ones((50, 1))
    verdict = judge(Estimates(pool, ones, ones), Grid(pool, ones, ones))
    assert verdict.gain == 0
    assert verdict.text.startswith("do not route: use only")


@pytest.mark.parametrize(("reached", "words"), [(0.5, "100% is out of reach"), (None, "no budget reaches 95%")])
def test_what_is_out_of_reach_is_said(reached, words):
    verdict = replace(judge(knowing(), two_kinds()), cost_to_match={"0.95": reached, "1.0": None})
    assert words in verdict.text


def test_json_has_the_sentence():
    document = judge(knowing(), two_kinds()).to_json()
    assert document["text"].endswith("400 queries)")
    assert document["worthwhile"] is True


def test_a_router_that_ignores_the_query_is_itself_the_coin_toss_and_the_verdict_says_so():
    blind = Estimates(POOL, np.tile([0.5, 0.9], (400, 1)), np.tile([0.001, 0.01], (400, 1)))
    verdict = judge(blind, two_kinds())
    assert verdict.query_blind
    assert not verdict.worthwhile
    assert verdict.aiq == pytest.approx(verdict.mix_aiq)
    assert "ignores the query" in verdict.text
    assert not judge(knowing(), two_kinds()).query_blind
