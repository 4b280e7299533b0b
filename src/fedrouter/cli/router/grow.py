"""`fedrouter model add`, `client join`, `client leave`: adds to a saved router, or removes clients from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.output import BundlePath, Json, Voice, bars, quoted
from fedrouter.cli.router.saved import areas_before_and_after, read_for
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle, Provenance
    from fedrouter.engines.local import LocalFederation
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.families.family import Family
    from fedrouter.pool import ModelPool
    from fedrouter.routers.base import Router

model = typer.Typer(help="Models of a router's pool.", no_args_is_help=True)
client = typer.Typer(help="Clients of a router.", no_args_is_help=True)

Logs = Annotated[list[str], typer.Option("--client", metavar="NAME=FILE", help="A client and its log; repeatable.")]
Out = Annotated[Path, typer.Option("--out", help="Where to write the new bundle; the old one stays as it is.")]
Test = Annotated[
    Path | None, typer.Option("--test", help="Table with every model's answers, to compare areas before and after.")
]
Rounds = Annotated[int, typer.Option("--rounds", help="Rounds of federated averaging (MLP).")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed reproduces a run exactly.")]


@model.command()
def add(
    bundle: BundlePath,
    models: Annotated[list[str], typer.Argument(help="Names of the new models, as the logs have them.")],
    clients: Logs,
    out: Out,
    input_price: Annotated[
        float | None, typer.Option(help="US dollars per million tokens in, if one is added.")
    ] = None,
    output_price: Annotated[float | None, typer.Option(help="US dollars per million tokens out.")] = None,
    context: Annotated[int | None, typer.Option(help="Context length in tokens.")] = None,
    rounds: Rounds = 20,
    seed: Seed = 0,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Add models to a router; clients need evaluations of them on about a tenth of their prompts.

    Estimates of the models that the router has do not change.
    """
    from fedrouter.pool import Model, ModelPool

    voice = Voice(as_json)
    if len(models) > 1 and (input_price, output_price, context) != (None, None, None):
        raise BadInput("prices and context are one model's: add models that have them one by one")
    new = ModelPool([Model(name, input_price, output_price, context) for name in models])
    saved, family, logs = _open(bundle, clients, out)
    saved.router.pool.with_models(new)  # refuses models that are in the pool already
    strangers = [name for name in logs if name not in saved.clients]
    if strangers:
        raise BadInput(f"{', '.join(strangers)}: not among the router's clients; let them join first (client join)")
    rows = {name: len(log.over(new)) for name, log in logs.items()}
    for name in new.names:
        if not any(name in log.pool and (log.model == log.pool.index(name)).any() for log in logs.values()):
            raise BadInput(f"model {name!r}: none of the logs has an evaluation of it")
    grown = _learn(saved, family, logs, new, rounds=rounds, seed=seed)
    done = f"Added {', '.join(new.names)} from {sum(rows.values()):,} evaluations of {len(logs)} clients."
    _conclude(voice, saved, grown, saved.with_models(new, rows, seed), rows, done, out, test)


