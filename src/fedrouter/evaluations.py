"""Evaluations: accuracy and cost of models' answers to queries, as validated, immutable columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.pool import ModelPool

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Embeddings = npt.NDArray[np.float32]

MOST_COST = 1_000_000.0
"""The most that one evaluation may cost, in dollars; more is assumed to be a wrong unit."""
BLOCK_BYTES = 2**22
"""Of embeddings in a block."""
_OPTIONAL: Final = (
    ("time", "seconds since the epoch", np.isfinite),
    ("seconds", "at least 0 seconds", lambda column: (column >= 0) & np.isfinite(column)),
    ("propensity", "a probability above 0", lambda column: (column > 0) & (column <= 1)),
)
"""Optional columns of evaluations, what is expected in them, and what fits."""


class BadRow(BadInput):
    """Bad input in a row ``row``, counted from 0, of a column; the message counts from 1."""

    def __init__(self, row: int, column: str, problem: str) -> None:
        super().__init__(f"row {row + 1}, column {column!r}: {problem}")
        self.row, self.column, self.problem = row, column, problem


@dataclass(frozen=True)
class Grid:
    """A table of answers: accuracy and cost ``(q, M)`` of every model on each query, NaN where unknown."""

    pool: ModelPool
    accuracy: Floats
    cost: Floats

    @cached_property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which answers are known, ``(q, M)``."""
        return np.isfinite(self.accuracy)

    def __len__(self) -> int:
        return len(self.accuracy)


