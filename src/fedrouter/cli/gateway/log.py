"""`fedrouter log`: show the evaluation log, export it for learning, delete old decisions."""

from __future__ import annotations

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
    shown_time,
)
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

app = typer.Typer(help="Show, export or prune the gateway's evaluation log.", no_args_is_help=True)


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
        voice.table(
            ["decision", "time (UTC)", "reason", "served", "$", "ms", "status", "score"],
            [
                [
                    plain(record.id),
                    shown_time(record.time),
                    record.reason,
                    plain(record.served or "-"),
                    "-" if record.cost is None else dollars(record.cost),
                    f"{record.latency_ms:.0f}",
                    record.status,
                    _or_dash(record.score, ".2f"),
                ]
                for record in records
            ],
            wrapped=("time (UTC)", "reason", "served", "status"),  # an id is shown whole, so that it can be pasted
        )
        if not records:
            voice.say("No decisions yet.")
        voice.result({"decisions": [record.to_json() for record in records]})
        return
    assert found is not None
    document = found.to_json()
    voice.table(
        ["field", "value"], [[name, "-" if value is None else plain(value)] for name, value in document.items()]
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
    """Export the scored requests as an evaluation log for simulate, client join and federation client."""
    voice = Voice(as_json)
    with open_store(store, config) as log:
        done = log.export(out, moment(since, "--since"), moment(until, "--until"), encoder, with_text)
    voice.say(f"{done.path}: {done.rows:,} evaluations with embeddings of {done.encoder}")
    if done.left_out:
        voice.say(f"{done.left_out:,} decisions left out: without a score, a model that served, a cost or an embedding")
    voice.next(f"fedrouter coverage --data {out}", f"fedrouter client join BUNDLE --client NAME={out} --out joined")
    voice.result(done.to_json())


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


def _or_dash(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)
