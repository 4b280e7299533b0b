"""`fedrouter evaluate`: the frontier of a saved router, or its off-policy evaluation on logged traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.output import BundlePath, Json, Voice, quoted
from fedrouter.cli.router.saved import open_with_data, verdict_on
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.learning.offpolicy import Mean, OffPolicy
    from fedrouter.learning.traffic import Traffic


def evaluate(
    bundle: BundlePath,
    data: Annotated[Path | None, typer.Option("--data", help="Table with the models' answers to each query.")] = None,
    log: Annotated[
        str | None,
        typer.Option("--log", help="A gateway's store (sqlite:///PATH, postgresql://…) or an export of it, instead."),
    ] = None,
    tradeoff: Annotated[
        list[float] | None,
        typer.Option("--tradeoff", help="With --log: λ for all requests, repeatable; default: each request's own."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="With --data: folder for the figures.")] = None,
    as_json: Json = False,
) -> None:
    """Sweep λ over a saved router on a data file, or estimate from a log what it would have done."""
    if (data is None) == (log is None):
        raise BadInput("give --data TABLE for a frontier, or --log STORE to judge the router on logged traffic")
    if data is not None:
        if tradeoff:
            raise BadInput("--tradeoff goes with --log; with --data λ is swept")
        _on_table(bundle, data, out, Voice(as_json))
    elif log is not None:
        if out is not None:
            raise BadInput("--out goes with --data; --log draws no figures")
        _on_log(bundle, log, tradeoff or [], Voice(as_json))


def _on_table(bundle: Path, data: Path, out: Path | None, voice: Voice) -> None:
    from fedrouter.federation.families.registry import title
    from fedrouter.frontier import mix, sweep
    from fedrouter.report.plots import PER, draw_frontier, draw_shares
    from fedrouter.report.style import require_matplotlib, write

    if out is not None:
        require_matplotlib()
    saved, dataset = open_with_data(bundle, data)
    queries, truth = dataset.evaluations.queries, dataset.evaluations.grid()
    estimates = saved.router.estimate(dataset.evaluations.embeddings)
    frontier = sweep(estimates, truth)
    measured = int(((truth.known & estimates.usable).sum(axis=1) >= min(2, len(truth.pool))).sum())
    measures, points, name = frontier.measures, frontier.points(), title(saved.router.family)
    verdict, warnings = verdict_on(saved, dataset)
    voice.verdict(verdict["verdict"])

    shown = []
    for point in points[:: len(points) // 10]:
        busiest = max(point["shares"], key=point["shares"].__getitem__)
        numbers = [f"{point['tradeoff']:.3g}", f"{point['accuracy']:.3f}", f"{point['cost'] * PER:.4f}"]
        shown.append([*numbers, busiest, f"{point['shares'][busiest]:.0%}"])
    voice.table(
        ["λ", "accuracy", f"$ per {PER:,} queries", "busiest model", "its share"],
        shown,
        title=f"{name} on {dataset.name}, {measured:,} queries",
    )
    voice.say(f"\naiq {measures.aiq:.3f}   auc {measures.auc:.3f}   top accuracy {measures.max_accuracy:.3f}")
    if frontier.collapse:
        warnings.append(frontier.collapse)
    if not truth.known.all():
        share = 1 - truth.known.mean()
        warnings.append(f"{share:.0%} of the answers are unknown; each query is routed among the models known for it")
    if measured < queries:
        warnings.append(
            f"{queries - measured:,} of {queries:,} queries are left out: fewer than two models' answers are known; "
            "--log judges a router on a log of single answers"
        )
    for warning in warnings:
        voice.warn(warning)
    figures = []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figures += write(draw_frontier(frontier, truth, name), out / "frontier")
        figures += write(draw_shares({name: frontier}, dataset.name), out / "shares")
        voice.say("Figures: " + ", ".join(map(str, figures)))
    voice.next(f"fedrouter calibrate {quoted(bundle)} --data {quoted(data)} --max-cost {measures.max_cost / 2:.2g}")
    voice.result(
        {
            "bundle": str(bundle),
            "family": saved.router.family,
            "data": dataset.name,
            "encoder": saved.encoder.name,
            "queries": measured,
            "left_out": queries - measured,
            "models": list(frontier.pool.names),
            **verdict,
            "areas": measures.to_json(),
            "baselines": {"mix": mix(truth).measures.to_json()},
            "frontier": points,
            "warnings": warnings,
            "figures": [str(path) for path in figures],
        }
    )


def _on_log(bundle: Path, log: str, tradeoffs: list[float], voice: Voice) -> None:
    from fedrouter.bundle import load
    from fedrouter.learning.offpolicy import estimate

    saved = load(bundle)
    traffic = _traffic(saved, log)
    asked: list[float | None] = [*tradeoffs] or [None]
    found = [estimate(saved.router, traffic, tradeoff) for tradeoff in asked]
    for one in found:
        at = "each request's own λ" if one.tradeoff is None else f"λ = {one.tradeoff:g}"
        voice.table(
            ["", "accuracy", "± s.e.", "$ per 1,000", "± s.e."],
            [[name, *_shown(mean.accuracy, 1.0), *_shown(mean.cost, 1000.0)] for name, mean in _estimates(one)],
            title=f"{saved.router.family} at {at}, on {one.requests:,} logged requests",
        )
        voice.say(
            f"agrees with the log on {one.matched:,}, worth {one.effective:,.0f} rows of evidence; "
            f"support {min(one.support.value, 1):.0%} ± {one.support.error:.0%}\n"
        )
        for warning in one.warnings():
            voice.warn(warning)
    for why, count in traffic.left_out.items():
        voice.say(f"left out: {count:,} ({why})")
    voice.next(f"fedrouter learn --bundle {quoted(bundle)} --store {quoted(log)} --out NEW")
    voice.result(
        {
            "bundle": str(bundle),
            "family": saved.router.family,
            "log": log,
            "encoder": saved.encoder.name,
            "requests": len(traffic),
            "left_out": dict(traffic.left_out),
            "estimates": [one.to_json() for one in found],
        }
    )


def _traffic(saved: Bundle, log: str) -> Traffic:
    """The log's routed and scored requests, except those from which the router has learned."""
    from fedrouter.learning.traffic import traffic_in, traffic_of

    changes = [saved.manifest.get("change", {}), *saved.clients.values()]
    known = [change["learnt_until"] for change in changes if "learnt_until" in change]
    after = max(known) if known else None
    if "://" not in log:
        return traffic_in(log, saved.router.pool, saved.encoder, after)
    from fedrouter.store.store import Store

    with Store.open(log, create=False) as store:
        return traffic_of(store.rows(), saved.router.pool, saved.encoder, after)


def _estimates(one: OffPolicy) -> list[tuple[str, Any]]:
    return [
        ("what was logged", one.logged),
        ("doubly robust", one.doubly_robust),
        ("inverse propensity", one.inverse),
        ("self-normalized", one.normalised),
        ("the router's own claim", one.claimed),
    ]


def _shown(mean: Mean, scale: float) -> list[str]:
    return [f"{mean.value * scale:.4f}", f"{mean.error * scale:.4f}"]
