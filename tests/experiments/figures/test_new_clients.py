"""New clients: who joins, who is asked, and that forgetting is measured on the old clients' tests."""

from dataclasses import replace

import pytest

from experiments.small_world import check_what_it_says, measured, small_world
from fedrouter.experiments.figures.new_clients import (
    AFTER,
    BEFORE,
    EXPERIMENT,
    NEW,
    OLD,
    labels_of,
)
from fedrouter.experiments.paper_protocols import ROUTERBENCH

NAMES = {
    "new-clients-mlp",
    "new-clients-kmeans",
    "new-clients-forgetting-mlp",
    "new-clients-forgetting-kmeans",
}


@pytest.fixture(scope="module")
def runs():
    return [measured(EXPERIMENT, small_world(seed=seed)) for seed in (0, 1)]


def test_the_experiment_says_what_every_experiment_says(runs):
    check_what_it_says(EXPERIMENT, runs, NAMES)


def test_forgetting_is_measured_on_the_tests_of_the_seven_old_clients(runs):
    for run in runs:
        assert len(run["newcomers"]) == 3
        forgetting = [claim for claim in EXPERIMENT.claims([run]) if "forgetting" in claim.name]
        for claim, family in zip(forgetting, ("mlp", "kmeans"), strict=True):
            before, after = (
                next(e["auc"] for e in run["curves"] if (e["family"], e["way"], e["test"]) == (family, way, OLD))
                for way in (BEFORE, AFTER)
            )
            assert f"difference {after - before:+.3f}" in claim.measured


def test_a_router_that_has_forgotten_is_caught(runs):
    worse = [
        {**run, "curves": [{**e, "auc": e["auc"] - 9} if (e["way"], e["test"]) == (AFTER, OLD) else e for e in curves]}
        for run in runs
        for curves in [run["curves"]]
    ]
    claims = {claim.name: claim.verdict for claim in EXPERIMENT.claims(worse)}
    assert claims["new-clients-forgetting-mlp"] == claims["new-clients-forgetting-kmeans"] == "refuted"


def test_joining_changes_the_router_for_the_new_clients(runs):
    for run in runs:
        before, after = (
            [e["points"] for e in run["curves"] if (e["way"], e["test"]) == (way, NEW)] for way in (BEFORE, AFTER)
        )
        assert all(old != new for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("share", [0.3, 0.65])
def test_newcomers_hold_a_share_of_the_task_labels_and_they_alone(share):
    world = small_world(queries=1000, tasks=40)
    old, new = replace(ROUTERBENCH, new_labels=share).divide_with_newcomers(world.dataset.evaluations, 1)
    assert (len(old), len(new)) == (7, 3)
    theirs, others = (
        {label for client in group for part in (client.train, client.test) for label in part.task}
        for group in (new, old)
    )
    assert not theirs & others
    assert len(theirs) == round(share * 40)
    assert labels_of(old, new)["labels"] == share
    assert sum(part.queries for client in old + new for part in (client.train, client.test)) == 1000
