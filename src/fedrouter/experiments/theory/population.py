"""A world in which the theorems' assumptions hold: a finite population of queries with known expectations.

Queries are the simulator's prompts. A client's distribution is a weight for each query, and the test distribution is
the mean of the clients'. So expected accuracies and costs, the oracle, and cluster means are exact, without the noise
of single answers, and training queries can be drawn independently in any number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.data.simulator import expected_answers
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Grid
from fedrouter.federation.seeds import derive
from fedrouter.pool import ModelPool

CLIENTS, ALPHA = 10, 0.6
"""Number of clients, and the concentration of their Dirichlet over tasks."""
COST_NOISE = 0.3
"""Standard deviation of the logarithm of an observed cost around its expectation."""


@dataclass(frozen=True)
class Population:
    """Queries with expected accuracy and cost of every model ``(Q, M)``; clients as weights of queries ``(N, Q)``.

    Costs are shares of the largest possible cost, so that they lie in [0, 1].
    """

    embeddings: Embeddings
    expected: Grid
    weights: Floats

    @property
    def pool(self) -> ModelPool:
        return self.expected.pool

    @property
    def test(self) -> Floats:
        """The test distribution ``(Q,)``."""
        return np.asarray(self.weights.mean(axis=0))

    def draw(self, client: int, rows: int, models: Floats, purpose: str, seed: int) -> Evaluations:
        """Independent evaluations of a client: queries by its distribution, models by these shares ``(M,)``."""
        draw = np.random.default_rng(derive(seed, purpose, client))
        query = draw.choice(len(self.embeddings), rows, p=self.weights[client])
        model = draw.choice(len(self.pool), rows, p=models)
        accuracy = (draw.random(rows) < self.expected.accuracy[query, model]).astype(np.float64)
        noise = draw.lognormal(-(COST_NOISE**2) / 2, COST_NOISE, rows)
        cost = np.minimum(self.expected.cost[query, model] * noise, 1.0)
        return Evaluations(self.pool, self.embeddings[query], np.arange(rows), model, accuracy, cost)


def population(seed: int) -> Population:
    """The population of one seed: the same queries, other clients."""
    prompts, grid = expected_answers()
    tasks = np.array(prompts.task)
    labels = np.unique(tasks)
    shares = np.random.default_rng(derive(seed, "clients")).dirichlet(np.full(CLIENTS, ALPHA), len(labels))
    weights = shares[np.searchsorted(labels, tasks)].T
    # A draw of the lognormal noise above 1/mean is rare if the largest expected cost is a third of the largest cost.
    expected = Grid(grid.pool, grid.accuracy, grid.cost / (3 * grid.cost.max()))
    return Population(prompts.embeddings, expected, weights / weights.sum(axis=1, keepdims=True))


def uniform(pool: ModelPool) -> Floats:
    """Uniform logging over models."""
    return np.full(len(pool), 1 / len(pool))
