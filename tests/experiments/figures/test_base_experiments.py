"""The experiments on how good federated routers are, on encoders, and on how clients differ."""

import json
from dataclasses import replace

import numpy as np
import pytest

from experiments.small_world import check_what_it_says, measured, small_world
from experiments.tables import write_table
from fedrouter.data.read import read
from fedrouter.errors import BadInput
from fedrouter.experiments.comparison import COMPARISON, find
from fedrouter.experiments.figures import (
    centralized_training,
    encoders,
    global_test,
    heterogeneity,
    new_clients,
    new_models,
    own_test,
    personalization,
)
from fedrouter.experiments.paper_protocols import Protocol
from fedrouter.experiments.registry import EXPERIMENTS, MEASUREMENTS, chosen

pytestmark = pytest.mark.slow  # every experiment once

GLOBAL = {
    "global-mlp",
    "global-kmeans",
    "global-gain-kmeans-larger",
    "global-mlp-over-kmeans",
    "extra-query-blind-mlp",
    "extra-query-blind-kmeans",
}
OWN = {"own-mlp", "own-kmeans", "own-consistent-mlp", "own-consistent-kmeans"}
CENTRALIZED = {"centralized-mlp", "centralized-kmeans"}


@pytest.fixture(scope="module")
def runs():
    return [measured(global_test.EXPERIMENT, small_world(seed=seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def apart():
    return [measured(heterogeneity.EXPERIMENT, small_world(seed=seed)) for seed in (0, 1, 2)]


def shifted(runs, by, **labels):
    """The runs with the areas of some curves moved by so much."""
    return [
        {
            **run,
            "curves": [
                {**entry, "auc": entry["auc"] + by}
                if all(entry.get(key) == value for key, value in labels.items())
                else entry
                for entry in run["curves"]
            ],
        }
        for run in runs
    ]


def verdicts(experiment, runs):
    return {claim.name: claim.verdict for claim in experiment.claims(runs)}


@pytest.mark.parametrize(
    ("experiment", "names"),
    [
        (global_test.EXPERIMENT, GLOBAL),
        (own_test.EXPERIMENT, OWN),
        (centralized_training.EXPERIMENT, CENTRALIZED),
    ],
    ids=["global", "own", "centralized"],
)
def test_the_experiment_says_what_every_experiment_says(runs, experiment, names):
    check_what_it_says(experiment, runs, names)


def test_three_experiments_share_one_measurement():
    names = ("global", "own", "centralized")
    assert {EXPERIMENTS[name].measurement.name for name in names} == {COMPARISON.name}
    assert MEASUREMENTS[COMPARISON.name] is COMPARISON


def test_every_client_is_tried_on_both_tests(runs):
    for run in runs:
        alone = [client["name"] for client in run["clients"] if client["train"]]
        tested = [client["name"] for client in run["clients"] if client["test"]]
        for family in ("mlp", "kmeans"):
            local = find(run, way="local", family=family)
            assert [entry["owner"] for entry in local if entry["test"] == "global"] == alone
            assert all(entry["owner"] == entry["test"] for entry in local if entry["test"] != "global")
            for way in ("federated", "centralized"):
                tests = [entry["test"] for entry in find(run, way=way, family=family)]
                assert tests == ["global", *tested]


def test_claims_follow_what_was_measured(runs):
    ahead = shifted(runs, 9.0, way="federated")
    for name, verdict in (verdicts(global_test.EXPERIMENT, ahead) | verdicts(own_test.EXPERIMENT, ahead)).items():
        if name not in ("global-gain-kmeans-larger", "global-mlp-over-kmeans"):
            assert verdict == "holds", name
    behind = shifted(runs, -9.0, way="federated")
    for experiment in (global_test.EXPERIMENT, own_test.EXPERIMENT, centralized_training.EXPERIMENT):
        for name, verdict in verdicts(experiment, behind).items():
            if name not in ("global-gain-kmeans-larger", "global-mlp-over-kmeans"):
                assert verdict == "refuted", name


def test_the_gain_of_kmeans_is_compared_with_that_of_the_mlp(runs):
    larger = shifted(shifted(runs, 0.9, way="federated", family="kmeans"), -0.9, way="federated", family="mlp")
    assert verdicts(global_test.EXPERIMENT, larger)["global-gain-kmeans-larger"] == "holds"
    assert verdicts(global_test.EXPERIMENT, larger)["global-mlp-over-kmeans"] == "refuted"


def test_a_gain_is_consistent_above_nine_clients_in_ten(runs):
    ahead = shifted(runs, 0.5, way="federated")
    for losing, verdict in ((0, "holds"), (2, "refuted")):
        some = ahead
        for client in [client["name"] for client in runs[0]["clients"]][:losing]:
            some = shifted(some, 9.0, way="local", owner=client)
        assert verdicts(own_test.EXPERIMENT, some)["own-consistent-mlp"] == verdict


def test_clients_with_few_test_queries_are_not_compared_by_themselves(runs):
    small = [{**run, "clients": [{**client, "test": 0} for client in run["clients"]]} for run in runs]
    assert set(verdicts(own_test.EXPERIMENT, small).values()) == {"not testable here"}
    assert json.loads(json.dumps(own_test.EXPERIMENT.summary(small), allow_nan=False))


def test_every_query_has_a_place_and_an_owner(apart):
    run, *others = apart
    assert not any(any(other["queries"].values()) for other in others)  # the plane of the first seed is enough
    queries = run["queries"]
    assert {len(column) for column in queries.values()} == {400}
    assert set(queries["client"]) <= set(range(10))
    assert all(round(x, 2) == x for x in queries["x"] + queries["y"])
    assert np.allclose(np.sum(run["shares"], axis=1), 1, atol=0.01)


def test_positions_are_the_same_every_time():
    embeddings = small_world(queries=120).dataset.evaluations.embeddings
    first, again = (heterogeneity.positions(embeddings, 0) for _ in range(2))
    assert np.array_equal(first, again)
    assert first.shape == (120, 2)


def world_of(path, seed=0):
    small = small_world()
    return type(small)(read(path), seed, 2, str(path))


def test_every_encoder_in_the_file_is_tried_on_the_same_split(tmp_path, monkeypatch):
    stems = ["all_minilm_l6_v2", "all_mpnet_base_v2", "house_made"]
    path = write_table(tmp_path / "two.parquet", stems, cut=True)
    splits, divide = [], Protocol.divide

    def keep(self, *arguments, **options):
        splits.append(divide(self, *arguments, **options))
        return splits[-1]

    monkeypatch.setattr(Protocol, "divide", keep)
    assert encoders.in_file(path) == ["all-mpnet-base-v2", "all-MiniLM-L6-v2", "house_made"]
    runs = [measured(encoders.EXPERIMENT, world_of(path, seed)) for seed in (0, 1)]
    check_what_it_says(encoders.EXPERIMENT, runs, {"encoders-constant-mlp", "encoders-constant-kmeans"})
    assert runs[0]["dimensions"] == {"all-mpnet-base-v2": 9, "all-MiniLM-L6-v2": 8, "house_made": 10}
    assert [entry["encoder"] for entry in find(runs[0], family="mlp")] == encoders.in_file(path)
    assert len(splits) == 2 * 3
    seen = [[(own.train.text, own.train.model.tolist(), own.test.text) for own in split] for split in splits]
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4] == seen[5]
    # No encoder is tested on an embedding that it was trained on, not even one that reads only the start of a text.
    for split in splits:
        train, test = (
            {vector.tobytes() for own in split for vector in getattr(own, side).embeddings}
            for side in ("train", "test")
        )
        assert not train & test
    (absent,) = runs[0]["absent"]
    assert absent == "paraphrase-albert-small-v2"
    assert "--encode" in runs[0]["absent"][absent]
    assert "paraphrase-albert-small-v2" in encoders.EXPERIMENT.claims(runs)[0].measured


def test_encoders_further_apart_than_in_the_papers_table_are_not_constant(tmp_path):
    path = write_table(tmp_path / "two.parquet", ["all_minilm_l6_v2", "all_mpnet_base_v2"])
    runs = [measured(encoders.EXPERIMENT, world_of(path, seed)) for seed in (0, 1)]
    same = [{**run, "curves": [{**entry, "auc": 0.7} for entry in run["curves"]]} for run in runs]
    names = ("encoders-constant-mlp", "encoders-constant-kmeans")
    assert verdicts(encoders.EXPERIMENT, same) == dict.fromkeys(names, "holds")
    apart = shifted(same, 0.04, encoder="all-MiniLM-L6-v2", family="kmeans")
    assert verdicts(encoders.EXPERIMENT, apart) == {names[0]: "holds", names[1]: "refuted"}


def test_the_encoder_table_has_the_papers_values_beside_ours(tmp_path):
    path = write_table(tmp_path / "one.parquet", ["all_mpnet_base_v2"])
    summary = encoders.EXPERIMENT.summary([measured(encoders.EXPERIMENT, world_of(path))])
    printed = summary["printed in the paper: K-Means, MLP"]
    assert printed["RouterBench"]["all-mpnet-base-v2"] == (0.747, 0.759)


def test_one_encoder_cannot_tell_whether_encoders_matter(tmp_path):
    path = write_table(tmp_path / "one.parquet", ["all_minilm_l6_v2"])
    runs = [measured(encoders.EXPERIMENT, world_of(path))]
    for claim in encoders.EXPERIMENT.claims(runs):
        assert claim.verdict == "not testable here"
        assert "one encoder only, all-MiniLM-L6-v2" in claim.measured


def test_an_encoder_that_cannot_be_had_is_named_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = write_table(tmp_path / "one.parquet", ["all_minilm_l6_v2", "all_mpnet_base_v2"])
    run = measured(encoders.EXPERIMENT, replace(world_of(path), encode=True))
    assert "could not be loaded" in run["absent"]["paraphrase-albert-small-v2"]


@pytest.mark.slow
def test_embeddings_that_the_file_lacks_are_made_once_when_asked_for(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path / "cache"))
    path = write_table(tmp_path / "one.parquet", ["all_mpnet_base_v2"])
    encoded = []
    encoders.make_missing(path, lambda done, total: encoded.append((done, total)))
    assert encoded[-1] == (160, 160)
    encoders.make_missing(path, lambda done, total: pytest.fail("encoded again"))
    run = measured(encoders.EXPERIMENT, replace(world_of(path), encode=True))
    assert run["dimensions"] == {"all-mpnet-base-v2": 8, "all-MiniLM-L6-v2": 384}
    assert list(run["absent"]) == ["paraphrase-albert-small-v2"]


def test_the_registry_knows_every_experiment_of_the_paper_in_its_order():
    paper = ["global", "own", "centralized", "new-models", "new-clients", "personalization", "encoders"]
    assert list(EXPERIMENTS) == [*paper, "heterogeneity", "theorems"]
    assert [experiment.name for experiment in chosen(["own", "global"])] == ["global", "own"]
    assert len(chosen(["all"])) == len(EXPERIMENTS)
    with pytest.raises(BadInput, match=r"'figure-2': expected one of global, own, .*, or all"):
        chosen(["figure-2"])


@pytest.mark.slow
def test_other_families_can_be_compared():
    """A family that the paper does not have, alone: nothing is claimed about families that were not measured."""
    names = {
        global_test: {"global-bayes", "extra-query-blind-bayes"},
        own_test: {"own-bayes", "own-consistent-bayes"},
        centralized_training: {"centralized-bayes"},
        new_models: {"new-models-bayes"},
        new_clients: {"new-clients-bayes", "new-clients-forgetting-bayes"},
        personalization: {
            "personalization-bayes",
            "personalization-in-sample-bayes",
        },
    }
    world = replace(small_world(), families=("bayes",))
    documents = {}
    for module, claims in names.items():
        experiment = module.EXPERIMENT
        if experiment.measurement.name not in documents:
            documents[experiment.measurement.name] = measured(experiment, world)
        document = documents[experiment.measurement.name]
        assert {claim.name for claim in experiment.claims([document])} == claims
        assert json.loads(json.dumps(experiment.summary([document]), allow_nan=False))
        assert all(sheet.panels for sheet in experiment.sheets([document]))
