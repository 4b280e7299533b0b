"""Messages between server and clients: packed into named arrays and JSON scalars, and checked at both ends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import Any, Generic, Self, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage
from fedrouter.evaluations import Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.frame import Frame
from fedrouter.routers.mlp import CostScale, Weights

MOST_SCALARS = 1 << 20
"""Characters of a message's scalars as JSON."""
Packed = tuple[dict[str, npt.NDArray[Any]], str]
"""A message as it is sent: named arrays, and its scalars as JSON. Read it, never change it."""
Named = Mapping[str, npt.NDArray[Any]]
"""A group of arrays of any kind, by name."""


@dataclass(frozen=True, eq=False)
class Message:
    """A payload whose fields are arrays, exact sums, named groups of arrays, or scalars.

    A message is immutable, so it is packed once, however many readers (engine, journal, size check) need that form.
    Each field is ``Annotated`` with its shape and meaning.
    """

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise BadMessage if a field breaks the rules of this type; subclasses define the rules."""

    def pack(self) -> Packed:
        """The form that travels; computed on first use."""
        return self._packed

    @cached_property
    def _packed(self) -> Packed:
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
    @cache
    def _kinds(cls) -> Mapping[str, Any]:
        """The type of each field; to evaluate annotations takes as long as to read a reply."""
        return get_type_hints(cls)

    @classmethod
    def unpack(cls, packed: Packed) -> Self:
        """Rebuild a message from its packed form; missing or extra fields and broken rules raise BadMessage."""
        arrays, scalars = dict(packed[0]), packed[1]
        try:
            values: dict[str, Any] = dict(json.loads(scalars))
            for name, kind in cls._kinds().items():
                if kind in (Weights, Named, CostScale):
                    prefix = f"{name}/"
                    inside = [key for key in arrays if key.startswith(prefix)]
                    group = {key.removeprefix(prefix): arrays.pop(key) for key in inside}
                    values[name] = CostScale(**group) if kind is CostScale else group
                elif kind is ExactSums:
                    values[name] = ExactSums(arrays.pop(name))
                elif name in arrays:
                    values[name] = arrays.pop(name)
                elif kind in (tuple[str, ...], tuple[int, ...]):
                    values[name] = tuple(values[name])
            if arrays:
                raise KeyError("arrays left over")
            message = cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # The text of the error may quote what was sent, so only its type is reported.
            raise BadMessage(f"{cls.__name__}: its fields do not fit ({type(error).__name__})") from None
        message.__dict__["_packed"] = packed  # as it came: packing it again would give the same
        return message

    @property
    def size(self) -> int:
        """Number of bytes in arrays and scalars."""
        arrays, scalars = self.pack()
        return sum(array.nbytes for array in arrays.values()) + len(scalars)

    def require(self, holds: Any, what: str) -> None:
        if not holds:
            raise BadMessage(f"{type(self).__name__}: {what}")

    def require_array(self, name: str, kind: type[np.generic], shape: tuple[int | None, ...]) -> None:
        """Require that a field has this dtype and shape (None: any length), and no NaN or infinity."""
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


def to_fields(message: Message) -> dict[str, Any]:
    """A message as the fields of a frame."""
    arrays, scalars = message.pack()
    return {"arrays": arrays, "scalars": scalars}


def from_fields(kind: type[Reply], frame: Frame) -> Reply:
    """The message of this kind in a frame; BadMessage if it is none."""
    return kind.unpack((frame.arrays("arrays"), frame.text("scalars", MOST_SCALARS)))


@dataclass(frozen=True, eq=False)
class Sums(Message):
    """A reply that adds up: every field is an array of integers or exact sums, and a total is a sum of each field."""

    @classmethod
    def exact_fields(cls) -> frozenset[str]:
        """The names of the fields that are exact sums."""
        return frozenset(name for name, kind in cls._kinds().items() if kind is ExactSums)

    def check(self) -> None:
        for part in fields(self):
            array = getattr(self, part.name)
            exact = isinstance(array, ExactSums)
            array = array.limbs if exact else array
            fits = isinstance(array, np.ndarray) and array.dtype == np.int64 and (not exact or array.shape[-1:] == (2,))
            self.require(fits, f"{part.name} must be int64")

    def fits(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether the fields have these shapes."""
        return {part.name: getattr(self, part.name).shape for part in fields(self)} == dict(shapes)

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def vector(self) -> Integers:
        """All integers in one vector, as they are added under masks."""
        values = (getattr(self, part.name) for part in fields(self))
        return np.concatenate([(each.limbs if isinstance(each, ExactSums) else each).ravel() for each in values])

    @classmethod
    def zeros(cls, shapes: Mapping[str, tuple[int, ...]]) -> Self:
        """The sums of nothing."""
        exact = cls.exact_fields()
        return cls(
            **{
                name: ExactSums.zeros(shape) if name in exact else np.zeros(shape, np.int64)
                for name, shape in shapes.items()
            }
        )

    @classmethod
    def from_vector(cls, vector: Integers, shapes: Mapping[str, tuple[int, ...]]) -> Self:
        """The sums of these shapes that :meth:`vector` came from, or a total of several."""
        exact, values, start = cls.exact_fields(), {}, 0
        for name, shape in shapes.items():
            shape = (*shape, 2) if name in exact else shape
            part = vector[start : start + math.prod(shape)].reshape(shape)
            values[name] = ExactSums(part).carried() if name in exact else part
            start += part.size
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Request(Message, Generic[Reply]):
    """A message to a client, typed by the message that answers it."""
