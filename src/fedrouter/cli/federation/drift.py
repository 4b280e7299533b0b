"""`fedrouter federation drift`: ask all members whether a model got worse, over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedrouter.cli.federation.options import CoordinatorPath, PlainSums, Quorum, Timeout, Wait
from fedrouter.cli.federation.progress import ShownProgress
from fedrouter.cli.federation.run import SECURE_THRESHOLD
from fedrouter.cli.gateway.stores import plain, shown_day
from fedrouter.cli.output import Json, Voice


def drift(
    path: CoordinatorPath,
    bundle: Annotated[Path, typer.Option("--bundle", help="The router whose regions and predictions count.")],
    names: Annotated[
        Path | None,
        typer.Option("--names", metavar="LOG", help="Own log whose tasks or words name the regions."),
    ] = None,
    ask: Annotated[bool, typer.Option("--ask/--no-ask", help="Ask about the days since last time.")] = True,
    quorum: Quorum = 1,
    timeout: Timeout = 300.0,
    wait: Wait = 30.0,
    plain_sums: PlainSums = False,
    as_json: Json = False,
) -> None:
    """Ask members for sums of scores by day, region and model, and show which models got worse."""
    from fedrouter.bundle import load
    from fedrouter.deployment.runs.drift import asked, days_to_ask
    from fedrouter.deployment.runs.history import name_for
    from fedrouter.deployment.runs.job import Job
    from fedrouter.deployment.runs.submission import follow, submit
    from fedrouter.deployment.state.directories import open_coordinator
    from fedrouter.drift.detector import alarms
    from fedrouter.errors import BadInput

    voice = Voice(as_json)
    directory, base = open_coordinator(path), load(bundle)
    if ask:
        first, days = days_to_ask(directory, base)
        job = Job(
            "drift",
            base.router.family,
            {"first": first, "days": days},
            base=str(bundle.absolute()),
            quorum=quorum,
            timeout=timeout,
            gather=wait,
            secure=None if plain_sums else SECURE_THRESHOLD,
        )
        name, resumed = name_for(directory, job)
        submitted = submit(directory, name, job)
        voice.say(f"{name}: {'resumed' if resumed else 'started'} (drift, {days} days)   (Ctrl+C stops it)")
        try:
            follow(submitted, ShownProgress(voice, None).show)
        except KeyboardInterrupt:
            voice.say(f"\n{name}: stopped; repeat the command to resume it")
            raise typer.Exit(130) from None
    sums = asked(directory, base)
    if sums is None:
        raise BadInput(f"{path}: no run has asked about drift with this bundle yet")
    regions = _names(base, names)
    found = [
        {"model": base.router.pool.names[alarm.model], "region": regions[alarm.region], **alarm.to_json()}
        for alarm in alarms(sums)
    ]
    voice.say(f"{sums.count.sum():,.0f} scored answers of all members in {sums.days} days, {len(regions)} regions")
    for alarm in found:
        voice.say(
            f"{plain(alarm['model'])} got worse at {plain(alarm['region'])} on {shown_day(alarm['began'])}: "
            f"{alarm['before']:.2f} → {alarm['after']:.2f} ({alarm['answers']:,} scored answers)"
        )
    if not found:
        voice.say("No model got worse.")
    voice.result({"answers": float(sums.count.sum()), "days": sums.days, "regions": list(regions), "alarms": found})


def _names(base: Any, log: Path | None) -> tuple[str, ...]:
    """Names of the regions: from an own log, whose prompts stay here, or numbers."""
    from fedrouter.data.read import read
    from fedrouter.drift.regions import region_names
    from fedrouter.federation.residuals import router_regions

    centres = router_regions(base.router)
    if log is None:
        return tuple(f"region {number + 1}" for number in range(len(centres)))
    data = read(log, encoder=base.encoder.name).evaluations
    return region_names(centres, data.embeddings, data.task, data.text)
