"""Every family on every set, with and without protection: federated, local and centralized.

Writes benchmarks/results/quality-ENCODER.json and, from those of all encoders, docs/results/quality.md and the first
table of README.md. Run with `make bench-quality`; it goes on where it was stopped, unless the code has changed.
`--encoder` measures another encoder than the default one, `--seeds 3 --family auto --privacy default --federated-only`
less, and `--add` keeps the other rows that the file has. `--set` and `--first-seed` choose a part, which is only
printed. `--processes 1` leaves a core free, `--device cuda` trains networks on a GPU.
"""

from __future__ import annotations

import os

# One thread per process: these matrices are small, and two processes share two cores.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from fedrouter.federation.families.auto import BLIND

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.encoders import column_stem
from fedrouter.encoders.device import DEVICES, use_device
from fedrouter.encoders.identity import STATIC
from fedrouter.engines.simulated import simulated_federation
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.protocol import compare
from fedrouter.experiments.provenance import digest
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import NothingToLearn
from fedrouter.files import PUBLIC, replace_file
from fedrouter.frontier import Frontier, sweep
from quality_page import MEASURED, PRIVACIES, PROJECT, ROUTER, write_pages

SOURCE, KEPT = PROJECT / "src", PROJECT / "out" / "quality"
UNRELATED = {"cli", "gateway", "deployment", "store", "testing"}
"""Packages that no router is learned or measured by: what was measured is kept when they change."""
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
ROUNDS = 10
# Every registered family with its defaults, and those of the paper in the paper's form.
PAPER: dict[str, Settings] = {
    name: family.paper.changed(rounds=ROUNDS) for name, family in FAMILIES.items() if family.paper is not None
}
OURS: dict[str, Settings] = {
    name: family.settings().changed(rounds=ROUNDS) for name, family in FAMILIES.items() if name != "query_blind"
}
ALONE = ("auto", "kmeans")
"""The families that are learned by each client alone and on everybody's rows, too; the paper's are in core.md."""
BASELINES = ("mix", "best_single", "query_blind", "oracle")


REFERENCES = "references"
"""In place of a family: the paper's families and the baselines."""
BY_ITSELF = "by itself"
"""In place of a privacy: learned by each client alone, and on everybody's rows."""
BUDGETS = 20
"""Budgets at which `auto` is compared with the coin toss, from the cheapest to the most expensive single model."""


@dataclass(frozen=True)
class Job:
    """One data set, seed and encoder, and what to measure there: a family under a privacy, or the references.

    ``device`` is where networks are trained.
    """

    data: str
    seed: int
    family: str
    privacy: str
    encoder: str
    device: str = "cpu"


def measured(job: Job) -> dict[str, Any]:
    """What this code has measured of a job before, or measures now, and the seconds that it took."""
    sources = (path for path in sorted(SOURCE.rglob("*.py")) if not UNRELATED & set(path.relative_to(SOURCE).parts))
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    path = KEPT / f"{digest({**asdict(job), 'code': code})}.json"
    if not path.exists():
        start = time.perf_counter()
        found = {"found": measure(job), "seconds": time.perf_counter() - start}
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(found).encode(), PUBLIC)
    return cast(dict[str, Any], json.loads(path.read_text()))


def reencoded(clients: Sequence[ClientData], other: Evaluations) -> list[ClientData]:
    """The same split with another encoder's embeddings; a split of its own may differ where embeddings are equal."""
    vectors = dict(zip(other.text or (), other.embeddings, strict=True))

    def changed(part: Evaluations) -> Evaluations:
        embeddings = [vectors[text] for text in part.text or ()]
        return replace(part, embeddings=np.array(embeddings, np.float32).reshape(-1, other.dimension))

    return [replace(client, train=changed(client.train), test=changed(client.test)) for client in clients]


