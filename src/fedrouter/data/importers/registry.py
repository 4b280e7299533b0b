"""The tools whose logs can be imported, and the evaluation log that is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedrouter.data.importers import inspect_log, langfuse, litellm, lm_eval, promptfoo
from fedrouter.data.importers.row import ImportedRow
from fedrouter.data.prices import TokenPrice, price_table
from fedrouter.errors import BadInput
from fedrouter.files import PRIVATE, replacing

Rows = Callable[[Sequence[Path], str | None], Iterator[ImportedRow]]
"""Reads files, with the name of a score where it is given."""


@dataclass(frozen=True)
class Tool:
    """A tool whose logs can be imported."""

    rows: Rows
    score: str
    """Where its scores are, for the message when none was found."""
    model: str = "its name in the file"
    """Where its models are, likewise."""


def _each(one: Callable[[Path, str | None], Iterator[ImportedRow]]) -> Rows:
    return lambda paths, score: (row for path in paths for row in one(path, score))


TOOLS: Mapping[str, Tool] = {
    "lm-eval": Tool(
        _each(lm_eval.rows), "the task's first metric; --score names another", "model_name in results_*.json beside it"
    ),
    "inspect": Tool(_each(inspect_log.rows), "a sample's first score; --score names another scorer"),
    "promptfoo": Tool(_each(promptfoo.rows), "the score of a result; --score names one of its namedScores"),
    "litellm": Tool(_each(litellm.rows), f"{litellm.SCORE}; --score gives another path in a row"),
    "langfuse": Tool(langfuse.rows_of, "a file of scores, or --score NAME for one kind of them"),
}


@dataclass
class ImportedLog:
    """What was imported: how many rows, by model, which lacked a score, and whose costs came from prices."""

    rows: int = 0
    unscored: int = 0
    models: dict[str, int] = field(default_factory=dict)
    renamed: dict[str, int] = field(default_factory=dict)
    """Rows by the name that the files have for a model, where another one was given; empty for those without one."""
    priced: dict[str, str] = field(default_factory=dict)
    """Models whose cost was computed from tokens, with the name of the price: their own, or the table's."""


def import_log(
    tool: str,
    paths: Sequence[Path],
    out: Path,
    score: str | None = None,
    model: str | None = None,
    prices: Mapping[str, TokenPrice] | None = None,
) -> ImportedLog:
    """Write an evaluation log from another tool's files; the file appears complete or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if tool not in TOOLS:
        raise BadInput(f"TOOL: expected one of {', '.join(TOOLS)}, got {tool!r}")
    found = ImportedLog()
    columns: dict[str, list[object]] = {name: [] for name in ("prompt", "model", "accuracy", "cost", "task")}
    for row in _scored(TOOLS[tool], paths, score, model, found):
        values = (row.prompt, row.model, row.score, _cost(row, prices or {}, found), row.task or "")
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
        found.rows += 1
        found.models[row.model] = found.models.get(row.model, 0) + 1
    if not found.rows:
        raise BadInput(f"{', '.join(map(str, paths))}: no row has a score; expected {TOOLS[tool].score}")
    if unused := sorted(set(prices or {}) - set(found.models)):
        raise BadInput(
            f"--price {unused[0]}: no such model in these files; they have {', '.join(sorted(found.models))}"
        )
    if not all(columns["task"]):
        columns["task"] = [task or "unlabelled" for task in columns["task"]]
    if set(columns["task"]) == {"unlabelled"}:
        del columns["task"]
    with replacing(out, PRIVATE) as file:
        pq.write_table(pa.table(columns), file)
    return found


def _scored(
    tool: Tool, paths: Sequence[Path], score: str | None, model: str | None, found: ImportedLog
) -> Iterator[ImportedRow]:
    """Rows with a score, checked, and of the ``model`` if there is one; the others are counted."""
    for row in tool.rows(paths, score):
        if row.score is None:
            found.unscored += 1
            continue
        if not 0 <= row.score <= 1:
            raise BadInput(f"{row.where}: expected a score from 0 to 1, got {row.score:g}; --score names another one")
        if not row.model and model is None:
            raise BadInput(f"{row.where}: no model; expected {tool.model}, or --model NAME")
        if not row.prompt.strip():
            raise BadInput(f"{row.where}: no prompt by a user")
        if model is not None:
            found.renamed[row.model] = found.renamed.get(row.model, 0) + 1
            row = replace(row, model=model)
        yield row


def _cost(row: ImportedRow, prices: Mapping[str, TokenPrice], found: ImportedLog) -> float:
    """The cost of a row in US dollars: a price that was given, the file's own, or the table's, by tokens.

    A cost of 0 counts as missing: the tools write it for models whose price they do not know.
    """
    given = prices.get(row.model)
    if given is None and row.cost is not None and row.cost > 0 and math.isfinite(row.cost):
        return row.cost
    if given is not None:
        price, source = given, "--price"
    else:
        listed = price_table().find(row.model)
        if listed is None:
            raise BadInput(
                f"{row.where}: no cost, and no price is known for the model {row.model!r}; give one with "
                f"--price '{row.model}=INPUT/OUTPUT', in US dollars per million tokens"
            )
        price, source = listed.price, listed.name
    if row.input_tokens is None or row.output_tokens is None:
        raise BadInput(f"{row.where}: neither a cost nor tokens to compute it from")
    found.priced[row.model] = source
    return price.cost(row.input_tokens, row.output_tokens)
