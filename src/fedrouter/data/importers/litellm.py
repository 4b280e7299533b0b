"""LiteLLM: the proxy's spend logs, rows of its table `LiteLLM_SpendLogs` as `/spend/logs` or a database exports them.

They have the prompt only with `store_prompts_in_spend_logs: true`, and no score: an application puts one into the
request's `spend_logs_metadata`, where it is looked for unless another path is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrouter.data.importers.row import ImportedRow, entries, mapping, number, prompt_text
from fedrouter.errors import BadInput

SCORE = "metadata.spend_logs_metadata.score"


def rows(path: Path, score: str | None = None) -> Iterator[ImportedRow]:
    """Evaluations of one file; ``score`` is the path of the score in a row, with dots."""
    for where, entry in entries(path):
        row = mapping(entry)
        if "request_id" not in row or "spend" not in row:
            raise BadInput(f"{where}: not a spend log of LiteLLM; expected the columns of LiteLLM_SpendLogs")
        if row.get("status") == "failure":
            continue
        prompt = next((text for text in map(prompt_text, _places(row)) if text), "")
        if not prompt:
            raise BadInput(f"{where}: no prompt; set store_prompts_in_spend_logs: true in LiteLLM's general_settings")
        yield ImportedRow(
            where,
            prompt,
            str(row.get("model") or row.get("model_group") or ""),
            number(_at(row, score or SCORE)),
            number(row.get("spend")),
            number(row.get("prompt_tokens")),
            number(row.get("completion_tokens")),
        )


def _places(row: Any) -> Iterator[Any]:
    """Where a prompt may be: messages, or the body of the request."""
    messages = row.get("messages")
    yield messages if messages not in ("{}", "[]") else None
    yield mapping(row.get("proxy_server_request"))


def _at(row: Any, path: str) -> Any:
    for part in path.split("."):
        row = mapping(row).get(part)
    return row
