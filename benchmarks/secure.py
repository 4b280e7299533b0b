"""What secure sums cost: up to a thousand simulated clients of which a tenth drops out.

Writes docs/results/secure.md. Run with `.venv/bin/python benchmarks/secure.py`. Simulated clients live in one process:
a client's seconds are those spent answering, the coordinator's are the rest; bytes are those of arrays and scalars. Of
the clients that drop out, a third does so before masking, a third while the masked vectors are sent, and a third after.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.kmeans import StatisticsRequest
from fedrouter.federation.federation import Question
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.secagg.graph import peers
from fedrouter.federation.secagg.server import EVERYONE, Secure

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SIZES, CENTRES = (10, 100, 300, 1000), 20
DROPPING = ("shares", "masked", "unmask")


class Lossy(LocalFederation):
    """Loses the replies of some clients at some steps; measures time and bytes."""

    def __init__(self, clients: Sequence[Client], lost: Mapping[str, set[str]]) -> None:
        super().__init__(clients)
        self._lost = lost
        self.answering = 0.0
        self.exchanges = 0
        self.down: dict[str, int] = defaultdict(int)
        self.up: dict[str, int] = defaultdict(int)

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        self.exchanges += 1
        return super().ask_all(questions, to)

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        gone = (
            set().union(*(self._lost.get(step, set()) for step in DROPPING[: DROPPING.index(verb)]))
            if (verb in DROPPING)
            else set()
        )
        there = [name for name in (self.clients() if to is None else to) if name not in gone]
        start = time.perf_counter()
        replies = super().ask(verb, payload, there)
        self.answering += time.perf_counter() - start
        for name in there:
            self.down[name] += payload.size
            self.up[name] += replies[name].size
        return {name: reply for name, reply in replies.items() if name not in self._lost.get(verb, set())}


def simulated(evaluations: Evaluations, size: int, dropped: bool) -> str:
    """One secure sum of K-Means' statistics over so many clients, as a line of the table."""
    clients = [Client(data.name, data.train, OPEN) for data in partition(evaluations, size)]
    names = sorted(client.name for client in clients)
    draw = np.random.default_rng(0).permutation(names)[: len(names) // 10 if dropped else 0]
    lost = {step: set(part.tolist()) for step, part in zip(DROPPING, np.array_split(draw, 3), strict=True)}
    centres = evaluations.embeddings[:: evaluations.queries // CENTRES][:CENTRES]
    request = StatisticsRequest(centres, evaluations.pool.names)
    federation = Lossy(clients, lost)
    secure = Secure(federation, prepared=1)
    start = time.perf_counter()
    total = secure.ask("statistics", request)[EVERYONE]
    seconds = time.perf_counter() - start
    plain = LocalFederation(clients).ask("statistics", request, secure.answered)
    expected = reduce(add, plain.values())
    same = total.pack()[0].keys() == expected.pack()[0].keys() and all(
        array.tobytes() == expected.pack()[0][name].tobytes() for name, array in total.pack()[0].items()
    )
    cells = [f"{size:,}", str(peers(size)), f"{len(draw):,}", f"{len(secure.answered):,}", str(federation.exchanges)]
    cells += [f"{federation.answering / size:.3f}", f"{seconds - federation.answering:.2f}"]
    cells += [f"{np.mean([way[name] for name in names]) / 1000:,.0f}" for way in (federation.up, federation.down)]
    line = f"| {' | '.join(cells)} | {'yes' if same else 'NO'} |"
    print(line, file=sys.stderr)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA / "mmlu_pro.parquet", help="divided among simulated clients")
    given = parser.parse_args()
    evaluations = read(given.data).evaluations
    simulated(evaluations.take(np.arange(2000)), 10, True)  # imports are not what is measured
    crowd = [simulated(evaluations, size, dropped) for size in SIZES for dropped in (False, True)]
    numbers = CENTRES * len(evaluations.pool) * 11
    heading = "clients | peers | drop out | in the total | exchanges | s, client | s, coordinator"
    page = f"""# What secure sums cost

    .venv/bin/python benchmarks/secure.py

One run each, on {os.cpu_count()} cores ({platform.machine()}) shared with other work: bytes, exchanges and totals are
exact, seconds are not.

## A thousand simulated clients

One sum, K-Means' statistics around {CENTRES} centres ({numbers:,} numbers, {8 * numbers / 1000:,.0f} KB), with its
set-up, over {given.data.stem} divided among all clients. "Peers" is how many clients each client picks to share masks
with and to hold its secrets. Of those that drop out, a third does so before masking, a third while masked vectors are
sent, a third after. "In the total" are those whose vector arrived; "equal" is to their plain total, to the bit.

| {heading} | KB sent, client | KB received, client | equal |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(crowd)}

A client's masks, shares and their bytes grow with the logarithm of the number of clients, the coordinator's work with
their number times that. What a client receives also has everybody's public keys, 64 bytes and a name each.
"""
    (PROJECT / "docs" / "results" / "secure.md").write_text(page)


if __name__ == "__main__":
    main()
