"""`fedrouter learn`: a new version of a router from the new feedback in a gateway's log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.gateway.learn_first import learn_first
from fedrouter.cli.gateway.stores import ConfigPath, Since, StoreUrl, moment, open_store
from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.cli.protocol_options import DeviceOption
from fedrouter.cli.router.grow import Out, Seed, Test
from fedrouter.cli.router.saved import areas_before_and_after
from fedrouter.errors import BadInput


def learn(
    out: Out,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Folder of the router to start from; none: a first router.")
    ] = None,
    clients: Annotated[
        list[str] | None,
        typer.Option("--client", metavar="NAME=FILE", help="Learn a first router from log files; repeatable."),
    ] = None,
    router: Annotated[str, typer.Option("--router", help="Family of a first router.")] = "auto",
    store: StoreUrl = None,
    config: ConfigPath = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Make a personal router: the bundle's, weighed against the log's own.")
    ] = False,
    since: Since = None,
    name: Annotated[str, typer.Option("--name", help="Name of the log among the router's clients.")] = "gateway",
    device: DeviceOption = "cpu",
    seed: Seed = 0,
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Learn from the scored requests in a gateway's log that the router has not learned from yet.

    Without --bundle it learns a first router, from all scored requests or from log files: from one file alone, from
    several as a federation in this process under the default privacy.

    A router whose state is sums adds each request as one more row, exactly. A score that was corrected after it was
    learned from is subtracted first.
    """
    from fedrouter.bundle import load, refuse_existing, save
    from fedrouter.federation.device import use_device
    from fedrouter.learning.from_log import learn_from_log, personalize_from_log

    voice = Voice(as_json)
    use_device(device)
    refuse_existing(out)
    if bundle is None:
        learn_first(voice, out, clients or [], router, (store, config), since, name, seed, personal or bool(test))
        return
    if clients:
        raise BadInput("--client: a bundle learns from more logs by `fedrouter client join`; leave out --bundle")
    saved = load(bundle)
    start = moment(since, "--since")
    with open_store(store, config) as log:
        if personal or saved.router.family == "personal":
            learned = personalize_from_log(saved, log, start, seed)
        else:
            learned = learn_from_log(saved, log, name, start, seed)
        where = log.where
    areas = areas_before_and_after(voice, saved, learned.router, test)
    save(out, learned.router, saved.encoder, learned.provenance)
    corrected = f", {learned.corrected:,} of them corrected" if learned.corrected else ""
    voice.say(f"Learned from {learned.rows:,} scored requests{corrected}.")
    for why, count in learned.left_out.items():
        voice.say(f"  left out: {count:,} ({why})")
    for model, count in learned.waiting.items():
        voice.say(f"  {model}: {count} scored requests, too few for a new model; they are kept for the next time")
    voice.say(f"Version {learned.provenance.version} is in {out}; its parent is {bundle}.")
    voice.next(
        f"fedrouter bundle use {quoted(out)}",
        f"fedrouter evaluate {quoted(out)} --log {quoted(store or where)}   (on requests from now on)",
    )
    voice.result(
        {
            "bundle": str(out),
            "version": learned.provenance.version,
            "parent": learned.provenance.parent,
            "change": learned.provenance.change,
            **learned.to_json(),
            "models": list(learned.router.pool.names),
            **({"areas": areas} if areas else {}),
        }
    )