def measure(job: Job) -> dict[str, dict[str, Any]]:
    """The measures of every router and baseline on the global test."""
    path = DATA / f"{job.data}.parquet"
    use_device(job.device)
    # Splits are those of the files' embeddings, whatever the encoder.
    clients = reencoded(partition(read(path).evaluations, seed=job.seed), read(path, encoder=job.encoder).evaluations)
    train = Evaluations.concatenate([client.train for client in clients])
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth = test.grid()

    def federated(family: str, settings: Settings, privacy: str = "open") -> Frontier:
        federation = simulated_federation({client.name: client.train for client in clients}, privacy)
        router = FAMILIES[family].learn(federation, train.pool, settings, job.seed)
        return sweep(router.estimate(test.embeddings), truth)

    name = f"{job.family}, {job.privacy}"
    if job.family == REFERENCES:
        found = {f"paper {family}, open": federated(family, settings).measures for family, settings in PAPER.items()}
        references = baselines(ModelMeans.of(train), truth)
        found |= {name: references[name].measures for name in BASELINES}
    elif job.privacy == BY_ITSELF:
        run = compare(clients, {job.family: OURS[job.family]}, job.seed)
        ways = ("local", "centralized")
        found = {f"{job.family}, {way}": run.curves[way][job.family].measures()["global"] for way in ways}
    else:
        try:
            frontier = federated(job.family, OURS[job.family], job.privacy)
        except NothingToLearn:
            print(f"{job.data}, seed {job.seed}: {name} cannot be learned", file=sys.stderr)
            return {}
        toss = federated(BLIND, FAMILIES[BLIND].settings(), job.privacy)
        budgets = np.geomspace(*frontier.singles.budgets, BUDGETS)
        above = frontier.envelope.at(budgets) - toss.envelope.at(budgets)
        print(f"{job.data}, seed {job.seed}, {name}: {frontier.measures.aiq:.4f}", file=sys.stderr, flush=True)
        return {name: frontier.measures.to_json() | {"above_toss": above.tolist()}}
    return {row: measures.to_json() for row, measures in found.items()}


def added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A document with the rows of both; where both have one, that of ``now``."""
    found = {
        name: [{**old, **new} for old, new in zip(before["found"][name], runs, strict=True)]
        for name, runs in now["found"].items()
    }
    commands = [*(each for each in before["commands"] if each not in now["commands"]), *now["commands"]]
    return {**before, "commands": commands, "seconds": before["seconds"] + now["seconds"], "found": found}


def written(document: dict[str, Any]) -> str:
    """A document with what the pages are made from, one line a split."""

    def kept(row: str, measures: dict[str, Any]) -> dict[str, Any]:
        names = ("aiq", "cost_to_match", *(["above_toss"] if row == ROUTER else []))
        return {name: measures[name] for name in names}

    lines = {
        name: ",\n".join(json.dumps({row: kept(row, measures) for row, measures in run.items()}) for run in runs)
        for name, runs in document["found"].items()
    }
    found = ",\n".join(f"{json.dumps(name)}: [\n{splits}\n]" for name, splits in lines.items())
    head = json.dumps({name: value for name, value in document.items() if name != "found"})
    return f'{head[:-1]}, "found": {{\n{found}\n}}}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--family", action="append", choices=sorted(OURS), help="repeatable; default: all")
    parser.add_argument("--federated-only", action="store_true", help="no local and centralized routers")
    parser.add_argument("--encoder", default=STATIC, help="what encodes the questions; default: %(default)s")
    parser.add_argument("--privacy", action="append", choices=PRIVACIES, help="repeatable; default: all")
    parser.add_argument("--set", action="append", choices=SETS, help="repeatable, only printed; default: all")
    parser.add_argument("--first-seed", type=int, default=0, help="only printed unless it is 0")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what trains networks; default: %(default)s")
    parser.add_argument("--add", action="store_true", help="keep the rows of the file that are not measured now")
    options = parser.parse_args()
    sets, seeds = tuple(options.set or SETS), range(options.first_seed, options.first_seed + options.seeds)
    ways = [(family, privacy) for privacy in options.privacy or PRIVACIES for family in options.family or OURS]
    if not options.federated_only:
        ways += [(family, BY_ITSELF) for family in ALONE if family in (options.family or OURS)]
    jobs = [
        Job(name, seed, family, privacy, options.encoder, options.device)
        for family, privacy in (*ways, *([] if options.add else [(REFERENCES, "")]))
        for seed in seeds
        for name in sets
    ]
    with ProcessPoolExecutor(options.processes) as workers:
        results = dict(zip(jobs, workers.map(measured, jobs), strict=True))
    found: dict[str, list[dict[str, Any]]] = {name: [{} for _ in seeds] for name in sets}
    for job, result in results.items():
        found[job.data][job.seed - options.first_seed] |= result["found"]
    document = {
        "commands": [" ".join(["python benchmarks/quality.py", *sys.argv[1:]])],
        "rounds": ROUNDS,
        "seconds": sum(result["seconds"] for result in results.values()),
        "found": found,
    }
    if sets == SETS and not options.first_seed:
        path = MEASURED / f"quality-{column_stem(options.encoder)}.json"
        if options.add:
            document = added(json.loads(path.read_text()), document)
        path.write_text(written(document))
        print(write_pages())
        return
    for name, runs in found.items():
        for row in runs[0]:
            areas = [run[row]["aiq"] for run in runs]
            print(f"{name}, {row}: aiq {sum(areas) / len(areas):.4f} {[round(area, 4) for area in areas]}")


if __name__ == "__main__":
    main()
