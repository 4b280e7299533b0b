"""A real federation for tests: coordinator, SuperLink, members and SuperNodes, each a process, on free ports."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedrouter.data.simulator import simulated_world
from fedrouter.deployment.address import free_port
from fedrouter.deployment.directories import CoordinatorDirectory, MemberDirectory
from fedrouter.deployment.member import opened
from fedrouter.deployment.runs import perform
from fedrouter.federation.policy import Policy

COMMAND = [str(Path(sys.executable).with_name("fedrouter"))]
NAMES = ("bank", "clinic", "school")
JOB = {"family": "bayes", "epsilon": 8.0, "delta": 1e-6, "settings": {}, "days": 7, "consent": True, "wait": 300}


def write_logs(folder, names=NAMES, parts=1, part=0):
    """Logs of the simulated world, two answers a query; ``part`` of ``parts`` of it."""
    world = simulated_world().evaluations
    grid, draw = world.grid(), np.random.default_rng(0)
    for at, name in enumerate(names):
        with (folder / f"{name}.csv").open("a" if part else "w", newline="") as file:
            lines = csv.writer(file)
            if not part:
                lines.writerow(["prompt", "model", "accuracy", "cost"])
            for query in range(at + part * len(names), world.queries, parts * len(names)):
                for model in draw.permutation(4)[:2]:
                    row = (query, model)
                    name_of = world.pool.names[model]
                    lines.writerow([world.text[query], name_of, grid.accuracy[row], grid.cost[row]])


class RealFederation:
    """State directories in a folder, and the processes that work in them."""

    def __init__(self, folder, names=NAMES, directory=None, members=None):
        """``members``: a command and environment variables for the processes of members, in place of our own."""
        self.member_command, self.member_environment = members or (COMMAND, {})
        self.folder, self.names, self.processes = Path(folder), names, {}
        self.made = directory is not None
        self.directory = directory or self.folder / "coordinator"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(180)

    def command(self, *words):
        """What a command says to a machine."""
        done = subprocess.run([*COMMAND, "federation", *map(str, words), "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, key, *words):
        """Start a command that stays; its output is in KEY.output."""
        with (self.folder / f"{key}.output").open("a") as output:
            self.processes[key] = subprocess.Popen(
                [*(self.member_command if key in self.names else COMMAND), "federation", *map(str, words), "--json"],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"} | (self.member_environment if key in self.names else {}),
            )

    def form(self, *options):
        """Make the coordinator and the members, start them all, and admit the members."""
        if not self.made:
            self.command("init", self.directory, "--host", "localhost", "--port", free_port())
        self.start_coordinator()
        for name in self.names:
            log = self.folder / f"{name}.csv"
            self.start(name, "join", self.directory / "invitation", "--log", log, "--dir", self.folder / name, *options)
        self.until(lambda: all((self.folder / n / "request").exists() for n in self.names), "members joined")
        for name in self.names:
            file = self.folder / name / "policy.yaml"
            replace(Policy.read(file), interval_days=0.0).write(file)
        self.command("approve", self.directory, *(self.folder / name / "request" for name in self.names))

    def start_coordinator(self):
        self.start("coordinator", "coordinator", self.directory)

    def start_member(self, name, *options):
        self.start(name, "member", self.folder / name, *options)

    @property
    def coordinator(self):
        return CoordinatorDirectory(self.directory)

    def member(self, name):
        return MemberDirectory(self.folder / name)

    def epoch(self, on_event=lambda line: None, timeout=900.0, **changes):
        """Perform an epoch in this process; the last event and all of them."""
        lines = []

        def follow(line):
            lines.append(line)
            on_event(line)

        job = {**JOB, "seconds": 600.0, "least_rows": 0, **changes}
        return perform(self.coordinator, job, timeout, follow), lines

    def journal(self, name):
        """What a member has released: epoch and number of queries of each."""
        with opened(self.member(name)) as member:
            return [(each.epoch, each.queries) for each in member.journal.releases()]

    def kill(self, key):
        """End a command at once, and nothing that it started."""
        self.processes[key].kill()
        self.processes.pop(key).wait()

    def started_by(self, key, program):
        """Processes of a program that descend from a command."""
        return [pid for pid in descendants(self.processes[key].pid) if program in command_of(pid)]

    @staticmethod
    def until(holds, what, within=180):
        end = time.monotonic() + within
        while not holds():
            assert time.monotonic() < end, f"not within {within} s: {what}"
            time.sleep(0.3)


def descendants(pid):
    """A process and all that come from it, parents first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in descendants(int(child)))]


def command_of(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return ""
    return " ".join(Path(word.decode(errors="replace")).name for word in words[:3])


def kill_all(pids):
    """Kill processes; how many there were."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
