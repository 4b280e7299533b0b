"""Families and settings that a command was given."""

import pytest

from fedrouter.errors import BadInput
from fedrouter.federation.families.choice import chosen_settings, read_changes
from fedrouter.federation.families.registry import FAMILIES


def test_a_change_reaches_its_family():
    changes = read_changes(["kmeans.k_global=40"])
    assert changes == {"kmeans": {"k_global": 40}}
    found = chosen_settings("kmeans,bayes", changes=changes)
    assert found["kmeans"].k_global == 40
    assert found["kmeans"].k_local == 15


def test_the_papers_form_is_as_printed_unless_something_is_set():
    assert chosen_settings("kmeans,mlp", paper=True)["kmeans"].k_global == 20
    assert chosen_settings("kmeans")["kmeans"].k_global == 0
    changed = chosen_settings("kmeans", changes=read_changes(["kmeans.k_global=7"]), paper=True)
    assert (changed["kmeans"].k_global, changed["kmeans"].k_local) == (7, 15)
    with pytest.raises(BadInput, match="--paper: bayes is not in the paper"):
        chosen_settings("bayes", paper=True)


def test_values_have_the_type_of_the_default():
    assert read_changes(["mlp.hidden=16,8", "mlp.learning_rate=0.01", "bayes.cells=0,12"]) == {
        "mlp": {"hidden": (16, 8), "learning_rate": 0.01},
        "bayes": {"cells": (0, 12)},
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_a_wrong_setting_names_the_valid_ones(name):
    with pytest.raises(BadInput, match=f"--set {name}.nothing=1: no setting 'nothing'; {name} has ") as refused:
        read_changes([f"{name}.nothing=1"])
    for valid in str(refused.value).rpartition(" has ")[2].replace("no settings", "").split(", "):
        if valid:
            assert hasattr(FAMILIES[name].settings(), valid)


def test_a_change_of_a_family_that_is_not_used_is_refused():
    with pytest.raises(BadInput, match="mlp is not used here; --router chose kmeans"):
        chosen_settings("kmeans", changes=read_changes(["mlp.rounds=2"]))
