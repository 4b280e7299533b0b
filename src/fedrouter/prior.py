"""What is publicly known of models: a guess of each model's accuracy and price before anything has been logged.

The table in ``data/model_abilities.csv`` has one number a model, its *ability*: in logits on an average benchmark, with
gpt-4o at 0 (``data/model_abilities.NOTICE`` says where from). A model that is not in it is guessed from its relatives,
and without relatives from its price and size. A guess is the same for every query, and says where it comes from.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from fedrouter.data.prices import TokenPrice, price_table
from fedrouter.pool import ModelPool

TABLE_ERROR, OTHER_ERROR = 0.10, 0.15
"""Standard errors of a guessed accuracy, of models in the table and of others, beside `LEVEL_ERROR`."""
QUALITY_ERROR = 0.10
"""Standard error of an accuracy that the user gives."""
LEVEL_ERROR = 0.15
"""Standard error that all guesses of a task share: how hard it is, which hardly matters for the choice."""
LEVEL, SLOPE = 1.3, 0.78
"""Accuracy on a new task: sigmoid(LEVEL + SLOPE · ability)."""

TABLE, QUALITY, UNRELATED = "table", "quality", "price and size"
"""Sources of guesses; the fourth is "like NAME"."""

# Steps in ability between relatives: a newer one, one version more, ten times the price, ten times the size.
NEWER, A_VERSION, TENFOLD_PRICE, TENFOLD_SIZE = 0.28, 0.86, 0.30, 1.0
# How far relatives are apart, in versions: ten times the price or size, a word that only one has, a size or a price
# that only one has, versions that cannot be compared.
TENFOLD_APART, WORD_APART, UNKNOWN_APART, VERSION_UNKNOWN_APART = 1.5, 0.5, 1.0, 2.0
FARTHEST = 3.0
"""Models farther apart than this are not taken for relatives."""
UNRELATED_ERROR = 0.65
"""Standard error of an ability guessed from price and size: the guess is taken down by it, so that a model of which
nothing is known is not chosen for luck."""


@dataclass(frozen=True)
class Guess:
    """What can be said of a model without a log."""

    accuracy: float
    """In [0, 1], for an average query of an average task."""
    error: float
    """Standard error of the accuracy, `LEVEL_ERROR` apart."""
    source: str
    """Where it comes from: the table, "like NAME", price and size, or the user's own quality."""
    price: TokenPrice | None
    """The user's, or the list price; None if neither is known."""


@dataclass(frozen=True)
class Guesses:
    """Guesses for a pool of M models."""

    accuracy: NDArray[np.float64]
    """(M,)"""
    error: NDArray[np.float64]
    """(M,)"""
    sources: tuple[str, ...]
    prices: tuple[TokenPrice | None, ...]

    def cost(self, input_tokens: float, output_tokens: float) -> NDArray[np.float64]:
        """Dollars of one answer (M,): list price × tokens; NaN where no price is known."""
        return np.array([price.cost(input_tokens, output_tokens) if price else np.nan for price in self.prices])


@lru_cache(4096)
def guess(model: str, price: TokenPrice | None = None, quality: float | None = None) -> Guess:
    """What is publicly known of a model; a ``quality`` (accuracy) and a price that the user gives take precedence.

    >>> guess("openai/gpt-5-mini-2025-08-07").source, guess("gpt-5.1-mini").source
    ('table', 'like gpt-5-mini')
    """
    return abilities().guess(model, price, quality)


def guesses(pool: ModelPool, qualities: Mapping[str, float] | None = None) -> Guesses:
    """What is publicly known of the models of a pool, with the pool's own prices where it has any."""
    found = []
    for model in pool:
        known = model.input_price is not None and model.output_price is not None
        price = TokenPrice(model.input_price or 0.0, model.output_price or 0.0) if known else None
        found.append(guess(model.name, price, (qualities or {}).get(model.name)))
    return Guesses(
        np.array([each.accuracy for each in found]),
        np.array([each.error for each in found]),
        tuple(each.source for each in found),
        tuple(each.price for each in found),
    )


def expected_accuracy(ability: float) -> float:
    """Accuracy on a new task of a model with this ability."""
    return 1 / (1 + math.exp(-LEVEL - SLOPE * ability))


