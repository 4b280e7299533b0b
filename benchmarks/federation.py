"""Runs of a real federation: four client processes and a coordinator over TLS, measured with the commands a user types.

Clients connect through a proxy in this process, which counts the bytes on the wire and can delay them. Prints the
exchanges, seconds, bytes and memory of a run of each router, each in a federation of its own;
docs/results/federation.md shows them.

    python benchmarks/federation.py --router kmeans --router bayes
    python benchmarks/federation.py --router kmeans --delay-ms 50     # a round trip of 100 ms
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from delay_proxy import DelayProxy

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
PUSHED = "[Fleet.PushMessages] Push replies"
"""Line of a SuperLink's log for every reply that it receives."""


class Deployment:
    """State directories and processes of a coordinator and its clients, driven by the command line."""

    def __init__(self, root: Path, data: Path, clients: int, delay: float) -> None:
        self.root, self.processes, self.coordinator = root, [], root / "coordinator"
        command("data", "split", "--data", str(data), "--clients", str(clients), "--out", str(root / "logs"))
        logs = (path.stem for path in (root / "logs").glob("client-*.parquet"))
        self.names = sorted(name for name in logs if not name.endswith("-test"))  # of ten, the first is client-01
        port = free_port()
        command("federation", "init", str(self.coordinator), "--host", "localhost", "--port", str(port))
        self.proxy = DelayProxy(port, delay)
        self.proxy.start()
        self._start("federation", "coordinator", str(self.coordinator), "--json")
        for name in self.names:
            address = f"localhost:{self.proxy.port}"
            authority = str(self.coordinator / "ca.pem")
            command(
                "federation", "init", str(root / name), "--client", name, "--coordinator", address, "--ca", authority
            )
            command("federation", "enroll", str(self.coordinator), name, str(root / name / "client.pub"))
        for name in self.names:
            log = str(root / "logs" / f"{name}.parquet")
            self._start("federation", "client", str(root / name), "--log", log, "--no-secure-only", "--json")
        # The same clients in this process, to compare with; before they have sent anything.
        for name in self.names:
            shutil.copytree(root / name, root / "mirror" / name)

    def _start(self, *arguments: str) -> None:
        """Start a command that stays, and wait for the line that says it is ready."""
        process = subprocess.Popen(
            [fedrouter(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline() or '{"error": "ended"}')
        if "error" in said:
            self.stop()
            raise RuntimeError(f"{' '.join(arguments)}: {said['error']}")

    def run(self, router: str, options: list[str]) -> dict:
        """Perform a run and measure it."""
        before = self.proxy.to_clients, self.proxy.from_clients, self._pushed()
        computed = self._computed()
        began = time.monotonic()
        result = command("federation", "run", str(self.coordinator), "--router", router, "--json", *options)
        seconds = time.monotonic() - began
        exchanges = (self._pushed() - before[2]) / len(self.names)
        return {
            "router": router,
            "exchanges": round(exchanges),
            "seconds": seconds,
            "cpu": self._computed() - computed,
            "to_client": (self.proxy.to_clients - before[0]) / len(self.names),
            "from_client": (self.proxy.from_clients - before[1]) / len(self.names),
            "megabytes": self._memory(),
            "same": self._same_in_process(json.loads(result)["run"]),
        }

    def _computed(self) -> float:
        """CPU seconds so far of the commands that ended, the coordinator and the clients, and all their processes."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = [pid for process in self.processes for pid in descendants(process.pid)]
        return ended.ru_utime + ended.ru_stime + sum(map(cpu_seconds, running))

    def _pushed(self) -> int:
        return (self.coordinator / "superlink.log").read_text().count(PUSHED)

    def _same_in_process(self, run: str) -> bool:
        """Whether the in-process engine makes the same bundle from the same clients."""
        from fedrouter.deployment.client.local_client import client_of
        from fedrouter.deployment.runs import job as jobs
        from fedrouter.deployment.runs.perform import perform
        from fedrouter.deployment.runs.progress import ProgressLog
        from fedrouter.deployment.state.credentials import question_signer, read_public_key
        from fedrouter.engines.local import LocalFederation

        folder = self.root / "local" / run
        folder.mkdir(parents=True)
        job = jobs.read(self.coordinator / "runs" / run)
        perform(
            job,
            LocalFederation([client_of(self.root / "mirror" / name) for name in self.names]),
            folder,
            ProgressLog(folder),
            sign=question_signer(self.coordinator / "ca.key"),
            keys={name: read_public_key(self.root / "mirror" / name / "client.pub") for name in self.names},
        )
        return files(folder / "bundle") == files(self.coordinator / "runs" / run / "bundle")

    def _memory(self) -> list[float]:
        """Resident megabytes of each client: its process and all that come from it."""
        return [sum(map(resident, descendants(process.pid))) for process in self.processes[1:]]

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(60)
            process.stdout.close()


def command(*arguments: str) -> str:
    return subprocess.run([fedrouter(), *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def fedrouter() -> str:
    return str(Path(sys.executable).with_name("fedrouter"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in descendants(int(child)))]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # Of the process itself, and of its children that have ended.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def table(rows: list[dict], delay: float) -> str:
    lines = [
        "| router | round trip added | exchanges | seconds | CPU seconds | KB to a client | KB from a client "
        "| MB of memory a client | bundle as in process |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['router']} | {2000 * delay:.0f} ms | {row['exchanges']} | {row['seconds']:.1f} | "
            f"{row['cpu']:.1f} | {row['to_client'] / 1000:,.0f} | "
            f"{row['from_client'] / 1000:,.0f} | {min(row['megabytes']):.0f} to {max(row['megabytes']):.0f} | "
            f"{'yes' if row['same'] else 'NO'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--router", action="append", help="repeatable; default: kmeans and bayes")
    parser.add_argument("--data", type=Path, default=DATA / "routerbench_subset.parquet")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="added to every byte, in each direction")
    parser.add_argument("--option", action="append", default=[], help="passed on to `federation run`; repeatable")
    given = parser.parse_args()
    delay, rows = given.delay_ms / 1000, []
    for router in given.router or ["kmeans", "bayes"]:
        # A federation each: clients remember what they sent, and the copy in this process does not.
        with tempfile.TemporaryDirectory() as folder:
            deployment = Deployment(Path(folder), given.data, given.clients, delay)
            try:
                rows.append(deployment.run(router, given.option))
            finally:
                deployment.stop()
    print(table(rows, delay))


if __name__ == "__main__":
    main()
