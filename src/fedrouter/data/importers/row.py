"""One evaluation as another tool logged it, and what the importers share to read one."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.errors import BadInput


@dataclass(frozen=True)
class ImportedRow:
    """One evaluation; None where the tool's file does not say.

    ``where`` names the file and the entry, for error messages.
    """

    where: str
    prompt: str
    model: str
    score: float | None
    cost: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    task: str | None = None


def entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The entries of a JSON list, of JSON lines or of a CSV file, each with the words that name it in a message.

    A JSON object is one entry.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{path}: cannot be read as text") from None
    if path.suffix.lower() == ".csv":
        csv.field_size_limit(sys.maxsize)
        for number, row in enumerate(csv.DictReader(text.splitlines(keepends=True)), 1):
            yield f"{path}: row {number}", row
        return
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(path, text)
        return
    for number, entry in enumerate(document if isinstance(document, list) else [document], 1):
        yield f"{path}: entry {number}", entry


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{path}: line {number}", json.loads(line)
        except (ValueError, RecursionError):
            raise BadInput(f"{path}: line {number}: expected JSON") from None


def mapping(value: Any) -> Mapping[str, Any]:
    """A JSON object, also one that was written as text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def number(value: Any) -> float | None:
    """A number, also one written as text or a truth value; None for anything else."""
    try:
        return None if value is None or value == "" else float(value)
    except (TypeError, ValueError):
        return None


def prompt_text(value: Any) -> str:
    """The prompt of a text or a list of chat messages: the text of the last message by the user."""
    if isinstance(value, str):
        if value.lstrip().startswith(("[", "{")):
            try:
                inside = json.loads(value)
            except (ValueError, RecursionError):
                return value
            return prompt_text(inside) if _is_chat(inside) else value
        return value
    if isinstance(value, dict):
        value = value.get("messages", value.get("input", value.get("prompt")))
        return prompt_text(value) if value is not None else ""
    if not isinstance(value, list):
        return ""
    asked = [message for message in value if isinstance(message, dict) and message.get("role") == "user"]
    content = asked[-1].get("content") if asked else None
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _is_chat(value: Any) -> bool:
    if isinstance(value, dict):
        return "messages" in value
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) and "role" in m for m in value)


def answer_length(value: Any) -> int:
    """Characters of an answer in any form."""
    return len(value if isinstance(value, str) else json.dumps(value))
