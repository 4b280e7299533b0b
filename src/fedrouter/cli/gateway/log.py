"""`fedrouter log`: show the evaluation log, find models that got worse, export, delete old decisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedrouter.cli.gateway.stores import (
    ConfigPath,
    Since,
    StoreUrl,
    Until,
    dollars,
    moment,
    open_store,
    plain,
    short_time,
    shown_day,
    shown_time,
)
from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.errors import BadInput
from fedrouter.store.records import Record

WIDE = 120
"""Columns of a terminal on which everything about a decision fits into one line."""
TIMES = ("time", "scored_at")
DOLLARS = ("predicted_cost", "cost", "baseline_cost")
app = typer.Typer(
    help="Show, export or prune the gateway's evaluation log, and find models that got worse.", no_args_is_help=True
)


@app.command()
def show(
    decision: Annotated[str | None, typer.Argument(metavar="[ID]", help="Decision to show with its scores.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of decisions to show.")] = 20,
    key: Annotated[str | None, typer.Option("--key", help="Show only requests of the key with this id.")] = None,
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show the newest decisions, or one decision."""
    voice = Voice(as_json)
    with open_store(store, config) as log:
        if decision is None:
            records = log.latest(limit, key)
        else:
            found = log.get(decision)
            if found is None:
                raise BadInput(f"decision {decision!r}: not in {log.where}; it may have been pruned")
            sent = log.feedback(decision)
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


@app.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="File to write: .parquet, .jsonl or .csv.")],
    since: Since = None,
    until: Until = None,
    encoder: Annotated[str | None, typer.Option("--encoder", help="Encoder, if the log has several.")] = None,
    with_text: Annotated[bool, typer.Option("--with-text", help="Include the prompts, if they were stored.")] = False,
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Export the scored requests as an evaluation log for learn, simulate and a federation."""
    voice = Voice(as_json)
    with open_store(store, config) as log:
        done = log.export(out, moment(since, "--since"), moment(until, "--until"), encoder, with_text)
    voice.say(f"{done.path}: {done.rows:,} evaluations with embeddings of {done.encoder}")
    if done.left_out:
        voice.say(f"{done.left_out:,} decisions left out: without a score, a model that served, a cost or an embedding")
    voice.next(f"fedrouter learn {quoted(out)} --out {quoted(out.with_suffix(''))}")
    voice.result(done.to_json())


@app.command()
def drift(
    again: Annotated[bool, typer.Option("--restart", help="Compare models with what they are from now on.")] = False,
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show which models got worse: evidence of recent days against that of the days before."""
    from fedrouter.learning.drift import restart, watch

    voice = Voice(as_json)
    with open_store(store, config) as log:
        if again:
            restart(log)
        found = watch(log)
    if found is None:
        raise BadInput(f"{log.where}: nothing to compare yet; it takes a gateway that has learned from scores")
    voice.table(
        ["model", "since", "scored", "score", "expected"],
        [
            [plain(cell.model), shown_day(cell.since), f"{cell.answers:,}", f"{cell.score:.2f}", f"{cell.expected:.2f}"]
            for cell in found.cells
        ],
        wrapped=("model",),
    )
    for cell in found.alarms:
        voice.say(
            f"{plain(cell.model)} got worse since {shown_day(cell.since)}: {cell.expected:.2f} was expected, "
            f"{cell.score:.2f} was seen ({cell.answers:,} scored answers)"
        )
    if not found.alarms:
        voice.say("No model got worse.")
    voice.result(found.to_json())


@app.command()
def prune(
    before: Annotated[str, typer.Option("--before", metavar="TIME", help="A date (UTC), or an age such as 90d.")],
    store: StoreUrl = None,
    config: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Delete decisions, prompts, embeddings and scores before a time; usage still counts them."""
    voice = Voice(as_json)
    at = moment(before, "--before")
    assert at is not None
    with open_store(store, config) as log:
        gone = log.prune(at)
    voice.say(f"{gone:,} decisions before {shown_time(at)} UTC deleted; usage still counts them")
    voice.result({"pruned": gone, "before": at})


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
