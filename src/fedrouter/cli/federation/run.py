"""`fedrouter federation run`: learn a router, or add models or clients to one, or remove clients, over the network."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.federation.options import CoordinatorPath, PlainSums, Quorum, Timeout, Wait
from fedrouter.cli.federation.progress import ShownProgress, listed
from fedrouter.cli.gateway.stores import plain, seconds_of, shown_time
from fedrouter.cli.output import Json, Voice, print_line, quoted
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.families.registry import FAMILIES

if TYPE_CHECKING:
    from fedrouter.deployment.runs.job import Job
    from fedrouter.deployment.state.directories import CoordinatorDirectory

SECURE_THRESHOLD = 2 / 3
"""More than this fraction of the clients must complete a secure aggregation."""
COUNTED = {
    "learn": "Evaluations behind it",
    "add_models": "Evaluations of the new models",
    "add_clients": "Evaluations that were added",
    "remove_clients": "Evaluations that were taken out",
}
"""What the rows are that a run heard of."""
ROUNDS = {"add_models": 20, "add_clients": 5}
"""For models and clients that join; for learning, each family has its own default."""


def run(
    path: CoordinatorPath,
    router: Annotated[str | None, typer.Option("--router", help=f"{', '.join(FAMILIES)}; default: bayes.")] = None,
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
    leave: Annotated[
        list[str] | None,
        typer.Option("--leave", metavar="CLIENT", help="Remove a client from --bundle, exactly; repeatable."),
    ] = None,
    bundle: Annotated[Path | None, typer.Option("--bundle", help="The router to extend.")] = None,
    quorum: Quorum = 1,
    timeout: Timeout = 300.0,
    wait: Wait = 30.0,
    plain_sums: PlainSums = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also copy the bundle here.")] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Repeat until Ctrl+C, from start to start: 30m, 12h, 1d."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the run; default: a number, or that of the interrupted run it resumes."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a router over the network, or extend one. Repeating the command resumes an interrupted run."""
    from fedrouter.bundle import refuse_existing
    from fedrouter.deployment.state.directories import open_coordinator

    voice = Voice(as_json)
    directory = open_coordinator(path)
    if out is not None:
        refuse_existing(out)
    change = _Change(add_model or [], join or [], leave or [])
    job = _job(router, rounds, seed, _names(models), _names(clients), change, bundle, quorum, timeout)
    # Who leaves is asked for its own sums: the difference of the two routers shows them anyway.
    secure = None if plain_sums or leave else SECURE_THRESHOLD
    _require_crowd(job, secure)
    job = replace(job, gather=wait, secure=secure)
    if every is None:
        voice.result(_perform(voice, directory, job, name, out))
        return
    if name is not None or out is not None or job.operation != "learn":
        raise BadInput("--every repeats the learning of a router: it does not go with --name, --out or --bundle")
    _repeat(voice, seconds_of(every, "--every"), lambda: _perform(voice, directory, job, None, None))


def _repeat(voice: Voice, every: float, once: Callable[[], Mapping[str, Any]]) -> None:
    """Run now and then every so many seconds; a run that fails is reported, and resumed at the next time."""
    while True:
        began = time.monotonic()
        try:
            document: Mapping[str, Any] = once()
        except FedrouterError as error:
            voice.warn(plain(error))
            document = {"error": str(error)}
        if voice.as_json:
            print_line(document)
        rest = max(0.0, began + every - time.monotonic())
        voice.say(f"\nNext run at {shown_time(time.time() + rest)} UTC")
        try:
            time.sleep(rest)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _perform(
    voice: Voice, directory: CoordinatorDirectory, job: Job, name: str | None, out: Path | None
) -> Mapping[str, Any]:
    """Submit one run and follow it to its end; what --json prints."""
    from fedrouter.deployment.runs.history import name_for, rows_before, usual_exchanges
    from fedrouter.deployment.runs.submission import follow, submit

    resumed = False
    if name is None:
        name, resumed = name_for(directory, job)
    usual, before = usual_exchanges(directory, job), rows_before(directory, job)
    submitted = submit(directory, name, job)
    voice.say(f"{name}: {'resumed' if resumed else 'started'} ({job.what})   (Ctrl+C stops it)")
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
    voice.say(f"{COUNTED[job.operation]}: {_counted(job, result)}{_compared(job, before)}")
    voice.say(f"[bold]Bundle:[/] {made}")
    vote = result["vote"]
    voice.say(f"[bold]Vote:[/] {vote['status']}: {plain(vote['why'])}")
    if vote["status"] == "accepted":
        voice.say("Running clients fetch it within a minute; `fedrouter federation pull CLIENT_DIR` does at once.")
    decide = [f"fedrouter federation accept {quoted(directory.path)} {name}"] if vote["status"] == "candidate" else []
    ask = f'fedrouter route {quoted(made)} "your query" --tradeoff 100'
    voice.next(f"fedrouter evaluate {quoted(made)} LOG", ask, *decide)
    return {"run": name, **result, "steps": shown.steps}


