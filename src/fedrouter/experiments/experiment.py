"""What an experiment is: measured once a seed, then drawn, tabled and judged over all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import Dataset
from fedrouter.experiments.claims import Claim
from fedrouter.experiments.sheet import Sheet
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import Settings
from fedrouter.frontier import Frontier

Document = Mapping[str, Any]
"""What one seed measured, as JSON; it lies on disk, so a run that was stopped goes on from there."""
Runs = Sequence[Document]
"""One document a seed."""
Watch = Callable[[float], None]
"""Told which share of a measurement is done."""

CLIENTS = 10
ALPHA, MODEL_ALPHA = 0.6, 0.45
"""Dirichlet concentrations of the paper's main experiments, over tasks and over models."""


@dataclass(frozen=True)
class World:
    """One data set and one seed, as every experiment finds them; ``path`` is the file, for what must read it again.

    ``encode``: whether embeddings that the file lacks may be made from its text, which takes long.
    """

    dataset: Dataset
    seed: int
    rounds: int
    path: str
    encode: bool = False

    def clients(self, count: int = CLIENTS, alpha: float = ALPHA) -> list[ClientData]:
        """The paper's split of the data."""
        return partition(self.dataset.evaluations, count, alpha, MODEL_ALPHA, self.seed)

    def settings(self) -> dict[str, Settings]:
        """Both families of the paper, exactly as it has them."""
        return {"mlp": MLPSettings.paper(rounds=self.rounds), "kmeans": KMeansSettings(paper=True)}


@dataclass(frozen=True)
class Measurement:
    """What is computed for one seed. Experiments that look at the same runs share one, and it is made once.

    ``effort`` is roughly how long it takes, beside the others: the longest are started first.
    """

    name: str
    run: Callable[[World, Watch], Document]
    first_seed_only: bool = False
    effort: float = 1.0


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    ``section`` says where in the paper; ``sheets`` are its figures; ``points`` every number behind them, a row each;
    ``summary`` the few that matter; ``claims`` what the paper says, judged by them.
    """

    name: str
    title: str
    section: str
    measurement: Measurement
    sheets: Callable[[Runs], Sequence[Sheet]]
    points: Callable[[Runs], Iterable[Mapping[str, Any]]]
    summary: Callable[[Runs], Document]
    claims: Callable[[Runs], Sequence[Claim]]


def curve(frontier: Frontier, **labels: Any) -> dict[str, Any]:
    """A frontier as part of a document: its labels, areas, and points λ by λ."""
    return {
        **labels,
        **frontier.areas.to_json(),
        "points": [frontier.tradeoffs.tolist(), frontier.accuracy.tolist(), frontier.cost.tolist()],
    }


def curve_points(runs: Runs, key: str = "curves") -> Iterable[dict[str, Any]]:
    """Every point of every curve of every seed, for the CSV file."""
    for run in runs:
        for entry in run[key]:
            labels = {name: value for name, value in entry.items() if isinstance(value, str)}
            for tradeoff, accuracy, cost in zip(*entry["points"], strict=True):
                yield {"seed": run["seed"], **labels, "tradeoff": tradeoff, "accuracy": accuracy, "cost": cost}
