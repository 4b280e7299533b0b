"""`fedrouter federation init`, `join`, `approve`: how a federation and its members come to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrouter.cli.federation.options import DirectoryPath, Relay, SupernodeUser
from fedrouter.cli.federation.processes import run_here
from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice, print_line, quoted
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.directories import CoordinatorDirectory, MemberDirectory
    from fedrouter.evaluations import Evaluations

LEAST_QUERIES = 10
"""Queries of a model that is declared without being asked for."""


def init(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="New state directory, which will hold private keys.")],
    host: Annotated[
        list[str],
        typer.Option("--host", help="DNS name or address at which members reach the coordinator; repeatable."),
    ],
    port: Annotated[int, typer.Option("--port", help="Port that members connect to.")] = 9092,
    superlink_port: Annotated[
        int | None,
        typer.Option("--superlink-port", help="Port of the SuperLink on loopback; default: --port, or the next one."),
    ] = None,
    encoder: Annotated[
        str, typer.Option("--encoder", help="Whose embeddings the federation learns from; public, and for its life.")
    ] = "static",
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="ε of what leaves a member, once for each query; 0: no noise.")
    ] = 8.0,
    as_json: Json = False,
) -> None:
    """Create a federation: its keys, certificates and an empty roster."""
    from fedrouter.deployment.directories import create_coordinator
    from fedrouter.encoders.registry import open_encoder

    voice = Voice(as_json)
    identity = open_encoder(encoder).identity()
    settings = {"epsilon": epsilon, "delta": 1e-6, "days": 7}
    directory = create_coordinator(path, host, port, superlink_port, identity, settings)
    voice.say(f"[bold]Federation[/] in {plain(directory.path)}, fingerprint {directory.fingerprint}")
    if port != directory.port:
        voice.say(
            f"The SuperLink will listen on 127.0.0.1:{directory.port}; a proxy on port {port} lets members in "
            "(deploy/Caddyfile, deploy/nginx.conf)"
        )
    voice.next(f"fedrouter federation coordinator {quoted(path)}")
    voice.result({"directory": str(directory.path), "port": port, "superlink_port": directory.port})


def join(
    invitation: Annotated[
        str, typer.Argument(metavar="INVITATION", help="What the coordinator printed, or a file that has it.")
    ],
    log: Annotated[
        str, typer.Option("--log", metavar="FILE|URL", help="Own evaluations: a log, a table, or a gateway's store.")
    ],
    path: Annotated[Path, typer.Option("--dir", metavar="DIR", help="New state directory of the member.")],
    name: Annotated[str | None, typer.Option("--name", help="Name in reports; default: that of the directory.")] = None,
    models: Annotated[
        str | None,
        typer.Option(
            "--models", metavar="A,B,…", help="Models to declare; default: those with ten queries in the log."
        ),
    ] = None,
    supernode_user: SupernodeUser = None,
    relay: Relay = None,
    as_json: Json = False,
) -> None:
    """Become a member, and run as one until Ctrl-C; `member` starts it again."""
    from fedrouter.deployment.directories import create_member
    from fedrouter.deployment.invitation import Invitation, JoinRequest, read_word
    from fedrouter.deployment.own_log import read_own

    voice = Voice(as_json)
    invited = Invitation.unpack(read_word(invitation))
    where = log if "://" in log else str(Path(log).absolute())
    voice.say(f"Reading {plain(log)}")
    evaluations, encoder = read_own(where, invited.encoder)
    if encoder.name != invited.encoder:
        raise BadInput(f"{log}: has embeddings of {encoder.name}; the federation learns from {invited.encoder}")
    declared = tuple(each.strip() for each in models.split(",")) if models else models_of(evaluations)
    if not declared:
        raise BadInput(f"{log}: no model has {LEAST_QUERIES} queries; --models names those to declare")
    settings = {"log": where, "encoder": invited.encoder}
    directory = create_member(path, invited, name or path.absolute().name, declared, settings)
    text = directory.request.read_text().strip()
    request = JoinRequest.unpack(text)
    voice.say(
        f"{plain(directory.name)}: {evaluations.queries:,} queries, {len(evaluations):,} evaluations of "
        f"{len(declared)} models, whose names the other members will see: {plain(', '.join(declared))}"
    )
    voice.say(f"[bold]Coordinator[/] {plain(invited.address)}, fingerprint {invited.fingerprint}")
    voice.say(f"[bold]Member {plain(directory.name)}[/] fingerprint {request.fingerprint}")
    voice.say(f"Send this request to the coordinator (also in {plain(directory.request)}):\n{text}")
    if as_json:
        print_line({"event": "joined", "name": directory.name, "fingerprint": request.fingerprint, "request": text})
    run_here(voice, directory, supernode_user, relay)


def models_of(rows: Evaluations) -> tuple[str, ...]:
    """The models with enough queries for their names to say nothing about a single one: names are outside ε."""
    import numpy as np

    queries = np.bincount(np.unique(np.stack([rows.query, rows.model]), axis=1)[1], minlength=len(rows.pool))
    return tuple(name for name, count in zip(rows.pool.names, queries.tolist(), strict=True) if count >= LEAST_QUERIES)


def approve(
    path: DirectoryPath,
    who: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[REQUEST|NAME]…", help="Coordinator: requests to join, or files of them. Member: names to trust."
        ),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Member: trust every member of the last epoch.")] = False,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NAME", help="Take a member off the roster, or out of trust."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Admit members to a federation; at a member, trust others' noise, which takes less noise of its own."""
    from fedrouter.deployment.directories import CoordinatorDirectory, open_directory

    directory, voice = open_directory(path), Voice(as_json)
    if isinstance(directory, CoordinatorDirectory):
        if everyone:
            raise BadInput("--all: a coordinator admits members by their requests")
        _admit(voice, directory, who or [], remove or [])
    else:
        _trust(voice, directory, who or [], everyone, remove or [])


