"""lm-evaluation-harness: `samples_TASK_TIME.jsonl`, written with `--log_samples`.

The model's name is in `results_TIME.json` beside it. Tokens are not logged, so they are estimated at four characters
each, from the prompt and the answers; a multiple choice sends its prompt once for each choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrouter.data.importers.row import ImportedRow, answer_length, entries, mapping, number, prompt_text
from fedrouter.errors import BadInput

CHARACTERS_PER_TOKEN = 4
_NAME = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT[\d.-]+)\.jsonl")


def rows(path: Path, score: str | None = None) -> Iterator[ImportedRow]:
    """Evaluations of one file; ``score`` is a metric, by default the task's first."""
    named = _NAME.fullmatch(path.name)
    model = _model_beside(path, named["time"] if named else None)
    for where, entry in entries(path):
        arguments = mapping(entry).get("arguments")
        calls = list(arguments.values()) if isinstance(arguments, dict) else arguments
        if not isinstance(calls, list) or not calls or "metrics" not in entry:
            raise BadInput(f"{where}: not a sample of lm-eval; expected a file written with --log_samples")
        metric = score or next(iter(entry["metrics"]), "")
        asked = [_arguments(call) for call in calls]
        if isinstance(asked[0][1], str):  # a multiple choice, or a likelihood: each choice is a part of a prompt
            sent, answered = sum(len(str(first)) + len(str(second)) for first, second in asked), 0
        else:
            sent, answered = sum(len(str(first)) for first, _ in asked), answer_length(entry.get("resps", ""))
        yield ImportedRow(
            where,
            prompt_text(asked[0][0]),
            model,
            number(entry.get(metric)),
            input_tokens=sent / CHARACTERS_PER_TOKEN,
            output_tokens=answered / CHARACTERS_PER_TOKEN,
            task=named["task"] if named else None,
        )


def _arguments(call: Any) -> tuple[Any, Any]:
    """The prompt and what goes with it: a choice, or the settings of a generation."""
    if isinstance(call, dict):
        return call.get("arg_0", ""), call.get("arg_1")
    return (call[0], call[1]) if isinstance(call, list) and len(call) > 1 else (call, None)


def _model_beside(path: Path, time: str | None) -> str:
    """The model that the results of the same run name; empty if there are none."""
    results = path.with_name(f"results_{time}.json") if time else None
    if results is not None and results.is_file():
        try:
            found = json.loads(results.read_text()).get("model_name")
        except (OSError, ValueError, AttributeError):
            found = None
        if isinstance(found, str) and found:
            return found
    return ""