# How one model is written in many ways ---------------------------------------------------------------------------

_VENDORS = (
    *("ai21", "amazon", "anthropic", "apac", "azure", "bedrock", "cohere", "deepinfra", "eu", "fireworks", "global"),
    *("google", "groq", "meta", "microsoft", "mistral", "mistralai", "moonshotai", "nvidia", "ollama", "openai"),
    *("openrouter", "perplexity", "qwen", "together", "togetherai", "us", "vertex", "xai", "zai", "deepseek"),
)
_HOSTS = {*_VENDORS, "chat", "completion", "messages", "responses", "gemini"} - {"mistral", "qwen"}
"""What stands before a colon without being a model (``openai:chat:gpt-4o``); Ollama's ``mistral:7b`` is one."""
_NOISE = {
    *({*_VENDORS} - {"mistral", "qwen", "deepseek"}),
    *("api", "beta", "chat", "default", "exp", "experimental", "hf", "inst", "instruct", "it", "latest", "preview"),
    *("awq", "bf16", "bnb", "fp16", "fp4", "fp8", "gguf", "gptq", "int4", "int8", "mlx", "nvfp4", "q4", "q8"),
    *("high", "low", "minimal", "no", "non", "nonreasoning", "nothink", "reasoner", "reasoning", "think", "thinking"),
    *("xhigh", "greedy", "c4ai"),
}
"""Words that do not tell models apart: vendors, tuning for chat, bits, reasoning efforts (merged in the table)."""
_SERVICE = {"basic", "exacto", "extended", "fast", "free", "instant", "lightning", "maas", "medium", "nitro", "online"}
_SERVICE |= {"turbo", "versatile"}
"""Words of some models' names that elsewhere are a way to serve: dropped if the name is not found with them."""
_LARGE = {"heavy", "large", "max", "opus", "plus", "pro", "ultra"}
_SMALL = {"edge", "flash", "haiku", "lite", "micro", "mini", "nano", "small", "tiny"}
_SPECIAL = ("code", "coder", "codestral", "devstral", "math", "pixtral", "vision", "vl")

_VENDOR_PREFIX = re.compile(rf"^(?:(?:{'|'.join(_VENDORS)})\.)+(?=[a-z])")
_REMARK = re.compile(r"\((?!\d{4}\)).*?\)|\[.*?\]|-v\d+:\d+$|[-_:]q\d_\w+$")
_DATE = re.compile(r"(?<!\d)(20\d\d)[-_.]?(?:0[1-9]|1[0-2])[-_.]?[0-3]\d(?!\d)|(?<=-)(?:\d\d-)?(20\d\d)$")
_DAY_OF_PREVIEW = re.compile(r"(?<=-)(preview|exp)-\d\d-\d\d(?!\d)")
_MONTH = re.compile(r"2[3-9](?:0[1-9]|1[0-2])")
_DAY = re.compile(r"(?:0[1-9]|1[0-2])[0-3]\d")
_DETAIL = re.compile(r"\d+k|\d{5,}|8192|4096|00\d|0")
_SIZE = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)b")
_ACTIVE = re.compile(r"a(\d+(?:\.\d+)?)b")
_PART_OF_SIZE = re.compile(r"[ae]?\d[\dx.]*[be]")
_VERSION = re.compile(r"([a-z]?)(\d{1,2}(?:\.\d+)?)([a-z]*)")
_GLUED = re.compile(r"([a-z]{2,}?)v?(\d.*)")


def tokens_of(name: str) -> tuple[str, ...]:
    """The parts of a model's name in one spelling: no provider's path, no day, numbers apart from words.

    >>> tokens_of("us.anthropic.claude-3-5-sonnet-20241022-v2:0")
    ('claude', '3.5', 'sonnet')
    >>> tokens_of("accounts/fireworks/models/llama-v3p1-70b-instruct")
    ('llama', '3.1', '70b', 'instruct')
    """
    text = _REMARK.sub("", _bare(name))
    text = _DATE.sub("", text.replace("@", "-"))
    text = re.sub(r"[\s_:()]+", "-", text.replace("+", "-plus"))
    text = _DAY_OF_PREVIEW.sub(r"\1", text)
    text = re.sub(r"code-?llama", "codellama", text)
    text = re.sub(r"(?<=\d)p(?=\d)", ".", text)
    parts = [piece for part in text.split("-") if part for piece in _unglued(part)]
    text = re.sub(r"(?<![\d.\w])(\d)-(\d)(?=-|$)", r"\1.\2", "-".join(parts))  # claude-3-5-sonnet
    return tuple(_number(part) for part in text.split("-") if part)


