"""What is in a data file by model, without its texts being encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedrouter.data.read import EMBEDDING, TABLES
from fedrouter.data.source import Source
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations


@dataclass(frozen=True)
class ModelRows:
    """Evaluations of one model; ``cost`` is the mean of one in US dollars, None where it is not known."""

    model: str
    rows: int
    accuracy: float | None
    cost: float | None


@dataclass(frozen=True)
class Overview:
    """A data file: its rows, its columns of embeddings, and its models."""

    rows: int
    embeddings: tuple[str, ...]
    models: tuple[ModelRows, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.model for each in self.models)


def overview(path: str | Path) -> Overview:
    """Count a table or log; :class:`BadInput` if it is neither."""
    source = Source(path)
    embeddings = tuple(name for name in source.names if name.endswith(EMBEDDING) or name == "embedding")
    layout = next((layout for layout in TABLES if layout.fits(source)), None)
    if layout is not None:
        cells = {name: layout.cells(source, name) for name in layout.pool(source).names}
        models = tuple(_of(name, *values) for name, values in cells.items())
    elif "model" in source.names:
        names = np.array(source.words("model"), object)
        values = [
            source.numbers(column) if column in source.names else np.full(len(names), np.nan)
            for column in ("accuracy", "cost")
        ]
        models = tuple(_of(name, *(column[names == name] for column in values)) for name in sorted(set(names.tolist())))
    else:
        raise BadInput(f"{path}: no evaluations; expected a table with a column per model, or a log with 'model'")
    return Overview(source.rows, embeddings, models)


def by_model(logs: Sequence[Evaluations]) -> tuple[ModelRows, ...]:
    """The same of evaluations at hand, of all logs together."""
    names = sorted({own.pool.names[index] for own in logs for index in np.unique(own.model)})

    def of(name: str) -> ModelRows:
        rows = [(own, own.model == own.pool.index(name)) for own in logs if name in own.pool]
        return _of(name, *(np.concatenate([getattr(own, what)[mine] for own, mine in rows]) for what in WHAT))

    return tuple(map(of, names))


WHAT = ("accuracy", "cost")


def _of(name: str, accuracy: npt.NDArray[np.float64], cost: npt.NDArray[np.float64]) -> ModelRows:
    known = np.isfinite(accuracy) | np.isfinite(cost)
    means = [float(np.nanmean(values)) if np.isfinite(values).any() else None for values in (accuracy, cost)]
    return ModelRows(name, int(known.sum()), *means)
