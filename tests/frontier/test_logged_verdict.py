"""Verdicts from logs: right from one answer a query, silent where the log says too little, never confidently wrong."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedrouter.data.read import read
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Grid
from fedrouter.federation.families.bayes import from_rows
from fedrouter.frontier.logged import FOLDS, LEAST_QUERIES, CrossFitted, Shares, verdict_of
from fedrouter.frontier.outcomes import Log, Share
from frontier.logged_draws import NAMES, draw, report
from frontier.test_outcomes import POOL, PRICES, SKEWED, by_kind, is_hard, one_answer, table

UNIFORM = np.full((2, 3), 1 / 3)


def full_log(queries: int, seed: int = 0) -> Evaluations:
    embeddings, grid = table(queries, seed)
    return Evaluations.from_grid(grid, embeddings)


def single_answers(queries: int, by: np.ndarray = UNIFORM, seed: int = 0):
    """A log of single answers, its propensities, and the full table."""
    embeddings, grid = table(queries, seed)
    return *one_answer(embeddings, grid, by[is_hard(embeddings)], np.random.default_rng(seed + 1)), grid


def test_a_full_table_gives_plain_averages():
    rows = full_log(2000)
    judged = CrossFitted(Log.of(rows, FOLDS), by_kind)
    plan, grid, every = judged.plan(0.95), rows.grid(), np.arange(2000)
    found = judged.verdict(0.95)
    assert found.propensities == "known"
    assert found.shares.kept.value == pytest.approx(
        grid.accuracy[every, plan.chosen].mean() / grid.accuracy[:, 2].mean(), abs=1e-12
    )
    assert found.shares.cost.value == pytest.approx(
        grid.cost[every, plan.chosen].mean() / grid.cost[:, 2].mean(), abs=1e-12
    )
    assert found.effective == pytest.approx(2000)
    assert (found.decision, found.best) == ("route", "large")
    assert found.shares.kept.value > 0.95  # this router has no choice between 0.98 and 0.82
    assert found.shares.cost.high < found.shares.toss_cost.value


def test_a_router_that_tells_queries_apart_is_worthwhile_from_one_answer_a_query():
    rows, _, _ = single_answers(6000)
    found = verdict_of(rows, by_kind)
    assert found.decision == "route"
    assert found.propensities == "estimated"
    assert 1500 < found.effective < 2500
    assert found.sentence().startswith("Keeps ")
    assert "of the accuracy of large for" in found.sentence()
    assert "a coin toss between single models needs" in found.sentence()


def test_a_skewed_log_is_judged_right_where_plain_averages_are_wrong():
    """The router sends easy queries to small. Plain averages say that it loses to tossing a coin for the same cost."""
    rows, logged, grid = single_answers(6000, SKEWED)
    found = verdict_of(rows, by_kind)
    every, judged = np.arange(len(grid)), CrossFitted(Log.of(rows, FOLDS), by_kind)
    plan = judged.plan(0.95)
    asked = rows.model == plan.chosen
    means = [[values[rows.model == each].mean() for each in range(3)] for values in (rows.accuracy, rows.cost)]
    toss = np.interp(rows.cost[asked].mean(), means[1], np.maximum.accumulate(means[0]))
    true_toss = np.interp(
        grid.cost[every, plan.chosen].mean(), grid.cost.mean(axis=0), np.maximum.accumulate(grid.accuracy.mean(axis=0))
    )
    truth = grid.accuracy[every, plan.chosen].mean() - true_toss
    naive = rows.accuracy[asked].mean() - toss
    assert naive < truth - 0.05
    assert truth > 0.1
    assert found.decision == "route"
    assert found.shares.gain.low < truth / grid.accuracy[:, 2].mean() < found.shares.gain.high
    assert verdict_of(rows, by_kind, propensity=logged).propensities == "logged"


def test_intervals_cover_the_truth_on_the_simulated_world():
    covered = []
    for seed in range(40):
        rows, _, grid = single_answers(900, SKEWED if seed % 2 else UNIFORM, seed)
        judged = CrossFitted(Log.of(rows, FOLDS, seed), by_kind)
        plan, found = judged.plan(0.95), judged.outcomes
        said, truth = (
            judged.measure(plan, *values) for values in ((found.accuracy, found.cost), (grid.accuracy, grid.cost))
        )
        covered.append(
            [getattr(said, name).low <= getattr(truth, name).value <= getattr(said, name).high for name in NAMES]
        )
    assert (np.mean(covered, axis=0) >= 0.9).all()


def test_what_is_judged_on_a_fold_does_not_depend_on_its_outcomes():
    rows, _, _ = single_answers(600)
    log = Log.of(rows, FOLDS)
    mine = log.fold[rows.query] == 2
    changed = replace(rows, accuracy=np.where(mine, 1 - rows.accuracy, rows.accuracy))
    one, other = (CrossFitted(Log.of(each, FOLDS), by_kind).plan(0.95) for each in (rows, changed))
    assert (one.chosen[log.fold == 2] == other.chosen[log.fold == 2]).all()
    assert (one.chosen != other.chosen).any()
    assert one.best[2] == other.best[2]
    assert (one.reaching[2].weights == other.reaching[2].weights).all()
    assert (one.spending[2].weights == other.spending[2].weights).all()


def test_fifteen_routers_are_learned_for_five_folds():
    learned = []
    verdict_of(full_log(200), lambda rows: learned.append(rows.queries) or by_kind(rows))
    assert sorted(learned) == [120] * 10 + [160] * 5


def test_a_router_without_knowledge_is_not_called_worthwhile():
    class Ignorant:
        def estimate(self, embeddings):
            noise = np.random.default_rng(0).normal(size=(len(embeddings), 3))
            return Estimates(POOL, 0.6 + 0.3 * noise, np.tile(PRICES, (len(embeddings), 1)))

    found = verdict_of(full_log(3000), lambda _: Ignorant())
    assert found.decision == "do not route"
    assert found.shares.gain.high < 0
    assert found.sentence().startswith("Do not route: use ")


@pytest.mark.parametrize(
    ("least", "spread", "decision", "said"),
    [
        (0.99, 0.0, "do not route", "Do not route: use large; the router keeps 96% (95–98) of the accuracy"),
        (0.975, 0.1, "undecided", "of its cost, which may save nothing."),
    ],
)
def test_a_router_that_saves_nothing_is_not_worthwhile(least, spread, decision, said):
    """It is better than a coin toss of its cost, since all models cost the same; the best model alone is better."""
    embeddings, grid = table(3000)
    cost = np.array([least, 0.5 + least / 2, 1.0]) * np.random.default_rng(0).lognormal(0, spread, (3000, 3))
    found = verdict_of(Evaluations.from_grid(Grid(POOL, grid.accuracy, cost), embeddings), by_kind)
    assert found.shares.gain.low > 0.04
    assert found.decision == decision
    assert said in found.sentence()


def test_a_router_that_is_more_accurate_for_the_same_cost_is_worthwhile():
    embeddings, grid = table(3000)
    accuracy = grid.accuracy.copy()
    accuracy[is_hard(embeddings) == 0, 2] = 0.0  # the best model on the whole is of no use for easy queries
    rows = Evaluations.from_grid(Grid(POOL, accuracy, np.ones_like(grid.cost)), embeddings)
    found = verdict_of(rows, by_kind, 1.0)
    assert found.decision == "route"


def test_a_router_that_ignores_the_query_is_not_worthwhile():
    class Blind:
        def estimate(self, embeddings):
            return Estimates(POOL, *(np.tile(values, (len(embeddings), 1)) for values in ([0.5, 0.7, 0.9], PRICES)))

    rows, _, _ = single_answers(900)
    found = verdict_of(rows, lambda _: Blind())
    assert found.constant
    assert found.decision == "do not route"
    assert "the router chooses one model for all queries" in found.sentence()


def test_too_few_queries_or_rows_give_no_verdict():
    found = verdict_of(full_log(LEAST_QUERIES - 1), by_kind)
    assert (found.decision, found.shares) == ("too few rows", None)
    assert found.sentence() == "Too few rows: 49 different queries, 50 the least."
    rows, _, _ = single_answers(400, np.tile([0.95, 0.05, 0.0], (2, 1)))
    found = verdict_of(rows, by_kind)
    medium = found.rows["medium"]
    assert 0 < medium < 30 < found.missing["medium"] + medium
    assert found.sentence() == (
        f"Too few rows: medium has {medium} and needs about {found.missing['medium']} more, large was never asked."
    )


def test_a_model_that_was_never_asked_is_named_and_left_out():
    rows, _, _ = single_answers(3000, np.tile([0.5, 0.5, 0.0], (2, 1)))
    found = verdict_of(rows, by_kind)
    assert found.best == "medium"
    assert {point.name for point in found.singles} == {"small", "medium"}
    assert found.sentence().endswith("Not judged: large was never asked.")


class Contrary:
    """Wants small for hard queries, and for easy ones a model of choice."""

    def __init__(self, easy: int) -> None:
        self.easy = easy

    def estimate(self, embeddings):
        accuracy = np.where(is_hard(embeddings)[:, None], np.eye(3)[0], np.eye(3)[self.easy])
        return Estimates(POOL, accuracy, np.full(accuracy.shape, 1e-3))


def test_choices_that_the_log_does_not_hold_give_no_verdict():
    """Small was asked easy queries only, and large hard ones only."""
    rows, logged, _ = single_answers(900, np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))
    found = verdict_of(rows, lambda _: Contrary(easy=2), propensity=logged)
    assert not found.missing
    assert (found.effective, found.shares) == (0, None)
    assert found.sentence().startswith(
        "Too few rows: the log has answers for 0% of what router and best model would do"
    )


def test_a_verdict_says_for_how_many_choices_the_router_is_taken_at_its_word():
    rows, logged, _ = single_answers(900, np.array([[0.2, 0.5, 0.3], [0.0, 0.5, 0.5]]))
    easy = np.flatnonzero(is_hard(rows.embeddings) == 0)
    few_hard = np.sort(np.r_[easy, np.flatnonzero(is_hard(rows.embeddings))[:100]])
    part = rows.of_queries(few_hard)
    found = verdict_of(part, lambda _: Contrary(easy=1), propensity=logged[few_hard])
    assert 0.7 < found.support < 0.9
    assert "of the choices the router's word is taken" in found.basis()


def test_a_log_without_costs_is_judged_by_accuracy():
    embeddings, grid = table(1000)
    free = Evaluations.from_grid(Grid(POOL, grid.accuracy, np.zeros_like(grid.cost)), embeddings)
    found = verdict_of(free, by_kind)
    assert found.shares.cost is None
    assert "the log has no costs" in found.sentence()


def test_a_log_without_costs_says_nothing_of_them_with_one_answer_a_query():
    """A router estimates some small cost of every model, of which shares are no finding."""
    rows, _, _ = single_answers(300)
    found = verdict_of(replace(rows, cost=np.zeros(len(rows))), lambda some: from_rows([some]), folds=3)
    assert found.shares.cost is None
    assert "the log has no costs" in found.sentence()


def test_a_sentence_names_a_few_models_that_need_rows():
    found = verdict_of(full_log(LEAST_QUERIES), by_kind)
    names = "abcdef"
    lacking = replace(found, shares=None, rows=dict.fromkeys(names, 1), missing=dict.fromkeys(names, 29))
    assert lacking.sentence().endswith("c has 1 and needs about 29 more and 3 models more.")


def test_sentences():
    found = verdict_of(full_log(1000), by_kind)
    share = partial(Share, 0.5)
    shares = Shares(
        Share(0.96, 0.93, 0.98),
        Share(0.28, 0.24, 0.31),
        Share(0.57, 0.5, 0.64),
        share(0.2, 0.3),
        Share(0.02, -0.01, 0.05),
    )
    known = replace(found, shares=shares, best="gpt-4", toss={"gpt-3": 0.3, "gpt-4": 0.7})
    assert known.sentence() == (
        "Keeps 96% (93–98) of the accuracy of gpt-4 for 28% (24–31) of its cost; "
        "a coin toss between single models needs 57%."
    )
    assert replace(known, decision="undecided").sentence() == (
        "Undecided: keeps 96% (93–98) of the accuracy of gpt-4 for 28% (24–31) of its cost; a coin toss between single "
        "models needs 57%, which may be chance: at equal cost the toss's accuracy differs by -2 (-5 to +1) points."
    )
    assert (
        replace(known, decision="do not route")
        .sentence()
        .startswith("Do not route: use gpt-3 for 30% of the queries and gpt-4 for 70% of the queries; it keeps 96%")
    )
    beyond = replace(known, shares=replace(shares, toss_cost=Share(1.53, 1.2, 1.9)))
    assert beyond.sentence().endswith("of its cost; no coin toss between single models does.")
    nothing = replace(known, shares=replace(shares, toss_cost=Share(-0.1, -0.3, 0.4)))
    cheapest = min(one.cost for one in found.singles) / next(o.cost for o in found.singles if o.name == found.best)
    assert replace(nothing, best=found.best).sentence().endswith(f"needs {cheapest:.0%}.")
    alone = replace(known, shares=None, rows={"gpt-4": 600}, missing={})
    assert alone.sentence() == "Too few rows: only one model has answers, so there is nothing to compare."
    assert found.basis() == "1,000 queries, effective sample size 1,000; every answer is known"


def test_the_document_is_json():
    document = json.loads(json.dumps(verdict_of(full_log(400), by_kind).to_json()))
    assert document["shares"]["kept"].keys() == {"value", "low", "high"}
    assert document["decision"] == "route"
    assert document["sentence"].startswith("Keeps")
    assert [point["name"] for point in document["singles"]] == list(POOL.names)
    costs = [point["cost"] for point in document["frontier"]]
    assert costs[0] > costs[-1]


def test_the_same_log_gives_the_same_verdict():
    rows, _, _ = single_answers(300)
    assert verdict_of(rows, by_kind, seed=3) == verdict_of(rows, by_kind, seed=3)


@pytest.mark.parametrize(("settings", "message"), [({"quality": 0.0}, "quality"), ({"folds": 2}, "folds")])
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        verdict_of(full_log(100), by_kind, **settings)


def test_a_real_family_is_judged():
    rows, _, _ = single_answers(600)
    found = verdict_of(rows, lambda some: from_rows([some]), folds=3)
    assert found.shares is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2"])
def test_verdicts_on_masked_real_logs_contain_the_truth(real_data, name):
    """One hundred draws on all queries are run by hand: tests/frontier/logged_draws.py."""
    full = read(real_data / f"{name}.parquet", encoder="static").evaluations
    found = [draw(full, seed, queries=4000) for seed in range(12)]
    draws = [each for each in found if each is not None]
    assert len(draws) == len(found)
    assert (np.mean([each.covered() for each in draws], axis=0) > 0.75).all(), report(found)
    assert not any(any(each.contradicts()) for each in draws), report(found)
