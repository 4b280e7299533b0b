"""The posterior: what a direct computation gives, honest errors, and nothing learned from noise."""

import numpy as np
import pytest

from fedrouter.routers.posterior import BASE, Penalties, posterior


def drawn(models=4, rows=60, blocks=(5, 3), seed=0, noise=0.5):
    """Features ``(n, r+1)``, model ``(n,)`` and outcomes from weights with a shared part."""
    draw = np.random.default_rng(seed)
    width = 1 + sum(blocks)
    features = np.concatenate([np.ones((rows * models, 1)), draw.normal(size=(rows * models, width - 1)) / 3], axis=1)
    model = np.repeat(np.arange(models), rows)
    weights = draw.normal(size=width) + draw.normal(size=(models, width)) / 2
    outcome = (features * weights[model]).sum(axis=1) + noise * draw.normal(size=len(model))
    return features, model, outcome, weights


def sums_of(features, model, outcome, models=4):
    own = [model == one for one in range(models)]
    gram = np.stack([features[one].T @ features[one] for one in own])
    products = np.stack([features[one].T @ outcome[one] for one in own])
    squares = np.array([(outcome[one] ** 2).sum() for one in own])
    return gram, products, squares, np.array([one.sum() for one in own], float)


def test_weights_covariance_and_likelihood_are_those_of_the_joint_normal():
    features, model, outcome, _ = drawn(rows=20)
    gram, products, *_ = sums_of(features, model, outcome)
    penalties, variance = Penalties((-2, 1, 0), (1, 2, 3)), 0.3
    found = posterior(gram, products, (5, 3), variance=variance, penalties=penalties)
    common, deviation = (
        BASE ** np.repeat(np.array(each, float), [1, 5, 3]) for each in (penalties.common, penalties.deviation)
    )
    # All weights of all models as one normal vector, observed with noise.
    width, models = 9, 4
    prior = np.kron(np.ones((models, models)), np.diag(1 / common)) + np.kron(np.eye(models), np.diag(1 / deviation))
    wide = np.zeros((len(model), models * width))
    for row, one in enumerate(model):
        wide[row, one * width : (one + 1) * width] = features[row]
    seen = wide @ prior @ wide.T + np.eye(len(model))
    gain = prior @ wide.T @ np.linalg.inv(seen)
    assert found.weights.ravel() == pytest.approx(gain @ outcome, abs=1e-8)
    covariance = variance * (prior - gain @ wide @ prior)
    for one in range(models):
        part = slice(one * width, (one + 1) * width)
        assert found.covariance[one] == pytest.approx(covariance[part, part], abs=1e-8)
    sign, size = np.linalg.slogdet(seen)
    likelihood = -0.5 * (size + outcome @ np.linalg.solve(seen, outcome) / variance)
    constant = -0.5 * outcome @ outcome / variance
    assert sign == 1
    assert found.likelihood == pytest.approx(likelihood - constant, abs=1e-6)


def test_the_variance_that_is_not_explained_is_found():
    features, model, outcome, _ = drawn(rows=400, noise=0.5)
    gram, products, squares, count = sums_of(features, model, outcome)
    assert posterior(gram, products, (5, 3), squares, count).variance[0] == pytest.approx(0.25, rel=0.1)


def test_penalties_are_the_most_probable_among_their_neighbors():
    gram, products, squares, count = sums_of(*drawn()[:3])
    best = posterior(gram, products, (5, 3), squares, count)
    for part in ("common", "deviation"):
        for block in range(1, 3):
            for step in (-1, 1):
                exponents = list(getattr(best.penalties, part))
                exponents[block] += step
                both = {"common": best.penalties.common, "deviation": best.penalties.deviation, part: tuple(exponents)}
                other = posterior(gram, products, (5, 3), squares, count, penalties=Penalties(**both))
                assert other.likelihood + other.penalties.belief <= best.likelihood + best.penalties.belief + 1e-6


def test_where_queries_teach_nothing_all_queries_have_the_same_differences_between_models():
    features, model, _, _ = drawn(rows=300)
    outcome = 0.2 * model + np.random.default_rng(1).normal(size=len(model))
    found = posterior(*_arguments(features, model, outcome))
    means = np.array([outcome[model == one].mean() for one in range(4)])
    estimates = found.mean(features[:50])
    assert estimates.mean(axis=0) == pytest.approx(means, abs=0.1)
    assert (estimates - estimates[:, :1]).std(axis=0).max() < 0.02


def test_intervals_cover_what_they_say_shared_part_included():
    inside = {0.5: [], 0.8: [], 0.95: []}
    for seed in range(40):
        features, model, outcome, weights = drawn(rows=40, seed=seed)
        few = model != 3  # a model without rows is estimated by the shared part alone
        found = posterior(*_arguments(features[few], model[few], outcome[few]))
        query = features[:5]
        error = np.sqrt(np.einsum("nr,mrs,ns->nm", query, found.covariance, query))
        away = np.abs(found.mean(query) - query @ weights.T) / error
        for share, width in ((0.5, 0.674), (0.8, 1.282), (0.95, 1.96)):
            inside[share].append((away < width).mean())
    for share, found in inside.items():
        assert np.mean(found) == pytest.approx(share, abs=0.07)


def test_draws_have_the_posteriors_mean_and_covariance():
    gram, products, squares, count = sums_of(*drawn()[:3])
    found = posterior(gram, products, (5, 3), squares, count)
    many = found.draws(20_000, np.random.default_rng(0))
    error = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    assert np.abs((many.mean(axis=0) - found.weights) / error).max() < 0.05
    for one in range(4):
        assert np.cov(many[:, one].T) == pytest.approx(found.covariance[one], abs=0.05 * error.max() ** 2)


def _arguments(features, model, outcome):
    gram, products, squares, count = sums_of(features, model, outcome)
    return gram, products, (5, 3), squares, count
