"""RouteLLM's own benchmark: when is the strong model needed? Writes docs/results/routellm.md.

A score for each query, ten quantile thresholds, accuracy against the share of strong calls. APGR is the trapezoid's
area above the weak model, as a share of the strong model's lead; CPT(50%), CPT(80%) are the shares of strong calls that
recover 50% and 80% of that lead. Run with `python benchmarks/routellm.py`; it takes five minutes.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

from pathlib import Path

import numpy as np

from fedrouter.data.read import read
from fedrouter.encoders.identity import STATIC
from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.federation.families.bayes import from_rows
from quality_page import PROJECT
from rivals import by_length

DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data")) / "routellm_evals.parquet"
STRONG, WEAK = "gpt-4-1106-preview", "mistralai/Mixtral-8x7B-Instruct-v0.1"
LABELS = {"MMLU": 1531, "GSM8K": 800}
DRAWS = range(100, 120)
"""Draws 3 to 32 were looked at when the form of cells was chosen."""
PUBLISHED = {"MMLU": (0.603, 0.354, 0.703), "GSM8K": (0.622, None, None)}
"""The best of RouteLLM's routers by column, as published: on MMLU with labels of its validation split."""
TEXT = """\
Learned from randomly drawn queries whose answers by both models are known, the rest as test; mean and standard
deviation of twenty draws that nothing was chosen on. The score is predicted accuracy of the strong model less that of
the weak one. A router that knows only the length of the prompt stands beside it; chance is .500 / 50% / 80%.
"""

Outcome = tuple[float, ...]
"""APGR, CPT(50%), CPT(80%)."""


def judged(score: Floats, strong: Floats, weak: Floats) -> Outcome:
    """What a score ``(n,)`` achieves where the accuracy of both models is known, ``(n,)`` each."""
    chosen = [score >= threshold for threshold in np.quantile(score, np.linspace(1, 0, 11)[1:])]
    share = np.array([0.0, *(each.mean() for each in chosen)])
    accuracy = np.array([weak.mean(), *(np.where(each, strong, weak).mean() for each in chosen)])
    gained = (accuracy - weak.mean()) / (strong.mean() - weak.mean())
    area = float(np.trapezoid(gained, share))
    return (area, *(_first(share, gained, part) for part in (0.5, 0.8)))


def _first(share: Floats, gained: Floats, part: float) -> float:
    """The least share of strong calls that gains this part, by interpolation."""
    place = int(np.argmax(gained >= part))
    (x0, x1), (y0, y1) = share[place - 1 : place + 1], gained[place - 1 : place + 1]
    return float(x0 + (x1 - x0) * (part - y0) / (y1 - y0))


def drawn(rows: Evaluations, subset: Integers, labels: int, seed: int) -> dict[str, Outcome]:
    """The outcome of `bayes` and of length, learned from this many queries of a subset and judged on its others."""
    order = np.random.default_rng(seed).permutation(subset)
    train, test = (rows.take(np.flatnonzero(np.isin(rows.query, part))) for part in (order[:labels], order[labels:]))
    truth = test.grid()
    strong, weak = (rows.pool.index(name) for name in (STRONG, WEAK))
    found = {}
    for name, estimates in (
        ("`bayes`", from_rows([train]).estimate(test.embeddings)),
        ("prompt length", by_length(train, test)),
    ):
        score = estimates.accuracy[:, strong] - estimates.accuracy[:, weak]
        found[name] = judged(score, truth.accuracy[:, strong], truth.accuracy[:, weak])
    return found


def table() -> list[str]:
    rows = read(DATA, encoder=STATIC).evaluations
    grade = np.array([task == "gsm8k" for task in rows.task or ()])
    lines = ["| | labels | APGR | CPT(50%) | CPT(80%) |", "|---|---|---|---|---|"]
    for name, subset in (("MMLU", ~grade), ("GSM8K", grade)):
        draws = [drawn(rows, np.flatnonzero(subset), LABELS[name], seed) for seed in DRAWS]
        for router in draws[0]:
            values = np.array([each[router] for each in draws])
            (area, half, most), deviation = values.mean(axis=0), values[:, 0].std(ddof=1)
            lines.append(
                f"| {name}, {router} | {LABELS[name]:,} | {area:.3f} ± {deviation:.3f} | {half:.0%} | {most:.0%} |"
            )
        area, *shares = PUBLISHED[name]
        shown = " | ".join("" if share is None else f"{share:.0%}" for share in shares)
        lines.append(f"| {name}, RouteLLM's published best | | {area:.3f} | {shown} |")
    return lines


if __name__ == "__main__":
    page = "\n".join(["# RouteLLM's benchmark", "", "    python benchmarks/routellm.py", "", TEXT, *table(), ""])
    (PROJECT / "docs" / "results" / "routellm.md").write_text(page)
    print(page)
