"""How long things take here, each beside something measured in the same run, so that the ratio travels.

Writes docs/results/speed.md. Run with `make bench`, or `.venv/bin/python benchmarks/speed.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Grid
from fedrouter.frontier import TRADEOFFS, sweep
from fedrouter.pool import ModelPool

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
FEDROUTER = Path(sys.executable).with_name("fedrouter")


def seconds(action: Callable[[], object], times: int = 5) -> float:
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        spent.append(time.perf_counter() - start)
    return median(spent)


def python(program: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", program], check=True)


def imports() -> str:
    bare, numpy, ours = (seconds(python(p), 9) for p in ("", "import numpy", "import fedrouter"))
    public = seconds(python("from fedrouter import Evaluations, LocalFederation, load, sweep"), 9)
    return (
        f"| `import fedrouter` | {ours - bare:.3f} s | {(ours - bare) / (numpy - bare):.2f} × `import numpy` |\n"
        f"| `from fedrouter import Evaluations, …` | {public - bare:.3f} s | {(public - bare) / (numpy - bare):.2f} × "
        "`import numpy` |"
    )


def sweeps() -> str:
    """100 λ over 10,000 queries and 20 models, beside the same sweep one query at a time."""
    draw = np.random.default_rng(0)
    shape = (10_000, 20)
    grid = Grid(ModelPool([f"m{index}" for index in range(20)]), draw.random(shape), draw.random(shape) / 100)
    estimates = Estimates(grid.pool, draw.random(shape), draw.random(shape) / 100)
    fast = seconds(lambda: sweep(estimates, grid))
    few = 5

    def one_by_one() -> None:
        for tradeoff in TRADEOFFS[:few]:
            for query in range(len(grid)):
                int((estimates.accuracy[query] - tradeoff * estimates.cost[query]).argmax())

    slow = seconds(one_by_one, 1) * len(TRADEOFFS) / few
    return f"| frontier: 100 λ, 10,000 queries, 20 models | {fast:.3f} s | 1/{slow / fast:.0f} of query by query |"


def simulations() -> list[str]:
    """`fedrouter simulate` as a user runs it on the largest file, beside only reading that file."""
    path = DATA / "openllm_v2.parquet"
    if not path.exists():
        return [f"| simulate | not measured | {path.name} is not in the data folder |"]
    reading = seconds(python(f"from fedrouter import read; read({str(path)!r})"), 3)
    rows = []
    for router, limit in (("kmeans", 30), ("mlp", 60)):
        with tempfile.TemporaryDirectory() as folder:
            command = [FEDROUTER, "simulate", "--data", path, "--router", router, "--out", f"{folder}/out", "--json"]
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, check=True, text=True)
            spent = time.perf_counter() - start
        size = json.loads(done.stdout)
        what = f"`simulate --router {router}`, {size['queries']:,} × {len(size['models'])}"
        rows.append(f"| {what} | {spent:.1f} s (limit {limit} s) | {spent / reading:.1f} × reading the file |")
    return rows


def main() -> None:
    rows = [imports(), sweeps(), *simulations()]
    text = "\n".join(
        [
            "# Speed",
            "",
            "Two shared cores; medians. Seconds depend on the machine, ratios less so.",
            "",
            "    make bench",
            "",
            "| what | time | ratio |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )
    (PROJECT / "docs" / "results" / "speed.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
