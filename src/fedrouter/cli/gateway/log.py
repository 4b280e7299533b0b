"""`fedrouter log`: the newest decisions, one of them, or all scored requests as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedrouter.cli.gateway.stores import (
    DEFAULT,
    Since,
    StoreUrl,
    dollars,
    moment,
    open_store,
    plain,
    short_time,
    shown_time,
)
from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.errors import BadInput
from fedrouter.store.records import Record

WIDE = 120
"""Columns of a terminal on which everything about a decision fits into one line."""
TIMES = ("time", "scored_at")
DOLLARS = ("predicted_cost", "cost", "baseline_cost")


def log(
    decision: Annotated[str | None, typer.Argument(metavar="[ID]", help="Decision to show with its scores.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of decisions to show.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write all scored requests to this file instead: .parquet, .jsonl or .csv."),
    ] = None,
    since: Since = None,
    store: StoreUrl = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the newest decisions, or one; or write the scored requests as an evaluation log."""
    voice = Voice(as_json)
    if out is not None:
        _export(voice, out, moment(since, "--since"), store)
        return
    with open_store(store) as opened:
        if decision is None:
            records = opened.latest(limit, moment(since, "--since") or 0.0)
        else:
            found = opened.get(decision)
            if found is None:
                raise BadInput(f"decision {decision!r}: not in {opened.where}; it may have been deleted")
            sent = opened.feedback(decision)
    if decision is None:
        _list(voice, records)
        if not records:
            voice.say("No decisions yet.")
        voice.result({"decisions": [record.to_json() for record in records]})
        return
    assert found is not None
    document = found.to_json()
    voice.table(
        ["field", "value"], [[name, _shown(name, value)] for name, value in document.items()], wrapped=("value",)
    )
    if sent:
        voice.say("")
        voice.table(
            ["sent (UTC)", "score", "by"], [[shown_time(each.at), f"{each.score:.2f}", plain(each.by)] for each in sent]
        )
    document["feedback"] = [{"score": each.score, "by": each.by, "at": each.at} for each in sent]
    voice.result(document)


def _export(voice: Voice, out: Path, since: float | None, store: str) -> None:
    from fedrouter.store.export import export

    with open_store(store) as opened:
        done = export(opened, out, since)
    voice.say(f"{done.path}: {done.rows:,} evaluations with embeddings of {done.encoder}")
    if done.left_out:
        voice.say(f"{done.left_out:,} decisions left out: without a score, a model that served, a cost or an embedding")
    voice.next(f"fedrouter learn {quoted(out)} --out {quoted(out.with_suffix(''))}")
    voice.result(done.to_json())


def _list(voice: Voice, records: Sequence[Record]) -> None:
    """A line for each decision, on a narrow terminal with less in it; an id is whole, so that it can be pasted."""
    if voice.console.width >= WIDE:
        header = ["decision", "time (UTC)", "reason", "served", "$", "ms", "status", "score"]
        times, kept = [shown_time(record.time) for record in records], header
    else:
        header = ["decision", "UTC", "reason", "served", "$", "ms", "status", "score"]
        times, kept = [short_time(record.time) for record in records], ["decision", "UTC", "served", "$", "score"]
    rows = [
        [
            plain(record.id),
            at,
            record.reason,
            plain(record.served or record.status),
            "-" if record.cost is None else dollars(record.cost),
            f"{record.latency_ms:.0f}",
            record.status,
            _or_dash(record.score, ".2f"),
        ]
        for record, at in zip(records, times, strict=True)
    ]
    columns = [header.index(name) for name in kept]
    voice.table(kept, [[row[column] for column in columns] for row in rows], wrapped=("served",))


def _shown(field: str, value: Any) -> str:
    """A field of a decision for a person; --json has times in seconds since the epoch and all digits."""
    if value is None or value == "":
        return "-"
    if field in TIMES:
        return f"{shown_time(value)} UTC"
    if isinstance(value, float):
        return dollars(value) if field in DOLLARS else f"{value:.4g}"
    return plain(value)


def _or_dash(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)
