import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrouter.exact import LARGEST, LIMB_BITS, RESOLUTION, ExactSums, RowProducts

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


SIZES = (
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    47,
    48,
    63,
    64,
    65,
    127,
    128,
    129,
    191,
    192,
    193,
    255,
    256,
    257,
)
"""Numbers of rows around those at which BLAS changes kernels."""


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize(("width", "columns"), [(1, 1), (3, 5), (64, 14), (384, 20), (768, 512)])
def test_a_row_of_a_product_does_not_depend_on_the_other_rows(precise, width, columns):
    draw = np.random.default_rng(width)
    rows = draw.normal(size=(300, width)).astype(np.float32) * 10.0 ** draw.integers(-6, 6, (300, 1))
    product = RowProducts(draw.normal(size=(width, columns)) * 10.0 ** draw.integers(-30, 30, columns), precise)
    whole = product(rows)
    for size in SIZES:
        assert np.array_equal(product(rows[:size]), whole[:size])
        assert np.array_equal(product(rows[-size:]), whole[-size:])


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.integers(-40, 40))
def test_products_of_rows_are_as_accurate_as_floating_point(width, seed, exponent):
    draw = np.random.default_rng(seed)
    rows, matrix = draw.normal(size=(6, width)) * 2.0**exponent, draw.normal(size=(width, 4))
    size = np.abs(rows).max(axis=1, keepdims=True) * np.abs(matrix).max(axis=0) * width
    for precise, accuracy in ((False, 2.0**-19), (True, 2.0**-38)):
        assert (np.abs(RowProducts(matrix, precise)(rows) - rows @ matrix) <= accuracy * size).all()


def test_a_value_that_is_not_finite_stays_in_its_row_and_column():
    draw = np.random.default_rng(0)
    rows, matrix = draw.normal(size=(5, 8)), draw.normal(size=(8, 4))
    fine = RowProducts(matrix)(rows)
    rows[2, 3], matrix[1, 0] = np.nan, np.inf
    found = RowProducts(matrix)(rows)
    kept = np.ix_([0, 1, 3, 4], [1, 2, 3])
    assert np.array_equal(found[kept], fine[kept])
    assert not np.isfinite(found[2]).any()
    assert not np.isfinite(found[:, 0]).any()


def test_products_of_no_rows_of_zeros_and_of_tiny_numbers_are_what_they_should_be():
    assert RowProducts(np.ones((3, 2)))(np.zeros((0, 3))).shape == (0, 2)
    assert not RowProducts(np.ones((3, 2)))(np.zeros((1, 3))).any()
    assert not RowProducts(np.full((3, 2), 1e-308))(np.full((1, 3), 5e-324)).any()
