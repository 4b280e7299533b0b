"""`fedrouter federation contribution`: what a client gave to the router, and what it got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice


def contribution(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A client's state directory.")],
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="The router; default: the one delivered last.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare the router with and without this client's evaluations, on its own log; nobody is asked.

    What all members got is known from their vote on the bundle that was delivered last.
    """
    from fedrouter.deployment.client.contribution import contribution as compare
    from fedrouter.deployment.state.directories import open_client

    voice = Voice(as_json)
    found = compare(open_client(path), bundle)
    voice.say(f"{plain(found.bundle)}, compared on {found.queries:,} queries of this client's own log")
    voice.say("λ is the accuracy given up to save a dollar; ± is half of a 95% interval.\n")
    voice.say("[bold]What you got[/]: the others' router, without your evaluations, instead of your best single model")
    _table(voice, found.got)
    voice.say("\n[bold]What you gave[/]: the router with your evaluations instead of without")
    _table(voice, found.gave)
    if found.whole:
        queries = f"{found.whole['queries']:,} queries of all members"
        voice.say(f"\n[bold]What all got[/]: the others' router instead of their best single model, on {queries}")
        _table(voice, found.whole["changes"])
    voice.result(found.to_json())


def _table(voice: Voice, changes: Sequence[Mapping[str, Any]]) -> None:
    for one in changes:
        accuracy = f"accuracy {one['accuracy']:+.4f} ± {one['accuracy_error']:.4f}"
        dollars = f"${1000 * one['cost']:+.4f} ± {1000 * one['cost_error']:.4f} for 1,000 queries"
        voice.say(f"  λ = {one['tradeoff']:<6g} {accuracy}   {dollars}")
