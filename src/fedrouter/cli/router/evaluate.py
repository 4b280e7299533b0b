"""`fedrouter evaluate`: the frontier and verdict of a saved router on a log, and λ for a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.output import BundlePath, Json, Voice, quoted
from fedrouter.cli.router.saved import is_store, read_logs, read_traffic
from fedrouter.cli.router.verdict import (
    PER,
    Quality,
    document_of,
    draw,
    judged,
    quality_of,
    say_verdict,
    suggested,
)
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.cli.router.saved import Log
    from fedrouter.evaluations import Evaluations
    from fedrouter.frontier import Verdict
    from fedrouter.frontier.outcomes import Outcomes, Point

PICTURES = (".png", ".svg")
TRAINED = "the router was learned from this log, so routers learned anew without each fold are judged in its place"


def evaluate(
    bundle: BundlePath,
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="Table or log of evaluations, or a gateway's store (sqlite:///PATH).")
    ],
    quality: Quality = None,
    max_cost: Annotated[float | None, typer.Option("--max-cost", help="Mean US dollars a query may cost.")] = None,
    min_accuracy: Annotated[float | None, typer.Option("--min-accuracy", help="Mean accuracy to reach.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="File for a picture of the frontier: .png or .svg.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a saved router on a log, and find the λ that keeps a quality, a cost or an accuracy."""
    from fedrouter.bundle import load
    from fedrouter.report.style import require_matplotlib

    voice = Voice(as_json)
    if max_cost is not None and min_accuracy is not None:
        raise BadInput("evaluate: expected one target: --max-cost or --min-accuracy, or --quality")
    if out is not None:
        require_matplotlib()
        if out.suffix not in PICTURES or not out.parent.is_dir():
            raise BadInput(f"--out {out}: expected a file in an existing folder, named {' or '.join(PICTURES)}")
    saved = load(bundle)
    quality = quality_of(quality, saved)
    read = read_traffic(saved, log) or read_logs(voice, {"log": log}, saved)[0]
    rows = read.rows.over(saved.router.pool)
    trained = _is_trained_on(saved, read)
    verdict, outcomes = judged(rows, _learner(saved, rows, trained), quality)
    warnings = [TRAINED] if trained else []
    say_verdict(voice, verdict)
    for warning in warnings:
        voice.warn(warning)
    target = _target(voice, outcomes, max_cost, min_accuracy)
    _say_frontier(voice, verdict, Path(log).name)
    measures = None if trained else _measures(saved, rows, verdict)
    if measures is not None:
        voice.say(f"\naiq {measures['areas']['aiq']:.3f}   auc {measures['areas']['auc']:.3f}")
        if measures["collapse"]:
            warnings.append(measures["collapse"])
            voice.warn(measures["collapse"])
    figure = None
    if out is not None:
        figure = draw(voice, verdict, out)
    tradeoff = target["tradeoff"] if target else suggested(verdict)
    if tradeoff is not None:
        voice.next(f'fedrouter route {quoted(bundle)} "your query" --tradeoff {tradeoff:.6g}')
    voice.result(
        {
            "bundle": str(bundle),
            "family": saved.router.family,
            "data": log if is_store(log) else Path(log).name,
            "encoder": saved.encoder.name,
            "queries": verdict.queries,
            "models": list(saved.router.pool.names),
            "trained": trained,
            **document_of(verdict),
            "target": target,
            "areas": None if measures is None else measures["areas"],
            "baselines": None if measures is None else measures["baselines"],
            "warnings": warnings,
            "figure": None if figure is None else str(figure),
        }
    )


def _is_trained_on(saved: Bundle, log: Log) -> bool:
    digests = {saved.manifest["data_digest"]}.union(*(entry.get("files", ()) for entry in saved.clients.values()))
    return bool(log.digest) and log.digest in digests


def _learner(saved: Bundle, rows: Evaluations, trained: bool) -> Any:
    """The router itself on rows that it has not seen; on its own rows, how to learn it without some of them."""
    if not trained:
        return lambda _: saved.router
    from fedrouter.federation.families.registry import family
    from fedrouter.growth import learner

    router = saved.router.federated_router()
    settings = family(router.family).settings.from_json(saved.settings_for(router.family))
    try:
        return learner(router, settings, 0, rows)
    except BadInput:  # a part of this file: the rest was for testing, as in `simulate`
        return lambda _: saved.router


def _target(
    voice: Voice, outcomes: Outcomes | None, max_cost: float | None, min_accuracy: float | None
) -> dict[str, Any] | None:
    """λ for a mean cost or accuracy, and what was measured there."""
    if max_cost is None and min_accuracy is None:
        return None
    if outcomes is None:
        raise BadInput("evaluate: too few rows to find a λ")
    place = outcomes.of_cost(max_cost) if max_cost is not None else outcomes.of_accuracy(min_accuracy or 0.0)
    point = outcomes.frontier(1)[place]
    voice.say(
        f"λ = [bold]{point.name:.6g}[/]: mean accuracy {point.accuracy:.3f} ± {point.accuracy_error:.3f}, "
        f"cost {point.cost:.6g} ± {point.cost_error:.2g} USD per query"
    )
    return {"max_cost": max_cost, "min_accuracy": min_accuracy, "tradeoff": float(point.name)} | {
        name: getattr(point, name) for name in ("accuracy", "accuracy_error", "cost", "cost_error")
    }


def _say_frontier(voice: Voice, verdict: Verdict, name: str) -> None:
    def cells(title: str, point: Point) -> list[str]:
        numbers = [f"{point.accuracy:.3f}", f"{point.accuracy_error:.3f}"]
        return [title, *numbers, f"{point.cost * PER:.4g}", f"{point.cost_error * PER:.2g}"]

    shown = verdict.frontier[:: max(1, len(verdict.frontier) // 8)]
    if shown:
        voice.say("")
        voice.table(
            ["λ, or one model", "accuracy", "±", f"$ per {PER:,}", "±"],
            [
                *(cells(f"{float(point.name):.4g}", point) for point in shown),
                *(cells(str(point.name), point) for point in verdict.singles),
            ],
            title=f"On {name}, with standard errors",
        )


def _measures(saved: Bundle, rows: Evaluations, verdict: Verdict) -> dict[str, Any] | None:
    """The paper's areas, where every answer is known."""
    from fedrouter.frontier import mix, sweep

    if verdict.propensities != "known" or not verdict.frontier:
        return None
    truth = rows.grid()
    frontier = sweep(saved.router.estimate(rows.embeddings), truth)
    return {
        "areas": frontier.measures.to_json(),
        "baselines": {"mix": mix(truth).measures.to_json()},
        "collapse": frontier.collapse,
    }
