"""promptfoo: what `promptfoo eval --output results.json` (or `.jsonl`) writes; the provider is the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrouter.data.importers.row import ImportedRow, entries, mapping, number, prompt_text
from fedrouter.errors import BadInput


def rows(path: Path, score: str | None = None) -> Iterator[ImportedRow]:
    """Evaluations of one file; ``score`` is one of the named scores, by default the score of all assertions."""
    for where, entry in entries(path):
        inside = mapping(mapping(entry).get("results")).get("results")
        listed = enumerate(inside, 1) if isinstance(inside, list) else None
        for at, result in ((f"{where}, result {n}", each) for n, each in listed) if listed else ((where, entry),):
            yield from _row(at, mapping(result), score)


def _row(where: str, result: Any, score: str | None) -> Iterator[ImportedRow]:
    provider, prompt = result.get("provider"), result.get("prompt")
    name = provider.get("id") if isinstance(provider, dict) else provider
    raw = prompt.get("raw") if isinstance(prompt, dict) else prompt
    if not isinstance(name, str) or not isinstance(raw, str):
        raise BadInput(f"{where}: not a result of promptfoo; expected the file of `promptfoo eval --output FILE.json`")
    response = mapping(result.get("response"))
    if response.get("error") or (result.get("error") and not response):  # the provider failed: nothing was answered
        return
    usage = mapping(response.get("tokenUsage"))
    case = mapping(result.get("testCase"))
    yield ImportedRow(
        where,
        prompt_text(raw),
        name,
        number(mapping(result.get("namedScores")).get(score) if score else result.get("score")),
        number(response.get("cost")) or number(result.get("cost")),
        number(usage.get("prompt")),
        number(usage.get("completion")),
        str(mapping(case.get("metadata")).get("task") or case.get("description") or "") or None,
    )
