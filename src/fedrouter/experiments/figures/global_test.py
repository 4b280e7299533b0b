"""Federated against client-local routers on all clients' test queries: the paper's first figure of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedrouter.experiments.claims import OURS, Claim, better
from fedrouter.experiments.comparison import (
    COMPARISON,
    GLOBAL,
    ByArea,
    area_table,
    families_of,
    find,
    find_all,
    having,
    judged,
    mean_area,
    mean_line,
    over,
)
from fedrouter.experiments.experiment import Document, Experiment, Runs
from fedrouter.experiments.sheet import Panel, Sheet, envelope_line, frontier_line

SECTION = "Federated Learning Improves Generalization with Better Query Distribution Coverage"
BASELINES = ("oracle", "mix", "best_single", "query_blind", "random", "cheapest")


def sheets(runs: Runs) -> Sequence[Sheet]:
    caption = (
        f"Accuracy against cost as λ sweeps, on the union of all clients' test queries ({over(runs)}). Each gray line "
        f"is a router that one client learned from its own log (seed {runs[0]['seed']}); the coin toss is between "
        "single models. In the legends, areas under the curves."
    )
    return [Sheet("global", caption, [_panel(runs, family, title) for family, title in families_of(runs).items()])]


def _panel(runs: Runs, family: str, title: str) -> Panel:
    lines = [
        frontier_line([entry], entry["owner"], "local")
        for entry in find(runs[0], way="local", family=family, test=GLOBAL)
    ]
    measured = having(runs, family)
    lines += mean_line(measured, "oracle", "oracle", True, way="oracle")
    lines += [envelope_line(find_all(measured, way="mix"), "coin toss", "mix")]
    lines += mean_line(measured, "query-blind", "query_blind", True, way="query_blind")
    lines += mean_line(measured, "federated", "federated", way="federated", family=family, test=GLOBAL)
    return Panel(f"{title} router", lines)


def summary(runs: Runs) -> Document:
    found = {
        f"{way} {family}": mean_area(runs, way=way, family=family, test=GLOBAL)
        for family in families_of(runs)
        for way in ("federated", "local")
    }
    return area_table(found | {name: mean_area(runs, way=name) for name in BASELINES})


def claims(runs: Runs) -> Sequence[Claim]:
    titles = families_of(runs)
    federated, local = (
        {family: mean_area(runs, way=way, family=family, test=GLOBAL) for family in titles}
        for way in ("federated", "local")
    )
    together = [
        judged(
            better,
            f"global-{family}",
            f"On all clients' queries, the federated {title} router has a better accuracy–cost trade-off than the "
            "routers that clients learn alone.",
            SECTION,
            federated[family],
            local[family],
            "federated against the mean of the clients' own",
        )
        for family, title in titles.items()
    ]
    seeing = [
        replace(
            judged(
                better,
                f"extra-query-blind-{family}",
                f"Not a claim of the paper: the federated {title} router beats one that knows each model's mean and "
                "ignores the query.",
                "ours",
                federated[family],
                mean_area(runs, way="query_blind"),
                "federated against query-blind",
            ),
            apart=OURS,
        )
        for family, title in titles.items()
    ]
    return [
        *together,
        *(_between_families(federated, local) if {"mlp", "kmeans"} <= set(titles) else ()),
        *seeing,
    ]


def _between_families(federated: Mapping[str, ByArea], local: Mapping[str, ByArea]) -> Sequence[Claim]:
    """The claims that compare the paper's two families with each other."""
    return [
        judged(
            better,
            "global-gain-kmeans-larger",
            "The gain of clients on all clients' queries is larger for K-Means than for the MLP.",
            SECTION,
            lambda area: federated["kmeans"](area) - local["kmeans"](area),
            lambda area: federated["mlp"](area) - local["mlp"](area),
            "gain of K-Means against gain of the MLP",
        ),
        judged(
            better,
            "global-mlp-over-kmeans",
            "Learned in a federation, the MLP router is better than the K-Means router: it makes more of what the "
            "clients cover together.",
            "Comparison of both methods",
            federated["mlp"],
            federated["kmeans"],
            "federated MLP against federated K-Means",
        ),
    ]


EXPERIMENT = Experiment(
    "global",
    "Federated against client-local routers on the global test",
    SECTION,
    COMPARISON,
    sheets,
    summary,
    claims,
)
