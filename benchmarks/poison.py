"""One poisoned client of ten: what each attack does to each family, without a defense and under the robust preset.

Writes docs/results/poison.md. Run with `make bench-poison`; two processes.
"""

from __future__ import annotations

import os

# One thread a process: these matrices are small, and two processes share two cores.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.validation import Checked
from fedrouter.federation.robust.middleware import Robust, RobustSettings
from fedrouter.frontier import sweep
from fedrouter.testing.poison import ATTACKS, UPDATES, LossyFederation, poisoned

PROJECT = Path(__file__).parents[1]

DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("mmlu_pro", "routerbench_subset")
LEARNED = ("kmeans", "mlp")
SEEDS = range(5)
HONEST, ABSENT = "no poisoning", "the client is left out"
Job = tuple[str, str, int, str, bool]
"""Set, family, seed, attack, and whether the defense is on."""


@lru_cache(maxsize=1)
def split(name: str, seed: int) -> tuple[list[ClientData], Evaluations, Evaluations]:
    """The clients, and what all of them have to train on and to test on."""
    clients = partition(read(DATA / f"{name}.parquet").evaluations, seed=seed)
    train, test = (
        Evaluations.concatenate([getattr(client, part) for client in clients if getattr(client, part).queries])
        for part in ("train", "test")
    )
    return clients, train, test


def measure(job: Job) -> tuple[float, Counter[str], float]:
    """``aiq`` on the global test, why replies were dropped, and seconds."""
    name, family, seed, attack, defended = job
    start = time.perf_counter()
    clients, train, test = split(name, seed)
    liar = clients[seed % len(clients)].name
    members = []
    for client in clients:
        if client.name != liar or attack == HONEST:
            members.append(Client(client.name, client.train))
        elif attack != ABSENT:
            members.append(poisoned(attack, client.name, client.train, train))
    wire = LossyFederation(members)
    checked = Checked(wire)
    router = FAMILIES[family].learn(
        Robust(checked, RobustSettings.preset()) if defended else wire,
        train.pool,
        FAMILIES[family].settings(),
        seed,
    )
    area = sweep(router.estimate(test.embeddings), test.grid()).measures.aiq
    reasons: Counter[str] = Counter()
    for (who, verb, reason), times in checked.dropped.items():
        reasons[f"{'the liar' if who == liar else 'an honest client'}, {verb}: {reason}"] += times
    for who, verb in getattr(wire, "dropped", []):
        reasons[f"{'the liar' if who == liar else 'an honest client'}, {verb}: cannot be unpacked"] += 1
    print(*job, f"{area:.4f}", file=sys.stderr, flush=True)
    return area, reasons, time.perf_counter() - start


def attacks(family: str) -> list[str]:
    return [HONEST, ABSENT, *(attack for attack in ATTACKS if family == "mlp" or attack not in UPDATES)]


