"""Every family and baseline on four data sets, in the paper's protocol: federated, local, personal and centralized.

Writes benchmarks/results/quality.json, docs/results/quality.md and the first table of README.md. Run it with
`make bench-quality`; it goes on where it was stopped, unless the code has changed. `--set` and `--first-seed` choose
a part, which is only printed.
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

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.encoders.device import DEVICES, use_device
from fedrouter.encoders.identity import STATIC
from fedrouter.engines.local import DEFAULT, EXACT, OPEN, LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.experiment import PAPER_FAMILIES, settings_of
from fedrouter.experiments.protocol import compare
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.files import PUBLIC, replace_file
from fedrouter.frontier import Measures, sweep
from quality_page import FIRST_SEED, MEASURED, OWN, PROJECT, REFERENCES, SEEDS, write_pages
from rivals import by_cluster, by_length

SOURCE, KEPT = PROJECT / "src", PROJECT / "out" / "quality"
UNRELATED = {"cli", "gateway", "deployment", "store", "testing"}
"""Packages that no router is learned or measured by: what was measured is kept when they change."""
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
ROUNDS = 10
PARTS = ("bayes", *PAPER_FAMILIES, REFERENCES)


@dataclass(frozen=True)
class Job:
    """One data set and seed, and what to measure there: a family, or the references."""

    data: str
    seed: int
    part: str
    encoder: str = STATIC
    device: str = "cpu"


def measured(job: Job) -> dict[str, Any]:
    """What this code has measured of a job before, or measures now, and the seconds that it took."""
    sources = [path for path in sorted(SOURCE.rglob("*.py")) if not UNRELATED & set(path.relative_to(SOURCE).parts)]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, Path(__file__)))).hexdigest()
    name = hashlib.sha256(json.dumps({**asdict(job), "code": code}, sort_keys=True).encode()).hexdigest()
    path = KEPT / f"{name}.json"
    if not path.exists():
        start = time.perf_counter()
        found = {row: measures.to_json() for row, measures in measure(job).items()}
        document = {"found": found, "seconds": time.perf_counter() - start}
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(document).encode(), PUBLIC)
        print(job, {row: round(measures["aiq"], 4) for row, measures in found.items()}, file=sys.stderr, flush=True)
    return cast(dict[str, Any], json.loads(path.read_text()))


def reencoded(clients: Sequence[ClientData], other: Evaluations) -> list[ClientData]:
    """The same split with another encoder's embeddings; a split of its own may differ where embeddings are equal."""
    vectors = dict(zip(other.text or (), other.embeddings, strict=True))

    def changed(part: Evaluations) -> Evaluations:
        embeddings = [vectors[text] for text in part.text or ()]
        return replace(part, embeddings=np.array(embeddings, np.float32).reshape(-1, other.dimension))

    return [replace(client, train=changed(client.train), test=changed(client.test)) for client in clients]


def measure(job: Job) -> dict[str, Measures]:
    """The measures of every router of a family, or of every reference, on the global test; and on clients' own."""
    path = DATA / f"{job.data}.parquet"
    use_device(job.device)
    # Splits are those of the files' embeddings, whatever the encoder.
    clients = reencoded(partition(read(path).evaluations, seed=job.seed), read(path, encoder=job.encoder).evaluations)
    train = Evaluations.concatenate([client.train for client in clients])
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth = test.grid()
    if job.part == REFERENCES:
        found = {name: frontier.measures for name, frontier in baselines(ModelMeans.of(train), truth).items()}
        return found | {
            "K-Means, validated K": sweep(by_cluster(train, test), truth).measures,
            "prompt length": sweep(by_length(train, test), truth).measures,
        }
    settings = settings_of(job.part, ROUNDS, {})

    def federated(privacy: str) -> Measures:
        federation = LocalFederation({client.name: client.train for client in clients}, privacy, job.seed)
        router = FAMILIES[job.part].learn(federation, train.pool, settings, job.seed)
        return sweep(router.estimate(test.embeddings), truth).measures

    if job.part != "bayes":
        return {f"{job.part}, {OPEN}": federated(OPEN)}
    run = compare(clients, {job.part: settings}, job.seed, privacy=DEFAULT)
    ways = {way: run.curves[way][job.part].measures() for way in ("federated", "local", "centralized")}
    personal = Measures.mean(curve.measures for curve in run.personal[job.part].values())
    return {
        f"{job.part}, centralized": ways["centralized"]["global"],
        **{f"{job.part}, {privacy}": federated(privacy) for privacy in (OPEN, EXACT)},
        f"{job.part}, {DEFAULT}": ways["federated"]["global"],
        f"{job.part}, local": ways["local"]["global"],
        f"{OWN}local": ways["local"]["own"],
        f"{OWN}federated": ways["federated"]["own"],
        f"{OWN}personal": personal,
    }


def written(document: dict[str, Any]) -> str:
    """A document with what the pages are made from, one line a split."""
    lines = {
        name: ",\n".join(
            json.dumps({row: {key: measures[key] for key in ("aiq", "cost_to_match")} for row, measures in run.items()})
            for run in runs
        )
        for name, runs in document["found"].items()
    }
    found = ",\n".join(f"{json.dumps(name)}: [\n{splits}\n]" for name, splits in lines.items())
    head = json.dumps({name: value for name, value in document.items() if name != "found"})
    return f'{head[:-1]}, "found": {{\n{found}\n}}}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED, help="only printed unless it is the default")
    parser.add_argument("--set", action="append", choices=SETS, help="repeatable, only printed; default: all")
    parser.add_argument("--part", action="append", choices=PARTS, help="repeatable, only printed; default: all")
    parser.add_argument("--encoder", default=STATIC, help="only printed unless it is the default, %(default)s")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what trains networks; default: %(default)s")
    options = parser.parse_args()
    sets, parts = tuple(options.set or SETS), tuple(options.part or PARTS)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    jobs = [Job(name, s, part, options.encoder, options.device) for part in parts for s in seeds for name in sets]
    with ProcessPoolExecutor(options.processes) as workers:
        results = dict(zip(jobs, workers.map(measured, jobs), strict=True))
    found: dict[str, list[dict[str, Any]]] = {name: [{} for _ in seeds] for name in sets}
    for job, result in results.items():
        found[job.data][job.seed - options.first_seed] |= result["found"]
    document = {
        "command": " ".join(["python benchmarks/quality.py", *sys.argv[1:]]),
        "rounds": ROUNDS,
        "seconds": sum(result["seconds"] for result in results.values()),
        "found": found,
    }
    if (sets, parts, options.first_seed, options.encoder) == (SETS, PARTS, FIRST_SEED, STATIC):
        (MEASURED / "quality.json").write_text(written(document))
        print(write_pages())
        return
    for name, runs in found.items():
        for row in runs[0]:
            areas = [run[row]["aiq"] for run in runs]
            print(f"{name}, {row}: aiq {sum(areas) / len(areas):.4f} {[round(area, 4) for area in areas]}")


if __name__ == "__main__":
    main()
