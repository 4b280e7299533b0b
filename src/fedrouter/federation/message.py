"""How a message is packed into arrays and scalars, unpacked again, and checked at both ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Self, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage
from fedrouter.exact import ExactSums
from fedrouter.routers.mlp import CostScale, Weights

Packed = tuple[dict[str, npt.NDArray[Any]], str]
"""A message on the wire: named arrays, and its scalars as JSON."""


Named = Mapping[str, npt.NDArray[Any]]
"""A group of arrays of any kind, by name."""


@dataclass(frozen=True, eq=False)
class Message:
    """A payload whose fields are arrays, exact sums, named groups of arrays, or scalars."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse what breaks the rules of this type; a subclass says what they are."""

    def pack(self) -> Packed:
        arrays: dict[str, npt.NDArray[Any]] = {}
        scalars: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, ExactSums):
                arrays[part.name] = value.limbs
            elif isinstance(value, np.ndarray):
                arrays[part.name] = value
            elif isinstance(value, Mapping | CostScale):
                group = value if isinstance(value, Mapping) else vars(value)
                arrays |= {f"{part.name}/{name}": array for name, array in group.items()}
            else:
                scalars[part.name] = value
        return arrays, json.dumps(scalars)

    @classmethod
    def unpack(cls, packed: Packed) -> Self:
        """The message again; its type's rules are checked, and anything missing or left over is refused."""
        arrays, scalars = dict(packed[0]), packed[1]
        try:
            values: dict[str, Any] = dict(json.loads(scalars))
            for name, kind in get_type_hints(cls).items():
                if kind in (Weights, Named, CostScale):
                    prefix = f"{name}/"
                    inside = [key for key in arrays if key.startswith(prefix)]
                    group = {key.removeprefix(prefix): arrays.pop(key) for key in inside}
                    values[name] = CostScale(**group) if kind is CostScale else group
                elif kind is ExactSums:
                    values[name] = ExactSums(arrays.pop(name))
                elif name in arrays:
                    values[name] = arrays.pop(name)
                elif kind == tuple[str, ...]:
                    values[name] = tuple(values[name])
            if arrays:
                raise KeyError("arrays left over")
            return cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The error's own text may quote what was sent, so only its kind is told.
            raise BadMessage(f"{cls.__name__}: its fields do not fit ({type(error).__name__})") from None

    @property
    def size(self) -> int:
        """Bytes of arrays and scalars."""
        arrays, scalars = self.pack()
        return sum(array.nbytes for array in arrays.values()) + len(scalars)

    def require(self, holds: Any, what: str) -> None:
        if not holds:
            raise BadMessage(f"{type(self).__name__}: {what}")

    def require_array(self, name: str, kind: type[np.generic], shape: tuple[int | None, ...]) -> None:
        """A field of this kind and shape (None: any length), finite where it holds floats."""
        array = getattr(self, name)
        array = array.limbs if isinstance(array, ExactSums) else array
        fits = (
            isinstance(array, np.ndarray)
            and array.dtype == np.dtype(kind)
            and array.ndim == len(shape)
            and all(want is None or want == got for want, got in zip(shape, array.shape, strict=True))
        )
        self.require(fits, f"{name} must be {np.dtype(kind)} of shape {shape}")
        if np.issubdtype(kind, np.floating):
            self.require(np.isfinite(array).all(), f"{name} must be finite")

    def require_weights(self, weights: Weights) -> None:
        fits = all(array.dtype == np.float32 and np.isfinite(array).all() for array in weights.values())
        self.require(weights and fits, "weights must be finite float32 arrays")


Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, eq=False)
class Request(Message, Generic[Reply]):
    """A message to a client, tied to the type of message that answers it.

    ``fold`` below zero is about all the client's rows. From zero on it names a part of them that the client sets
    aside: learning then goes without that part, and scoring uses it alone. This is federated cross-validation.
    """

    fold: int = field(default=-1, kw_only=True)
