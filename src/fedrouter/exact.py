"""Exact sums: fixed-point sums that do not depend on order or grouping, and from which values can be subtracted.

Floating-point addition rounds, so the sums of ten clients differ in the last bits from the sums of their pooled rows,
and adding a client and subtracting it again does not restore the total. Here each value is rounded once, when it
is added, to a multiple of 2^-40; after that, everything is integer arithmetic. Secure aggregation needs this form, too.

An integer is stored as two 64-bit limbs, ``high * 2^31 + low`` with low in [0, 2^31), so equal sums have equal bytes.
For values below 2^20 in magnitude each limb of one value is below 2^31, so the limbs of 2^32 (four billion) values can
be added without a carry before any overflows. Secure aggregation relies on that, because it adds masked limbs.

:class:`RowProducts` are the other half: what is summed must itself not depend on the other rows. BLAS picks its kernel
and its order of additions by the number of rows, so in floating point one row more changes the last bits of all others,
and weights can be crafted that turn those bits into predictions of 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FRACTION_BITS = 40
LIMB_BITS = 31
LOW = 2**LIMB_BITS - 1
LARGEST = float(2**20)
"""Upper bound of the magnitude of a single value."""
AT_ONCE = 1 << 16
"""Values that are integers at a time: their limbs take more memory than they do."""
RESOLUTION = 2.0**-FRACTION_BITS
"""Values are rounded to a multiple of this."""


@dataclass(frozen=True, eq=False)
class ExactSums:
    """An array of exact sums; ``limbs`` is ``(..., 2)`` int64."""

    limbs: npt.NDArray[np.int64]

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> ExactSums:
        return cls(np.zeros((*shape, 2), np.int64))

    @classmethod
    def of(cls, values: npt.NDArray[np.float64], groups: npt.NDArray[np.int64], size: int) -> ExactSums:
        """Sum ``values`` ``(n,)`` by their group ``(n,)`` in ``range(size)``."""
        values = np.asarray(values, np.float64)
        if values.size and not np.abs(values).max() < LARGEST:  # also catches NaN
            raise OverflowError(f"a value to be summed must be finite and below {LARGEST:.0f} in magnitude")
        sums = cls.zeros((size,))
        for start in range(0, len(values), AT_ONCE):
            part = slice(start, start + AT_ONCE)
            units = np.rint(np.ldexp(values[part], FRACTION_BITS)).astype(np.int64)
            np.add.at(sums.limbs, groups[part], np.stack([units >> LIMB_BITS, units & LOW], axis=-1))
        return sums.carried()

    def carried(self) -> ExactSums:
        """The same sums in normal form: every low limb in its range."""
        high, low = self.limbs[..., 0], self.limbs[..., 1]
        return ExactSums(np.stack([high + (low >> LIMB_BITS), low & LOW], axis=-1))

    def __getitem__(self, index: Any) -> ExactSums:
        return ExactSums(self.limbs[index])

    def reshape(self, shape: tuple[int, ...]) -> ExactSums:
        return ExactSums(self.limbs.reshape(*shape, 2))

    def totals(self) -> npt.NDArray[np.float64]:
        """The sums as floats, accurate to the last bit; equal limbs give equal floats."""
        high, low = self.limbs[..., 0].astype(np.float64), self.limbs[..., 1].astype(np.float64)
        return np.asarray(np.ldexp(np.ldexp(high, LIMB_BITS) + low, -FRACTION_BITS))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.limbs.shape[:-1]

    def __add__(self, other: ExactSums) -> ExactSums:
        return ExactSums(self.limbs + other.limbs).carried()

    def __sub__(self, other: ExactSums) -> ExactSums:
        return ExactSums(self.limbs - other.limbs).carried()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSums) and np.array_equal(self.limbs, other.limbs)

    __hash__ = None  # type: ignore[assignment]


SIGNIFICAND_BITS = 53
LEAST_EXPONENT = -900
"""Rows and columns below 2^-900 are zero: the power of two that scales them up must be finite."""


class RowProducts:
    """``rows @ matrix``, where the result of a row is the same to the bit whatever other rows there are.

    Each row and each column is scaled by a power of two and rounded to integers so small that their products and all
    sums of them stay within 2^53. Float64 holds these exactly, in any order and with any kernel of BLAS. Rounding to
    that many bits (21 each for 768 columns) is as accurate as float32. With ``precise``, what the rounding left over is
    multiplied as well, which is as accurate as float64 but takes three matrix products.

    Prepare one for each matrix ``(d, k)``, and call it with rows ``(n, d)``.
    """

    def __init__(self, matrix: npt.ArrayLike, precise: bool = True) -> None:
        columns = np.ascontiguousarray(matrix, np.float64)
        terms = max(1, len(columns) - 1).bit_length()  # a sum has at most 2^terms products
        self._bits = (SIGNIFICAND_BITS - terms) // 2
        self._column_bits = SIGNIFICAND_BITS - terms - self._bits
        self._precise = precise
        self._scale, self._whole, self._rest = _integers(columns, 0, self._column_bits, precise)

    def __call__(self, rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
        scale, whole, rest = _integers(np.ascontiguousarray(rows, np.float64), 1, self._bits, self._precise)
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite stays in its own row or column
            product = whole @ self._whole
            if self._precise:
                small = np.ldexp(1.0, -self._column_bits) * (whole @ self._rest)
                product += small + np.ldexp(1.0, -self._bits) * (rest @ self._whole)
            return np.asarray(product * scale * self._scale)


def _integers(
    values: npt.NDArray[np.float64], axis: int, bits: int, precise: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A power of two for each row or column, the values in its units as integers within ±2^bits, and the rounding.

    The rounding is in units 2^bits times finer, and integers as well; it is empty unless ``precise``.
    """
    exponent = np.frexp(np.abs(values).max(axis=axis, keepdims=True, initial=0.0))[1]
    exponent = np.maximum(exponent, LEAST_EXPONENT)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values * np.ldexp(1.0, bits - exponent)
        whole = np.rint(scaled)
        rest = np.rint((scaled - whole) * np.ldexp(1.0, bits)) if precise else np.zeros(0)
    return np.ldexp(1.0, exponent - bits), whole, rest
