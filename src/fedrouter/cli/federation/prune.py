"""`fedrouter federation prune`: remove old messages from a client's journal, and old bundles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.gateway.stores import seconds_of
from fedrouter.cli.output import Json, Voice, quoted


def prune(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A client's state directory.")],
    older: Annotated[
        str, typer.Option("--older", metavar="TIME", help="Remove what is older than this, such as 90d; 7d or more.")
    ] = "90d",
    as_json: Json = False,
) -> None:
    """Remove old messages from a client's journal and old bundles; its budget and what it has released stay known."""
    from fedrouter.deployment.state.delivered import remove_old
    from fedrouter.deployment.state.directories import open_client
    from fedrouter.deployment.state.pruning import prune as remove

    voice = Voice(as_json)
    directory, before = open_client(path), time.time() - seconds_of(older, "--older")
    journal = directory.journal
    done = remove(journal, before)
    bundles = remove_old(directory, before)
    counted = ", ".join(f"{count:,} {table}" for table, count in done.removed.items())
    voice.say(f"{journal}: removed {counted}; {done.bytes_before:,} bytes are now {done.bytes_after:,}")
    voice.say(f"{directory.bundles}: removed {bundles:,} bundles")
    voice.next(f"fedrouter audit {quoted(path)}")
    voice.result(
        {"journal": str(journal), **done.removed, "bundles": bundles, "bytes": [done.bytes_before, done.bytes_after]}
    )
