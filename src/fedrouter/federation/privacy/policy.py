"""What a client insists on before anything of its own leaves: the client's choice, never the server's."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from fedrouter.errors import BadInput
from fedrouter.routers.mlp import LEAST_COST

MECHANISMS = ("gaussian", "laplace")
MOST_CLIPPED_COST = 1000.0
"""Dollars; a mean above this no server believes."""


@dataclass(frozen=True)
class MinimumGroupSizes:
    """How many different queries must stand behind what is sent.

    Parameters
    ----------
    cluster : behind a centroid; smaller clusters are merged into their nearest
    cell : behind a sum, such as that of a (cluster, model) cell, and behind the difference of two; smaller cells join
        their nearest, other sums are withheld
    span : products of features of fewer queries than features tell exactly which queries they are of (only those lie
        in their span), and of not many more nearly so. Such products are withheld, unless there are ``cell`` queries
        for each feature or secure aggregation hides them among others'
    """

    cluster: int = 5
    cell: int = 5
    span: bool = True

    def __post_init__(self) -> None:
        for name, value in (("cluster", self.cluster), ("cell", self.cell)):
            if value < 2:
                raise BadInput(f"floor {name}: expected at least 2 queries, got {value}")


@dataclass(frozen=True)
class DifferentialPrivacy:
    """Differential privacy of the single evaluation, as strong as the client wants it; see :mod:`.noise`.

    Parameters
    ----------
    epsilon, delta : the budget for everything this client ever sends; what would go over it is refused
    multiplier : noise on one answer, in units of what one evaluation can move it by. More noise spends less
    mechanism : of noise on sums. Training always has Gaussian noise
    least_cost, largest_cost : dollars; a cost beyond them counts as this much
    relative_cost : times its model's typical cost that a cost counts at most
    rows : how many evaluations the client says it has. Public: its weight when networks are averaged, and the batch
        size over it is the share of rows that a step of training samples
    models : those it says it knows. By default all in its pool, which shows if the pool was read off its rows
    """

    epsilon: float
    delta: float = 1e-5
    multiplier: float = 4.0
    mechanism: str = "gaussian"
    least_cost: float = 1e-6
    largest_cost: float = 1.0
    relative_cost: float = 4.0
    rows: int = 500
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise BadInput(f"noise mechanism: expected {' or '.join(MECHANISMS)}, got {self.mechanism!r}")
        for name in ("epsilon", "multiplier", "least_cost", "relative_cost", "rows"):
            if not 0 < getattr(self, name) < inf:
                raise BadInput(f"noise {name}: expected a number above 0, got {getattr(self, name)}")
        if not 0 < self.delta < 1:
            raise BadInput(f"noise delta: expected a number above 0 and below 1, got {self.delta}")
        if not LEAST_COST <= self.least_cost < self.largest_cost <= MOST_CLIPPED_COST:
            raise BadInput(
                f"noise least_cost, largest_cost: expected {LEAST_COST} <= least < largest <= {MOST_CLIPPED_COST:.0f} "
                f"dollars, got {self.least_cost} and {self.largest_cost}"
            )


@dataclass(frozen=True)
class PrivacyPolicy:
    """``floors`` of None sends sums of single rows as they are; ``noise`` of None sends them exactly.

    ``secure_only`` refuses to send a sum that is not hidden by secure aggregation.
    """

    floors: MinimumGroupSizes | None = MinimumGroupSizes()
    secure_only: bool = False
    noise: DifferentialPrivacy | None = None


OPEN = PrivacyPolicy(floors=None)
"""For rows that go nowhere: a router learned by the owner of all of them, or an experiment in one process."""
