"""The record of an experiment: measured once per seed, then plotted, tabulated and judged over all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrouter.data.partition import ClientData
from fedrouter.data.read import Dataset
from fedrouter.experiments.choice import Changes
from fedrouter.experiments.claims import Claim
from fedrouter.experiments.paper_protocols import ROUTERBENCH, Protocol
from fedrouter.experiments.sheet import Sheet
from fedrouter.experiments.table import Table
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.frontier import Frontier

Document = Mapping[str, Any]
"""The measurement of one seed, as JSON; it is kept on disk, so that an interrupted run can be resumed."""
Runs = Sequence[Document]
"""One document per seed."""
Watch = Callable[[float], None]
"""Called with the share of a measurement that is done."""

PAPER_FAMILIES = ("mlp", "kmeans")
"""The paper's families, in its order."""


@dataclass(frozen=True)
class World:
    """The input of every measurement: one data set, one seed, the protocol, and the families to compare.

    Parameters
    ----------
    rounds : of federated averaging, for families that have rounds
    path : the data file, for experiments that read it again
    encode : whether embeddings that the file lacks may be computed from its text, which takes long
    families : the families to compare
    changes : settings that differ from the paper's or the defaults, by family
    """

    dataset: Dataset
    seed: int
    rounds: int
    path: str
    encode: bool = False
    families: tuple[str, ...] = PAPER_FAMILIES
    protocol: Protocol = ROUTERBENCH
    changes: Changes = field(default_factory=dict)

    def clients(self, alpha: float | None = None) -> list[ClientData]:
        """The protocol's division of the data; another ``alpha`` for another heterogeneity."""
        return self.protocol.divide(self.dataset.evaluations, self.seed, alpha)

    def settings(self) -> dict[str, Settings]:
        """Settings of the families to compare, by name."""
        return {name: self.settings_of(name) for name in self.families}

    def settings_of(self, name: str) -> Settings:
        """The settings of one family in this experiment."""
        return settings_of(name, self.rounds, self.changes)


def settings_of(name: str, rounds: int, changes: Changes) -> Settings:
    """A family's settings in an experiment: the defaults, and the changes."""
    return family(name).settings().changed(rounds=rounds).changed(**changes.get(name, {}))


@dataclass(frozen=True)
class Measurement:
    """What is computed for one seed. Experiments that need the same runs share a measurement, which is made once.

    Parameters
    ----------
    families : those that it is about, of which it measures the ones that are compared, each in a document of its own;
        None for any, and empty if it is about no family
    effort : roughly how long it takes in relation to the others: the longest are started first
    version : raised when ``run`` computes something else, so that documents of before are not reused
    uses_device : whether networks are trained where ``--device`` says; otherwise on the CPU
    uses_data : whether it depends on the data file and the protocol; otherwise its documents fit any folder
    """

    name: str
    run: Callable[[World, Watch], Document]
    families: tuple[str, ...] | None = None
    effort: float = 1.0
    version: int = 1
    uses_device: bool = True
    uses_data: bool = True

    def measured(self, compared: Sequence[str]) -> Sequence[str]:
        """The families that it measures of those that are compared; an empty name if it is about no family."""
        if self.families is None:
            return compared
        return [name for name in self.families if name in compared] if self.families else [""]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Parameters
    ----------
    section : the section of the paper
    sheets : its figures
    points : every number behind them, as table rows
    summary : the most important numbers
    tables : the same as tables for print
    claims : the claims of the paper, judged by the numbers
    """

    name: str
    title: str
    section: str
    measurement: Measurement
    sheets: Callable[[Runs], Sequence[Sheet]]
    points: Callable[[Runs], Iterable[Mapping[str, Any]]]
    summary: Callable[[Runs], Document]
    tables: Callable[[Runs], Sequence[Table]]
    claims: Callable[[Runs], Sequence[Claim]]


def curve(frontier: Frontier, **labels: Any) -> dict[str, Any]:
    """A frontier as part of a document: its labels, its measures, and a point for each λ."""
    return {
        **labels,
        **frontier.measures.to_json(),
        "points": [frontier.tradeoffs.tolist(), frontier.accuracy.tolist(), frontier.cost.tolist()],
    }


def curve_points(runs: Runs, key: str = "curves") -> Iterable[dict[str, Any]]:
    """Every point of every curve of every seed, for the CSV file."""
    for run in runs:
        for entry in run[key]:
            labels = {name: value for name, value in entry.items() if isinstance(value, str)}
            for tradeoff, accuracy, cost in zip(*entry["points"], strict=True):
                yield {"seed": run["seed"], **labels, "tradeoff": tradeoff, "accuracy": accuracy, "cost": cost}
