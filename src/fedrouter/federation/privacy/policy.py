"""A client's privacy policy: minimum group sizes, noise, secure sums. The server cannot change it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf

from fedrouter.errors import BadInput
from fedrouter.federation.noise import Noise


@dataclass(frozen=True)
class MinimumGroupSizes:
    """Minimum number of different queries behind anything that is sent.

    Parameters
    ----------
    cluster : behind a centroid; smaller clusters are merged into the nearest one
    cell : behind a sum, such as that of a (cluster, model) cell, and behind the difference of two sums; smaller cells
        join the nearest one, other sums are withheld
    say : the most say that one query may have in any combination of what a linear question asks (its leverage), so
        that nothing is asked of fewer than ``1 / say`` queries, whatever features or routers are in the question;
        queries with more are left out. 1 turns the rule off. Not needed where secure aggregation hides the sums among
        those of other clients
    step : behind a step of training: no query has more than ``1 / step`` of the gradient. Otherwise the client does
        not train
    """

    cluster: int = 5
    cell: int = 5
    say: float = 0.2
    step: int = 5

    def __post_init__(self) -> None:
        for name, value in (("cluster", self.cluster), ("cell", self.cell), ("step", self.step)):
            if value < 2:
                raise BadInput(f"minimum group size {name}: expected at least 2 queries, got {value}")
        if not 0 < self.say <= 1:
            raise BadInput(f"minimum group size say: expected a share above 0 and at most 1, got {self.say}")


@dataclass(frozen=True)
class TrainingBounds:
    """Settings of a training that a client accepts; see :mod:`fedrouter.federation.privacy.training`.

    Parameters
    ----------
    epochs, batch_size, learning_rate, weight_decay, clip_norm, distillation, rounds : the most of each
    least_batch, least_clip_norm : the least of each; every step has at least that many rows, or all there are
    hidden : the most hidden units
    largest_weight : the largest magnitude of a weight
    rows : the most rows that a client is assumed to train on, which bounds how far a round can move the weights
    """

    epochs: int = 100
    batch_size: int = 65_536
    learning_rate: float = 0.1
    weight_decay: float = 1.0
    clip_norm: float = 100.0
    distillation: float = 1000.0
    rounds: int = 1000
    least_batch: int = 5
    least_clip_norm: float = 1e-3
    hidden: int = 8192
    largest_weight: float = 100.0
    rows: int = 100_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < inf:
                raise BadInput(f"training, {field.name}: expected a number above 0, got {getattr(self, field.name)}")


@dataclass(frozen=True)
class PrivacyPolicy:
    """What a client requires before anything derived from its rows leaves.

    Parameters
    ----------
    minimum_sizes : minimum group sizes behind centroids and sums; None sends sums over single rows, too
    secure_only : refuse to send a sum that secure aggregation does not mask; who leaves a router, or joins one with
        fewer than two others, has to allow it
    noise : what it adds to a release; None sends exact ones
    training : settings of a training that it accepts; None accepts all
    rederive : derive the questions of a run under secure aggregation, and refuse those that do not follow; needs a
        client with a :class:`~fedrouter.federation.rederivation.Rederivation`, as a deployed one has
    least_cohort : least number of clients in a secure sum
    cohort_gap : least number of clients by which two cohorts must differ in which the same question is answered; 0 for
        any. Two totals that differ by one client are that client's sums
    questions_a_day : questions about the rows that are answered within 24 hours, for each verb
    """

    minimum_sizes: MinimumGroupSizes | None = MinimumGroupSizes()
    secure_only: bool = True
    noise: Noise | None = Noise()
    training: TrainingBounds | None = TrainingBounds()
    rederive: bool = True
    least_cohort: int = 3
    cohort_gap: int = 2
    questions_a_day: int = 1000

    def __post_init__(self) -> None:
        for name, least in (("least_cohort", 3), ("cohort_gap", 0), ("questions_a_day", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise BadInput(f"privacy, {name}: expected a whole number of at least {least}, got {value!r}")


DEFAULT, EXACT, UNPROTECTED = "default", "exact", "open"
PRIVACY = {
    DEFAULT: "secure sums with noise on a release, and minimum group sizes behind centroids, as in a real federation",
    EXACT: "the same without noise",
    UNPROTECTED: "no protection",
}
"""What protects the clients' rows in a federation, from the most to the least."""

CLEAR = PrivacyPolicy(secure_only=False)
"""The default, but each client's own sums may be seen: runs with ``--plain``, and runs in one process."""
OPEN = PrivacyPolicy(minimum_sizes=None, noise=None, training=None, secure_only=False)
"""No protection, for rows that stay with their owner: a router learned by one party, or an experiment."""