@dataclass(frozen=True)
class _Change:
    """How a router is changed: models that are added, clients that join, clients that leave."""

    models: list[str]
    joining: list[str]
    leaving: list[str]

    def operation(self) -> str:
        """The job's operation; an error if there are several."""
        possible = {"add_models": self.models, "add_clients": self.joining, "remove_clients": self.leaving}
        chosen = [operation for operation, names in possible.items() if names]
        if len(chosen) > 1:
            raise BadInput(
                "--add-model, --join and --leave: expected one of them; the result of one can be the --bundle of the "
                "other"
            )
        return chosen[0] if chosen else "learn"


def _job(
    router: str | None,
    rounds: int | None,
    seed: int,
    models: list[str],
    clients: list[str],
    change: _Change,
    bundle: Path | None,
    quorum: int,
    timeout: float,
) -> Job:
    from fedrouter.bundle import load
    from fedrouter.deployment.runs.job import Job
    from fedrouter.pool import ModelPool

    operation, added, named = change.operation(), change.models, change.joining or change.leaving
    if (operation == "learn") != (bundle is None):
        raise BadInput("--bundle goes with --add-model NAME, --join CLIENT or --leave CLIENT; none of them works alone")
    if bundle is None:
        family = router or "bayes"
    else:
        family = load(bundle).router.family
        if router not in (None, family):
            raise BadInput(f"--router {router}: {bundle} is a {family} router and stays one")
        if models:
            raise BadInput("--models is the pool of a new router; the router to extend has its own")
    if named and clients:
        raise BadInput("--clients: with --join or --leave, only the clients that join or leave are asked")
    if quorum > len(named or clients) > 0:
        raise BadInput(f"--quorum {quorum}: only {len(named or clients)} are asked")
    rounds = rounds or ROUNDS.get(operation)
    return Job(
        operation=operation,
        family=family,
        settings={"rounds": rounds} if rounds else {},
        seed=seed,
        pool=tuple(ModelPool(added or models).to_json()) if added or models else (),
        clients=tuple(named or clients),
        base=None if bundle is None else str(bundle.absolute()),
        quorum=quorum,
        timeout=timeout,
    )


def _require_crowd(job: Job, secure: float | None) -> None:
    """Refuse at once what a run would refuse after its handshake: secure sums of fewer clients than a sum hides."""
    from fedrouter.federation.secagg.client import LEAST_CLIENTS

    if secure is not None and 0 < len(job.clients) < LEAST_CLIENTS:
        raise BadInput(
            f"{', '.join(job.clients)}: secure sums need at least {LEAST_CLIENTS} clients; with --plain the "
            "coordinator sees each client's own sums"
        )


def _compared(job: Job, before: tuple[str, int] | None) -> str:
    """How many the run before had, where it is the same that is counted."""
    return f" ({before[0]} had {before[1]:,})" if before and job.operation == "learn" else ""


def _counted(job: Job, result: Mapping[str, Any]) -> str:
    """Rows that were heard, also by client; under secure aggregation, also of an earlier run, only each client knows
    its own."""
    if job.operation in ("add_clients", "remove_clients"):
        return f"{result.get('rows', 0):,}, of {listed(list(job.clients))}"
    clients = result["clients"]
    if not any(client["rows"] for client in clients):
        names = listed([client["name"] for client in clients])
        if not result.get("rows"):
            return f"hidden by noise, from {names}"
        return f"{result.get('rows', 0):,}, from {names}; how many from whom is hidden"
    counted = ", ".join(f"{client['name']} {client['rows']:,}" for client in clients if client["rows"])
    hidden = listed([client["name"] for client in clients if not client["rows"]])
    return f"{counted}; and those of {hidden}, whose number is hidden" if hidden else counted


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
