"""A seed learns the same arrays on every machine and in every version."""

import hashlib
import json

import numpy as np
import pytest

from conftest import PROJECT, drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.pool import ModelPool

LEARNED = json.loads((PROJECT / "tests" / "fixtures" / "seed-7.json").read_text())
"""Digests of the arrays of each family; never made again."""


@pytest.mark.parametrize("name", LEARNED)
def test_the_same_seed_learns_the_same_arrays_as_before(name):
    """Sums are exact, so these do not depend on the machine; the others are compared on one machine at a time."""
    family = FAMILIES[name]
    members = {f"client-{seed}": drawn_evaluations(seed=seed) for seed in range(3)}
    pool = ModelPool(["model-0", "model-1", "model-2"])
    router = family.learn(LocalFederation(members), pool, family.paper or family.settings(), 7)
    found = {part: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for part, a in router.arrays().items()}
    assert found == LEARNED[name]
