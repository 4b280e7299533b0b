"""Intervals contain what they say: means of cells (a K-Means cluster and a model) on held-out queries."""

from statistics import NormalDist

import numpy as np
import pytest
from sklearn.cluster import KMeans

from fedrouter.data.read import read
from fedrouter.encoders.identity import STATIC
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.bayes import from_rows

CELLS, SPLITS, LEAST = 12, 8, 10
LEVELS = (0.5, 0.8, 0.95)


def shares_covered(rows: Evaluations) -> list[float]:
    """Of the cells of several splits, how many hold the truth within the interval of each level.

    Learned from one answer a query; the truth is the mean of at least ten held-out ones, with its own sampling error.
    """
    grid, errors = rows.grid(), []
    for seed in range(SPLITS):
        rng = np.random.default_rng(seed)
        held = rng.random(rows.queries) < 0.5
        asked = rng.integers(len(rows.pool), size=rows.queries)
        router = from_rows([rows.take(np.flatnonzero(~held[rows.query] & (rows.model == asked[rows.query])))])
        cluster = KMeans(CELLS, n_init=1, random_state=seed).fit(rows.embeddings).labels_
        for cell in range(CELLS):
            some = held & (cluster == cell)
            if some.sum() < LEAST:
                continue
            features = router.evidence.features.features(rows.embeddings[some]).mean(axis=0)
            truth = grid.accuracy[some]
            predicted = router.accuracy.mean(features[None])[0] + 0.5
            variance = np.einsum("r,mrs,s->m", features, router.covariance, features)
            sampling = truth.var(axis=0, ddof=1) / len(truth)
            errors.append((truth.mean(axis=0) - predicted) / np.sqrt(variance + sampling))
    found = np.abs(np.concatenate(errors))
    return [float((found < NormalDist().inv_cdf(0.5 + level / 2)).mean()) for level in LEVELS]


@pytest.mark.slow
def test_intervals_hold_on_the_simulated_world(world):
    assert shares_covered(world.evaluations) == pytest.approx(LEVELS, abs=0.04)


@pytest.mark.slow
def test_intervals_hold_on_real_data(real_data):
    rows = read(real_data / "openllm_v2.parquet", encoder=STATIC).evaluations
    assert shares_covered(rows) == pytest.approx(LEVELS, abs=0.04)
