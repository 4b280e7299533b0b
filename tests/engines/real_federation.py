"""A coordinator and clients as real processes on loopback, with TLS and enrolled keys, that tests start and kill."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

from fedrouter.deployment.control import Control
from fedrouter.deployment.coordinator import enroll, nodes_by_name
from fedrouter.deployment.flower_run import follow, submit
from fedrouter.deployment.homes import make_client_home, make_coordinator_home
from fedrouter.deployment.perform import perform
from fedrouter.deployment.progress import ProgressLog
from fedrouter.engines.local import LocalFederation

COORDINATOR = """
import sys
from pathlib import Path
from fedrouter.deployment.coordinator import coordinate
from fedrouter.deployment.homes import open_coordinator
coordinate(open_coordinator(Path(sys.argv[1])), lambda charter: print("ready", flush=True), print)
"""
CLIENT = """
import sys
from pathlib import Path
from fedrouter.deployment.homes import open_client
from fedrouter.deployment.node import attend
attend(open_client(Path(sys.argv[1])), lambda: print("connected", flush=True), print)
"""


def write_log(path, world, place, clients, queries=150, models=4):
    """A client's share of the simulated world as a log, each prompt with a mark to look for; the marks."""
    everything, draw = world.evaluations, np.random.default_rng(place)
    mine = draw.permutation(np.arange(place, everything.queries, clients))[:queries]
    grid = everything.grid()
    # Full precision, so that no number in them is one that is found anywhere.
    embeddings = (everything.embeddings + draw.normal(0, 1e-3, everything.embeddings.shape)).astype(np.float32)
    rows = [(query, model) for query in mine for model in draw.permutation(models)[:2]]
    marks = [f"CANARY-{path.stem}-{query} {everything.text[query]}" for query, _ in rows]
    table = {
        "prompt": marks,
        "all_MiniLM_L6_v2_embedding": [embeddings[query].tolist() for query, _ in rows],
        "model": [everything.pool.names[model] for _, model in rows],
        "accuracy": [grid.accuracy[row] for row in rows],
        "cost": [grid.cost[row] for row in rows],
    }
    parquet.write_table(pyarrow.table(table), path)
    return marks, embeddings[mine]


class RealFederation:
    """The homes, and the processes at work in them."""

    def __init__(self, root: Path, world, names):
        self.root, self.names, self.processes, self.marks, self.embeddings = root, names, {}, [], []
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            port = door.getsockname()[1]
        self.home = make_coordinator_home(root / "coordinator", ("127.0.0.1",), port)
        self.clients = {}
        (root / "logs").mkdir()
        for place, name in enumerate(names):
            log = root / "logs" / f"{name}.parquet"
            marks, embeddings = write_log(log, world, place, len(names))
            self.marks += marks
            self.embeddings.append(embeddings)
            home = make_client_home(root / name, name, f"127.0.0.1:{port}", self.home.authority)
            home.write_settings(replace(home.settings(), log=str(log)))
            enroll(self.home, name, home.public_key.read_text().strip())
            self.clients[name] = home
            shutil.copytree(home.path, root / "mirror" / name)

    def start(self, name="coordinator"):
        program, home = (COORDINATOR, self.home) if name == "coordinator" else (CLIENT, self.clients[name])
        # What the processes say is kept, to be searched.
        with (self.root / f"{name}.output").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", program, str(home.path)], stdout=output, stderr=output, start_new_session=True
            )

    def start_all(self):
        self.start()
        for name in self.names:
            self.start(name)
        self.until(lambda: len(self.online()) == len(self.names), "all clients are connected")

    def online(self):
        control = Control(self.home)
        if not control.ready():
            return set()
        return {name for name, node in nodes_by_name(self.home.charter(), control.nodes()).items() if node.online}

    def connections(self, name):
        """How often a client has connected; the coordinator believes a killed one online for a minute."""
        return (self.root / f"{name}.output").read_text().count("connected\n")

    def kill(self, name):
        """As a power cut would: the process and all that descend from it, at once."""
        for pid in reversed(descendants(self.processes[name].pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.processes.pop(name).wait()

    def stop_all(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(60)
        self.processes.clear()

    def run(self, name, job, told=lambda line: None):
        """The bundle's files of a run over the wire, and the lines of its progress."""
        lines = []
        follow(submit(self.home, name, job), lambda line: (lines.append(line), told(line)))
        return files(self.home.runs / name / "bundle"), lines

    @staticmethod
    def until(holds, what, within=120):
        end = time.monotonic() + within
        while not holds():
            assert time.monotonic() < end, f"not within {within} s: {what}"
            time.sleep(0.5)


def in_process(folder, job, clients, change=lambda federation: federation):
    """The bundle's files of the same run in this process."""
    folder.mkdir(parents=True)
    perform(job, change(LocalFederation(clients)), folder, ProgressLog(folder))
    return files(folder / "bundle")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def descendants(pid):
    """A process and all that come from it, parents first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in descendants(int(child)))]
