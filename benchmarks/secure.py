"""What secure aggregation costs: seconds and bytes for K-Means and the MLP, next to the same learning without it.

Writes docs/results/secure.md. Run with `.venv/bin/python benchmarks/secure.py [FILE]`. All clients live in one process;
a client's seconds are those spent answering, the coordinator's are the rest. Bytes are those of arrays and scalars.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.message import Message, Reply, Request
from fedrouter.federation.secagg.server import Secure
from fedrouter.routers.base import Router

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SIZES, TIMES = (10, 30), 3


@dataclass
class Spent:
    """Over a whole learning: questions, seconds in clients, bytes to and from all of them."""

    questions: int = 0
    answering: float = 0.0
    down: int = 0
    up: int = 0
    seconds: float = field(default=0.0)


class TimedClient(Client):
    """Adds what it spends to ``spent``; what it asks itself meanwhile is part of that."""

    spent: Spent
    busy = False

    def answer(self, verb: str, request: Message, hidden: bool = False) -> Message:
        if self.busy:
            return super().answer(verb, request, hidden)
        self.busy, start = True, time.perf_counter()
        reply = super().answer(verb, request, hidden)
        self.busy = False
        self.spent.answering += time.perf_counter() - start
        return reply


class Counted(LocalFederation):
    """Counts what crosses."""

    def __init__(self, clients: Sequence[TimedClient], spent: Spent) -> None:
        super().__init__(clients)
        self.spent = spent
        for client in clients:
            client.spent = spent

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        replies = super().ask(verb, payload, to)
        self.spent.questions += 1
        self.spent.down += payload.size * len(self.clients() if to is None else to)
        self.spent.up += sum(reply.size for reply in replies.values())
        return replies


def learned(family: str, evaluations: Evaluations, size: int, secure: bool) -> tuple[Router, Spent]:
    """A router, and what learning it took."""
    spent = Spent()
    clients = [TimedClient(data.name, data.train) for data in partition(evaluations, size)]
    federation = Counted(clients, spent)
    entry = FAMILIES[family]
    start = time.perf_counter()
    router = entry.learn(Secure(federation) if secure else federation, evaluations.pool, entry.settings())
    spent.seconds = time.perf_counter() - start
    return router, spent


def rows(family: str, evaluations: Evaluations, size: int) -> list[str]:
    """Both ways, taking turns, and how far their routers' predictions are apart."""
    runs: dict[bool, list[tuple[Router, Spent]]] = {False: [], True: []}
    for _ in range(TIMES):
        for secure, found in runs.items():
            found.append(learned(family, evaluations, size, secure))
    some = evaluations.embeddings[:500]
    plain, hidden = (runs[secure][0][0].estimate(some) for secure in (False, True))
    apart = max(np.nanmax(np.abs(getattr(plain, n) - getattr(hidden, n))) for n in ("accuracy", "cost"))
    lines = []
    for secure, found in runs.items():
        spent = [one for _, one in found]
        each = median(one.answering for one in spent) / size
        server = median(one.seconds - one.answering for one in spent)
        sent, received = (getattr(spent[0], way) / size / 1e6 for way in ("up", "down"))
        cells = [family, str(size), "secure" if secure else "plain", str(spent[0].questions)]
        cells += [f"{number:.2f}" for number in (each, server, sent, received)]
        lines.append(f"| {' | '.join(cells)} | {f'{apart:.1g}' if secure else ''} |")
        print(lines[-1], file=sys.stderr)
    return lines


def main(path: Path) -> None:
    evaluations = read(path).evaluations
    for family in ("kmeans", "mlp"):  # imports are not what is measured
        learned(family, evaluations.take(np.arange(2000)), 6, secure=True)
    lines = [line for size in SIZES for family in ("kmeans", "mlp") for line in rows(family, evaluations, size)]
    page = f"""# What secure aggregation costs

{path.stem}: {evaluations.queries:,} queries, {len(evaluations.pool)} models, width {evaluations.dimension}.
Default settings of both families, minimum group sizes on, all clients in one process on one thread of a shared machine;
medians of {TIMES} runs, plain and secure alternating. Seconds and megabytes are totals of the learning, averaged per
client; the coordinator's seconds are all time not spent in clients.

    .venv/bin/python benchmarks/secure.py

| family | clients | sums | requests | s, client | s, coordinator | MB sent, client | MB received, client | difference |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

"Difference" is the largest difference of an estimate (accuracy or dollars) between the two routers over 500 queries.
Each request is one round trip over the network: secure aggregation needs four for each request for sums.
Of the bytes that a client receives under secure aggregation, every client gets every sealed share (148 bytes for each
pair of clients), so this part grows with the square of their number; the coordinator's time to combine shares, with the
cube.
"""
    (PROJECT / "docs" / "results" / "secure.md").write_text(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "mmlu_pro.parquet")
