"""RouterBench's layout: one row per query, a column of accuracy per model, and ``<model>|total_cost``."""

from __future__ import annotations

import ast

import numpy as np

from fedrouter.data.source import Rows, Source
from fedrouter.evaluations import MOST_COST, Floats, percent
from fedrouter.pool import ModelPool

TASK = "eval_name"
COST = "|total_cost"
ORACLE = "oracle_model_to_route_to"
"""A column that only the published tables have."""


def fits(source: Rows) -> bool:
    return any(name.endswith(COST) for name in source.names)


def pool(source: Source) -> ModelPool:
    """The models of the table, in the order of their cost columns."""
    models = [name.removesuffix(COST) for name in source.names if name.endswith(COST)]
    for model in models:
        if model not in source.names:
            raise source.error(f"column {model + COST!r} has no accuracy column {model!r} beside it")
    return ModelPool(models)


def cells(source: Source, model: str) -> tuple[Floats, Floats]:
    """A model's accuracy and cost, both empty or both in range."""
    accuracy, cost = source.numbers(model), source.numbers(model + COST)
    if ORACLE in source.names:
        # The published 5-shot table has ungraded answers; without a grade there is no evaluation.
        cost = np.where(np.isnan(accuracy), np.nan, cost)
    unknown = np.isnan(accuracy) & np.isnan(cost)
    for column, values, fits, expected in (
        (model, accuracy, (accuracy >= 0) & (accuracy <= 1), f"an accuracy in [0, 1]{percent(accuracy)}"),
        (model + COST, cost, (cost >= 0) & (cost <= MOST_COST), f"US dollars from 0 to {MOST_COST:,.0f}"),
    ):
        bad = ~(fits | unknown)
        if bad.any():
            row = int(bad.argmax())
            got = "nothing, though the other half of the cell is there" if np.isnan(values[row]) else values[row]
            raise source.error(f"expected {expected}, got {got}", row=row, column=column)
    return accuracy, cost


def texts(source: Source, column: str) -> tuple[str, ...]:
    """A column of text, with RouterBench's lists of turns joined."""
    return tuple(_joined_turns(text) for text in source.words(column))


def _joined_turns(text: str) -> str:
    """RouterBench stores a prompt as the source code of a Python list of its turns, with escaped line breaks."""
    if not (text.startswith("[") and text.endswith("]")):
        return text
    try:
        turns = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    if not turns or not all(isinstance(turn, str) for turn in turns):
        return text
    return "\n\n".join(turns).strip() or text
