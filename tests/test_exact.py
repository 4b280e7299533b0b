import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrouter.exact import LARGEST, LIMB_BITS, RESOLUTION, ExactSums

values = st.lists(st.floats(-1e5, 1e5, allow_nan=False), max_size=60)


def total(numbers) -> ExactSums:
    return ExactSums.of(np.array(numbers, float), np.zeros(len(numbers), np.int64), 1)


@given(values, st.randoms())
def test_the_sum_does_not_depend_on_order(numbers, random):
    shuffled = list(numbers)
    random.shuffle(shuffled)
    assert total(shuffled) == total(numbers)


@given(values, values, values)
def test_the_sum_does_not_depend_on_grouping(one, two, three):
    assert (
        (total(one) + total(two)) + total(three) == total(one) + (total(two) + total(three)) == total(one + two + three)
    )


@given(values, values)
def test_what_was_added_can_be_taken_back(one, two):
    assert (total(one) + total(two)) - total(two) == total(one)


@given(values)
def test_it_is_the_sum_to_within_the_rounding_of_each_value(numbers):
    slack = len(numbers) * RESOLUTION + 1e-15 * sum(map(abs, numbers))
    assert total(numbers).totals()[0] == pytest.approx(sum(numbers), abs=slack)


@pytest.mark.parametrize("value", [LARGEST * (1 - 2**-50), -LARGEST * (1 - 2**-50), 1.0, RESOLUTION])
def test_a_billion_of_the_largest_values_do_not_overflow(value):
    billion = 10**9
    one = total([value]).limbs[0]
    # int64 would wrap around silently; Python's integers cannot.
    assert all(abs(int(limb) * billion) < 2**63 for limb in one)
    many = ExactSums((one * billion)[None])
    exact = (int(one[0]) * billion * 2**LIMB_BITS + int(one[1]) * billion) * RESOLUTION
    assert many.totals()[0] == pytest.approx(exact, rel=1e-15)


def test_groups_are_summed_apart():
    sums = ExactSums.of(np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), 4)
    assert sums.totals().tolist() == [2.0, 0.0, 5.0, 0.0]


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, np.nan, np.inf])
def test_a_value_that_could_overflow_is_refused(value):
    with pytest.raises(OverflowError):
        total([value])


@given(st.integers(0, 300), st.integers(1, 4), st.integers(0, 100))
def test_sums_of_products_do_not_depend_on_grouping(rows, width, seed):
    draw = np.random.default_rng(seed)
    left, right = draw.normal(size=(rows, width)), draw.normal(size=(rows, 2))
    cut = rows // 3
    whole = ExactSums.products(left, right)
    assert whole == ExactSums.products(left[:cut], right[:cut]) + ExactSums.products(left[cut:], right[cut:])
    assert whole.totals() == pytest.approx(left.T @ right, abs=1e-5 * (rows + 1))


def test_products_of_many_large_factors_are_exact():
    left = np.full((3000, 1), 60.0)
    assert ExactSums.products(left, left).totals()[0, 0] == 3000 * 60.0**2


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
def test_factors_that_could_overflow_are_refused(value):
    with pytest.raises(OverflowError):
        ExactSums.products(np.array([[value]]), np.array([[value]]))
