"""The pool: the ordered set of language models from which a router chooses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedrouter.errors import BadInput


@dataclass(frozen=True)
class Model:
    """One language model: prices are US dollars per million tokens, context is in tokens; None means unknown."""

    name: str
    input_price: float | None = None
    output_price: float | None = None
    context: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise BadInput(f"model name: expected a non-empty string, got {self.name!r}")
        for field in ("input_price", "output_price"):
            price = getattr(self, field)
            if price is not None and not (isinstance(price, int | float) and math.isfinite(price) and price >= 0):
                raise BadInput(f"model {self.name!r}, {field}: expected dollars per million tokens, got {price!r}")
        if self.context is not None and not (isinstance(self.context, int) and self.context > 0):
            raise BadInput(f"model {self.name!r}, context: expected a number of tokens, got {self.context!r}")


class ModelPool:
    """Models in a fixed order; a model's index is its column in every array of estimates.

    >>> pool = ModelPool(["small", Model("large", input_price=5.0, output_price=15.0)])
    >>> pool.names
    ('small', 'large')
    >>> pool.index("large")
    1
    """

    def __init__(self, models: Iterable[Model | str]) -> None:
        self.models = tuple(Model(model) if isinstance(model, str) else model for model in models)
        if not self.models:
            raise BadInput("a pool needs at least one model")
        self._index = {model.name: index for index, model in enumerate(self.models)}
        if len(self._index) < len(self.models):
            names = [model.name for model in self.models]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise BadInput(f"a pool names each model once; duplicates: {', '.join(twice)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self.models)

    def index(self, name: str) -> int:
        try:
            return self._index[name]
        except KeyError:
            raise BadInput(f"model {name!r} is not in the pool ({', '.join(self.names)})") from None

    def shown(self, name: str) -> str:
        """A name that the pool lacks, with the one in the pool that only blanks or case tell from it."""
        like = {plain_name(own): own for own in self.names}.get(plain_name(name), name)
        return name if name in self or like == name else f"{name} (the router calls it {like}: use that name)"

    def with_models(self, more: ModelPool) -> ModelPool:
        """A pool of these models, followed by others, which must be new."""
        known = [name for name in more.names if name in self]
        if known:
            raise BadInput(f"already in the pool: {', '.join(known)}")
        return ModelPool([*self, *more])

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def __len__(self) -> int:
        return len(self.models)

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelPool) and self.models == other.models

    def __hash__(self) -> int:
        return hash(self.models)

    def __repr__(self) -> str:
        return f"ModelPool({', '.join(self.names)})"

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": model.name,
                "input_price": model.input_price,
                "output_price": model.output_price,
                "context": model.context,
            }
            for model in self.models
        ]

    @classmethod
    def from_json(cls, entries: Iterable[Mapping[str, Any]]) -> ModelPool:
        try:
            return cls(Model(**entry) for entry in entries)
        except TypeError as error:
            raise BadInput(f"pool entry: expected name, input_price, output_price, context ({error})") from None


def plain_name(name: str) -> str:
    """A model's name without blanks and case."""
    return "".join(name.split()).casefold()
