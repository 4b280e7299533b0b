"""`fedrouter federation run`: learn a router, add a model or let a client join, with the clients that are connected."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.jobs import Job

SHARE = 2 / 3
"""Of the clients that are asked, more must see a secure aggregation through."""
ROUNDS = {"extend": 20, "absorb": 5}
"""As `fedrouter model add` and `fedrouter client join` have them; to learn, a family knows its own."""


def run(
    path: Annotated[Path, typer.Argument(metavar="HOME", help="The coordinator's folder.")],
    router: Annotated[
        str | None, typer.Option("--router", help="auto, kmeans, mlp, linear, kernel, mf, query_blind. [default: auto]")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Rounds of averaging (MLP, MF).")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="One seed reproduces a run exactly.")] = 0,
    models: Annotated[
        str | None, typer.Option("--models", metavar="A,B,…", help="The pool; default: every model a client names.")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="A,B,…", help="Who is asked; default: the whole roster.")
    ] = None,
    add_model: Annotated[
        list[str] | None, typer.Option("--add-model", metavar="NAME", help="Add a model to --bundle; repeatable.")
    ] = None,
    join: Annotated[
        list[str] | None, typer.Option("--join", metavar="CLIENT", help="Let a client join --bundle; repeatable.")
    ] = None,
    bundle: Annotated[Path | None, typer.Option("--bundle", help="The router that grows.")] = None,
    quorum: Annotated[int, typer.Option("--quorum", min=1, help="Clients that must answer every question.")] = 1,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds a question may take.")] = 300.0,
    robust: Annotated[
        bool, typer.Option("--robust", help="Limit what any one client can do to the router, at a small price.")
    ] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="See only totals of what clients send, by secure aggregation.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also copy the bundle here.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The run's name; by default numbered, or the one it goes on with.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a router over the wire, or let one grow. The same command goes on with a run that was broken off."""
    from fedrouter.bundle import refuse_existing
    from fedrouter.deployment.flower_run import follow, submit
    from fedrouter.deployment.homes import open_coordinator
    from fedrouter.deployment.records import name_for

    voice = Voice(as_json)
    home = open_coordinator(path)
    if out is not None:
        refuse_existing(out)
    if robust and secure:
        raise BadInput("--robust and --secure: expected one of them; one looks at what each client sends, one hides it")
    job = _job(
        router, rounds, seed, _names(models), _names(clients), add_model or [], join or [], bundle, quorum, timeout
    )
    job = replace(job, robust=_robust() if robust else None, secure=SHARE if secure else None)
    again = False
    if name is None:
        name, again = name_for(home, job)
    submitted = submit(home, name, job)
    voice.say(f"{name}: {'goes on' if again else 'starts'} ({job.verb} {job.family})   (Ctrl+C stops it)")
    steps: list[Mapping[str, Any]] = []
    try:
        result = follow(submitted, lambda line: _tell(voice, line, steps))
    except KeyboardInterrupt:
        _halt(voice, submitted)
        raise typer.Exit(130) from None
    if out is not None:
        shutil.copytree(result["bundle"], out)
        result["bundle"] = str(out)
    made = result["bundle"]
    voice.say(f"\n{result['family']} router for {len(result['models'])} models, version {result['version']}")
    voice.say(f"Evaluations behind it: {_counted(result['clients'])}")
    voice.say(f"[bold]Bundle:[/] {made}")
    voice.next(f"fedrouter evaluate {made} --data FILE", f'fedrouter route {made} "your question" --explain')
    voice.result({"run": name, **result, "steps": steps})


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
    from fedrouter.deployment.jobs import Job
    from fedrouter.pool import ModelPool

    verb = "extend" if added else "absorb" if joining else "learn"
    if added and joining:
        raise BadInput(
            "--add-model and --join: expected one of them; the result of one can be the --bundle of the other"
        )
    if (verb == "learn") != (bundle is None):
        raise BadInput("--bundle goes with --add-model NAME or --join CLIENT, and they with it")
    if bundle is None:
        family = router or "auto"
    else:
        family = load(bundle).router.family
        if router not in (None, family):
            raise BadInput(f"--router {router}: {bundle} is a {family} router, and stays one")
        if models:
            raise BadInput("--models is the pool of a new router; a router that grows has its own")
    if joining and clients:
        raise BadInput("--clients: with --join, only those who join are asked")
    if quorum > len(joining or clients) > 0:
        raise BadInput(f"--quorum {quorum}: only {len(joining or clients)} are asked")
    rounds = rounds or ROUNDS.get(verb)
    return Job(
        verb=verb,
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


def _tell(voice: Voice, line: Mapping[str, Any], steps: list[Mapping[str, Any]]) -> None:
    """One line of a run's progress, as a person wants to hear it."""
    if line["event"] == "start":
        voice.say(f"Taking part: {', '.join(line['clients'])}; {len(line['models'])} models, {plain(line['encoder'])}")
    elif line["event"] == "dropped":
        voice.warn(f"{plain(line['client'])} does not count for {plain(line['verb'])}: {plain(line['reason'])}")
    elif line["event"] == "step":
        steps.append({name: line[name] for name in ("stage", "step", "steps", "answered", "missing", "metrics")})
        measured = "".join(f"   {name} {value:.4f}" for name, value in line["metrics"].items())
        answered = f"   {_listed(line['answered'])} answered" if line["answered"] else ""
        voice.say(f"{plain(line['stage'])} {line['step']}/{line['steps']}{answered}{measured}")


def _counted(clients: list[Mapping[str, Any]]) -> str:
    """How many of whose; under secure aggregation nobody knows but each client itself."""
    if not any(one["rows"] for one in clients):
        return f"of {_listed([one['name'] for one in clients])}, how many of whose is hidden"
    return ", ".join(f"{one['name']} {one['rows']:,}" for one in clients)


def _listed(names: list[str]) -> str:
    """Names, as long as a line has room for them."""
    return ", ".join(names) if len(names) <= 5 else f"{len(names)} clients"


def _halt(voice: Voice, submitted: Any) -> None:
    from fedrouter.deployment.flower_run import Runs

    if submitted.number is not None:
        Runs(submitted.home).halt(submitted.number)
    voice.say(f"\n{submitted.name}: stopped; the same command goes on with it")


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
