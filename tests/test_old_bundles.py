"""Bundles written by earlier versions are read, and mean what they meant."""

import hashlib
import json

import numpy as np
import pytest

from conftest import PROJECT, drawn_evaluations
from fedrouter.bundle import load
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadBundle
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.pool import ModelPool

FIXTURES = PROJECT / "tests" / "fixtures"
BUNDLES = sorted(path.stem for path in (FIXTURES / "bundles").glob("*.npz"))


@pytest.mark.parametrize("name", BUNDLES)
def test_an_old_bundle_gives_the_estimates_it_gave(name):
    estimates = load(FIXTURES / "bundles" / name).router.estimate(drawn_evaluations(seed=99).embeddings)
    before = np.load(FIXTURES / "bundles" / f"{name}.npz")
    for part in ("accuracy", "cost", "error"):
        # Equal to the bit where it was written; elsewhere a matrix product may be added in another order.
        assert getattr(estimates, part) == pytest.approx(before[part], rel=1e-5, abs=1e-7)


def test_there_is_an_old_bundle_of_every_family_that_is_read():
    assert set(BUNDLES) == {"kmeans", "mlp", "personal"}


@pytest.mark.parametrize("name", ["auto", "kernel", "linear", "query_blind"])
def test_an_old_bundle_of_a_family_that_went_is_refused_with_the_command_that_learns_anew(name):
    with pytest.raises(BadBundle, match=f"'{name}' in format 1 is not read; learn anew: fedrouter learn LOG --out DIR"):
        load(FIXTURES / "bundles" / name)


@pytest.mark.parametrize("name", ["kmeans", "query_blind"])
def test_the_same_seed_learns_the_same_arrays_as_before(name):
    """Sums are exact, so these do not depend on the machine; the others are compared on one machine at a time."""
    family = FAMILIES[name]
    members = [Client(f"client-{seed}", drawn_evaluations(seed=seed), OPEN) for seed in range(3)]
    pool = ModelPool(["model-0", "model-1", "model-2"])
    router = family.learn(LocalFederation(members), pool, family.settings(), 7)
    found = {part: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for part, a in router.arrays().items()}
    before = json.loads((FIXTURES / "seed-7.json").read_text())[name]
    # The form says how cells are pooled: by now, with a variance of deviations for each model.
    assert found.pop("form") != before.pop("form")
    assert router.own_variances
    assert found == before
