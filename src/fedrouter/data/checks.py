"""What is suspicious in a log: warnings in plain words, which name models and counts but never a prompt.

Facts about rows add up, as evidence does, so a log that is read in batches, or on several machines, is checked like one
in memory. Queries are compared by 64-bit hashes of their texts, or of their embeddings where a log has no texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers, blocks
from fedrouter.exact import ExactSums
from fedrouter.pool import ModelPool, plain_name
from fedrouter.prior import guess

FEW_ROWS = 50
MUCH = 1.0
"""Dollars; a query costs less on the average, unless the unit is wrong."""
USUAL_PROMPT, SHORT_ANSWER, LONG_ANSWER = 500, 100, 500
"""Tokens: of a prompt whose text is not known, and between which the mean answer usually lies."""
LETTERS_A_TOKEN = 4
FAR = 30
"""Times what an answer costs at list price, above or below: farther off, the unit is wrong."""
EXAMPLES = 3
"""Models that a warning names."""
Hashes = npt.NDArray[np.uint64]
SEED: Final = 0x9E3779B97F4A7C15


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of some rows, by model, and a fingerprint of each.

    Parameters
    ----------
    rows, free, whole : (M,) rows, rows that cost nothing, and rows that cost a whole number of dollars above 0
    letters : (M,) of all rows' prompts; 0 where they are not known
    accuracy, cost : (M,) exact sums
    unscored, repeated : rows without a score, and rows logged twice, which are in none of the others
    cell : (n,) hash of query and model
    answer : (n,) of accuracy
    rest : (n,) of what else makes two rows the same
    model : (n,) index in the pool
    """

    pool: ModelPool
    rows: Integers
    free: Integers
    whole: Integers
    letters: Integers
    accuracy: ExactSums
    cost: ExactSums
    unscored: int
    repeated: int
    cell: Hashes
    answer: npt.NDArray[np.uint32]
    rest: npt.NDArray[np.uint32]
    model: npt.NDArray[np.uint16]

    @classmethod
    def of(cls, rows: Evaluations, unscored: int = 0, repeated: int = 0) -> Facts:
        """The facts of some evaluations."""
        size = len(rows.pool)
        names = hashed_texts(rows.pool.names)
        cell = _mixed(hashed_queries(rows)[rows.query] ^ names[rows.model])
        rest = np.zeros(len(rows), np.uint64)
        for column in (rows.cost, rows.seconds, rows.time, rows.propensity):
            if column is not None:
                rest = _mixed(rest + _bits(column))

        length = np.array([len(text) for text in rows.text or [""] * rows.queries], np.float64)

        def count(which: npt.NDArray[np.bool_]) -> Integers:
            return np.bincount(rows.model[which], minlength=size)

        return cls(
            rows.pool,
            np.bincount(rows.model, minlength=size),
            count(rows.cost == 0),
            count((rows.cost > 0) & (rows.cost == np.rint(rows.cost))),
            np.bincount(rows.model, length[rows.query], size).astype(np.int64),
            ExactSums.of(rows.accuracy, rows.model, size),
            ExactSums.of(rows.cost, rows.model, size),
            unscored,
            repeated,
            cell,
            _mixed(_bits(rows.accuracy)).astype(np.uint32),
            rest.astype(np.uint32),
            rows.model.astype(np.uint16),
        )

    def __add__(self, other: Facts) -> Facts:
        return total_facts([self, other])

    @property
    def every(self) -> int:
        """Rows of the log."""
        return int(self.rows.sum()) + self.unscored + self.repeated

    @property
    def means(self) -> Floats:
        """Mean accuracy and mean dollars of each model, ``(M, 2)``; NaN for one without rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.stack([self.accuracy.totals(), self.cost.totals()], axis=1) / self.rows[:, None]

    def warnings(self) -> list[str]:
        """One line for each thing that is suspicious."""
        return [*self._repeated(), *_alike(self.pool.names), *self._costs(), *self._few()]

    def _repeated(self) -> Iterator[str]:
        """Rows that are there twice, and rows that contradict each other."""
        if self.repeated:
            yield f"exact duplicates with the same time or identifier: {self.repeated:,}; each is counted once"
        order = np.argsort(self.cell, kind="stable")
        same = self.cell[order[1:]] == self.cell[order[:-1]]
        shared = order[np.r_[False, same] | np.r_[same, False]] if len(order) else order
        shared = shared[np.lexsort((self.rest[shared], self.answer[shared], self.cell[shared]))]
        one, other = shared[:-1], shared[1:]
        same = self.cell[one] == self.cell[other]
        equal = same & (self.answer[one] == self.answer[other])
        twice = other[equal & (self.rest[one] == self.rest[other])]
        if len(twice):
            yield f"exact duplicates: {len(twice):,} ({self._examples(twice)}); each counts again"
        _, first = np.unique(self.cell[other[same & ~equal]], return_index=True)
        against = other[same & ~equal][first]
        if len(against):
            yield (
                f"contradicting duplicates: {len(against):,} times one query and model with different accuracies "
                f"({self._examples(against)}); their mean is learned"
            )

    def _examples(self, rows: Integers) -> str:
        """The models that most of some rows are of."""
        counts = np.bincount(self.model[rows], minlength=len(self.pool))
        most = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        return _shown([f"{self.pool.names[model]}: {counts[model]:,}" for model in most])

    def _costs(self) -> Iterator[str]:
        means = self.means[:, 1]
        some = self.rows > 0
        free = some & (self.free == self.rows)
        if free.any():
            yield f"costs all zero ({self._named(free)}): a router takes such a model to be free"
        high = some & (means > MUCH)
        whole = some & ~high & ~free & (self.whole + self.free == self.rows)
        least, most = self._expected()
        beyond = some & ~high & ~whole & (means > FAR * most)
        below = some & ~free & (means < least / FAR)

        def shown(model: int) -> str:
            usual = f", expected {_dollars(least[model])} to {_dollars(most[model])}" if least[model] else ""
            return f"{self.pool.names[model]}: {_dollars(means[model])}{usual}"

        for which, what, unit in (
            (high, f"mean cost above ${MUCH:.0f} a query", "are they cents, or for many queries?"),
            (whole, "costs are whole numbers", "are they cents, or for many queries?"),
            (beyond, f"mean cost {FAR} times list price", "are they cents, or for many queries?"),
            (below, f"mean cost a {FAR}th of list price", "are they for a token, or in thousands?"),
        ):
            if which.any():
                costs = [shown(int(model)) for model in np.flatnonzero(which)]
                yield f"{what} ({_shown(costs)}): {unit} Dollars a query are expected"

    def _expected(self) -> tuple[Floats, Floats]:
        """The least and the most that a model's prompts and a usual answer cost at list price, ``(M,)`` each."""
        tokens = np.where(self.letters, self.letters / LETTERS_A_TOKEN / np.maximum(self.rows, 1), USUAL_PROMPT)
        prices = [guess(name).price for name in self.pool.names]
        least, most = (
            np.array([each.cost(prompt, answer) if each else 0.0 for each, prompt in zip(prices, tokens, strict=True)])
            for answer in (SHORT_ANSWER, LONG_ANSWER)
        )
        return least, np.where(most > 0, most, np.inf)

    def _few(self) -> Iterator[str]:
        if len(self.pool) == 1:
            yield f"only one model ({self.pool.names[0]}): there is nothing to choose from"
        few = self.rows < FEW_ROWS
        if few.any():
            counts = [f"{self.pool.names[model]}: {self.rows[model]:,}" for model in np.flatnonzero(few)]
            yield f"fewer than {FEW_ROWS} rows of {int(few.sum())} of {len(self.pool)} models ({_shown(counts)})"
        if self.unscored:
            yield f"rows without a score: {self.unscored:,}; they count for costs only"

    def _named(self, which: npt.NDArray[np.bool_]) -> str:
        return _shown([self.pool.names[model] for model in np.flatnonzero(which)])


