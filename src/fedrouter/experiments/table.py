"""Tables as data: numbers by seed, and the values that the paper prints, for :mod:`fedrouter.report.tables`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Cell = Mapping[str, Any]
"""A number over seeds: ``mean``, ``deviation`` and ``by_seed``."""


@dataclass(frozen=True)
class Row:
    """One row: its label, and cells by column. ``printed`` are values from the paper, in the same columns."""

    label: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    printed: Mapping[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, None]:
        """The columns in which it has a number, in order."""
        return dict.fromkeys((*self.cells, *self.printed))


@dataclass(frozen=True)
class Table:
    """A table, saved as CSV and TeX under ``name``."""

    name: str
    caption: str
    rows: Sequence[Row]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for row in self.rows for column in row.columns))

    @property
    def blocks(self) -> list[Table]:
        """The table in parts whose rows share columns, for print: a table of everything would be mostly empty."""
        parts: list[list[Row]] = []
        for row in self.rows:
            related = [part for part in parts if any(row.columns.keys() & other.columns.keys() for other in part)]
            parts = [part for part in parts if part not in related]
            parts.append([*(other for part in related for other in part), row])
        return [replace(self, rows=part) for part in sorted(parts, key=lambda part: self.rows.index(part[0]))]


def tabulate(name: str, caption: str, summary: Callable[[Any], Mapping[str, Any]]) -> Callable[[Any], Sequence[Table]]:
    """A table of every number over seeds in a summary: the last key names the column, the ones before it the row."""

    def tables(runs: Any) -> Sequence[Table]:
        rows: dict[str, dict[str, Cell]] = {}
        for path, cell in _cells(summary(runs)):
            rows.setdefault(", ".join(path[:-1]), {})[path[-1]] = cell
        # A number for each of the other rows is a column of the table, not a row with columns of its own.
        for label in [label for label, cells in rows.items() if set(cells) <= set(rows)]:
            for row, cell in rows.pop(label).items():
                rows[row][label] = cell
        return [Table(name, caption, [Row(label, cells) for label, cells in rows.items()])] if rows else []

    return tables


def _cells(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Cell]]:
    if isinstance(value, Mapping):
        if {"mean", "deviation", "by_seed"} <= set(value):
            yield path, value
        else:
            for key, inner in value.items():
                yield from _cells(inner, (*path, str(key)))
