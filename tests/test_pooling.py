import numpy as np
import pytest

from fedrouter.pooling import Moments, fit


def drawn(rows, models=6, width=8, shared=0.5, own=0.2, noise=0.5, seed=0):
    """Rows of a world that is as the prior says, and the weights behind them."""
    draw = np.random.default_rng(seed)
    truth = shared * draw.normal(size=width) + own * draw.normal(size=(models, width))
    features = [np.c_[np.ones(n), draw.normal(size=(n, width - 1))] for n in rows]
    targets = [x @ w + noise * draw.normal(size=len(x)) for x, w in zip(features, truth, strict=True)]
    return features, targets, truth


def moments(features, targets):
    return Moments(
        np.array([len(x) for x in features]),
        np.stack([x.T @ x for x in features]),
        np.stack([x.T @ y for x, y in zip(features, targets, strict=True)]),
        np.array([y @ y for y in targets]),
    )


def test_it_is_ordinary_regression_where_rows_abound():
    features, targets, _ = drawn([50_000] * 4, models=4)
    found = fit(moments(features, targets))
    for place in range(4):
        plain = np.linalg.lstsq(features[place], targets[place], rcond=None)[0]
        assert found.weights[place] == pytest.approx(plain, abs=2e-3)
    assert found.noise == pytest.approx(0.25, rel=0.02)


def test_a_model_with_few_rows_borrows_from_the_others():
    rows = [400, 400, 400, 400, 400, 6]
    gains = []
    for seed in range(10):
        features, targets, truth = drawn(rows, seed=seed)
        found = fit(moments(features, targets)).weights[5]
        plain = np.linalg.lstsq(features[5], targets[5], rcond=None)[0]
        gains.append(((found - truth[5]) ** 2).sum() / ((plain - truth[5]) ** 2).sum())
    assert np.mean(gains) < 0.5


def test_a_model_without_rows_is_the_shared_one():
    features, targets, _ = drawn([400] * 5 + [0])
    found = fit(moments(features, targets))
    assert found.weights[5] == pytest.approx(found.weights[:5].mean(axis=0), abs=0.1)


def test_the_variances_it_finds_are_those_of_the_world():
    features, targets, _ = drawn([2000] * 30, models=30, width=40, shared=0.5, own=0.2)
    found = fit(moments(features, targets))
    deviations = found.weights - found.weights.mean(axis=0)
    assert deviations[:, 1:].std() == pytest.approx(0.2, rel=0.1)
    assert found.noise == pytest.approx(0.25, rel=0.05)


def test_standard_errors_cover_the_truth_as_often_as_they_should():
    """Also at 50% and 80%, which intervals miss that take the estimated variances for known."""
    levels = {0.5: 0.6745, 0.8: 1.2816, 0.95: 1.96}
    queries = np.c_[np.ones(50), np.random.default_rng(1).normal(size=(50, 11))]
    inside = []
    for seed in range(60):
        features, targets, truth = drawn([40] * 6, width=12, noise=1.0, seed=seed)
        found = fit(moments(features, targets))
        away = np.abs(found.mean(queries) - queries @ truth.T) / found.error(queries)
        inside.append([(away < width).mean() for width in levels.values()])
    assert np.mean(inside, axis=0) == pytest.approx(list(levels), abs=0.03)


def test_constant_targets_and_no_rows_at_all_give_finite_weights():
    features = [np.c_[np.ones(10), np.eye(10)[:, :3]]] * 2
    for targets in ([np.ones(10)] * 2, [np.zeros(10)] * 2):
        assert np.isfinite(fit(moments(features, targets)).weights).all()
    empty = Moments(np.zeros(2, int), np.zeros((2, 4, 4)), np.zeros((2, 4)), np.zeros(2))
    assert np.isfinite(fit(empty).weights).all()


def test_a_specialist_is_shrunk_less_than_models_that_are_alike():
    """With one variance for all, the specialist's intervals are too short and those of the others too long."""
    own = np.array([0.05] * 7 + [0.8])
    inside, width = [], []
    for seed in range(20):
        features, targets, truth = drawn([40] * 8, models=8, width=20, own=own[:, None], noise=1.0, seed=seed)
        found = fit(moments(features, targets))
        error = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
        inside.append(np.abs(found.weights - truth)[-1, 1:] < 1.96 * error[-1, 1:])
        width.append(error[:-1, 1:].mean() / error[-1, 1:].mean())
    assert np.mean(inside) > 0.9
    assert np.mean(width) < 0.9
