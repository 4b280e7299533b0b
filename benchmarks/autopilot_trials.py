"""How often autopilot's trial puts a worse router into service: candidates that are wrong, and scores that are false.

Logs are simulated: answers are right with a known probability, and the model was drawn with logged ones. All models
cost the same, so only accuracy counts.

    python benchmarks/autopilot_trials.py [--trials 250]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from fedrouter.encoders.identity import EncoderIdentity
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Evaluations, Floats
from fedrouter.learning.first_router import learn_router
from fedrouter.learning.trial import Policy, run_trial
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.store.records import Record

DIMENSION, COST, TRADEOFF = 8, 0.01, 1.0
ENCODER = EncoderIdentity("static", DIMENSION, normalised=True)


class Believes:
    """A router that estimates the same accuracy for all queries; of the last model only where ``half`` says so."""

    def __init__(self, pool: ModelPool, accuracy: Sequence[float], half: bool = False) -> None:
        self._pool, self._accuracy, self._half = pool, np.array(accuracy), half

    def estimate(self, queries: Embeddings) -> Estimates:
        accuracy = np.tile(self._accuracy, (len(queries), 1))
        if self._half:
            accuracy[np.asarray(queries)[:, 0] <= 0, -1] = 0.0
        return Estimates(self._pool, accuracy, np.full_like(accuracy, COST))


def log(draw: np.random.Generator, rows: int, pool: ModelPool, right: Floats, chance: Floats) -> list[Record]:
    """Scored requests whose models were drawn by ``chance``, and which are answered ``right`` with a probability."""
    queries = draw.normal(size=(rows, DIMENSION)).astype("<f4")
    models = draw.choice(len(pool), rows, p=chance)
    return [
        Record(
            id=f"{number:032x}",
            time=number + 1.0,
            key="key",
            bundle="",
            version=0,
            family="prior",
            tradeoff=0.0,
            chosen=pool.names[model],
            served=pool.names[model],
            reason="best",
            embedding=query.tobytes(),
            encoder="static",
            cost=COST,
            score=float(draw.random() < right[model]),
            propensity=float(chance[model]),
        )
        for number, (query, model) in enumerate(zip(queries, models, strict=True))
    ]


def swaps(
    trials: int, rows: int, pool: ModelPool, right: Sequence[float], chance: Sequence[float], present: Believes,
    make: Callable[[Evaluations], Believes | Router],
) -> str:  # fmt: skip
    """The share of trials that swap."""
    draw, found = np.random.default_rng(0), 0
    for _ in range(trials):
        records = log(draw, rows, pool, np.array(right), np.array(chance))
        policy = Policy(present.estimate, TRADEOFF)
        found += run_trial(records, pool, ENCODER, policy, make, lambda _: TRADEOFF).better  # type: ignore[arg-type]
    return f"{found / trials:.1%}"


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("--trials", type=int, default=250)
    trials = given.parse_args().trials
    three, two = ModelPool(["a", "b", "c"]), ModelPool(["a", "b"])
    print("A candidate that claims 0.9 for a model of 0.5 on half of the queries; in service: 0.8; 600 requests.\n")
    print("| chance of that model in the log | swaps |\n|---|---|")
    truth = (0.8, 0.6, 0.5)
    wrong = Believes(three, (0.8, 0.6, 0.9), half=True)
    for chance in (0.0, 0.002, 0.01, 0.03):
        drawn = (0.7 - chance, 0.3, chance)
        print(f"| {chance:g} | {swaps(trials, 600, three, truth, drawn, Believes(three, truth), lambda _: wrong)} |")
    print("\nFalse scores: 0 for the better of two models (0.8 and 0.7), 1 for the other; `linear`, 400 requests.\n")
    print("| share of requests with a false score | swaps to the worse model |\n|---|---|")
    for share in (0.0, 0.05, 0.1, 0.2):
        seen = (0.8 * (1 - share), 0.7 * (1 - share) + share)
        known = Believes(two, (0.8, 0.7))
        made = swaps(trials, 400, two, seen, (0.5, 0.5), known, lambda rows: learn_router({"log": rows}, "linear")[0])
        print(f"| {share:g} | {made} |")


if __name__ == "__main__":
    main()
