"""Langfuse: observations and scores, as its blob storage exports them or its API answers (JSON, JSON lines or CSV).

Written from the documented fields of both: `observations_v2` or `observations` with `scores` (snake case), and the
API's `observations` and `scores` (camel case). Scores of an observation count before those of its trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrouter.data.importers.row import ImportedRow, entries, mapping, number, prompt_text
from fedrouter.errors import BadInput


def rows_of(paths: Sequence[Path], score: str | None = None) -> Iterator[ImportedRow]:
    """Evaluations of files with observations and scores; ``score`` is a score's name, by default any."""
    observations: list[tuple[str, Mapping[str, Any]]] = []
    scores: dict[str, float] = {}
    for path in paths:
        for where, entry in _listed(path):
            if "value" in entry and ("name" in entry or _of(entry, "observation_id", "observationId")):
                _note(entry, score, scores)
            elif "type" in entry:
                observations.append((where, entry))
            else:
                raise BadInput(f"{where}: neither an observation nor a score of Langfuse")
    for where, entry in observations:
        if str(entry.get("type")).upper() != "GENERATION":
            continue
        for inside in entry.get("scores") or ():
            _note({"observation_id": entry.get("id")} | dict(mapping(inside)), score, scores)
        usage = mapping(_of(entry, "usage_details", "usageDetails"))
        cost = _of(entry, "total_cost", "totalCost", "calculatedTotalCost")
        found = scores.get(str(entry.get("id")), scores.get(str(_of(entry, "trace_id", "traceId"))))
        yield ImportedRow(
            where,
            prompt_text(entry.get("input")),
            str(_of(entry, "provided_model_name", "model", "providedModelName") or ""),
            found,
            number(cost if cost is not None else mapping(_of(entry, "cost_details", "costDetails")).get("total")),
            number(usage.get("input", _of(entry, "promptTokens", "input_tokens"))),
            number(usage.get("output", _of(entry, "completionTokens", "output_tokens"))),
            str(_of(entry, "trace_name", "traceName", "name") or "") or None,
        )


def _listed(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, entry in entries(path):
        data = entry.get("data") if isinstance(entry, dict) else None
        if isinstance(data, list):  # an answer of the API
            for number_, each in enumerate(data, 1):
                yield f"{path}: entry {number_}", mapping(each)
        else:
            yield where, mapping(entry)


def _note(entry: Mapping[str, Any], wanted: str | None, scores: dict[str, float]) -> None:
    value = number(entry.get("value"))
    target = _of(entry, "observation_id", "observationId") or _of(entry, "trace_id", "traceId")
    if value is not None and target and (wanted is None or entry.get("name") == wanted):
        scores[str(target)] = value


def _of(entry: Mapping[str, Any], *names: str) -> Any:
    """The first of several fields that is there and not empty."""
    return next((entry[name] for name in names if entry.get(name) not in (None, "")), None)