def _bare(name: str) -> str:
    """A name in lower case without what providers and clouds put before it."""
    text = name.strip().lower().rsplit("/", 1)[-1]
    while ":" in text and text.split(":", 1)[0] in _HOSTS:
        text = text.split(":", 1)[1]
    return _VENDOR_PREFIX.sub("", text)


def _unglued(part: str) -> tuple[str, ...]:
    """``llama3.1`` as two parts; ``v2`` and ``r1`` as one."""
    if part in _NOISE:
        return (part,)
    if re.fullmatch(r"v\d[\d.]*", part):
        return (part[1:],)
    glued = _GLUED.fullmatch(part)
    return (glued[1], glued[2]) if glued else (part,)


def _number(part: str) -> str:
    """``2.0`` as ``2``, and Mistral's ``25.01`` as ``2501``."""
    part = re.sub(r"^(\d+)\.0$", r"\1", part)
    return re.sub(r"^(2\d)\.(\d\d)$", r"\1\2", part)


def _spellings(tokens: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """Keys under which a name may be known, the most exact first; the order of words does not count."""
    yield frozenset(tokens)
    tokens = _core(tokens)
    yield frozenset(tokens)
    tokens = tuple(part for part in tokens if not _DAY.fullmatch(part))
    yield frozenset(tokens)
    yield frozenset(tokens) - _SERVICE


def short_name(name: str) -> str:
    """The parts of a name that tell models apart.

    >>> short_name("accounts/fireworks/models/llama-v3p1-70b-instruct")
    'llama-3.1-70b'
    """
    return "-".join(_core(tokens_of(name)))


def _core(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The parts that tell models apart."""
    return tuple(part for part in tokens if part not in _NOISE and not _DETAIL.fullmatch(part))


@dataclass(frozen=True)
class Traits:
    """What a name says of a model."""

    words: tuple[str, ...]
    """Family and tier: ``("gpt", "mini")``."""
    sizes: frozenset[str]
    version: float | None = None
    month: float | None = None
    """When it came out, in years, if the name has it as a version (``mistral-large-2407``)."""
    year: float | None = None

    @classmethod
    def of(cls, name: str) -> Traits:
        words, sizes, version, month = list[str](), set[str](), None, None
        for part in _core(tokens_of(name)):
            if _PART_OF_SIZE.fullmatch(part):
                sizes.add(part)
            elif _MONTH.fullmatch(part):
                month = 2000 + int(part[:2]) + (int(part[2:]) - 0.5) / 12
            elif numbered := _VERSION.fullmatch(part):
                words += [word for word in (numbered[1], numbered[3]) if word]
                version = float(numbered[2]) if version is None else version
            elif not _DAY.fullmatch(part):
                words.append(part)
        dated = _DATE.search(name.replace("@", "-"))
        year = float(dated[1] or dated[2]) + 0.5 if dated else month
        return cls(tuple(words), frozenset(sizes), version, month, year)

    @property
    def line(self) -> str:
        return self.words[0] if self.words else ""

    def is_tier_of(self, other: Traits, dropped: frozenset[str] = frozenset()) -> bool:
        """Whether both are versions of one model: the same family, tier and size."""
        return bool(self.words) and self.sizes == other.sizes and {*self.words} - dropped == {*other.words}

    def newer_than(self, other: Traits) -> float | None:
        """Difference of versions, twelve months being one; None if only one has a version, or one of another kind."""
        if self.version is not None and other.version is not None:
            return self.version - other.version
        if self.version is not None or other.version is not None or (self.month is None) != (other.month is None):
            return None
        return (self.month or 0.0) - (other.month or 0.0)

    def at_most_after(self, versions: Iterable[float | None]) -> Traits:
        """The same, one version after the newest of these if it is newer still: how much newer says no more."""
        newest = max((version for version in versions if version is not None), default=None)
        beyond = self.version is not None and newest is not None and self.version > newest + 1
        return replace(self, version=newest + 1) if newest is not None and beyond else self

    @property
    def billions(self) -> float | None:
        """√(total · active parameters) in billions; None if the name has no size."""
        total, active = None, None
        for size in self.sizes:
            if one := _ACTIVE.fullmatch(size):
                active = float(one[1])
            elif one := _SIZE.fullmatch(size):
                experts, each = int(one[1] or 0), float(one[2])
                # Experts share what is not feed-forward, and two answer: 8x7b has 47 billion, 13 of them active.
                total = 0.82 * experts * each if experts else each
                active = active or (1.8 * each if experts else None)
        product = (total or 0.0) * (active or total or 0.0)
        return math.sqrt(product) if 0 < product < math.inf else None


# The table, and what stands in for models that are not in it ------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A model of the table."""

    model: str
    aliases: tuple[str, ...]
    ability: float
    standard_error: float
    sources: frozenset[str]
    price: TokenPrice | None

    @cached_property
    def traits(self) -> Traits:
        return Traits.of(self.model)


@dataclass(frozen=True)
class Abilities:
    """A table of abilities, and the guesses that follow from it."""

    rows: tuple[Row, ...]

    def without(self, models: Iterable[str]) -> Abilities:
        """The table without some of its models, as if nothing were known of them."""
        dropped = {*models}
        return Abilities(tuple(row for row in self.rows if row.model not in dropped))

    def guess(self, model: str, price: TokenPrice | None = None, quality: float | None = None) -> Guess:
        row = self.find(model)
        price = price or _list_price(model) or (row.price if row else None)
        if quality is not None:
            return Guess(quality, QUALITY_ERROR, QUALITY, price)
        if row:
            return Guess(expected_accuracy(row.ability), TABLE_ERROR, TABLE, price)
        ability, source = self.ability_of_unknown(model, price)
        return Guess(expected_accuracy(ability), OTHER_ERROR, source, price)

    def find(self, name: str) -> Row | None:
        """The model of this name, as providers, clouds and leaderboards write it."""
        if row := self._by_spelling.get(_bare(name)):
            return row
        tokens = tokens_of(name)
        spellings = _spellings(tokens)
        if row := self._by_key.get(next(spellings)):
            return row
        if "latest" in tokens and Traits.of(name).version is None:
            return None  # the newest of its tier, which may be newer than the table
        return next((self._by_key[key] for key in spellings if key in self._by_key), None)

    def ability_of_unknown(self, name: str, price: TokenPrice | None) -> tuple[float, str]:
        """The ability of a model that is not in the table, and where it comes from: the first rule that applies."""
        traits, level = Traits.of(name), _log_price(price)
        if relative := self._same_tier(traits):
            return relative.ability + _step(traits.newer_than(relative.traits)), f"like {relative.model}"
        if base := self._base(name, traits):
            return base.ability, f"like {base.model}"
        line = [row for row in self.rows if traits.line and traits.line == row.traits.line]
        traits = traits.at_most_after([row.traits.version for row in line])
        relatives = [(*_apart(traits, level, row), row) for row in line]
        distance, step, relative = min(relatives, key=lambda each: each[0], default=(math.inf, 0.0, None))
        if relative and distance <= FARTHEST:
            return relative.ability + step, f"like {relative.model}"
        return _unrelated(traits, level) - UNRELATED_ERROR, UNRELATED

    def _same_tier(self, traits: Traits) -> Row | None:
        """The nearest version of the same family, tier and size; the newest if the name has no version."""
        for dropped in (frozenset[str](), frozenset(_SERVICE)):
            versions = [row for row in self.rows if traits.is_tier_of(row.traits, dropped)]
            if any(traits.newer_than(row.traits) is not None for row in versions):
                return min(versions, key=lambda row: _versions_apart(traits.newer_than(row.traits)))
            if versions:
                return max(versions, key=lambda row: (row.traits.version or 0, row.traits.month or 0))
        return None

    def _base(self, name: str, traits: Traits) -> Row | None:
        """The model of which this is a fine-tune, by its name (``dolphin-2.9-llama-3-8b``); the longest one."""
        parts = _core(tokens_of(name))
        text = f"-{'-'.join(parts)}-"
        found = []
        for row in self.rows:
            core = _core(tokens_of(row.model))
            other_tier = ({*parts} - {*core}) & (_LARGE | _SMALL)
            if len(core) > 1 and f"-{'-'.join(core)}-" in text and traits.sizes <= row.traits.sizes and not other_tier:
                found.append((len(core), row))
        return max(found, key=lambda pair: pair[0])[1] if found else None

    @cached_property
    def _by_spelling(self) -> dict[str, Row]:
        return {_bare(name): row for row in reversed(self.rows) for name in (*row.aliases, row.model)}

    @cached_property
    def _by_key(self) -> dict[frozenset[str], Row]:
        """Rows by the parts of their names: a name goes before an alias, and a shorter name before a longer one."""
        by_name = sorted(self.rows, key=lambda row: len(row.model))
        names = [(row.model, row) for row in by_name] + [(alias, row) for row in self.rows for alias in row.aliases]
        parts = [(tokens_of(name), row) for name, row in names]
        found: dict[frozenset[str], Row] = {}
        for tokens, one in (*parts, *((_core(tokens), row) for tokens, row in parts)):
            found.setdefault(frozenset(tokens), one)
        return found


@cache
def abilities() -> Abilities:
    """The table that ships with the package."""
    return read_abilities(files("fedrouter.data").joinpath("model_abilities.csv").read_text(encoding="utf-8"))


def read_abilities(text: str) -> Abilities:
    """A table of abilities from the text of its CSV."""
    return Abilities(
        tuple(
            Row(
                entry["model"],
                tuple(entry["aliases"].split("|")) if entry["aliases"] else (),
                float(entry["ability"]),
                float(entry["standard_error"]),
                frozenset(entry["sources"].split("+")),
                TokenPrice(float(entry["input"]), float(entry["output"])) if entry["input"] else None,
            )
            for entry in csv.DictReader(text.splitlines())
        )
    )


def _apart(traits: Traits, level: float | None, row: Row) -> tuple[float, float]:
    """How far a model of the same line is, and the step in ability from it; its size says more than its price."""
    newer, other = traits.newer_than(row.traits), _log_price(row.price)
    size, other_size = traits.billions, row.traits.billions
    distance, step = _versions_apart(newer), _step(newer)
    distance += WORD_APART * len({*traits.words} ^ {*row.traits.words})
    if size and other_size:
        gap = math.log10(size / other_size)
        step += TENFOLD_SIZE * gap
    else:
        gap = 0.0 if level is None or other is None else level - other
        step += TENFOLD_PRICE * gap
        distance += UNKNOWN_APART * ((size is None) != (other_size is None))
        distance += UNKNOWN_APART * (level is not None and other is None)
    return distance + TENFOLD_APART * abs(gap), step


def _versions_apart(newer: float | None) -> float:
    return VERSION_UNKNOWN_APART if newer is None else abs(newer)


def _step(newer: float | None) -> float:
    """What a version more or less is worth."""
    if not newer:
        return 0.0
    return math.copysign(NEWER, newer) + A_VERSION * max(-1.0, min(1.0, newer))


def _list_price(name: str) -> TokenPrice | None:
    listed = price_table().find(name)
    return listed.price if listed else None


def _log_price(price: TokenPrice | None) -> float | None:
    """log10 of the mean of input and output price; None if unknown or free (own hardware has no list price)."""
    mean = (price.input + price.output) / 2 if price else 0.0
    return math.log10(mean) if mean > 0 else None


def _unrelated(traits: Traits, level: float | None) -> float:
    """The ability that price, size, words and year suggest: a least-squares fit on the models of the table."""
    words, billions = {*traits.words}, traits.billions
    ability = -1.07 + (0.46 if billions is None else 0.23 * (math.log2(billions) - 4.5))
    ability += -0.35 if level is None else 0.36 * level
    ability += 0.06 * bool(words & _LARGE) - 0.08 * bool(words & _SMALL)
    ability += 0.23 * any(word.startswith(special) or word.endswith(special) for word in words for special in _SPECIAL)
    return ability + (-0.07 if traits.year is None else 1.04 * (traits.year - 2024.5))