@dataclass(frozen=True, eq=False)
class Evaluations:
    """Many evaluations, as columns.

    A query is stored once, even if several models answered it: ``embeddings`` has one row per query, and evaluation
    ``j`` says that query ``query[j]`` was sent to model ``model[j]``, with ``accuracy[j]`` and ``cost[j]``.
    NaN in one of the last three columns says that it is not known.

    Parameters
    ----------
    pool : the models to which ``model`` refers
    embeddings : (q, d) float32, finite
    query : (n,) int, row of ``embeddings``
    model : (n,) int, index in ``pool``, or a sequence of names
    accuracy : (n,) in [0, 1]
    cost : (n,) US dollars, at least 0
    task, text : optional, one string per query
    time : optional, (n,) when each was made, in seconds since the epoch
    seconds : optional, (n,) how long the answer took, at least 0
    propensity : optional, (n,) with which probability this model was asked, above 0

    Examples
    --------
    >>> import numpy as np
    >>> evaluations = Evaluations(ModelPool(["a", "b"]), np.eye(2), [0, 0, 1], ["a", "b", "b"], [1, 0, 1], [.1, .2, .2])
    >>> len(evaluations), evaluations.queries, evaluations.dimension
    (3, 2, 2)
    """

    pool: ModelPool
    embeddings: Embeddings
    query: Integers
    model: Integers
    accuracy: Floats
    cost: Floats
    task: tuple[str, ...] | None = None
    text: tuple[str, ...] | None = field(default=None, repr=False)
    time: Floats | None = field(default=None, repr=False)
    seconds: Floats | None = field(default=None, repr=False)
    propensity: Floats | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        embeddings = _column("embedding", self.embeddings, np.float32, dimensions=2)
        query = _column("query", self.query, np.int64)
        model = _column("model", _indices(self.pool, self.model), np.int64)
        accuracy = _column("accuracy", self.accuracy, np.float64)
        cost = _column("cost", self.cost, np.float64)
        for name, column in (("model", model), ("accuracy", accuracy), ("cost", cost)):
            if len(column) != len(query):
                raise BadInput(f"column {name!r} has {len(column)} rows, expected {len(query)}")
        _refuse(np.asarray(~np.isfinite(embeddings).all(axis=1)), "embedding", "a vector of finite numbers", None)
        _refuse((query < 0) | (query >= len(embeddings)), "query", f"a row below {len(embeddings)}", query)
        _refuse((model < 0) | (model >= len(self.pool)), "model", f"an index below {len(self.pool)}", model)
        _refuse(~((accuracy >= 0) & (accuracy <= 1)), "accuracy", f"a number in [0, 1]{percent(accuracy)}", accuracy)
        _refuse(~((cost >= 0) & (cost <= MOST_COST)), "cost", f"US dollars from 0 to {MOST_COST:,.0f}", cost)
        for name, column in (
            ("embeddings", embeddings),
            ("query", query),
            ("model", model),
            ("accuracy", accuracy),
            ("cost", cost),
        ):
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        for name, expected, fits in _OPTIONAL:
            if (known := getattr(self, name)) is not None:
                column = _column(name, known, np.float64)
                if len(column) != len(query):
                    raise BadInput(f"column {name!r} has {len(column)} rows, expected {len(query)}")
                _refuse(~(np.isnan(column) | fits(column)), name, expected, column)
                column.flags.writeable = False
                object.__setattr__(self, name, column)
        for name in ("task", "text"):
            words = getattr(self, name)
            if words is not None:
                object.__setattr__(self, name, tuple(words))
                if len(getattr(self, name)) != len(embeddings):
                    raise BadInput(f"column {name!r} has {len(words)} rows, expected {len(embeddings)}")

    def __len__(self) -> int:
        return len(self.query)

    @property
    def queries(self) -> int:
        return len(self.embeddings)

    @property
    def dimension(self) -> int:
        return int(self.embeddings.shape[1])

    @classmethod
    def from_grid(cls, grid: Grid, embeddings: npt.ArrayLike, **words: Any) -> Evaluations:
        """One evaluation for every known cell of a grid."""
        query, model = np.nonzero(grid.known)
        return cls(
            grid.pool,
            embeddings,  # type: ignore[arg-type]
            query,
            model,
            grid.accuracy[query, model],
            grid.cost[query, model],
            **words,
        )

    def grid(self) -> Grid:
        """The evaluations as a table; a cell with several evaluations has their mean."""
        shape = (self.queries, len(self.pool))
        cell = self.query * shape[1] + self.model
        count = np.bincount(cell, minlength=shape[0] * shape[1])
        with np.errstate(invalid="ignore"):
            accuracy, cost = (
                np.bincount(cell, weights=values, minlength=shape[0] * shape[1]) / count
                for values in (self.accuracy, self.cost)
            )
        return Grid(self.pool, accuracy.reshape(shape), cost.reshape(shape))

    def of_queries(self, rows: npt.ArrayLike) -> Evaluations:
        """The evaluations of some queries, in the given order of queries."""
        rows = np.asarray(rows, np.int64)
        index = np.full(self.queries, -1, np.int64)
        index[rows] = np.arange(len(rows))
        return self._with(rows, index, np.flatnonzero(index[self.query] >= 0))

    def take(self, rows: npt.ArrayLike) -> Evaluations:
        """Some evaluations, and only the queries they need."""
        rows = np.asarray(rows, np.int64)
        every = len(rows) == len(self) and bool((rows == np.arange(len(self))).all())
        if every and bool((np.bincount(self.query, minlength=self.queries) > 0).all()):
            return self
        wanted = np.unique(self.query[rows])
        index = np.full(self.queries, -1, np.int64)
        index[wanted] = np.arange(len(wanted))
        return self._with(wanted, index, rows)

    def over(self, pool: ModelPool) -> Evaluations:
        """The same evaluations with indices of another pool; those of models that it lacks are left out."""
        if pool.names == self.pool.names:
            return self
        index = np.array([pool.index(name) if name in pool else -1 for name in self.pool.names])
        rows = np.flatnonzero(index[self.model] >= 0)
        return Evaluations(
            pool,
            self.embeddings,
            self.query[rows],
            index[self.model[rows]],
            self.accuracy[rows],
            self.cost[rows],
            self.task,
            self.text,
            **self._optional(rows),
        )

    def digest(self) -> str:
        """A SHA-256 digest of everything except text, time, seconds and propensity."""
        content = hashlib.sha256(repr((self.pool.names, self.embeddings.shape, self.task)).encode())
        for column in (self.embeddings, self.query, self.model, self.accuracy, self.cost):
            content.update(np.ascontiguousarray(column).tobytes())
        return f"sha256:{content.hexdigest()}"

    def _optional(self, rows: Integers) -> dict[str, Any]:
        """The optional columns of some evaluations."""
        columns = {name: getattr(self, name) for name, _, _ in _OPTIONAL}
        return {name: None if column is None else column[rows] for name, column in columns.items()}

    def _with(self, queries: Integers, index: Integers, rows: Integers) -> Evaluations:
        return Evaluations(
            self.pool,
            self.embeddings[queries],
            index[self.query[rows]],
            self.model[rows],
            self.accuracy[rows],
            self.cost[rows],
            None if self.task is None else tuple(self.task[row] for row in queries),
            None if self.text is None else tuple(self.text[row] for row in queries),
            **self._optional(rows),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Evaluations]) -> Evaluations:
        """The pooled evaluations of several owners; only simulations and single owners may do this."""
        if not parts:
            raise BadInput("nothing to concatenate: expected at least one set of evaluations")
        pool = parts[0].pool
        widths = {part.dimension for part in parts}
        if len(widths) > 1:
            raise BadInput(f"embeddings of different widths cannot be pooled: {sorted(widths)}")
        parts = [part.over(pool) for part in parts]
        starts = np.cumsum([0, *(part.queries for part in parts[:-1])])
        return cls(
            pool,
            np.concatenate([part.embeddings for part in parts]),
            np.concatenate([part.query + start for part, start in zip(parts, starts, strict=True)]),
            np.concatenate([part.model for part in parts]),
            np.concatenate([part.accuracy for part in parts]),
            np.concatenate([part.cost for part in parts]),
            _joined([part.task for part in parts]),
            _joined([part.text for part in parts]),
            **{name: _known(parts, name) for name, _, _ in _OPTIONAL},
        )