def _admit(voice: Voice, directory: CoordinatorDirectory, who: list[str], remove: list[str]) -> None:
    from fedrouter.deployment.invitation import JoinRequest, read_word

    requests = [JoinRequest.unpack(read_word(each)) for each in who]
    with directory.editing_roster() as roster:
        for name in remove:
            if roster.pop(name, None) is None:
                raise BadInput(f"--remove {name}: not on the roster ({', '.join(roster) or 'nobody is'})")
        for request in requests:
            there = roster.get(request.name)
            if there is not None and there.identity != request.identity:
                raise BadInput(
                    f"{request.name}: on the roster with another key, {there.fingerprint}; choose another --name, or "
                    f"--remove {request.name} first"
                )
            roster[request.name] = request
        shown = {name: each.fingerprint for name, each in sorted(roster.items())}
    _show(voice, [[name, shown[name]] for name in shown], "The owner of each member sees the same fingerprint.")
    voice.next(f"fedrouter federation run {quoted(directory.path)}")
    voice.result({"members": shown})


def _trust(voice: Voice, directory: MemberDirectory, who: list[str], everyone: bool, remove: list[str]) -> None:
    from fedrouter.deployment.member import last_members
    from fedrouter.federation.policy import Policy

    keys = last_members(directory)
    if unknown := [name for name in (*who, *remove) if name not in keys]:
        raise BadInput(f"{unknown[0]}: not a member of the last epoch ({', '.join(keys) or 'there was none yet'})")
    file = directory.path / "policy.yaml"
    policy = Policy.read(file).with_trust(tuple(keys[name] for name in (keys if everyone else who)))
    policy = replace(policy, trusted=tuple(key for key in policy.trusted if key not in {keys[name] for name in remove}))
    policy.write(file)
    rows = [[name, key, "trusted" if key in policy.trusted else "not trusted"] for name, key in keys.items()]
    _show(voice, rows, "Compare fingerprints with their owners: a trusted member is one whose noise you count on.")
    voice.result(
        {"members": {name: {"fingerprint": key, "trusted": key in policy.trusted} for name, key in keys.items()}}
    )


def _show(voice: Voice, rows: list[list[str]], about: str) -> None:
    header = ["member", "fingerprint", *([""] if rows and len(rows[0]) > 2 else [])]
    voice.table(header, [[plain(each) for each in row] for row in rows])
    voice.say(about)
