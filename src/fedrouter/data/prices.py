"""List prices of well-known models, from a dated table that ships with the package.

``prices.json`` has the date, the source and the addresses of the providers' own pages; `scripts/make_prices.py` writes
it. It fills in what a config or a log leaves out and never replaces a price that a user gives.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fedrouter.errors import BadInput

_DAY = re.compile(r"-20\d{6}$")
_PREFIX = re.compile(r"^(?:[\w.-]+[/:])+")


@dataclass(frozen=True)
class TokenPrice:
    """US dollars per million tokens."""

    input: float
    output: float

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """Cost of one answer in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Provider:
    """Where a provider's models are called, and the page with its prices."""

    title: str
    api_base: str
    key: str
    """The environment variable that usually holds the API key."""
    api: tuple[str, ...]
    page: str
    stream_usage: bool = True


@dataclass(frozen=True)
class ListedModel:
    """A model of the table."""

    name: str
    provider: Provider
    price: TokenPrice
    cached_input: float | None
    context: int | None
    abilities: tuple[str, ...]


@dataclass(frozen=True)
class PriceTable:
    """The table, and when and where its prices were found."""

    date: str
    source: str
    note: str
    models: Mapping[str, ListedModel]

    def find(self, name: str) -> ListedModel | None:
        """The model with this name; a provider before it (`openai/…`) or a day after it (`…-20251001`) is ignored."""
        bare = _PREFIX.sub("", name)
        return self.models.get(name) or self.models.get(bare) or self.models.get(_DAY.sub("", bare))


@cache
def price_table() -> PriceTable:
    """The table that ships with the package."""
    document = json.loads(files("fedrouter.data").joinpath("prices.json").read_text())
    providers = {
        name: Provider(**(entry | {"api": tuple(entry["api"])})) for name, entry in document["providers"].items()
    }
    models = {
        name: ListedModel(
            name,
            providers[entry["provider"]],
            TokenPrice(entry["input"], entry["output"]),
            entry.get("cached_input"),
            entry["context"],
            tuple(entry["abilities"]),
        )
        for name, entry in document["models"].items()
    }
    return PriceTable(document["date"], document["source"], document["note"], models)


def read_prices(given: Iterable[str], option: str = "--price") -> dict[str, TokenPrice]:
    """Prices that a user gives as ``MODEL=INPUT/OUTPUT``, in US dollars per million tokens.

    >>> read_prices(["local=0/0", "large=2.5/10"])["large"]
    TokenPrice(input=2.5, output=10.0)
    """
    found = {}
    for text in given:
        name, _, pair = text.rpartition("=")
        numbers = pair.split("/")
        try:
            prices = [float(number) for number in numbers]
        except ValueError:
            prices = []
        if not name or len(prices) != 2 or not all(math.isfinite(price) and price >= 0 for price in prices):
            raise BadInput(
                f"{option}: expected MODEL=INPUT/OUTPUT in US dollars per million tokens, such as large=2.5/10, "
                f"got {text!r}"
            )
        found[name] = TokenPrice(*prices)
    return found
