"""`fedrouter route`: chooses a model for one query and shows every model's estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedrouter.cli.output import BundlePath, Json, Voice
from fedrouter.cli.router.verdict import Quality, quality_of
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle


def route(
    bundle: BundlePath,
    text: Annotated[str, typer.Argument(help="The query.")],
    quality: Quality = None,
    tradeoff: Annotated[
        float | None, typer.Option("--tradeoff", help="λ instead: accuracy you would give up to save a dollar.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose a model for one query, and show every model's estimates."""
    from fedrouter.bundle import load
    from fedrouter.encoders.registry import open_encoder
    from fedrouter.estimates import checked_tradeoff

    voice = Voice(as_json)
    tradeoff = None if tradeoff is None else checked_tradeoff(tradeoff)
    if not text.strip():
        raise BadInput("text: expected a query, got nothing")
    saved = load(bundle)
    quality = quality_of(quality, saved)
    encoder = open_encoder(saved.encoder.name)
    saved.encoder.require(encoder.identity(), str(bundle))
    embedding = encoder.encode([text])
    if tradeoff is None:
        tradeoff = _tradeoff_of(saved, quality)
    estimates = saved.router.estimate(embedding)
    utility, names = estimates.utility(tradeoff)[0], saved.router.pool.names
    order = [int(index) for index in estimates.ranking(tradeoff)[0]]
    chosen = names[order[0]]
    ranking: list[dict[str, Any]] = [
        {
            "model": names[index],
            "accuracy": _number(estimates.accuracy[0, index]),
            "error": _number(estimates.error[0, index]) if estimates.error is not None else None,
            "cost": _number(estimates.cost[0, index]),
            "utility": _number(utility[index]),
        }
        | ({"unavailable": estimates.unavailable[index]} if estimates.unavailable[index] else {})
        for index in order
    ]
    best = ranking[0]
    reason = f"highest predicted accuracy - λ · cost of {int(estimates.usable.sum())} models"
    voice.table(
        ["model", "accuracy", "±", "cost, USD", "utility"],
        [
            [entry["model"], *(_shown(entry[key]) for key in ("accuracy", "error", "cost", "utility"))]
            if "unavailable" not in entry
            else [entry["model"], "", "", "", entry["unavailable"]]
            for entry in ranking
        ],
        title=f"λ = {tradeoff:.6g}, {saved.router.family} router, {saved.encoder.name}",
    )
    voice.say("\nutility: accuracy - λ · cost; ±: standard error of the accuracy, large where evaluations are few")
    voice.say(f"[bold]{chosen}[/]: predicted accuracy {best['accuracy']:.3f}, cost {best['cost']:.3g} USD")
    if saved.manifest["simulated"]:
        voice.say("[yellow]This router was trained on the simulated world; its models are fictional.[/]")
    voice.result(
        {
            "model": chosen,
            "reason": reason,
            "tradeoff": tradeoff,
            "family": saved.router.family,
            "encoder": saved.encoder.name,
            "ranking": ranking,
        }
    )


def _tradeoff_of(saved: Bundle, quality: float) -> float:
    """The λ that was measured to keep a quality when the router was learned; else what its own estimates say."""
    from fedrouter.frontier.operating_point import OperatingPoints
    from fedrouter.gateway.routing.bundles import typical_queries

    measured = {float(name): value for name, value in saved.manifest["change"].get("tradeoffs", {}).items()}
    enough = [name for name in measured if name >= quality - 1e-9]
    if enough:
        return float(measured[min(enough)])
    return OperatingPoints.of(saved.router.estimate(typical_queries(saved.router))).of_quality(quality)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
