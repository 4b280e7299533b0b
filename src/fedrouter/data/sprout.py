"""SPROUT's layout: one row per query, and per model a column of structs with score and token counts.

It is published with CARROT (arXiv 2502.03261) as five parquet shards without costs, so the cost of an answer is its
tokens at list price.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from fedrouter.data.source import Rows, Source
from fedrouter.evaluations import Floats, percent
from fedrouter.pool import Model, ModelPool

TASK = "dataset"
SCORE, INPUT, OUTPUT = FIELDS = ("score", "num_input_tokens", "num_output_tokens")

PRICES: Final = {
    "aws-claude-3-5-sonnet-v1": (3.0, 15.0),
    "aws-titan-text-premier-v1": (0.5, 1.5),
    "openai-gpt-4o": (2.5, 10.0),
    "openai-gpt-4o-mini": (0.15, 0.6),
    "openai-o3-mini": (1.1, 4.4),
    "wxai-granite-3-2b-instruct-8k-max-tokens": (0.1, 0.1),
    "wxai-granite-3-8b-instruct-8k-max-tokens": (0.2, 0.2),
    "wxai-llama-3-1-70b-instruct": (0.9, 0.9),
    "wxai-llama-3-1-8b-instruct": (0.2, 0.2),
    "wxai-llama-3-2-1b-instruct": (0.06, 0.06),
    "wxai-llama-3-2-3b-instruct": (0.06, 0.06),
    "wxai-llama-3-3-70b-instruct": (0.9, 0.9),
    "wxai-llama-3-405b-instruct": (3.5, 3.5),
    "wxai-mixtral-8x7b-instruct-v01": (0.6, 0.6),
}
"""US dollars per million tokens, input and output, as in CARROT's own router (somerstep/CARROT, carrot.py).

o3-mini occurs only in the larger SPROUT-o3mini; its price is from that project's notebook. A later file of the project
(carrot/constants.py) has Titan at 0.8 and 3.2; the others agree.
"""


def fits(source: Rows) -> bool:
    return any(SCORE in source.members(name) for name in source.names)


def pool(source: Source) -> ModelPool:
    """The models of the table with their prices; a model without a price is an error."""
    models = []
    for name in source.names:
        members = source.members(name)
        if not members:
            continue
        missing = [field for field in FIELDS if field not in members]
        if missing:
            raise source.error(f"its cells have no {', '.join(missing)}, only {', '.join(members)}", column=name)
        if name not in PRICES:
            raise source.error(
                "no price is known for this model (fedrouter.data.sprout.PRICES); remove the column, or convert the "
                "table to RouterBench's layout with your own costs",
                column=name,
            )
        models.append(Model(name, *PRICES[name]))
    return ModelPool(models)


def cells(source: Source, model: str) -> tuple[Floats, Floats]:
    """A model's accuracy and cost; both empty where its answer has no score."""
    accuracy = source.numbers(model, SCORE)
    scored = ~np.isnan(accuracy)
    cost = np.zeros_like(accuracy)
    for field, price in zip((INPUT, OUTPUT), PRICES[model], strict=True):
        tokens = source.numbers(model, field)
        _refuse(
            source, scored & ~((tokens >= 0) & np.isfinite(tokens)), f"{model}.{field}", "a number of tokens", tokens
        )
        cost += tokens * price / 1e6
    _refuse(
        source,
        scored & ~((accuracy >= 0) & (accuracy <= 1)),
        f"{model}.{SCORE}",
        f"a score in [0, 1]{percent(accuracy)}",
        accuracy,
    )
    return accuracy, np.where(scored, cost, np.nan)


def texts(source: Source, column: str) -> tuple[str, ...]:
    return source.words(column)


def _refuse(
    source: Source, bad: np.ndarray[tuple[int], np.dtype[np.bool_]], column: str, expected: str, got: Floats
) -> None:
    if bad.any():
        row = int(bad.argmax())
        value = "nothing" if np.isnan(got[row]) else got[row]
        raise source.error(f"expected {expected}, got {value}", row=row, column=column)