def page(found: dict[Job, tuple[float, Counter[str], float]], seconds: float) -> str:
    preset = RobustSettings.preset()

    def gaps(name: str, family: str, attack: str, defended: bool) -> list[float]:
        return [
            found[name, family, seed, attack, defended][0] - found[name, family, seed, HONEST, defended][0]
            for seed in SEEDS
        ]

    def moved(name: str, family: str, attack: str, defended: bool) -> str:
        """Mean change over seeds, and the change of each."""
        changes = gaps(name, family, attack, defended)
        return f"{np.mean(changes):+.4f} ({', '.join(f'{change:+.3f}' for change in changes)})"

    def worst(name: str, family: str) -> str:
        """The attack that moves the mean furthest despite the defense."""
        means = {attack: float(np.mean(gaps(name, family, attack, True))) for attack in attacks(family)[2:]}
        attack = max(means, key=lambda each: abs(means[each]))
        absent = float(np.mean(gaps(name, family, ABSENT, True)))
        return f"| {name} | {family} | {means[attack]:+.4f} ({attack}) | {absent:+.4f} |"

    def largest(attack: str) -> float:
        """The largest change of one split, of the MLP on the smaller set."""
        return float(np.abs([gaps(SETS[1], "mlp", attack, on) for on in (False, True)]).max())

    lines = [
        "# One poisoned client of ten",
        "",
        f"The paper's protocol (10 clients, α = 0.6 over tasks, 0.45 over models), {len(SEEDS)} splits, "
        "all-mpnet-base-v2 embeddings, families at their defaults, minimum group sizes on, sums in the clear "
        "(`--plain`), since robust aggregation has to see each client's. One client is poisoned; which one differs by "
        "split. The change of `aiq` on the clients' joint test set, relative to the router learned without "
        "poisoning: mean over splits, in parentheses each split. `robust` is `Robust(Checked(…), "
        "RobustSettings.preset())`: "
        f"{', '.join(f'{name}={value}' for name, value in vars(preset).items())}.",
        "",
        "    make bench-poison",
        "",
        "The attacks. *Inflated accuracy*: each query of the client answered perfectly by a favored "
        "model (the least accurate of the more expensive half), wrongly by any other. *Zero costs*: every cost is 0. "
        "*Huge counts*: inflated accuracy, and every count and sum times ten thousand. *Boosted*, *flipped*: the "
        "update "
        "of the weights a hundred (ten) times as long, forwards or backwards. *NaN*: centroids or weights that are not "
        "numbers. For comparison, a client left out: the loss if all of its replies are discarded.",
        "",
        "The preset was chosen on the simulated world and on `llmrouter_mix`, neither of which is in these tables. "
        "Of the data sets that are, one split was looked at before the preset was final: split 0 of `mmlu_pro`, "
        "where huge counts cost "
        "K-Means 0.015 while the replies of a client that no other supports were moved to the others' values but "
        "kept the weight of all its rows. That its rows get a lower weight was then decided on the other two.",
        "",
        "## The worst attack",
        "",
        "Under `robust`, next to the cost of leaving the client out. Where the two are similar, only the client's "
        f"rows are lost. The MLP on `{SETS[1]}` has about 2,500 rows to train on and varies much: one split changes "
        f"by {largest(ABSENT):.3f} if the client is left out, and by {largest('NaN'):.3f} if its weights are refused, "
        "so a change of that size says little about an attack.",
        "",
        "| set | family | change | client left out |",
        "|---|---|---|---|",
        *(worst(name, family) for name in SETS for family in LEARNED),
        "",
    ]
    for name in SETS:
        lines += [f"## {name}", "", "| family | attack | no defense | robust |", "|---|---|---|---|"]
        for family in LEARNED:
            for attack in attacks(family):
                if attack == HONEST:
                    areas = [
                        np.mean([found[name, family, seed, HONEST, on][0] for seed in SEEDS]) for on in (False, True)
                    ]
                    cells = [f"{area:.4f}" for area in areas]
                    cells[1] += f", the cost of the defense {areas[1] - areas[0]:+.4f}"
                else:
                    cells = [moved(name, family, attack, on) for on in (False, True)]
                lines.append(f"| {family} | {attack} | {' | '.join(cells)} |")
        lines.append("")
    reasons: dict[tuple[str, str], Counter[str]] = {}
    for (_, family, _, attack, defended), (_, dropped, _) in found.items():
        if defended:
            reasons.setdefault((family, attack), Counter()).update(dropped)
    lines += ["## What was dropped before it was aggregated", "", "| family | attack | replies |", "|---|---|---|"]
    for (family, attack), dropped in sorted(reasons.items()):
        if dropped:
            told = "; ".join(f"{times} ({reason})" for reason, times in sorted(dropped.items()))
            lines.append(f"| {family} | {attack} | {told} |")
    spent = sum(entry[2] for entry in found.values())
    lines += [
        "",
        "No check can detect a client whose false values are within the range that the others support. A reply with "
        "NaN is refused when it is unpacked, so it costs the client's contribution with and without a defense.",
        "",
        "Under secure sums, where robust aggregation cannot look, the clients vote on the router: [vote.md](vote.md).",
        "",
        f"{len(found)} runs, {spent:.0f} seconds of two processes, {seconds:.0f} seconds in all.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    start = time.perf_counter()
    jobs = [
        (name, family, seed, attack, defended)
        for name in SETS
        for seed in SEEDS
        for family in LEARNED
        for attack in attacks(family)
        for defended in (False, True)
    ]
    with ProcessPoolExecutor(2) as workers:
        found = dict(zip(jobs, workers.map(measure, jobs), strict=True))
    text = page(found, time.perf_counter() - start)
    (PROJECT / "docs" / "results" / "poison.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
