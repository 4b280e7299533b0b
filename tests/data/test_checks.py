"""Warnings name what is suspicious in a log, with counts and models, and never a prompt."""

import time
from dataclasses import replace

import numpy as np
import pytest

from fedrouter.data.checks import Facts, total_facts, warnings_of
from fedrouter.data.read import read
from fedrouter.evaluations import Evaluations
from fedrouter.pool import ModelPool

USUAL = 60
"""Rows of each model, each of its own query."""


def log(names=("small", "big"), accuracy=None, cost=None, again=(), text=True, **more):
    """A log of one row a query, a model after the other, and some of its rows again."""
    size = USUAL * len(names)
    rows = np.r_[np.arange(size), np.array(again, np.int64)]
    accuracy = np.resize([1.0, 0.0], size) if accuracy is None else accuracy
    cost = np.resize([0.001, 0.0025], size) if cost is None else cost
    return Evaluations(
        ModelPool(names),
        np.random.default_rng(0).normal(size=(size, 4)),
        rows,
        rows // USUAL,
        np.array(accuracy)[rows],
        np.array(cost)[rows],
        text=tuple(f"secret {row}" for row in range(size)) if text else None,
        **more,
    )


def test_a_usual_log_has_no_warnings():
    assert warnings_of(log()) == []


@pytest.mark.parametrize("text", [True, False])
def test_exact_duplicates_are_counted_by_model(text):
    assert warnings_of(log(again=[0, 0, 1, USUAL], text=text)) == [
        "exact duplicates: 4 (small: 3, big: 1); each counts again"
    ]


def test_equal_texts_are_one_query_even_if_the_log_names_them_differently():
    rows = log()
    same = Evaluations(
        rows.pool, rows.embeddings, rows.query, rows.model, rows.accuracy * 0, rows.cost * 0 + 0.01, text=("x",) * 120
    )
    assert warnings_of(same) == ["exact duplicates: 118 (small: 59, big: 59); each counts again"]


def test_rows_of_different_times_are_no_exact_duplicates():
    times = np.arange(2.0 * USUAL + 1)
    assert warnings_of(log(again=[0], time=times)) == []


@pytest.mark.parametrize("text", [True, False])
def test_contradicting_duplicates_are_counted_by_query_and_model(text):
    rows = log(again=[0, 0, 1, 2], text=text)
    accuracy = rows.accuracy.copy()
    accuracy[-4:] = [0.25, 0.5, 0.75, rows.accuracy[2]]
    found = Evaluations(rows.pool, rows.embeddings, rows.query, rows.model, accuracy, rows.cost, text=rows.text)
    assert warnings_of(found) == [
        "exact duplicates: 1 (small: 1); each counts again",
        "contradicting duplicates: 2 times one query and model with different accuracies (small: 2); "
        "their mean is learned",
    ]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("GPT-4", "gpt-4 ", "other"), "differ by blanks or case only are different models: 'GPT-4' and 'gpt-4 '"),
        (("large", " small"), "names with blanks around them: ' small'"),
    ],
)
def test_names_that_look_alike_are_named(names, said):
    (warning,) = warnings_of(log(names))
    assert said in warning


@pytest.mark.parametrize(
    ("names", "cost", "said"),
    [
        (("free", "big"), [0.0] * USUAL + [0.01] * USUAL, "costs all zero (free): "),
        (("small", "big"), [0.02] * USUAL + [3.21] * USUAL, "mean cost above $1 a query (big: $3.2): are they cents"),
        (("small", "big"), [0.02] * USUAL + [1, 0] * (USUAL // 2), "costs are whole numbers (big: $0.5): are they"),
        (
            ("gpt-4o-mini", "own"),
            [0.1] * 2 * USUAL,
            "(gpt-4o-mini: $0.1, expected $0.00006 to $0.0003): are they cents",
        ),
        (("gpt-4-turbo-2024-04-09", "own"), [0.5] * 2 * USUAL, "30 times list price (gpt-4-turbo-2024-04-09: $0.5, "),
        (("gpt-4o", "own"), [2e-6] * 2 * USUAL, "a 30th of list price (gpt-4o: $0.000002, expected $0.001 to $0.005)"),
    ],
)
def test_costs_in_another_unit_are_suspected(names, cost, said):
    (warning,) = warnings_of(log(names, cost=cost))
    assert said in warning


def test_a_long_prompt_may_cost_more():
    rows = log(("gpt-4o", "own"), cost=[0.2] * 2 * USUAL)
    assert len(warnings_of(rows)) == 1
    assert warnings_of(replace(rows, text=tuple(f"{text} {'word ' * 5_000}" for text in rows.text))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2"])
def test_the_unit_of_costs_of_real_logs_is_known(real_data, name):
    rows = read(real_data / f"{name}.parquet", encoder="static").evaluations
    assert of_costs(rows) == []
    for factor, said in ((100, "30 times list price"), (0.001, "a 30th of list price")):
        (warning,) = of_costs(replace(rows, cost=rows.cost * factor))
        assert said in warning


def test_the_unit_of_costs_of_the_demo_is_not_suspected(world):
    assert of_costs(world.evaluations) == []


def of_costs(rows):
    return [warning for warning in warnings_of(rows) if "Dollars a query are expected" in warning]


def test_one_model_and_few_rows_and_rows_without_a_score_are_told():
    rows = log(["only"]).take(np.arange(49))
    assert warnings_of(rows, unscored=1_200) == [
        "only one model (only): there is nothing to choose from",
        "fewer than 50 rows of 1 of 1 models (only: 49)",
        "rows without a score: 1,200; they count for costs only",
    ]


def test_no_warning_quotes_a_prompt():
    rows = log(["A", "a"], cost=[3.0] * 2 * USUAL, again=[0, 1])
    assert len(warnings_of(rows)) == 3
    assert "secret" not in " ".join(warnings_of(rows))


def test_facts_of_parts_are_facts_of_the_whole():
    rows = log(again=[0, 0, 1, USUAL])
    parts = np.array_split(np.random.default_rng(0).permutation(len(rows)), 5)
    found = total_facts([Facts.of(rows.take(part)) for part in parts])
    assert found.warnings() == warnings_of(rows)
    assert np.array_equal(found.means, Facts.of(rows).means)
    assert np.array_equal((Facts.of(rows) + Facts.of(rows)).rows, 2 * found.rows)


@pytest.mark.slow
def test_a_million_rows_take_seconds():
    size = 1_000_000
    draw = np.random.default_rng(0)
    rows = Evaluations(
        ModelPool(f"model-{model}" for model in range(8)),
        draw.normal(size=(size, 8)),
        np.arange(size),
        draw.integers(8, size=size),
        draw.random(size),
        draw.random(size) / 100,
        text=tuple(f"prompt {row}" for row in range(size)),
    )
    start = time.process_time()
    assert warnings_of(rows) == []
    assert time.process_time() - start < 10
