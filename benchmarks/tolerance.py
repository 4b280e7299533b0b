"""How far two machines' derivations of the same questions are apart: the measurement behind ``TOLERANCE``.

Run with `.venv/bin/python benchmarks/tolerance.py`; writes docs/results/tolerance.md. A run is recorded once, with real
data and totals as secure sums get them; then the same algorithm is performed on the recorded replies in processes with
other kernels of OpenBLAS and other numbers of threads, as another machine would, and the questions are compared.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro")
FAMILIES = ("auto", "mlp")
"""`auto` asks what kmeans, linear, kernel and query_blind ask, and for scores."""
SEEDS = (0, 1)
MACHINES = {
    "the same": {},
    "two threads": {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    "Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
}
"""Environment of the other machine; the one that records has what OpenBLAS finds."""


def settings_of(family: str) -> Any:
    from fedrouter.federation.families.registry import FAMILIES as KINDS

    return KINDS[family].settings().changed(**({"rounds": 2, "hidden": (64,)} if family == "mlp" else {}))


def recorded(name: str, family: str, seed: int) -> tuple[Any, list[Any]]:
    """The pool, and every exchange of a run with ten clients: verbs, and the total of all replies or all of them."""
    from functools import reduce
    from operator import add

    from fedrouter.data.partition import partition
    from fedrouter.data.read import read
    from fedrouter.federation.client import Client
    from fedrouter.federation.families.registry import FAMILIES as KINDS
    from fedrouter.federation.federation import Middleware
    from fedrouter.federation.verbs.registry import verb_named
    from fedrouter.federation.verbs.verb import SecureSum

    log = read(DATA / f"{name}.parquet").evaluations
    clients = {one.name: Client(one.name, one.train) for one in partition(log, seed=seed)}
    exchanges = []

    class Totals(Middleware):
        def clients(self) -> tuple[str, ...]:
            return tuple(sorted(clients))

        def ask_all(self, questions: Any, to: Any = None) -> Any:
            answers = []
            for question in questions:
                names = sorted(question.to or to or clients)
                hidden = isinstance(verb_named(question.verb).secure_sum, SecureSum)
                replies = {n: clients[n].answer(question.verb, question.request, hidden=hidden) for n in names}
                if hidden and question.verb != "train":
                    replies = {"everyone": reduce(add, replies.values())}
                answers.append(replies)
            exchanges.append(answers)
            return answers

    KINDS[family].learn(Totals(), log.pool, settings_of(family), seed)
    return (log.pool, tuple(sorted(clients))), exchanges


def derived(family: str, seed: int, parts: Any, exchanges: list[Any]) -> list[list[dict[str, Any]]]:
    """The arrays of the questions of each exchange, derived from the recorded replies."""
    from fedrouter.federation.families.registry import FAMILIES as KINDS
    from fedrouter.federation.federation import Middleware

    (pool, names), asked = parts, []

    class Replayed(Middleware):
        def clients(self) -> Any:
            return names

        def ask_all(self, questions: Any, to: Any = None) -> Any:
            asked.append([one.request.pack()[0] for one in questions])
            return exchanges[len(asked) - 1]

    KINDS[family].learn(Replayed(), pool, settings_of(family), seed)
    return asked


def distance(first: Any, second: Any) -> float:
    """The largest difference of two arrays, relative to the largest value; infinite if they do not fit."""
    if first.shape != second.shape:
        return np.inf
    if not np.issubdtype(first.dtype, np.floating):
        return 0.0 if np.array_equal(first, second) else np.inf
    most = float(np.abs(second).max(initial=0.0))
    gap = np.abs(first - second)
    return float(np.nan_to_num(gap).max(initial=0.0)) / most if most else float(np.abs(first).max(initial=0.0))


def compare(first: Any, second: Any) -> dict[str, float]:
    """The largest distance of each kind of array."""
    found: dict[str, float] = {}
    for one, other in zip(first, second, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            for name in mine:
                kind = name.rpartition("/")[2].rpartition(".")[2].rpartition(":")[2]
                found[kind] = max(found.get(kind, 0.0), distance(mine[name], theirs[name]))
    return found


def main() -> None:
    if len(sys.argv) > 1:  # as another machine
        source, target = map(Path, sys.argv[1:])
        with target.open("wb") as file:
            pickle.dump([derived(*run) for run in pickle.loads(source.read_bytes())], file)
        return
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "runs", Path(folder) / "questions"
        for name in SETS:
            runs = [(family, seed, *recorded(name, family, seed)) for family in FAMILIES for seed in SEEDS]
            print(f"{name}: recorded", file=sys.stderr, flush=True)
            source.write_bytes(pickle.dumps(runs))
            own = [derived(*run) for run in runs]
            for machine, variables in MACHINES.items():
                command = [sys.executable, __file__, str(source), str(target)]
                subprocess.run(command, check=True, env={**os.environ, **variables})
                for first, second in zip(pickle.loads(target.read_bytes()), own, strict=True):
                    for kind, gap in compare(first, second).items():
                        cells = found.setdefault(kind, dict.fromkeys(MACHINES, 0.0))
                        cells[machine] = max(cells[machine], gap)
                print(name, machine, {k: v[machine] for k, v in found.items()}, file=sys.stderr, flush=True)
    from fedrouter.federation.rederivation import TOLERANCE

    lines = [
        f"| {kind} | {' | '.join(f'{gap:.1e}' if gap else '0' for gap in cells.values())} |"
        for kind, cells in sorted(found.items())
        if any(cells.values())
    ]
    same = ", ".join(kind for kind, cells in sorted(found.items()) if not any(cells.values()))
    page = f"""# How far derivations of a question are apart on different machines

    .venv/bin/python benchmarks/tolerance.py

A client derives each question of a run and accepts one that is within {TOLERANCE:g} of an array's largest value
([security.md](../security.md#crafted-questions)). Here runs of `auto` and `mlp` with ten clients were recorded
({" and ".join(SETS)}, seeds {" and ".join(map(str, SEEDS))}), and their questions derived again from the same replies
with other kernels of OpenBLAS (`OPENBLAS_CORETYPE`) and with two threads instead of one. The numbers are the largest
difference in any array of that name, relative to the array's largest value.

| array | {" | ".join(MACHINES)} |
|---|{"---|" * len(MACHINES)}
{chr(10).join(lines)}

The same to the bit everywhere: {same}.
"""
    target_page = PROJECT / "docs" / "results" / "tolerance.md"
    comment = target_page.read_text().partition(COMMENT)[2] if target_page.exists() else ""
    target_page.write_text(page + (COMMENT + comment if comment else ""))


COMMENT = "\n## Conclusions\n"
"""The text below it is written by hand and kept."""

if __name__ == "__main__":
    main()
