"""How time and memory of learning grow with the number of clients, for every family, and the cost model fitted to it.

    python benchmarks/scale.py [--processes 1] [--families kmeans …] [--clients 10 100 1000 10000] [--out FILE]
    python benchmarks/scale.py --posterior
    python benchmarks/scale.py --log parquet|csv [--rows 5000000]

The second form prints processor seconds of one refit, one search of penalties, one estimate and one learning of 17,147
rows of 18 models; the third the peak memory of reading one large log, in a process of its own.

Clients are in one process and one thread; their sums are added as secure aggregation adds them, and they set no minimum
group sizes, so that ten rows can be learned from. Two series: 40,000 rows in all, and 12 rows a client. Each run is a
fresh process: seconds are processor time of learning alone, memory is the peak of the whole process, with torch,
scikit-learn and the clients' own rows in it. Rows have 32 dimensions and three models; networks are 32-32 with two
rounds, everything else has its defaults. It must show: a slope of log time against log clients of at most 1.05 from 100
clients on, and at most 1.5 times the memory at 10,000 clients that 100 need.

The cost model is seconds = a + b · clients + c · rows for each family, by least squares of relative errors.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, MODELS = 32, 3
TOTAL, EACH = 40_000, 12
CLIENTS = (10, 100, 1_000, 10_000)
FAMILIES = ("bayes", "kmeans", "mlp")
MOST_SLOPE, MOST_MEMORY = 1.05, 1.5


def measured(family: str, clients: int, rows: int) -> dict[str, float]:
    """Learn once in this process."""
    import sklearn.cluster  # noqa: F401  (a second that no family should be charged)
    import torch  # noqa: F401

    from fedrouter.engines.local import EXACT, LocalFederation
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.families.registry import family as record
    from fedrouter.pool import ModelPool

    draw = np.random.default_rng(0)
    pool = ModelPool([f"model-{number}" for number in range(MODELS)])
    topics, skill = draw.normal(size=(20, WIDTH)), draw.random((20, MODELS))

    def log(size: int) -> Evaluations:
        topic, model = draw.integers(0, 20, size), draw.integers(0, MODELS, size)
        points = topics[topic] + draw.normal(size=(size, WIDTH))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        accuracy = (draw.random(size) < skill[topic, model]).astype(np.float64)
        return Evaluations(pool, points.astype(np.float32), np.arange(size), model, accuracy, 0.01 * draw.random(size))

    federation = LocalFederation({f"client-{number:05d}": log(rows) for number in range(clients)}, EXACT)
    how = record(family)
    given: dict[str, Any] = {"hidden": (32, 32), "rounds": 2} if family == "mlp" else {}
    settings = how.settings(**given)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    how.learn(federation, pool, settings, 0)
    return {
        "seconds": time.process_time() - began,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
        "before": before * 1024.0,
    }


def posteriors() -> dict[str, float]:
    """Processor seconds, each the least of five."""
    from fedrouter.encoders.feature_map import STATIC_WIDTH, map_of_width
    from fedrouter.evaluations import Evaluations
    from fedrouter.evidence import Evidence
    from fedrouter.federation.families.bayes import from_rows
    from fedrouter.pool import ModelPool
    from fedrouter.routers.bayes import BayesRouter

    draw = np.random.default_rng(0)

    def rows(number: int, models: int) -> Evaluations:
        pool = ModelPool([f"model-{one}" for one in range(models)])
        points = draw.normal(size=(number, STATIC_WIDTH))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        model, skill = draw.integers(0, models, number), draw.normal(size=(models, STATIC_WIDTH))
        chance = 0.5 + 0.2 * np.tanh((points * skill[model]).sum(axis=1))
        accuracy = (draw.random(number) < chance).astype(np.float64)
        return Evaluations(pool, points.astype(np.float32), np.arange(number), model, accuracy, draw.random(number))

    def least(work: Any, times: int = 5, repeat: int = 1) -> float:
        found = []
        for _ in range(times):
            began = time.process_time()
            for _ in range(repeat):
                work()
            found.append((time.process_time() - began) / repeat)
        return min(found)

    def fitted_weights(penalties: Any) -> None:
        _ = BayesRouter(evidence.pool, evidence, penalties=penalties).weights

    evidence = Evidence.of(rows(5_000, 20), map_of_width(STATIC_WIDTH))
    router, large = BayesRouter.of(evidence), rows(17_147, 18)
    query = large.embeddings[:1]
    return {
        "refit of 20 models, 84 features": least(lambda: fitted_weights(router.penalties)),
        "the same with a search of penalties": least(lambda: fitted_weights(None)),
        "one estimate of 20 models": least(lambda: router.estimate(query), repeat=1_000),
        "learning 17,147 rows of 18 models, with cells": least(lambda: from_rows([large]), times=2),
    }


LARGE_BATCH = 100_000


def write_log(path: Path, rows: int) -> None:
    """A log of many rows, of ten models: parquet with embeddings of 64 dimensions, or CSV with prompts."""
    draw, names = np.random.default_rng(0), np.array([f"model-{number}" for number in range(10)])
    if path.suffix == ".csv":
        words = np.array(["what", "who", "when", "how", "is", "the", "of", "a", "sum", "code", "paper", "model", "why"])
        with path.open("w") as file:
            file.write("prompt,model,accuracy,cost\n")
            for start in range(0, rows, LARGE_BATCH):
                prompts = words[draw.integers(0, len(words), (LARGE_BATCH, 8))]
                own = draw.integers(0, 10, LARGE_BATCH), draw.integers(0, 2, LARGE_BATCH), draw.random(LARGE_BATCH)
                for row, (prompt, model, right, cost) in enumerate(zip(prompts, *own, strict=True)):
                    file.write(f"{' '.join(prompt)} {start + row},{names[model]},{right},{cost / 100:.6f}\n")
        return
    import pyarrow
    from pyarrow import parquet

    writer = None
    for _ in range(0, rows, LARGE_BATCH):
        points = draw.normal(size=(LARGE_BATCH, 64)).astype(np.float32)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        columns = {
            "embedding": pyarrow.FixedSizeListArray.from_arrays(points.ravel(), 64),
            "model": names[draw.integers(0, 10, LARGE_BATCH)],
            "accuracy": draw.integers(0, 2, LARGE_BATCH).astype(np.float64),
            "cost": draw.random(LARGE_BATCH) / 100,
        }
        table = pyarrow.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def read_log(path: Path) -> dict[str, float]:
    """Learn from one large log in this process."""
    from fedrouter.data.batches import evidence_of

    began = time.process_time()
    evidence, _ = evidence_of([path])
    return {
        "rows": float(evidence.count.sum()),
        "file": float(path.stat().st_size),
        "seconds": time.process_time() - began,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }


def slope(points: dict[int, float]) -> float:
    """Of log time against log clients, from 100 clients on, by least squares."""
    chosen = sorted(clients for clients in points if clients >= 100)
    return float(np.polyfit(np.log(chosen), np.log([points[clients] for clients in chosen]), 1)[0])


def fitted(runs: list[dict[str, Any]]) -> tuple[list[float], float]:
    """``(a, b, c)`` of seconds = a + b · clients + c · rows, none below zero, and the median relative error."""
    from scipy.optimize import nnls

    seconds = np.array([run["seconds"] for run in runs])
    columns = np.array([[1.0, run["clients"], run["clients"] * run["rows"]] for run in runs])
    found, _ = nnls(columns / seconds[:, None], np.ones(len(runs)))
    return found.tolist(), float(np.median(np.abs(columns @ found / seconds - 1)))


def report(runs: list[dict[str, Any]]) -> None:
    for series, title in (("total", f"{TOTAL:,} rows in all"), ("each", f"{EACH} rows a client")):
        mine = [run for run in runs if run["series"] == series]
        sizes = sorted({run["clients"] for run in mine})
        shown = " | ".join(f"{size:,}" for size in sizes)
        print(f"\n{title}: processor seconds, MB of memory\n\n| family | {shown} | slope | memory |")
        print("|---|" + "---|" * (len(sizes) + 2))
        for family in dict.fromkeys(run["family"] for run in mine):
            own = {run["clients"]: run for run in mine if run["family"] == family}
            cells = [f"{own[n]['seconds']:.2f} s, {own[n]['peak'] / 1e6:,.0f}" if n in own else "" for n in sizes]
            steep = slope({n: run["seconds"] for n, run in own.items()}) if len(own) > 2 else float("nan")
            least, most = min(n for n in own if n >= 100), max(own)
            grown = own[most]["peak"] / own[least]["peak"]
            marks = " (above)" if steep > MOST_SLOPE else "", " (above)" if grown > MOST_MEMORY else ""
            print(f"| {family} | {' | '.join(cells)} | {steep:.2f}{marks[0]} | {grown:.2f}×{marks[1]} |")
    print("\n| family | seconds | median error of the fit |\n|---|---|---|")
    for family in dict.fromkeys(run["family"] for run in runs):
        own = [run for run in runs if run["family"] == family]
        if len(own) > 3:
            (fixed, client, row), error = fitted(own)
            terms = f"{fixed:.2g} + {1e3 * client:.2g}e-3 · clients + {1e6 * row:.2g}e-6 · rows"
            print(f"| {family} | {terms} | {error:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--clients", nargs="*", type=int, default=list(CLIENTS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", nargs=3)
    parser.add_argument("--posterior", action="store_true")
    parser.add_argument("--log", choices=("parquet", "csv"))
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    if options.posterior:
        print(json.dumps(posteriors(), indent=1))
        return
    if options.read:
        print(json.dumps(read_log(options.read)))
        return
    if options.log:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"log.{options.log}"
            write_log(path, options.rows)
            subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)
        return
    if options.one:
        family, clients, rows = options.one
        print(json.dumps(measured(family, int(clients), int(rows))))
        return
    todo = [
        {
            "family": family,
            "clients": clients,
            "series": series,
            "rows": TOTAL // clients if series == "total" else EACH,
        }
        for clients in sorted(options.clients, reverse=True)  # the longest first
        for family in reversed(options.families)
        for series, rows in (("total", TOTAL), ("each", EACH))
    ]
    done: list[dict[str, Any]] = []

    def run(unit: dict[str, Any]) -> None:
        command = [sys.executable, __file__, "--one", *(str(unit[name]) for name in ("family", "clients", "rows"))]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            print(f"{unit} failed: {found.stderr.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
            return
        done.append(unit | json.loads(found.stdout))
        print(json.dumps(done[-1]), file=sys.stderr, flush=True)
        if options.out:
            options.out.write_text(json.dumps(done))

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(run, todo))
    order = [*FAMILIES, *options.families]
    report(sorted(done, key=lambda unit: (order.index(unit["family"]), unit["clients"])))


if __name__ == "__main__":
    main()
