"""`fedrouter federation run`: learn a router, add models or add clients, with the clients that are connected."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.federation.progress import ShownProgress, listed
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES

if TYPE_CHECKING:
    from fedrouter.deployment.runs.job import Job

SECURE_THRESHOLD = 2 / 3
"""More than this fraction of the clients must complete a secure aggregation."""
ROUNDS = {"add_models": 20, "add_clients": 5}
"""As in `fedrouter model add` and `fedrouter client join`; for learning, each family has its own default."""


def run(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The coordinator's state directory.")],
    router: Annotated[str | None, typer.Option("--router", help=f"{', '.join(FAMILIES)}. [default: auto]")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Rounds, for families that average.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="One seed reproduces a run exactly.")] = 0,
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="A,B,…", help="The pool; default: every model that a client has evaluated."),
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="A,B,…", help="Clients to ask; default: the whole roster.")
    ] = None,
    add_model: Annotated[
        list[str] | None, typer.Option("--add-model", metavar="NAME", help="Add a model to --bundle; repeatable.")
    ] = None,
    join: Annotated[
        list[str] | None, typer.Option("--join", metavar="CLIENT", help="Add a client to --bundle; repeatable.")
    ] = None,
    bundle: Annotated[Path | None, typer.Option("--bundle", help="The router to extend.")] = None,
    quorum: Annotated[
        int, typer.Option("--quorum", min=1, help="Number of clients that must answer every request.")
    ] = 1,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds that a request may take.")] = 300.0,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait at the start for clients that are not connected.")
    ] = 30.0,
    plain_sums: Annotated[
        bool,
        typer.Option("--plain", help="Show the coordinator each client's sums; by default it sees only their totals."),
    ] = False,
    robust: Annotated[
        bool, typer.Option("--robust", help="With --plain: limit the influence of any one client on the router.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also copy the bundle here.")] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the run; default: a number, or that of the interrupted run it resumes."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a router over the network, or extend one. Repeating the command resumes an interrupted run."""
    from fedrouter.bundle import refuse_existing
    from fedrouter.deployment.runs.history import name_for, usual_exchanges
    from fedrouter.deployment.runs.submission import follow, submit
    from fedrouter.deployment.state.directories import open_coordinator

    voice = Voice(as_json)
    directory = open_coordinator(path)
    if out is not None:
        refuse_existing(out)
    if robust and not plain_sums:
        raise BadInput(
            "--robust: expected together with --plain; robust aggregation must see each client's sums, which secure "
            "sums, the default, hide"
        )
    job = _job(
        router, rounds, seed, _names(models), _names(clients), add_model or [], join or [], bundle, quorum, timeout
    )
    job = replace(
        job, gather=wait, robust=_robust() if robust else None, secure=None if plain_sums else SECURE_THRESHOLD
    )
    resumed = False
    if name is None:
        name, resumed = name_for(directory, job)
    usual = usual_exchanges(directory, job)
    submitted = submit(directory, name, job)
    voice.say(f"{name}: {'resumed' if resumed else 'started'} ({job.operation} {job.family})   (Ctrl+C stops it)")
    shown = ShownProgress(voice, usual)
    try:
        result = follow(submitted, shown.show)
    except KeyboardInterrupt:
        voice.say(f"\n{name}: stopped; repeat the command to resume it")
        raise typer.Exit(130) from None
    if out is not None:
        shutil.copytree(result["bundle"], out)
        result["bundle"] = str(out)
    made = result["bundle"]
    voice.say(f"\n{result['family']} router for {len(result['models'])} models, version {result['version']}")
    voice.say(f"Evaluations behind it: {_counted(result['clients'])}")
    voice.say(f"[bold]Bundle:[/] {made}")
    voice.next(f"fedrouter evaluate {made} --data FILE", f'fedrouter route {made} "your question" --explain')
    voice.result({"run": name, **result, "steps": shown.steps})


def _job(
    router: str | None,
    rounds: int | None,
    seed: int,
    models: list[str],
    clients: list[str],
    added: list[str],
    joining: list[str],
    bundle: Path | None,
    quorum: int,
    timeout: float,
) -> Job:
    from fedrouter.bundle import load
    from fedrouter.deployment.runs.job import Job
    from fedrouter.pool import ModelPool

    operation = "add_models" if added else "add_clients" if joining else "learn"
    if added and joining:
        raise BadInput(
            "--add-model and --join: expected one of them; the result of one can be the --bundle of the other"
        )
    if (operation == "learn") != (bundle is None):
        raise BadInput("--bundle goes with --add-model NAME or --join CLIENT; none of them works alone")
    if bundle is None:
        family = router or "auto"
    else:
        family = load(bundle).router.family
        if router not in (None, family):
            raise BadInput(f"--router {router}: {bundle} is a {family} router and stays one")
        if models:
            raise BadInput("--models is the pool of a new router; the router to extend has its own")
    if joining and clients:
        raise BadInput("--clients: with --join, only the clients that join are asked")
    if quorum > len(joining or clients) > 0:
        raise BadInput(f"--quorum {quorum}: only {len(joining or clients)} are asked")
    rounds = rounds or ROUNDS.get(operation)
    return Job(
        operation=operation,
        family=family,
        settings={"rounds": rounds} if rounds else {},
        seed=seed,
        pool=tuple(ModelPool(added or models).to_json()) if added or models else (),
        clients=tuple(joining or clients),
        base=None if bundle is None else str(bundle.absolute()),
        quorum=quorum,
        timeout=timeout,
    )


def _robust() -> Mapping[str, Any]:
    from fedrouter.federation.robust.middleware import RobustSettings

    return asdict(RobustSettings.preset())


def _counted(clients: list[Mapping[str, Any]]) -> str:
    """Row counts by client; under secure aggregation only each client knows its own."""
    if not any(client["rows"] for client in clients):
        return f"from {listed([client['name'] for client in clients])}; the counts are hidden"
    return ", ".join(f"{client['name']} {client['rows']:,}" for client in clients)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
