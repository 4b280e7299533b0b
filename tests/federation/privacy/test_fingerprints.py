"""Counts of equal rows by their fingerprints are those that comparing them one by one gives."""

import numpy as np
import pytest

from fedrouter.federation.privacy.fingerprints import distinct, distinct_pairs, places, repetitions

DRAW = np.random.default_rng(0)
KEYS = DRAW.choice(DRAW.integers(0, 2**64, 40, np.uint64), 200)
GROUP = DRAW.integers(0, 5, 200)
CONTENT = DRAW.integers(0, 2**64, 200, np.uint64)


def test_distinct_keys_are_counted_by_group():
    found = [len(np.unique(KEYS[group == GROUP])) for group in range(7)]
    assert distinct(GROUP, KEYS, 7).tolist() == found
    some = DRAW.random(200) < 0.5
    assert distinct(GROUP, KEYS, 7, some).tolist() == distinct(GROUP[some], KEYS[some], 7).tolist()


def test_pairs_are_sorted_and_have_the_sum_of_their_rows_content():
    found = distinct_pairs(KEYS, GROUP, CONTENT)
    pairs = sorted(set(zip(KEYS.tolist(), GROUP.tolist(), strict=True)))
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == pairs
    for key, group, content in zip(*found, strict=True):
        assert content == CONTENT[(key == KEYS) & (group == GROUP)].sum()


def test_repetitions_count_the_equal_rows_before():
    assert repetitions(KEYS).tolist() == [int((KEYS[:row] == key).sum()) for row, key in enumerate(KEYS)]


def test_places_among_known_keys():
    known = np.unique(KEYS[:50])
    expected = [known.tolist().index(key) if key in known else -1 for key in KEYS]
    assert places(KEYS, known).tolist() == expected
    assert places(KEYS, known[:0]).tolist() == [-1] * 200


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one_row(rows):
    assert distinct(GROUP[:rows], KEYS[:rows], 5).sum() == rows
    assert [len(part) for part in distinct_pairs(KEYS[:rows], GROUP[:rows], CONTENT[:rows])] == [rows] * 3