def warnings_of(rows: Evaluations, unscored: int = 0, repeated: int = 0) -> list[str]:
    """What is suspicious in some evaluations, one line each; rows beside them have no score or were logged twice."""
    return Facts.of(rows, unscored, repeated).warnings()


def total_facts(parts: Sequence[Facts]) -> Facts:
    """The facts of all parts, which are over one pool."""
    found: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _BY_ROW}
    found |= {name: reduce(add, (getattr(part, name) for part in parts)) for name in _BY_MODEL}
    return replace(parts[0], **found)


_BY_ROW: Final = ("cell", "answer", "rest", "model")
_BY_MODEL: Final = ("rows", "free", "whole", "letters", "accuracy", "cost", "unscored", "repeated")


def hashed_queries(rows: Evaluations) -> Hashes:
    """A hash of each query's text, or of its embedding if there are no texts, ``(q,)``."""
    return hashed_vectors(rows.embeddings) if rows.text is None else hashed_texts(rows.text)


def hashed_texts(texts: Iterable[str]) -> Hashes:
    """The same in every process, unlike Python's own."""
    content = b"".join(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts)
    return np.frombuffer(content, np.uint64)


def hashed_vectors(embeddings: Embeddings) -> Hashes:
    """A sum of the 32-bit words of each embedding times random odd numbers, mixed."""
    factors = np.random.default_rng(SEED).integers(0, 2**64, embeddings.shape[1], np.uint64) | np.uint64(1)
    found = np.empty(len(embeddings), np.uint64)
    for part, vectors in blocks(embeddings):
        found[part] = np.ascontiguousarray(vectors, np.float32).view(np.uint32).astype(np.uint64) @ factors
    return _mixed(found)


def _bits(column: Floats) -> Hashes:
    return np.ascontiguousarray(column, np.float64).view(np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of a value (the finalizer of SplitMix64)."""
    values = values + np.uint64(SEED)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def _alike(names: Sequence[str]) -> Iterator[str]:
    """Names of models that only blanks or case tell apart."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(plain_name(name), []).append(name)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if alike:
        yield f"names that differ by blanks or case only are different models: {_shown(alike)}"
    blank = [name for name in names if name != name.strip()]
    if blank and not alike:
        yield f"names with blanks around them: {_shown([repr(name) for name in blank])}"


def _dollars(value: float) -> str:
    return f"${np.format_float_positional(value, 2, fractional=False, trim='-')}"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:EXAMPLES]) + (f" and {len(names) - EXAMPLES:,} more" if len(names) > EXAMPLES else "")