@dataclass(frozen=True, eq=False)
class Unscored:
    """Evaluations whose accuracy nobody knows: ``model`` ``(n,)``, what each cost, and perhaps how long it took.

    They say what models cost, and nothing about queries.
    """

    pool: ModelPool
    model: Integers
    cost: Floats
    seconds: Floats | None = None

    def __len__(self) -> int:
        return len(self.model)


def blocks(embeddings: Embeddings) -> Iterator[tuple[slice, Embeddings]]:
    """Embeddings ``(n, d)`` in blocks: which rows they are, and the rows; one empty block if there are none.

    What is made of rows in float64, and more than once, then takes little memory.
    """
    size = max(1, BLOCK_BYTES // (4 * max(1, embeddings.shape[1])))
    for start in range(0, max(1, len(embeddings)), size):
        part = slice(start, min(start + size, len(embeddings)))
        yield part, embeddings[part]


def first_alike(*versions: Evaluations) -> Integers:
    """For each query the first one that it cannot be told from, ``(q,)``: by its text or by its embedding.

    Long texts with the same beginning have one embedding, since encoders read only so much. Given several versions of
    the same queries, with the embeddings of different encoders, queries are alike if they are so in any version.
    """
    first = np.arange(versions[0].queries)

    def root(query: int) -> int:
        while first[query] != query:
            query = int(first[query])
        return query

    for column in (column for version in versions for column in _identities(version)):
        seen: dict[object, int] = {}
        for query, value in enumerate(column):
            one, other = sorted((root(query), root(seen.setdefault(value, query))))
            first[other] = one
    return np.array([root(query) for query in range(len(first))], np.int64)


def _identities(evaluations: Evaluations) -> Iterator[Iterable[object]]:
    """What queries are told apart by: embeddings, and texts if there are any."""
    yield (row.tobytes() for _, part in blocks(evaluations.embeddings) for row in part)
    if evaluations.text is not None:
        yield evaluations.text


def _column(name: str, values: Any, kind: type[np.generic], dimensions: int = 1) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray) and values.base is None and not values.flags.writeable and values.dtype == kind:
        column = values  # nobody can change it, so a large one need not be copied
        return _of_dimensions(name, column, dimensions)
    try:
        column = np.array(values, kind)
    except (TypeError, ValueError):
        raise BadInput(f"column {name!r}: expected {'one width and ' * (dimensions > 1)}numbers only") from None
    return _of_dimensions(name, column, dimensions)


def _of_dimensions(name: str, column: npt.NDArray[Any], dimensions: int) -> npt.NDArray[Any]:
    if column.ndim != dimensions:
        raise BadInput(f"column {name!r}: expected {dimensions} dimension(s), got shape {column.shape}")
    return column


def _indices(pool: ModelPool, model: Any) -> Any:
    """Indices in the pool for a column of names; a column of indices is returned unchanged."""
    model = np.asarray(model)
    if model.dtype.kind not in "OUT":
        return model
    for row, name in enumerate(model.tolist()):
        if name not in pool:
            raise BadRow(row, "model", f"{name!r} is not in the pool ({', '.join(pool.names)})")
    return [pool.index(name) for name in model.tolist()]


def _refuse(bad: npt.NDArray[np.bool_], column: str, expected: str, values: npt.NDArray[Any] | None) -> None:
    if bad.any():
        row = int(bad.argmax())
        # An embedding is private, so its values are not part of the message.
        got = "" if values is None else f", got {values[row]}"
        raise BadRow(row, column, f"expected {expected}{got}")


def percent(accuracy: Floats) -> str:
    """What to add to an error about accuracies out of range: the usual reason, if it looks like it."""
    most = np.nanmax(accuracy, initial=0.0)
    return "; it looks like percent: divide by 100" if 10 < most <= 100 else ""


def _known(parts: Sequence[Evaluations], name: str) -> Floats | None:
    """An optional column of several parts, NaN where a part lacks it; None if all do."""
    columns = [getattr(part, name) for part in parts]
    if all(column is None for column in columns):
        return None
    filled = [np.full(len(p), np.nan) if c is None else c for p, c in zip(parts, columns, strict=True)]
    return np.concatenate(filled)


def _joined(columns: list[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    words: list[str] = []
    for column in columns:
        if column is None:
            return None
        words.extend(column)
    return tuple(words)
