"""`fedrouter evaluate`: a frontier for a saved router."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrouter.cli.output import BundlePath, Json, Voice
from fedrouter.cli.saved import open_with_data


def evaluate(
    bundle: BundlePath,
    data: Annotated[Path, typer.Option("--data", help="Table with the models' answers to each query.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the figures.")] = None,
    as_json: Json = False,
) -> None:
    """Sweep λ over a saved router on a data file."""
    from fedrouter.frontier import sweep
    from fedrouter.report.plots import PER, draw_frontier, draw_shares, title
    from fedrouter.report.style import write

    voice = Voice(as_json)
    saved, dataset = open_with_data(bundle, data)
    queries, truth = dataset.evaluations.queries, dataset.evaluations.grid()
    frontier = sweep(saved.router.estimate(dataset.evaluations.embeddings), truth)
    areas, points, name = frontier.areas, frontier.points(), title(saved.router.family)

    shown = []
    for point in points[:: len(points) // 10]:
        busiest = max(point["shares"], key=point["shares"].__getitem__)
        numbers = [f"{point['tradeoff']:.3g}", f"{point['accuracy']:.3f}", f"{point['cost'] * PER:.4f}"]
        shown.append([*numbers, busiest, f"{point['shares'][busiest]:.0%}"])
    voice.table(
        ["λ", "accuracy", f"$ per {PER:,} queries", "busiest model", "its share"],
        shown,
        title=f"{name} on {dataset.name}, {queries:,} queries",
    )
    voice.say(f"\nauc {areas.auc:.3f}   auc_common {areas.auc_common:.3f}   top accuracy {areas.max_accuracy:.3f}")
    warnings = [frontier.collapse] if frontier.collapse else []
    if not truth.known.all():
        share = 1 - truth.known.mean()
        warnings.append(f"{share:.0%} of the answers are unknown; each query is routed among the models known for it")
    for warning in warnings:
        voice.warn(warning)
    figures = []
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figures += write(draw_frontier(frontier, truth, name), out / "frontier")
        figures += write(draw_shares({name: frontier}, dataset.name), out / "shares")
        voice.say("Figures: " + ", ".join(map(str, figures)))
    voice.next(f"fedrouter calibrate {bundle} --data {data} --max-cost {areas.max_cost / 2:.2g}")
    voice.result(
        {
            "bundle": str(bundle),
            "family": saved.router.family,
            "data": dataset.name,
            "encoder": saved.encoder.name,
            "queries": queries,
            "models": list(frontier.pool.names),
            "areas": areas.to_json(),
            "frontier": points,
            "warnings": warnings,
            "figures": [str(path) for path in figures],
        }
    )
