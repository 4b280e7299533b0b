"""The paper's two experimental protocols, and what a command may change in them.

Sections "Federated simulation protocol" and "Details on Datasets and Federated Setup" for RouterBench; appendix
"Experimental Results with ProxRouter-Data" for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from fedrouter.data.partition import ClientData, partition
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Integers


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
    new_labels : share of the task labels that are mostly theirs
    """

    name: str
    clients: int = 10
    alpha: float = 0.6
    model_alpha: float | None = 0.45
    withheld: int = 3
    personal_alpha: float = 0.03
    newcomers: int = 3
    new_labels: float = 0.3

    def __post_init__(self) -> None:
        if self.clients < 2:
            raise BadInput(f"--clients: expected at least 2, got {self.clients}")
        if self.withheld < 1:
            raise BadInput(f"--withheld: expected at least 1, got {self.withheld}")
        for name in ("alpha", "model_alpha"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadInput(f"--{name.replace('_', '-')}: expected a number above 0, got {value}")

    def changed(self, **changes: Any) -> Self:
        """A copy with some fields changed; the share of clients that join later stays at three of ten."""
        clients = changes.get("clients", self.clients)
        return replace(self, newcomers=max(1, round(0.3 * clients)), **changes)

    def divide(
        self, evaluations: Evaluations, seed: int, alpha: float | None = None, alike: Integers | None = None
    ) -> list[ClientData]:
        """The clients of one seed; ``alike`` as in :func:`~fedrouter.data.partition.partition`."""
        concentration = self.alpha if alpha is None else alpha
        return partition(evaluations, self.clients, concentration, self.model_alpha, seed, alike)

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
