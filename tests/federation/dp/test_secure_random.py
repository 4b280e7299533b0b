"""Random numbers that nobody can predict, with the distributions that the accountant counts on."""

import os

import numpy as np
import pytest
from scipy import stats

from fedrouter.federation.dp.secure_random import gaussian, sampled


def test_gaussian_numbers_are_gaussian():
    drawn = gaussian(200_000)
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert stats.kstest(drawn**2, "chi2", args=(1,)).pvalue > 1e-6


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_the_most_extreme_bits_give_finite_numbers(monkeypatch, byte):
    monkeypatch.setattr(os, "urandom", lambda size: bytes([byte]) * size)
    assert np.isfinite(gaussian(4)).all()
    # All zeros is the least likely number there is; all ones is in the middle.
    assert np.abs(gaussian(4)) == pytest.approx(np.full(4, 13.2 if byte == 0 else 0.0), abs=0.2)


@pytest.mark.parametrize("rate", [0.0, 0.003, 0.5, 1.0])
def test_rows_are_sampled_at_their_rate(rate):
    assert sampled(200_000, rate).mean() == pytest.approx(rate, abs=5 * np.sqrt(rate * (1 - rate) / 200_000))


def test_every_bit_comes_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or bytes(range(256)) * (size // 256))
    gaussian(320)
    sampled(320, 0.5)
    assert sum(asked) == 320 * (16 + 8)


def test_seeding_every_generator_repeats_nothing():
    import torch

    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(gaussian(16))
    assert not (found[0] == found[1]).any()
