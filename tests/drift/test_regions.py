"""Regions and their names."""

import numpy as np

from fedrouter.drift.regions import region_names, regions_of
from fedrouter.routers.kmeans import nearest_centre


def clumps(draw):
    corners = 10 * np.eye(3, 4)
    kind = np.repeat(np.arange(3), 40)
    return (corners[kind] + draw.normal(size=(120, 4))).astype(np.float32), kind


def test_regions_are_the_clumps_of_the_queries():
    queries, kind = clumps(np.random.default_rng(0))
    centres = regions_of(queries, 3)
    own = nearest_centre(queries, centres)
    assert len({(a, b) for a, b in zip(own, kind, strict=True)}) == 3
    assert np.array_equal(centres, regions_of(queries, 3))


def test_few_queries_are_their_own_regions():
    queries = np.eye(3, dtype=np.float32)
    assert len(regions_of(np.vstack([queries, queries]), 8)) == 3


def test_a_region_is_named_by_its_tasks_its_words_or_its_number():
    queries, kind = clumps(np.random.default_rng(0))
    centres = np.stack([queries[kind == one].mean(axis=0) for one in range(3)])
    tasks = [("sql", None, "math")[one] for one in kind]
    texts = [("select rows", "translate this sentence into French", "add numbers")[one] for one in kind]
    named = region_names(centres, queries, tasks, texts)
    assert (named[0], named[2]) == ("sql", "math")
    assert "french" in named[1] or "translate" in named[1] or "sentence" in named[1]
    assert region_names(centres, queries) == ("region 1", "region 2", "region 3")
    assert region_names(centres, queries, ["sql"] * 120) == ("sql (1)", "sql (2)", "sql (3)")
