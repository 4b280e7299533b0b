import numpy as np
import pytest
from scipy.special import ndtr

from fedrouter.normal import normal_cdf


def test_it_agrees_with_scipy():
    x = np.r_[np.random.default_rng(0).normal(0, 3, 100_000), np.linspace(-12, 12, 10_001), -np.inf, np.inf]
    assert np.abs(normal_cdf(x) - ndtr(x)).max() < 1e-11


def test_it_never_falls_and_stays_a_probability():
    found = normal_cdf(np.linspace(-10, 10, 200_001))
    assert (np.diff(found) >= -1e-16).all()
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_shape_and_type_are_kept(kind):
    found = normal_cdf(np.zeros((2, 3), kind))
    assert (found.shape, found.dtype) == ((2, 3), kind)
    assert (found == 0.5).all()


def test_nan_stays_nan():
    assert np.isnan(normal_cdf(np.array([np.nan, 0.0]))).tolist() == [True, False]
