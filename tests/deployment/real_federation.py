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

from fedrouter.deployment.coordinator.enrollment import control_of, enroll, nodes_by_name
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.runs.submission import follow, submit
from fedrouter.deployment.state.credentials import question_signer
from fedrouter.deployment.state.directories import create_client, create_coordinator
from fedrouter.engines.local import LocalFederation

COORDINATOR = """
import sys
from pathlib import Path
from fedrouter.deployment.coordinator.run_coordinator import run_coordinator
from fedrouter.deployment.state.directories import open_coordinator
run_coordinator(open_coordinator(Path(sys.argv[1])), lambda config: print("ready", flush=True), print)
"""
CLIENT = """
import sys
from pathlib import Path
from fedrouter.deployment.client.run_client import run_client
from fedrouter.deployment.state.directories import open_client
run_client(open_client(Path(sys.argv[1])), lambda: print("connected", flush=True), print)
"""


def write_log(path, world, index, clients, queries=150, models=4):
    """A client's share of the simulated world as a log, each prompt with a mark to look for; the marks."""
    everything, draw = world.evaluations, np.random.default_rng(index)
    mine = draw.permutation(np.arange(index, everything.queries, clients))[:queries]
    grid = everything.grid()
    # Full precision, so that no number in them is one that is found anywhere.
    embeddings = (everything.embeddings + draw.normal(0, 1e-3, everything.embeddings.shape)).astype(np.float32)
    rows = [(query, model) for query in mine for model in draw.permutation(models)[:2]]
    marks = [f"CANARY-{path.stem}-{query} {everything.text[query]}" for query, _ in rows]
    table = {
        "prompt": marks,
        "static_embedding": [embeddings[query].tolist() for query, _ in rows],
        "model": [everything.pool.names[model] for _, model in rows],
        "accuracy": [grid.accuracy[row] for row in rows],
        "cost": [grid.cost[row] for row in rows],
    }
    parquet.write_table(pyarrow.table(table), path)
    return marks, embeddings[mine]


class RealFederation:
    """The state directories, and the processes that run in them."""

    def __init__(self, root: Path, world, names):
        self.root, self.names, self.processes, self.marks, self.embeddings = root, names, {}, [], []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.coordinator = create_coordinator(root / "coordinator", ("127.0.0.1",), port)
        self.clients = {}
        (root / "logs").mkdir()
        for index, name in enumerate(names):
            log = root / "logs" / f"{name}.parquet"
            marks, embeddings = write_log(log, world, index, len(names))
            self.marks += marks
            self.embeddings.append(embeddings)
            directory = create_client(root / name, name, f"127.0.0.1:{port}", self.coordinator.authority)
            directory.write_config(replace(directory.config(), log=str(log), privacy={"secure_only": False}))
            enroll(self.coordinator, name, directory.public_key.read_text().strip())
            self.clients[name] = directory
            shutil.copytree(directory.path, root / "mirror" / name)

    def start(self, name="coordinator"):
        program, directory = (COORDINATOR, self.coordinator) if name == "coordinator" else (CLIENT, self.clients[name])
        # What the processes say is kept, to be searched.
        with (self.root / f"{name}.output").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", program, str(directory.path)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_all(self, within=120):
        """Start the coordinator, then the clients, and wait until all are connected."""
        self.start()
        # A client that finds no coordinator waits before it tries again.
        self.until(lambda: control_of(self.coordinator).ready(), "the coordinator answers", within)
        for name in self.names:
            self.start(name)
        self.until(lambda: len(self.online()) == len(self.names), "all clients are connected", within)

    def online(self):
        control = control_of(self.coordinator)
        if not control.ready():
            return set()
        return {name for name, node in nodes_by_name(self.coordinator.config(), control.nodes()).items() if node.online}

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

    def run(self, name, job, on_event=lambda line: None):
        """The bundle's files of a run over the wire, and the lines of its progress."""
        lines = []
        follow(submit(self.coordinator, name, job), lambda line: (lines.append(line), on_event(line)))
        return files(self.coordinator.runs / name / "bundle"), lines

    def in_process(self, folder, job, clients, change=lambda federation: federation):
        """The bundle's files of the same run in this process."""
        folder.mkdir(parents=True)
        sign = question_signer(self.coordinator.authority_key)
        perform(job, change(LocalFederation(clients)), folder, ProgressLog(folder), sign=sign, keys=self.keys())
        return files(folder / "bundle")

    def keys(self):
        return {name: client.public_key for name, client in self.coordinator.config().roster.items()}

    @staticmethod
    def until(holds, what, within=120):
        end = time.monotonic() + within
        while not holds():
            assert time.monotonic() < end, f"not within {within} s: {what}"
            time.sleep(0.5)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def descendants(pid):
    """A process and all that come from it, parents first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in descendants(int(child)))]
