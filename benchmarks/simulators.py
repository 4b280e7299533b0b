"""The same federated averaging in three simulators on two cores: clients a second, and seconds to start.

100 clients of 250 rows, of which 60 train in a round: a network of 768-512-512 with twelve models, batches of 128, one
epoch of AdamW (simulators_task.py). Our local and batched engines, the latter also with matrix products in bfloat16,
pfl-research with a process for each core, and Flower's simulation with an actor for each core. They take turns, each in
a fresh process; a round's time is the median over all turns, and the start is what the first round took longer than
that, from the start of the process on. Processor time is that of all processes of a simulator; it says more than the
clock where other work runs on the machine.

The others want environments of their own:

    python3 -m venv out/pfl-venv && out/pfl-venv/bin/pip install pfl torch
    python3 -m venv out/flower-venv && out/flower-venv/bin/pip install 'flwr[simulation]' torch
    python benchmarks/simulators.py [--turns 5] [--rounds 6] [--environments out]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from simulators_task import (
    ACTIVE,
    BATCH,
    CLIENTS,
    CLIP_NORM,
    DROPOUT,
    EPOCHS,
    HIDDEN,
    LEARNING_RATE,
    MODELS,
    PARTICIPATION,
    ROWS,
    WEIGHT_DECAY,
    rows_of,
)

HERE = Path(__file__).parent
CORES = 2
SAMPLED = 0.2
"""Seconds between two looks at the processor time of a turn."""
HALF = "batched bfloat16"
OURS = ("local", "batched", HALF)
OTHERS = {"pfl-research": ("pfl-venv", "pfl", "pfl"), "Flower": ("flower-venv", "flwr", "flwr[simulation]")}
"""By name: the environment, the package whose version is shown, and what to install."""


def own_rounds(engine: str, rounds: int) -> list[float]:
    """When each round ended, in this process."""
    from fedrouter.engines.batched.engine import BatchedFederation
    from fedrouter.engines.local import LocalFederation
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.client import Client
    from fedrouter.federation.families.mlp import MLPSettings, learn
    from fedrouter.federation.federation import Progress
    from fedrouter.federation.privacy.policy import OPEN
    from fedrouter.pool import ModelPool

    pool = ModelPool([f"model-{number:02d}" for number in range(MODELS)])

    def client(number: int) -> Client:
        points, model, targets = rows_of(number)
        rows = Evaluations(pool, points, range(ROWS), model, targets[:, 0], targets[:, 1])  # type: ignore[arg-type]
        return Client(f"client-{number:03d}", rows, OPEN)

    kinds = {
        "local": LocalFederation,
        "batched": BatchedFederation,
        HALF: partial(BatchedFederation, precision="bfloat16"),
    }
    settings = MLPSettings.paper(
        rounds=rounds,
        participation=PARTICIPATION,
        local_epochs=EPOCHS,
        hidden=HIDDEN,
        dropout=DROPOUT,
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        batch_size=BATCH,
        clip_norm=CLIP_NORM,
    )
    ends: list[float] = []

    def ended(progress: Progress) -> None:
        ends.append(time.time())

    learn(kinds[engine](map(client, range(CLIENTS))), pool, settings, callback=ended)
    return ends


def processor_seconds(mark: str) -> float:
    """What all processes with this text in their environment, and those they started, have used until now.

    Both, because a process that sets its title, as Ray's do, loses its environment there.
    """
    used: dict[int, int] = {}
    parents: dict[int, int] = {}
    marked: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            number = int(folder.name)
            used[number], parents[number] = sum(map(int, fields[11:13])), int(fields[1])
            if mark.encode() in (folder / "environ").read_bytes():
                marked.add(number)

    def counted(number: int) -> bool:
        return number in marked or (number in parents and counted(parents[number]))

    return sum(ticks for number, ticks in used.items() if counted(number)) / os.sysconf("SC_CLK_TCK")


class Simulator:
    """One of them: how it is started, and what was measured of it."""

    def __init__(self, name: str, environments: Path) -> None:
        self.name = name
        self.starts: list[float] = []
        self.rounds: list[float] = []
        self.processor: list[float] = []
        self._python = Path(sys.executable)
        if name in OTHERS:
            folder, _, package = OTHERS[name]
            self._python = environments / folder / "bin" / "python"
            if not self._python.exists():
                sys.exit(
                    f"{name} needs an environment of its own: python3 -m venv {environments / folder} && "
                    f"{environments / folder}/bin/pip install '{package}' torch"
                )
        self.version = self._version("torch")
        engine, _, precision = name.partition(" ")
        own = f"our {engine} engine" + (f", products in {precision}" if precision else "")
        self.shown = f"{name} {self._version(OTHERS[name][1])}" if name in OTHERS else own

    def _version(self, package: str) -> str:
        ask = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
        return subprocess.run([self._python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()

    def turn(self, rounds: int) -> None:
        """A process that trains this many rounds."""
        command = [self._python, HERE / "simulators.py", "--one", self.name, "--rounds", str(rounds)]
        threads = "1"
        if self.name == "pfl-research":
            run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(CORES)]
            command = [self._python, *run, HERE / "simulators_pfl.py", str(rounds)]
        elif self.name == "Flower":
            command = [self._python, HERE / "simulators_flower.py", str(rounds)]
        elif self.name.startswith("batched"):
            threads = str(CORES)
        with tempfile.TemporaryDirectory() as folder:
            ends = Path(folder) / "ends.json"
            given = os.environ | {"OMP_NUM_THREADS": threads, "ENDS": str(ends)}
            log = Path(folder) / "log"
            began, used = time.time(), []
            with log.open("w") as out:
                process = subprocess.Popen(list(map(str, command)), env=given, stdout=out, stderr=out)
                while process.poll() is None:
                    used.append((time.time(), processor_seconds(str(ends))))
                    time.sleep(SAMPLED)
            if process.returncode or not ends.exists():
                sys.exit(f"{self.name} failed: {log.read_text()[-2000:]}")
            moments = json.loads(ends.read_text())
        rounds_taken = [later - earlier for earlier, later in pairwise(moments)]
        self.rounds += rounds_taken
        first, last = np.interp([moments[0], moments[-1]], *zip(*used, strict=True))
        self.processor.append((last - first) / (len(rounds_taken) * ACTIVE))
        self.starts.append(moments[0] - began - statistics.median(rounds_taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--environments", type=Path, default=HERE.parent / "out")
    parser.add_argument("--only", nargs="*", default=[*OURS, *OTHERS])
    parser.add_argument("--one", choices=OURS)
    options = parser.parse_args()
    if options.one:
        Path(os.environ["ENDS"]).write_text(json.dumps(own_rounds(options.one, options.rounds)))
        return
    simulators = [Simulator(name, options.environments.absolute()) for name in options.only]
    for turn in range(options.turns):
        for simulator in simulators:
            simulator.turn(options.rounds)
            print(f"turn {turn + 1}: {simulator.name} {statistics.median(simulator.rounds):.2f} s", file=sys.stderr)
    print("| simulator | torch | clients/s | slowest to fastest round | processor ms a client | seconds to start |")
    print("|---|---|---|---|---|---|")
    for simulator in simulators:
        rates = [ACTIVE / seconds for seconds in sorted(simulator.rounds, reverse=True)]
        rate, start = ACTIVE / statistics.median(simulator.rounds), statistics.median(simulator.starts)
        spread = f"{rates[0]:.0f} to {rates[-1]:.0f}"
        busy = 1e3 * statistics.median(simulator.processor)
        print(f"| {simulator.shown} | {simulator.version} | {rate:.0f} | {spread} | {busy:.0f} | {start:.1f} |")


if __name__ == "__main__":
    main()