@client.command()
def join(
    bundle: BundlePath,
    clients: Logs,
    out: Out,
    rounds: Rounds = 5,
    distillation: Annotated[
        float, typer.Option(help="MLP: weight of the distillation loss toward the old router.")
    ] = 1.0,
    seed: Seed = 0,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Add new clients to a router; the clients it has take no part."""
    voice = Voice(as_json)
    saved, family, logs = _open(bundle, clients, out)
    twice = [name for name in logs if name in saved.clients]
    if twice:
        raise BadInput(f"{', '.join(twice)}: already a client of this router; its evaluations would count twice")
    rows = {name: len(log.over(saved.router.pool)) for name, log in logs.items()}
    for name, log in logs.items():
        unknown = [known for known in log.pool.names if known not in saved.router.pool]
        if unknown:
            voice.warn(f"{name}: {', '.join(unknown)} not in the pool, its rows are left out (see model add)")
        if not rows[name]:
            raise BadInput(f"{name}: no evaluation of any model of the router's pool")
    grown = _learn(saved, family, logs, None, rounds=rounds, seed=seed, distillation=distillation)
    done = f"{', '.join(sorted(logs))} joined with {sum(rows.values()):,} evaluations; no other client was asked."
    _conclude(voice, saved, grown, saved.with_clients(rows, seed), rows, done, out, test)


@client.command()
def leave(
    bundle: BundlePath,
    clients: Annotated[
        list[str],
        typer.Option(
            "--client", metavar="NAME=FILE", help="A client and its log, or its state directory of a federation."
        ),
    ],
    out: Out,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Remove clients from a router by subtraction, exactly; their evaluations must be those with which they joined.

    A client of a federation across machines contributed what its privacy settings allow: name its state directory.
    """
    voice = Voice(as_json)
    deployed = [entry for entry in clients if (Path(entry.partition("=")[2]) / "client.json").is_file()]
    if deployed and len(deployed) < len(clients):
        raise BadInput("--client: expected logs or state directories, not some of each")
    if deployed:
        saved, left, rows = _left_by_deployed(bundle, clients, out)
    else:
        saved, left, rows = _left_by_logs(bundle, clients, out)
    done = f"{', '.join(sorted(rows))} left: {sum(rows.values()):,} evaluations subtracted, exactly."
    founders = [name for name in rows if "joined" not in saved.clients[name]]
    if founders:
        voice.warn(
            f"{', '.join(founders)} took part when the router was first learned: its sums are removed, but regions, "
            "directions and weights of a blend were found with its help and stay"
        )
    _conclude(voice, saved, left, saved.without_clients(rows), rows, done, out, test)


def _left_by_logs(bundle: Path, clients: list[str], out: Path) -> tuple[Bundle, Router, Mapping[str, int]]:
    """The router without clients whose logs are here, which contributed all of their rows."""
    saved, family, logs = _open(bundle, clients, out)
    remove_clients = family.removal()
    rows = {name: len(log.over(saved.router.pool)) for name, log in logs.items()}
    for name in rows:
        if name not in saved.clients:
            raise BadInput(f"{name}: not a client of this router, which has {', '.join(saved.clients)}")
        expected = saved.clients[name]["rows"]
        if rows[name] != expected:
            raise BadInput(f"{name}: expected the {expected:,} evaluations it contributed, its log has {rows[name]:,}")
    return saved, remove_clients(saved.router, _federation(logs)), rows


def _left_by_deployed(bundle: Path, clients: list[str], out: Path) -> tuple[Bundle, Router, Mapping[str, int]]:
    """The router without clients whose state directories are here, which answer as they did in the run."""
    from fedrouter.bundle import load, refuse_existing
    from fedrouter.deployment.client.local_client import client_of
    from fedrouter.deployment.runs.perform import remove_clients, require_members
    from fedrouter.engines.local import LocalFederation

    refuse_existing(out)
    saved = load(bundle)
    named = {name: Path(path) for name, _, path in (entry.partition("=") for entry in clients)}
    require_members(saved, tuple(named))
    members = {name: client_of(path) for name, path in named.items()}
    for name, member in members.items():
        if member.name != name:
            raise BadInput(f"{named[name]}: the state directory of {member.name}, not of {name}")
        member.privacy = replace(member.privacy, secure_only=False)  # its owner asks, and nothing is sent
    return saved, *remove_clients(saved, LocalFederation(members.values()))


def _open(bundle: Path, clients: list[str], out: Path) -> tuple[Bundle, Family, Mapping[str, Evaluations]]:
    """The bundle, its family, and the clients' logs with embeddings of its encoder."""
    from fedrouter.bundle import load, refuse_existing
    from fedrouter.federation.families.registry import family

    refuse_existing(out)
    saved = load(bundle)
    if saved.router.federated_router() is not saved.router:
        raise BadInput(f"{bundle}: a personal router does not grow; grow the federated one and personalize it again")
    logs: dict[str, Evaluations] = {}
    for entry in clients:
        name, _, path = entry.partition("=")
        if not name or not path:
            raise BadInput(f"--client: expected NAME=FILE, got {entry!r}")
        if name in logs:
            raise BadInput(f"--client: {name} is named twice")
        logs[name] = read_for(saved, Path(path)).evaluations
    return saved, family(saved.router.family), logs


def _federation(logs: Mapping[str, Evaluations]) -> LocalFederation:
    from fedrouter.engines.local import LocalFederation
    from fedrouter.federation.client import Client
    from fedrouter.federation.privacy.policy import OPEN

    return LocalFederation(Client(name, log, OPEN) for name, log in logs.items())


def _learn(
    saved: Bundle,
    family: Family,
    logs: Mapping[str, Evaluations],
    models: ModelPool | None,
    seed: int,
    **changes: Any,
) -> Router:
    settings = family.settings.from_json(saved.settings_for(family.name), **changes)
    with bars() as shown:

        def follow(progress: Any) -> None:
            shown.move(progress.stage, progress.step, progress.steps)

        if models is None:
            return family.add_clients(saved.router, _federation(logs), settings, seed, follow)
        return family.add_models(saved.router, _federation(logs), models, settings, seed, follow)


def _conclude(
    voice: Voice,
    saved: Bundle,
    router: Router,
    provenance: Provenance,
    rows: Mapping[str, int],
    done: str,
    out: Path,
    test: Path | None,
) -> None:
    """Save the new version; print what changed and, given a test set, the areas before and after."""
    from fedrouter.bundle import save

    areas = areas_before_and_after(voice, saved, router, test)
    save(out, router, saved.encoder, provenance)
    voice.say(done)
    voice.say(f"Version {provenance.version} in {out}; its parent is {saved.path}.")
    judge = f"fedrouter evaluate {quoted(out)} --data {quoted(test or 'FILE')}"
    voice.next(judge, f"fedrouter personalize {quoted(out)} --data LOG --out {quoted(out, '-personal')}")
    voice.result(
        {
            "bundle": str(out),
            "version": provenance.version,
            "parent": provenance.parent,
            "change": provenance.change,
            "rows": dict(rows),
            "models": list(router.pool.names),
            "clients": [entry["name"] for entry in provenance.clients],
            **({"areas": areas} if areas else {}),
        }
    )
