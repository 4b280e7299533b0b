"""Sums that do not depend on order or grouping, and can be taken back exactly.

Floating-point addition rounds, so ten clients' sums differ in the last bits from the sums of their pooled rows,
and adding a client and subtracting it again does not restore the total. Here each value is rounded once, when it
enters, to a multiple of 2^-40; from then on everything is integer arithmetic. That is also the form secure
aggregation needs.

An integer is kept as two 64-bit limbs, ``high * 2^31 + low``, which are summed independently and never carried:
with values below 2^20 in magnitude each limb of one value is below 2^31, so no limb can overflow before 2^32
(four billion) values have been added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FRACTION_BITS = 40
LIMB_BITS = 31
LARGEST = float(2**20)
"""Magnitude a single value must stay below."""
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
        units = np.rint(np.ldexp(values, FRACTION_BITS)).astype(np.int64)
        sums = cls.zeros((size,))
        np.add.at(sums.limbs, groups, np.stack([units >> LIMB_BITS, units & (2**LIMB_BITS - 1)], axis=-1))
        return sums

    def totals(self) -> npt.NDArray[np.float64]:
        """The sums as floats, correctly rounded but for the last bit; equal limbs give equal floats."""
        high, low = self.limbs[..., 0].astype(np.float64), self.limbs[..., 1].astype(np.float64)
        return np.asarray(np.ldexp(np.ldexp(high, LIMB_BITS) + low, -FRACTION_BITS))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.limbs.shape[:-1]

    def __add__(self, other: ExactSums) -> ExactSums:
        return ExactSums(self.limbs + other.limbs)

    def __sub__(self, other: ExactSums) -> ExactSums:
        return ExactSums(self.limbs - other.limbs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSums) and np.array_equal(self.limbs, other.limbs)

    __hash__ = None  # type: ignore[assignment]
