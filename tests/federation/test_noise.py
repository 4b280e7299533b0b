"""The noise of a release: its size for a stated ε, and an attack that must not gain more than that."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from conftest import drawn_evaluations
from fedrouter.encoders.feature_map import UNIT, FeatureMap
from fedrouter.errors import BadInput
from fedrouter.federation.noise import (
    COUNT_EPSILON,
    Noise,
    colluders,
    discrete_gaussian,
    gaussian_delta,
    gaussian_mu,
    honest,
    tolerated_dropouts,
)
from fedrouter.federation.secagg.primitives import numbers
from fedrouter.release import SENSITIVITY, Release


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-5), (8, 1e-6), (16, 1e-6)])
def test_sigma_is_on_the_exact_gaussian_curve(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-3)
    wanted = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert gaussian_delta(epsilon, mu) == pytest.approx(wanted, rel=1e-6)
    rest = gaussian_mu(epsilon - COUNT_EPSILON, delta)
    assert Noise(epsilon, delta).sigma == pytest.approx(SENSITIVITY / rest)


@pytest.mark.parametrize("members", range(3, 31))
def test_honest_members_that_remain_always_add_up_to_sigma(members):
    noise = Noise()
    for dropouts, colluding in product(range(tolerated_dropouts(members) + 1), range(max(1, members // 5) + 1)):
        left = members - dropouts - colluding
        assert left * noise.share(members) ** 2 >= noise.sigma**2 * (1 - 1e-12)
    assert honest(members) >= 1


@pytest.mark.parametrize("members", [3, 5, 10, 30, 100])
@pytest.mark.parametrize("share", [0.2, 0.4])
def test_sigma_is_reached_whomever_the_others_trust(members, share):
    """One member's view: it trusts some; these trust more or fewer; the worst of them drop out and collude."""
    noise, draw = Noise(), np.random.default_rng(members)
    for trusted in range(members):
        divisors = [honest(members, int(each), share) for each in draw.integers(1, members + 1, trusted)]
        staying = max(0, trusted - tolerated_dropouts(members) - colluders(members, share))
        own = noise.deviation(honest(members, trusted + 1, share), divisors, staying)
        least = own**2 + sum(sorted(noise.sigma**2 / each for each in divisors)[:staying])
        assert least >= noise.sigma**2 * (1 - 1e-12)


def test_the_declared_number_has_noise_of_its_own_part_of_epsilon():
    drawn = np.array([Noise().declared(500) for _ in range(4_000)]) - 500
    assert drawn.mean() == pytest.approx(0, abs=5 * np.sqrt(2) / COUNT_EPSILON / np.sqrt(4_000))
    assert drawn.std() == pytest.approx(np.sqrt(2) / COUNT_EPSILON, rel=0.1)
    assert {Noise(0).declared(500) for _ in range(20)} == {500}


def test_drawn_integers_have_the_deviation_they_should():
    drawn = discrete_gaussian(4_000, 300.0)
    assert drawn.dtype == np.int64
    assert drawn.std() == pytest.approx(300.0, rel=0.06)
    assert not (drawn == discrete_gaussian(4_000, 300.0)).all()
    assert (discrete_gaussian(50, 300.0, seed=3) == discrete_gaussian(50, 300.0, seed=3)).all()


def test_integers_are_drawn_as_often_as_the_discrete_gaussian_says():
    size, values = 40_000, np.arange(-6, 7)
    drawn = discrete_gaussian(size, 2.0, draw=numbers(b"a secret", "test"))
    chance = np.exp(-(values**2) / 8) / np.exp(-(np.arange(-60, 61) ** 2) / 8).sum()
    found = np.array([(drawn == value).mean() for value in values])
    assert (np.abs(found - chance) <= 4 * np.sqrt(chance * (1 - chance) / size)).all()


def test_noise_follows_from_a_secret_and_what_it_is_for():
    draws = [discrete_gaussian(20, 9.0, draw=numbers(*of)).tolist() for of in ((b"s", "a"), (b"s", "a"), (b"s", "b"))]
    assert draws[0] == draws[1] != draws[2]


def test_epsilon_zero_adds_nothing():
    rows = drawn_evaluations(queries=10)
    release = Release.of(rows, FeatureMap(rows.dimension))
    assert Noise(0).on(release, 10) is release
    assert Noise(0).total(10) == 0.0


@pytest.mark.parametrize(
    ("change", "words"), [({"epsilon": -1}, "epsilon"), ({"epsilon": 0.2}, "epsilon"), ({"delta": 0}, "delta")]
)
def test_impossible_budgets_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        Noise(**change)


def test_an_attacker_who_knows_all_other_queries_gains_no_more_than_epsilon_allows():
    """The best test there is, the likelihood ratio, against the noise of honest members alone."""
    noise, members = Noise(), 10
    rows = drawn_evaluations(queries=1)
    query = Release.of(rows, FeatureMap(rows.dimension)).vector() / UNIT
    deviation = noise.share(members) * np.sqrt(honest(members))
    draw = np.random.default_rng(0)
    without = draw.normal(0, deviation, (4_000, len(query))) @ query
    with_it = without[::-1] + query @ query
    guessed = np.mean(with_it[:, None] > without[None, :2_000])
    worst = noise.auc
    assert worst == pytest.approx(0.86, abs=0.005)  # what is claimed beside every ε of 8
    assert guessed <= worst + 3 * 0.5 / np.sqrt(2_000)
    for threshold in np.linspace(without.min(), with_it.max(), 50):
        false, true = (without > threshold).mean(), (with_it > threshold).mean()
        slack = 3 * np.sqrt(0.25 / 4_000)
        assert true <= np.exp(noise.epsilon) * (false + slack) + noise.delta + slack
