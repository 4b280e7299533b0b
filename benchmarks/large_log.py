"""A log larger than memory: five million rows of 384 dimensions on disk, learned by K-Means and `linear`.

    python benchmarks/large_log.py [--rows 5000000] [--cut 100000] [--folder DIR]

The log is generated in a temporary folder (about 1.6 GB for each million rows, and the same again while it is read), so
that nothing but its rows depends on what this machine has. Each family is learned in a fresh process that opens the
file, as the owner of the rows and as a client with the default privacy whose sums are masked. On the first
``--cut`` rows the routers are compared with those learned in memory.
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

import numpy as np

WIDTH, MODELS, TOPICS = 384, 12, 24
PIECE = 20_000


def write_log(path: Path, rows: int) -> None:
    """Queries around topics, each asked of one model, whose accuracy and cost depend on the topic."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(0)
    topics = draw.normal(size=(TOPICS, WIDTH)).astype(np.float32)
    skill, price = draw.random((TOPICS, MODELS)), 10.0 ** draw.uniform(-5, -2, MODELS)
    names = np.array([f"model-{number:02d}" for number in range(MODELS)])
    kind = pa.schema(
        [("embedding", pa.list_(pa.float32(), WIDTH)), ("model", pa.string())]
        + [(name, pa.float64()) for name in ("accuracy", "cost")]
    )
    with pq.ParquetWriter(path, kind, compression="none", use_dictionary=["model"]) as writer:
        for start in range(0, rows, PIECE):
            size = min(PIECE, rows - start)
            topic, model = draw.integers(0, TOPICS, size), draw.integers(0, MODELS, size)
            points = topics[topic] + draw.standard_normal((size, WIDTH), np.float32)
            points /= np.linalg.norm(points, axis=1, keepdims=True)
            columns = [
                pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), WIDTH),
                pa.array(names[model]),
                pa.array((draw.random(size) < skill[topic, model]).astype(np.float64)),
                pa.array(price[model] * draw.lognormal(0, 0.3, size)),
            ]
            writer.write_table(pa.table(columns, schema=kind))


def learned(path: Path, family: str, privacy: str, in_memory: bool, out: Path | None) -> dict[str, float]:
    """Learn a router from the log; seconds of processor time by part, and the peak of memory in bytes."""
    from fedrouter.data.read import read
    from fedrouter.engines.local import LocalFederation
    from fedrouter.federation.client import Client
    from fedrouter.federation.families.registry import family as record
    from fedrouter.federation.privacy.policy import OPEN, PrivacyPolicy

    class Masked(LocalFederation):
        """One client that answers as under masks, as it does by default."""

        def _answers(self, names, verb, request, hidden=False):  # type: ignore[no-untyped-def]
            return super()._answers(names, verb, request, hidden=True)

    began = time.process_time(), time.perf_counter()
    rows = read(path, most_in_memory=2**60 if in_memory else 0).evaluations
    opened = time.process_time()
    engine, policy = (LocalFederation, OPEN) if privacy == "open" else (Masked, PrivacyPolicy())
    router = record(family).learn(engine([Client("owner", rows, policy)]), rows.pool)
    if out:
        np.savez(out, **router.arrays())
    return {
        "read": opened - began[0],
        "learn": time.process_time() - opened,
        "wall": time.perf_counter() - began[1],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }


def in_process(*arguments: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", *arguments]
    return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def largest_difference(first: Path, second: Path) -> float:
    with np.load(first) as one, np.load(second) as other:
        return max(float(np.abs(one[name] - other[name].astype(np.float64)).max()) for name in one.files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--cut", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--privacy", nargs="*", default=["open", "default"])
    parser.add_argument("--processes", type=int, default=1, help="runs side by side; each has its own copy on disk")
    parser.add_argument("--one", nargs=5)
    options = parser.parse_args()
    if options.one:
        path, family, privacy, memory, out = options.one
        print(json.dumps(learned(Path(path), family, privacy, memory == "memory", Path(out) if out else None)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        print("| log | family | privacy | CPU s to read | CPU s to learn | wall s | peak memory, MB |")
        print("|---|---|---|---|---|---|---|")
        cases = [(family, privacy) for family in ("kmeans", "linear") for privacy in options.privacy]
        for rows in (options.cut, options.rows):
            path = folder / f"{rows}.parquet"
            write_log(path, rows)

            def case(family: str, privacy: str, path: Path = path, rows: int = rows) -> None:
                found = {}
                for where in ("memory", "file") if rows == options.cut else ("file",):
                    out = folder / f"{family}-{privacy}-{where}.npz"
                    found = in_process(str(path), family, privacy, where, str(out))
                    seconds = " | ".join(f"{found[part]:,.0f}" for part in ("read", "learn", "wall"))
                    named = f"| {rows:,} rows, in {where} | {family} | {privacy} "
                    print(f"{named}| {seconds} | {found['peak'] / 1e6:,.0f} |", flush=True)
                if rows == options.cut:
                    outs = [folder / f"{family}-{privacy}-{where}.npz" for where in ("memory", "file")]
                    print(f"<!-- {family}, {privacy}: differ by {largest_difference(*outs):g} at most -->", flush=True)

            with ThreadPoolExecutor(options.processes) as pool:
                list(pool.map(lambda one: case(*one), cases))
            path.unlink()


if __name__ == "__main__":
    main()
