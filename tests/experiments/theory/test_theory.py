"""The theory experiment: what it measures adds up, and its verdicts follow from what was measured."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.small_world import check_what_it_says, measured, small_world
from fedrouter.data.read import Dataset, read
from fedrouter.experiments.experiment import World
from fedrouter.experiments.theory.claims import CLAIMS, of, slope
from fedrouter.experiments.theory.measurement import EXPERIMENT, PARTS, SHARES

pytestmark = pytest.mark.slow  # every experiment once


@pytest.fixture(scope="module")
def runs():
    return [measured(EXPERIMENT, small_world(queries=600, models=4, seed=seed)) for seed in (0, 1)]


def verdicts(runs):
    return {claim.name: claim.verdict for claim in EXPERIMENT.claims(runs)}


def test_the_experiment_says_what_every_experiment_says(runs):
    check_what_it_says(EXPERIMENT, runs, set(CLAIMS))


def test_the_parts_of_every_k_means_router_add_up(runs):
    entries = [entry for run in runs for entry in (*run["losses"], *run["growth"]) if entry["family"] == "kmeans"]
    assert len(entries) > 2 * 2 * 10
    for entry in entries:
        whole, coarse, few = (np.array(entry[part]) for part in PARTS)
        assert whole == pytest.approx(coarse + few, abs=1e-12)
        assert (coarse >= 0).all()
        assert (few > -1e-12).all()
    assert verdicts(runs)["theory-decomposition-kmeans"] == "holds"


def test_every_router_is_judged_on_everybodys_test_and_on_its_clients_own(runs):
    for run in runs:
        for family in ("kmeans", "mlp"):
            for way in ("federated", "local"):
                tests = [e["test"] for e in run["losses"] if (e["family"], e["way"]) == (family, way)]
                assert tests.count("global") == (1 if way == "federated" else 10)
                assert tests.count("own") == 10


def test_cells_of_the_federation_hold_what_its_clients_hold(runs):
    for run in runs:
        shared, *own = run["terms"]
        assert shared["way"] == "federated"
        assert shared["rows"] == sum(entry["rows"] for entry in own)
        assert shared["cell_mean"] * shared["clusters"] * shared["models"] == pytest.approx(shared["rows"])


def test_more_data_means_more_rows_and_all_of_them_the_federated_router_itself(runs):
    for run in runs:
        assert [entry["share"] for entry in run["growth"]] == list(SHARES)
        rows = [entry["rows"] for entry in run["growth"]]
        assert rows == sorted(rows)
        assert rows[-1] == run["terms"][0]["rows"]
        assert np.mean(run["growth"][-1]["suboptimality"]) == of(run, "kmeans", "federated", "suboptimality")


def test_the_slope_is_the_exponent_of_a_power_law():
    growth = [{"rows": rows, "estimation": [3 * rows**-0.5] * 6} for rows in (100, 200, 400, 800, 1600)]
    assert slope({"growth": growth}, "estimation") == pytest.approx(-0.5)
    growth[-1]["estimation"] = [0.0] * 6
    assert slope({"growth": growth}, "estimation") is None


def test_verdicts_turn_when_the_numbers_do(runs):
    """Federated and local swap places: what held must fail."""
    swapped = [
        {
            **run,
            "losses": [{**entry, "way": _other(entry)} for entry in run["losses"] if entry["family"] != "query_blind"],
            "terms": [{**entry, "way": _other(entry)} for entry in run["terms"]],
        }
        for run in runs
    ]
    name = "theory-distance-kmeans"
    assert (verdicts(runs)[name], verdicts(swapped)[name]) == ("holds", "refuted")
    losses = [[of(run, "kmeans", way, "suboptimality") for way in ("federated", "local")] for run in runs]
    assert np.mean(losses, axis=0)[0] < np.mean(losses, axis=0)[1]
    assert verdicts(swapped)["theory-suboptimality-kmeans"] != "holds"


def _other(entry):
    return {"federated": "local", "local": "federated"}[entry["way"]]


def test_data_without_all_answers_to_any_query_is_not_testable():
    world = small_world(queries=300, models=4)
    log = world.dataset.evaluations
    gaps = log.take(np.flatnonzero(log.query % 4 != log.model))
    poor = World(Dataset("gaps", gaps, world.dataset.encoder, "sha256:none"), 0, 1, "nowhere.csv")
    run = EXPERIMENT.measurement.run(poor, lambda share: None)
    assert EXPERIMENT.sheets([run]) == []
    assert list(EXPERIMENT.points([run])) == []
    assert "no query" in EXPERIMENT.summary([run])["reason"]
    assert set(verdicts([run]).values()) == {"not testable here"}
    assert set(verdicts([run])) == set(CLAIMS)


@pytest.mark.parametrize("family", ["kmeans", "mlp"])
def test_one_family_is_enough_for_the_page_of_the_theory(runs, family):
    other = {"kmeans": "mlp", "mlp": "kmeans"}[family]
    alone = [
        {
            **{name: run[name] for name in run if family == "kmeans" or name not in ("terms", "growth", "lipschitz")},
            "families": [family],
            "losses": [entry for entry in run["losses"] if entry["family"] != other],
        }
        for run in runs
    ]
    assert set(alone[0]) == set(EXPERIMENT.measurement.run(_of_one(family), lambda share: None))
    check_what_it_says(EXPERIMENT, alone, {name for name in CLAIMS if name.endswith(family)})


def _of_one(family):
    return replace(small_world(queries=300, models=4), families=(family,))


@pytest.mark.slow
def test_on_real_data_the_federation_loses_less_and_the_shift_is_noise(real_data):
    dataset = read(real_data / "routerbench_subset.parquet")
    run = measured(EXPERIMENT, World(dataset, 0, 5, str(real_data)))
    for family in ("kmeans", "mlp"):
        assert of(run, family, "federated", "suboptimality") < of(run, family, "local", "suboptimality")
    shared = run["terms"][0]
    assert shared["shift_mean"] == pytest.approx(shared["shift_floor"], rel=0.05)
