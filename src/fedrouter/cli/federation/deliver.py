"""`fedrouter federation accept`, `reject`, `pull`: which bundle the members of a federation serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.federation.options import CoordinatorPath
from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice, quoted

Run = Annotated[str, typer.Argument(metavar="RUN", help="Name of the run that made the bundle.")]
Why = Annotated[str, typer.Option("--why", help="Reason, kept with the verdict.")]


def accept(path: CoordinatorPath, run: Run, why: Why = "accepted by the operator", as_json: Json = False) -> None:
    """Accept a run's bundle: clients pull it within a minute."""
    _decide(path, run, "accepted", why, Voice(as_json))


def reject(path: CoordinatorPath, run: Run, why: Why = "rejected by the operator", as_json: Json = False) -> None:
    """Reject a run's bundle, also one that was accepted: clients go back to the one before."""
    _decide(path, run, "rejected", why, Voice(as_json))


def _decide(path: Path, run: str, status: str, why: str, voice: Voice) -> None:
    from fedrouter.deployment.runs.acceptance import accepted_bundles, decide
    from fedrouter.deployment.state.config import check_name
    from fedrouter.deployment.state.directories import open_coordinator

    directory = open_coordinator(path)
    decide(directory.runs / check_name(run, "run"), status, why)
    served = next(reversed(accepted_bundles(directory)), None)
    voice.say(f"{run}: {status}. Clients pull {f'the bundle of {served}' if served else 'no bundle'}.")
    voice.result({"run": run, "status": status, "why": why, "served": served})


def pull(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A client's state directory.")],
    as_json: Json = False,
) -> None:
    """Fetch the bundle that was accepted last from the coordinator; a running client does so every minute."""
    from fedrouter.deployment.delivery.pull import pull as fetch
    from fedrouter.deployment.state.directories import open_client

    voice = Voice(as_json)
    directory = open_client(path)
    folder = fetch(directory)
    if folder is None:
        voice.say("No bundle was accepted yet.")
    else:
        voice.say(f"[bold]Accepted bundle:[/] {plain(folder)}")
        voice.next(f"fedrouter bundle use {quoted(folder)}")
    voice.result({"bundle": None, "run": None, "digest": None} if folder is None else directory.delivered())
