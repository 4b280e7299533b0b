"""all-MiniLM-L6-v2 in torch and as ONNX with 8-bit weights: time per text, and the effect on routers.

Writes docs/results/encoder.md. Run with `.venv/bin/python benchmarks/encoder.py`. Each encoder is timed in a process of
its own, on one thread, on the same texts; the two take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import numpy as np

from fedrouter.data.read import read
from fedrouter.encoders import OFFLINE
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
TEXTS = 500
TIMED = 200
ROUNDS = 3
FAMILIES_TRIED = ("kmeans", "auto")
SCALED = (0.005, 0.05, 0.5)
"""λ times the most expensive model's mean cost, so that it weighs the same on every data set."""
ENCODERS = {
    "torch": "import torch; torch.set_num_threads(1); from fedrouter.encoders.sentence import SentenceEncoder as E",
    "ONNX, 8 bits": "from fedrouter.encoders.onnx import OnnxEncoder as E",
}
PROGRAM = """
import json, re, sys, time
begun = time.perf_counter()
{encoder}
encode = E().encode
encode(["What is a cat?"])
loaded = time.perf_counter() - begun
texts, timed = json.load(sys.stdin)
def times(size):
    taken = []
    for start in range(0, timed, size):
        begun = time.perf_counter()
        encode(texts[start : start + size])
        taken.append((time.perf_counter() - begun) * 1000)
    return taken
found = {{"loaded": loaded, "one": times(1), "eight": times(8)}}
found["megabytes"] = int(re.findall(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[0]) / 1024
found["embeddings"] = encode(texts).tolist()
print(json.dumps(found))
"""


def timed(name: str, texts: list[str]) -> dict:
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    program = PROGRAM.format(encoder=ENCODERS[name])
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([texts, TIMED]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=one_thread,
    )
    return json.loads(done.stdout)


def choices(evaluations: Evaluations, test: np.ndarray, embeddings: dict[str, np.ndarray]) -> list[str]:
    """What routers learned on torch's embeddings of the other queries make of each encoder's of these."""
    rest = np.setdiff1d(np.arange(evaluations.queries), test)
    truth = evaluations.of_queries(test).grid()
    most_expensive = float(evaluations.grid().cost.mean(axis=0).max())
    lines = []
    for family in FAMILIES_TRIED:
        federation = LocalFederation([Client("all", evaluations.of_queries(rest), OPEN)])
        router = FAMILIES[family].learn(federation, evaluations.pool, FAMILIES[family].settings().single_client(), 0)
        torch, onnx = (router.estimate(found) for found in embeddings.values())
        equal = [np.mean(torch.choose(each / most_expensive) == onnx.choose(each / most_expensive)) for each in SCALED]
        areas = [sweep(each, truth).measures.aiq for each in (torch, onnx)]
        shown = " / ".join(f"{share:.1%}" for share in equal)
        lines.append(f"| `{family}` | {shown} | {areas[0]:.4f} | {areas[1]:.4f} | {areas[1] - areas[0]:+.4f} |")
    return lines


def main() -> None:
    evaluations = read(DATA / "routerbench_subset.parquet", encoder=OFFLINE).evaluations
    test = np.sort(np.random.default_rng(0).permutation(evaluations.queries)[:TEXTS])
    texts = [evaluations.text[row] for row in test]
    runs: dict[str, list[dict]] = {name: [] for name in ENCODERS}
    for _ in range(ROUNDS):
        for name, found in runs.items():
            found.append(timed(name, texts))
            print(
                name, {key: np.round(np.median(found[-1][key]), 2) for key in ("loaded", "one", "eight", "megabytes")}
            )
    embeddings = {name: np.array(found[0]["embeddings"], np.float32) for name, found in runs.items()}
    cosine = (embeddings["torch"] * embeddings["ONNX, 8 bits"]).sum(axis=1)
    # How far apart two different queries of the same set are: the scale on which a router tells them apart.
    others = embeddings["torch"] @ embeddings["torch"].T - 2 * np.eye(TEXTS)
    table = []
    for name, found in runs.items():
        one, eight = ([value for run in found for value in run[size]] for size in ("one", "eight"))
        table.append(
            f"| {name} | {np.median(one):.1f} / {np.percentile(one, 99):.1f} "
            f"| {np.median(eight) / 8:.1f} / {np.percentile(eight, 99) / 8:.1f} "
            f"| {median(run['loaded'] for run in found):.1f} | {median(run['megabytes'] for run in found):.0f} |"
        )
    paired = [np.median(a["one"]) / np.median(b["one"]) for a, b in zip(*runs.values(), strict=True)]
    lines = [
        "# Encoders",
        "",
        "    .venv/bin/python benchmarks/encoder.py",
        "",
        f"{OFFLINE} on one thread of a shared machine, on questions of routerbench_subset ({TIMED} timed, "
        f"{np.mean([len(text) for text in texts]):.0f} characters on average). Milliseconds per text, p50 / p99; "
        f"{ROUNDS} rounds, each encoder in its own process, alternating. Loading includes the imports and the first "
        f"text. One at a time, ONNX takes 1/{median(paired):.2f} of torch's time.",
        "",
        "| | one at a time | in batches of 8 | loaded in, s | resident, MB |",
        "|---|---|---|---|---|",
        *table,
        "",
        f"Cosine between the two encoders' embeddings of the same text, {TEXTS} texts: mean {cosine.mean():.5f}, "
        "minimum "
        f"{cosine.min():.5f}. Between a text and the nearest other one: median {np.median(others.max(axis=1)):.3f}.",
        "",
        "Routers learned from other queries with torch's embeddings, asked with those of each encoder: share of equal "
        f"choices at λ = {', '.join(map(str, SCALED))} over the most expensive model's mean cost, and `aiq`.",
        "",
        "| router | equal choices | torch | ONNX | difference |",
        "|---|---|---|---|---|",
        *choices(evaluations, test, embeddings),
    ]
    (PROJECT / "docs" / "results" / "encoder.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
