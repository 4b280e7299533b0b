"""One poisoned client of ten under secure sums: which routers pass the vote of the others.

Writes docs/results/vote.md. Run with `make bench-vote`; one process.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import sys
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.engines.summed import SummedFederation
from fedrouter.evaluations import Evaluations
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.verbs.vote import Ballot, VoteRequest
from fedrouter.federation.vote import BETTER, UNDECIDED, WORSE, VoteResult
from fedrouter.frontier import sweep
from fedrouter.routers.base import Router
from fedrouter.testing.poison import poisoned

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("mmlu_pro", "routerbench_subset")
SEEDS = range(5)
ROUTERS = ("auto", "kmeans")
HONEST = "no poisoning"
ATTACKS = ("inflated accuracy", "zero costs", "huge counts")
FIRST, UPDATE = "first bundle", "the router of the nine others in service"
WORDS = {BETTER: "accepted", WORSE: "rejected", UNDECIDED: "candidate"}


@dataclass(frozen=True)
class Vote:
    """The change of ``aiq`` by the candidate, the truth; the estimate by the vote, and what became of it."""

    change: float
    low: float
    high: float
    objections: int
    truthful: str
    praised: str


def learn(name: str, members: list[Client], train: Evaluations, seed: int) -> Router:
    family = FAMILIES[name]
    return family.learn(SummedFederation(members), train.pool, family.settings(), seed)


def praise(request: VoteRequest, queries: int) -> Ballot:
    """The ballot of a client that claims that every one of its queries gains as much as a right answer."""
    size = len(request.tradeoffs)
    gain = ExactSums.from_totals(np.array([float(queries)] * 2))
    changes = ExactSums.from_totals(np.full(size, float(queries)))
    return Ballot(queries, gain, changes, ExactSums.zeros((size,)), 0)


def voted(clients: list[ClientData], liar: str, router: Router, served: Router | None, change: float) -> Vote:
    """All but the liar compare honestly; it votes truthfully on its real rows, or praises."""
    request = VoteRequest.of(router)
    ballots = {
        client.name: Client(client.name, client.train, in_service=lambda: served).answer("vote", request, True)
        for client in clients
    }
    honest = [ballot for name, ballot in ballots.items() if name != liar]
    queries = next(client.train.queries for client in clients if client.name == liar)
    total = VoteResult.of(request, reduce(add, ballots.values()))
    lied = VoteResult.of(request, reduce(add, [*honest, praise(request, queries)]))
    objections = sum(ballot.objection > 0 for ballot in honest)
    return Vote(change, total.low, total.high, objections, total.outcome, lied.outcome)


def measure(family: str, name: str, seed: int) -> dict[tuple[str, str], Vote]:
    clients = partition(read(DATA / f"{name}.parquet").evaluations, seed=seed)
    train, test = (
        Evaluations.concatenate([getattr(client, part) for client in clients if getattr(client, part).queries])
        for part in ("train", "test")
    )
    grid, liar = test.grid(), clients[seed % len(clients)].name

    def area(router: Router) -> float:
        return sweep(router.estimate(test.embeddings), grid).measures.aiq

    others = learn(
        family, [Client(client.name, client.train) for client in clients if client.name != liar], train, seed
    )
    blind = FAMILIES["query_blind"]
    everyone = SummedFederation([Client(client.name, client.train) for client in clients])
    single = area(blind.learn(everyone, train.pool, blind.settings(), seed))
    found = {}
    for attack in (HONEST, *ATTACKS):
        members = [
            Client(client.name, client.train)
            if client.name != liar or attack == HONEST
            else poisoned(attack, client.name, client.train, train)
            for client in clients
        ]
        router = learn(family, members, train, seed)
        new = area(router)
        found[attack, FIRST] = voted(clients, liar, router, None, new - single)
        found[attack, UPDATE] = voted(clients, liar, router, others, new - area(others))
        for against in (FIRST, UPDATE):
            print(family, name, seed, attack, against, found[attack, against], file=sys.stderr, flush=True)
    return found


def page(found: dict[tuple[str, str, int], dict[tuple[str, str], Vote]]) -> str:
    def row(family: str, name: str, attack: str, against: str) -> str:
        votes = [votes[attack, against] for (by, of, _), votes in found.items() if (by, of) == (family, name)]
        change = f"{np.mean([vote.change for vote in votes]):+.4f}"
        middle = f"{np.mean([(vote.low + vote.high) / 2 for vote in votes]):+.3f}"
        half = f"{np.mean([(vote.high - vote.low) / 2 for vote in votes]):.3f}"
        objections = ", ".join(str(vote.objections) for vote in votes)
        told = [_counted([getattr(vote, kind) for vote in votes]) for kind in ("truthful", "praised")]
        return f"| {family} | {name} | {attack} | {change} | {middle} ± {half} | {objections} | {' | '.join(told)} |"

    lines = [
        "# The vote against a poisoned client",
        "",
        f"The paper's protocol (10 clients, α = 0.6 over tasks, 0.45 over models), families at "
        "their defaults, default privacy: secure sums, so nobody can look at what one client sends. One client is "
        "poisoned, as in [poison.md](poison.md); which one differs by split. All ten then vote on the router, with the "
        "default tolerance. The poisoned client either votes truthfully on its real rows, or *praises*: it claims that "
        "each of its queries gains a whole right answer, and does not object. "
        f"{len(SEEDS)} splits of each set.",
        "",
        "    make bench-vote",
        "",
        "Two rules were set after one split had been looked at, split 0 of `routerbench_subset`: that single models "
        "are chosen on the other half of the queries, and that an objection takes three standard errors "
        "instead of 1.96.",
        "",
        "*Change of aiq*: on the clients' joint test set, relative to the router that the candidate would replace (for "
        "a first bundle, to the query-blind router); mean over splits. *Estimate*: the mean change of utility and its "
        "95% interval, as voted, on the rows that the router was learned from; mean over splits. *Objections*: clients "
        "of the nine that object, in each split; the federation learns only whether any does.",
    ]
    for against in (FIRST, UPDATE):
        lines += [
            "",
            f"## Against: {'single models (first bundle)' if against == FIRST else against}",
            "",
            "| router | set | attack | change of aiq | estimate | objections | verdicts, truthful | praised |",
            "|---|---|---|---|---|---|---|---|",
            *(
                row(family, name, attack, against)
                for family in ROUTERS
                for name in SETS
                for attack in (HONEST, *ATTACKS)
            ),
        ]
    lines.append("")
    return "\n".join(lines)


def _counted(outcomes: list[str]) -> str:
    return ", ".join(f"{outcomes.count(word)} {WORDS[word]}" for word in WORDS if word in outcomes)


def main() -> None:
    found = {(family, name, seed): measure(family, name, seed) for family in ROUTERS for name in SETS for seed in SEEDS}
    text = page(found)
    (PROJECT / "docs" / "results" / "vote.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
