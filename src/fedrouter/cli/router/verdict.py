"""The verdict on a router, its λ for a target, and the picture of its frontier, as commands print them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedrouter.cli.output import Bars, Voice, bars
from fedrouter.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle
    from fedrouter.data.overview import ModelRows
    from fedrouter.evaluations import Evaluations
    from fedrouter.frontier import Verdict
    from fedrouter.frontier.outcomes import Learned, Outcomes

QUALITY = 0.95
Quality = Annotated[
    float | None,
    typer.Option("--quality", help="Share of the best model's accuracy to keep; default: the bundle's, or 0.95."),
]
QUALITIES = [round(0.8 + 0.01 * step, 2) for step in range(21)]
"""A bundle keeps the λ that was measured for each of these, and for the one that was asked for."""
PER = 1000
MOST_TRADEOFF = 1e6
"""With a larger λ a thousandth of a cent outweighs any accuracy."""


def quality_of(quality: float | None, saved: Bundle | None) -> float:
    """The quality to keep: what was given, or what the bundle was learned for."""
    if quality is None:
        return QUALITY if saved is None else float(saved.manifest["change"].get("quality", QUALITY))
    if not 0 < quality <= 1:
        raise BadInput(f"--quality: expected a share above 0 and at most 1, got {quality:g}")
    return quality


def judged(
    rows: Evaluations,
    learn: Callable[[Evaluations], Learned],
    quality: float,
) -> tuple[Verdict, Outcomes | None]:
    """The verdict on routers that ``learn`` makes, and the outcomes it rests on; none if there are too few rows."""
    from fedrouter.frontier.logged import FOLDS, verdict_and_outcomes

    with bars() as shown:
        return verdict_and_outcomes(rows, _followed(learn, shown, FOLDS * (FOLDS + 1) // 2), quality, FOLDS, 0, None)


def _followed(learn: Callable[[Evaluations], Learned], shown: Bars, routers: int) -> Callable[[Evaluations], Learned]:
    done = 0

    def follow(rows: Evaluations) -> Learned:
        nonlocal done
        found, done = learn(rows), done + 1
        shown.move("judging", min(done, routers), routers)
        return found

    return follow


def measured_tradeoffs(outcomes: Outcomes | None, asked: float) -> dict[str, float]:
    """The λ that keeps each quality, also the one that was asked for."""
    if outcomes is None:
        return {}
    places = {quality: outcomes.of_quality(quality)[0] for quality in sorted({*QUALITIES, asked})}
    # Six digits, since those behind them depend on the processor.
    return {
        f"{quality:.2f}" if quality in QUALITIES else f"{quality}": float(f"{outcomes.tradeoffs[place]:.6g}")
        for quality, place in places.items()
    }


def say_verdict(voice: Voice, verdict: Verdict) -> None:
    voice.verdict(verdict.sentence())
    voice.say(f"{verdict.basis()}.")
    if (tradeoff := suggested(verdict)) is not None:
        voice.say(f"λ = [bold]{tradeoff:.6g}[/] was chosen to keep {verdict.quality:.0%} of that accuracy.")
    elif verdict.tradeoff is not None:
        voice.say(f"The cheapest model for each query keeps {verdict.quality:.0%} of that accuracy: no λ is needed.")


def suggested(verdict: Verdict) -> float | None:
    """The verdict's λ, unless there is none, or one at which nothing but cost counts."""
    return verdict.tradeoff if verdict.tradeoff is not None and verdict.tradeoff <= MOST_TRADEOFF else None


def say_models(voice: Voice, models: tuple[ModelRows, ...]) -> None:
    voice.table(
        ["model", "rows", "accuracy", f"$ per {PER:,}"],
        [[each.model, f"{each.rows:,}", _number(each.accuracy), _number(each.cost, PER)] for each in models],
    )


def draw(voice: Voice, verdict: Verdict, path: Path) -> Path | None:
    """Write the picture of the frontier, or say what it takes."""
    from fedrouter.report.style import require_matplotlib, save

    if not verdict.frontier:
        return None
    try:
        require_matplotlib()
    except MissingExtra as missing:
        voice.say(f"No picture of the frontier: {missing}")
        return None
    from fedrouter.report.plots import draw_verdict

    save(draw_verdict(verdict), path, f"Accuracy against cost of router, coin toss and models. {verdict.sentence()}")
    voice.say(f"Frontier: {path}")
    return path


def _number(value: float | None, times: float = 1) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value * times:.4g}" if times > 1 else f"{value:.3f}"


def document_of(verdict: Verdict) -> dict[str, Any]:
    """The verdict as commands print it as JSON."""
    return {"verdict": verdict.sentence(), "basis": verdict.basis(), "judgement": verdict.to_json()}
