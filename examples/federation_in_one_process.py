"""A federation in one process that shows every message: what the server asks, and what leaves each client.

An algorithm reaches clients through one method, `ask`. Whatever wraps a federation implements the same method, so this
program logs every message with a federation of its own around the in-process engine.

    python examples/federation_in_one_process.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter import FAMILIES, Evaluations, LocalFederation, ModelPool
from fedrouter.federation.federation import Federation


@dataclass(frozen=True)
class Logged(Federation):
    """A federation that prints each question and the size of each reply."""

    inner: Federation

    def clients(self) -> Sequence[str]:
        return self.inner.clients()

    def ask(self, verb: str, payload: Any, to: Sequence[str] | None = None) -> Mapping[str, Any]:
        replies = self.inner.ask(verb, payload, to)
        for name, reply in replies.items():
            print(f"  {verb:<11} -> {name:<9} replied with {type(reply).__name__}, {reply.size:,} bytes")
        return replies


def private_rows(seed: int, queries: int = 200) -> Evaluations:
    """Random evaluations: `math` is better at one half of the queries, `chat` at the other."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, 16)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    model = draw.integers(0, 2, queries)
    right = (embeddings[:, 0] > 0) == (model == 0)
    accuracy = np.where(right, 0.9, 0.3)
    return Evaluations(
        ModelPool(["math", "chat"]), embeddings, np.arange(queries), model, accuracy, np.full(queries, 1e-3)
    )


def main() -> None:
    rows = {name: private_rows(seed) for seed, name in enumerate(("hospital", "bank", "school"))}
    pool = rows["bank"].pool
    family = FAMILIES["kmeans"]

    print("Two clients learn a K-Means router:")
    first = Logged(LocalFederation({name: rows[name] for name in ("hospital", "bank")}))
    router = family.learn(first, pool, family.settings(), seed=0)

    print("\nThe school joins; nobody else is asked:")
    newcomer = Logged(LocalFederation({"school": rows["school"]}))
    joined = family.add_clients(router, newcomer, family.settings())

    print("\nThe school leaves again; its sums are subtracted:")
    left = family.remove_clients(joined, newcomer)

    same = all(np.array_equal(array, left.arrays()[name]) for name, array in router.arrays().items())
    print(f"\nIdentical to the earlier router, to the bit: {same}")
    private = sum(part.embeddings.nbytes for part in rows.values())
    print(f"Embeddings that stayed with the clients: {private:,} bytes")


if __name__ == "__main__":
    main()
