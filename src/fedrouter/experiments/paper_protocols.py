"""The paper's two experimental protocols, and what a command may change in them.

Sections "Federated simulation protocol" and "Details on Datasets and Federated Setup" for RouterBench; appendix
"Experimental Results with ProxRouter-Data" for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedrouter.data.partition import ClientData, partition
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Integers, first_alike
from fedrouter.federation.seeds import derive


@dataclass(frozen=True)
class Protocol:
    """How data is divided over clients, and the settings of the experiments that change something later.

    Parameters
    ----------
    alpha : concentration of the Dirichlet over clients, drawn for each task
    model_alpha : concentration of each client's Dirichlet over models; None for uniform logging
    withheld : number of models that join the pool later
    personal_alpha : the ``alpha`` of the experiment on personalization, "extreme heterogeneity"
    newcomers : number of clients that join later
    new_labels : share of the unique task labels that these clients hold, and they alone
    """

    name: str
    clients: int = 10
    alpha: float = 0.6
    model_alpha: float | None = 0.45
    withheld: int = 3
    personal_alpha: float = 0.03
    newcomers: int = 3
    new_labels: float = 0.3

    def divide(
        self, evaluations: Evaluations, seed: int, alpha: float | None = None, alike: Integers | None = None
    ) -> list[ClientData]:
        """The clients of one seed; ``alike`` as in :func:`~fedrouter.data.partition.partition`."""
        concentration = self.alpha if alpha is None else alpha
        return partition(evaluations, self.clients, concentration, self.model_alpha, seed, alike)

    def divide_with_newcomers(self, evaluations: Evaluations, seed: int) -> tuple[list[ClientData], list[ClientData]]:
        """The clients of one seed that learn, and those that join later: these hold a share of the task labels alone.

        Section "When New Clients Join the System": "whose data account for 30% of the unique task labels".
        """
        first = first_alike(evaluations)  # a text under two labels goes where its first one goes
        task = np.array(evaluations.task if evaluations.task is not None else [""] * evaluations.queries)[first]
        labels = np.unique(task)
        taken = min(max(1, round(self.new_labels * len(labels))), len(labels) - 1)
        if taken < 1:
            raise BadInput(
                "new-clients: the data has one task label; clients with labels of their own need two or more"
            )
        drawn = np.random.default_rng(derive(seed, "newcomers")).permutation(labels)[:taken]
        theirs = np.isin(task, drawn)
        groups = []
        for rows, count, name in (
            (np.flatnonzero(~theirs), self.clients - self.newcomers, "client"),
            (np.flatnonzero(theirs), self.newcomers, "new"),
        ):
            split = partition(evaluations.of_queries(rows), count, self.alpha, self.model_alpha, seed)
            groups.append([replace(each, name=each.name.replace("client", name)) for each in split])
        return groups[0], groups[1]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


ROUTERBENCH = Protocol("routerbench")
PROXROUTER = Protocol("proxrouter", alpha=0.4, model_alpha=None, withheld=2, personal_alpha=0.04, new_labels=0.65)
PROTOCOLS: Mapping[str, Protocol] = {protocol.name: protocol for protocol in (ROUTERBENCH, PROXROUTER)}


def protocol_named(name: str) -> Protocol:
    """The paper's protocol of this name."""
    if name not in PROTOCOLS:
        raise BadInput(f"--protocol: expected {' or '.join(PROTOCOLS)}, got {name!r}")
    return PROTOCOLS[name]
