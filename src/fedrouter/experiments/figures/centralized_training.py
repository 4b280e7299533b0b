"""Federated against centralized training on pooled data: the cost of keeping the data at the clients."""

from __future__ import annotations

from collections.abc import Sequence

from fedrouter.experiments.claims import ON_PAR, Claim, on_par
from fedrouter.experiments.comparison import (
    COMPARISON,
    GLOBAL,
    area_table,
    families_of,
    having,
    judged,
    mean_area,
    mean_line,
    over,
)
from fedrouter.experiments.experiment import Document, Experiment, Runs
from fedrouter.experiments.sheet import Panel, Sheet

SECTION = "Federated Learning vs. Centralized Training"
WAYS = ("centralized", "federated")


def sheets(runs: Runs) -> Sequence[Sheet]:
    panels = [
        Panel(
            f"{title} router",
            [line for way in WAYS for line in mean_line(runs, way, way, way=way, family=family, test=GLOBAL)],
        )
        for family, title in families_of(runs).items()
    ]
    caption = (
        f"The same router learned in a federation and on the pooled data of all clients ({over(runs)}), on the union "
        "of all test queries. In the legends, areas under the curves."
    )
    return [Sheet("centralized", caption, panels)]


def summary(runs: Runs) -> Document:
    table = area_table(
        {
            f"{way} {family}": mean_area(runs, way=way, family=family, test=GLOBAL)
            for family in families_of(runs)
            for way in reversed(WAYS)
        }
    )
    epochs = {
        f"epochs of the centralized {family}": [
            run["settings"]["centralized"][family]["local_epochs"] for run in having(runs, family)
        ]
        for family in families_of(runs)
        if "local_epochs" in runs[0]["settings"]["centralized"][family]
    }
    return {**table, **epochs}


def claims(runs: Runs) -> Sequence[Claim]:
    return [
        judged(
            on_par,
            f"centralized-{family}",
            f"The federated {title} router matches one trained centrally on the pooled data (here: its area is at most "
            f"{ON_PAR} lower).",
            SECTION,
            mean_area(runs, way="federated", family=family, test=GLOBAL),
            mean_area(runs, way="centralized", family=family, test=GLOBAL),
            "federated against centralized",
        )
        for family, title in families_of(runs).items()
    ]


EXPERIMENT = Experiment(
    "centralized",
    "Federated against centralized training",
    SECTION,
    COMPARISON,
    sheets,
    summary,
    claims,
)
