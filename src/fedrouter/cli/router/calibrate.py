"""`fedrouter calibrate`: finds the λ that meets a target."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.output import BundlePath, Json, Voice, quoted
from fedrouter.cli.router.saved import open_with_data, verdict_on
from fedrouter.errors import BadInput


def calibrate(
    bundle: BundlePath,
    data: Annotated[Path, typer.Option("--data", help="Queries like those to be routed.")],
    max_cost: Annotated[float | None, typer.Option("--max-cost", help="Mean US dollars a query may cost.")] = None,
    min_accuracy: Annotated[float | None, typer.Option("--min-accuracy", help="Mean accuracy to keep.")] = None,
    share: Annotated[str | None, typer.Option("--share", help="MODEL=SHARE, such as large=0.3.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Set λ at the running gateway; needs its admin key in FEDROUTER_KEY.")
    ] = False,
    gateway: Annotated[
        str, typer.Option("--gateway", metavar="URL", help="The gateway for --apply.")
    ] = "http://127.0.0.1:8080",
    as_json: Json = False,
) -> None:
    """Find the λ for a target mean cost, accuracy, or model share on a data file."""
    import fedrouter.calibration

    voice = Voice(as_json)
    key = os.environ.get("FEDROUTER_KEY", "")
    if apply and not key:
        raise BadInput("--apply: set FEDROUTER_KEY to an admin key of the gateway; `fedrouter key create NAME --admin`")
    if sum(target is not None for target in (max_cost, min_accuracy, share)) != 1:
        raise BadInput("calibrate: expected exactly one target: --max-cost, --min-accuracy or --share")
    saved, dataset = open_with_data(bundle, data)
    found = fedrouter.calibration.calibrate(
        saved.router.estimate(dataset.evaluations.embeddings),
        dataset.evaluations.grid(),
        max_cost=max_cost,
        min_accuracy=min_accuracy,
        share=None if share is None else _share(share),
    )
    verdict, warnings = verdict_on(saved, dataset)
    voice.verdict(verdict["verdict"])
    for warning in warnings:
        voice.warn(warning)
    voice.say(
        f"λ = [bold]{found.tradeoff:.6g}[/]: mean accuracy {found.accuracy:.3f}, cost {found.cost:.6g} USD per query "
        f"({found.basis} on {found.queries:,} queries)"
    )
    served = sorted(((part, name) for name, part in found.shares.items() if part > 0), reverse=True)
    voice.table(["model", "share"], [[name, f"{part:.1%}"] for part, name in served])
    if apply:
        from fedrouter.gateway.admin import set_tradeoff

        set_tradeoff(gateway, key, found.tradeoff, saved.manifest["digest"])
        voice.say(f"\n{gateway}: requests that set no tradeoff now have this λ; DELETE /v1/tradeoff undoes it")
    voice.next(f'fedrouter route {quoted(bundle)} "your query" --tradeoff {found.tradeoff:.6g} --explain')
    voice.result(
        {
            "bundle": str(bundle),
            "data": dataset.name,
            "target": {"max_cost": max_cost, "min_accuracy": min_accuracy, "share": share},
            **asdict(found),
            "applied": gateway if apply else None,
            **verdict,
            "warnings": warnings,
        }
    )


def _share(text: str) -> tuple[str, float]:
    model, equals, part = text.rpartition("=")
    try:
        if not equals:
            raise ValueError
        return model, float(part)
    except ValueError:
        raise BadInput(f"--share: expected MODEL=SHARE such as large=0.3, got {text!r}") from None
