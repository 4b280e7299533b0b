"""The record of an experiment: measured once per seed, then plotted, tabulated and judged over all seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrouter.data.partition import ClientData
from fedrouter.data.read import Dataset
from fedrouter.experiments.claims import Claim
from fedrouter.experiments.paper_protocols import ROUTERBENCH, Protocol
from fedrouter.experiments.sheet import Sheet
from fedrouter.federation.families.choice import Changes
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.frontier import Frontier

Document = Mapping[str, Any]
"""The measurement of one seed, as JSON; it is kept on disk, so that an interrupted run can be resumed."""
Runs = Sequence[Document]
"""One document per seed."""

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
    by_family : whether it measures each family that is compared, in a document of its own
    effort : roughly how long it takes in relation to the others: the longest are started first
    version : raised when ``run`` computes something else, so that documents of before are not reused
    uses_data : whether it depends on the data file and the protocol; otherwise its documents fit any folder
    """

    name: str
    run: Callable[[World], Document]
    by_family: bool = True
    effort: float = 1.0
    version: int = 1
    uses_data: bool = True


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Parameters
    ----------
    section : the section of the paper
    sheets : its figures
    summary : the most important numbers
    claims : the claims of the paper, judged by the numbers
    """

    name: str
    title: str
    section: str
    measurement: Measurement
    sheets: Callable[[Runs], Sequence[Sheet]]
    summary: Callable[[Runs], Document]
    claims: Callable[[Runs], Sequence[Claim]]


def curve(frontier: Frontier, **labels: Any) -> dict[str, Any]:
    """A frontier as part of a document: its labels, its measures, and a point for each λ."""
    return {
        **labels,
        **frontier.measures.to_json(),
        "points": [frontier.tradeoffs.tolist(), frontier.accuracy.tolist(), frontier.cost.tolist()],
    }
