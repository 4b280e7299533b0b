"""What an epoch costs between a coordinator and members over TLS, measured with the commands a user types.

Members connect through a proxy in this process, which counts the bytes on the wire, TLS included. What it prints
is in docs/results/federation.md.

    python benchmarks/federation.py
    python benchmarks/federation.py --members 10 --delay-ms 50     # a round trip of 100 ms
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from delay_proxy import DelayProxy

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))


class Deployment:
    """State directories and processes of a coordinator and its members, driven by the command line."""

    def __init__(self, root: Path, logs: list[Path], delay: float) -> None:
        self.root, self.processes, self.coordinator = root, [], root / "coordinator"
        self.names = [path.stem for path in logs]
        port = free_port()
        self.proxy = DelayProxy(port, delay)
        self.proxy.start()
        ports = ("--port", str(self.proxy.port), "--superlink-port", str(port))
        command("federation", "init", str(self.coordinator), "--host", "localhost", *ports)
        self._start("coordinator", str(self.coordinator))
        for path in logs:
            where = ("--log", str(path), "--dir", str(root / path.stem))
            self._start("join", str(self.coordinator / "invitation"), *where)
        requests = [str(root / name / "request") for name in self.names]
        command("federation", "approve", str(self.coordinator), *requests)
        while not all(each["connected"] for each in command_json("federation", "status", self.coordinator)["members"]):
            time.sleep(1)

    def _start(self, *arguments: str) -> None:
        """Start a command that stays, and wait for the line that says it is ready."""
        process = subprocess.Popen(
            [fedrouter(), "federation", *arguments, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline() or '{"error": "ended"}')
        if "error" in said:
            self.stop()
            raise RuntimeError(f"{' '.join(arguments)}: {said['error']}")

    def run(self) -> dict:
        """Perform an epoch and measure it."""
        before, computed = (self.proxy.to_clients, self.proxy.from_clients), self._computed()
        began, clock = time.monotonic(), time.time()
        result = command_json("federation", "run", self.coordinator, "--yes")
        seconds, cpu = time.monotonic() - began, self._computed() - computed
        down, up = self.proxy.to_clients - before[0], self.proxy.from_clients - before[1]
        exchanges = self._exchanges(clock)
        while not all((self.root / name / "verdict.json").exists() for name in self.names):
            time.sleep(1)
        first = self.root / self.names[0]
        return {
            "members": len(result["survivors"]),
            "models": len(command_json("federation", "verify", first)["models"]),
            "queries": result["rows"],
            "numbers": result["numbers"],
            "seconds": round(seconds, 1),
            "exchanges": exchanges,
            "cpu": round(cpu, 1),
            "routers": {
                "seconds": round(time.monotonic() - began - seconds, 1),
                "cpu": round(self._computed() - computed - cpu, 1),
            },
            "bytes": {
                "down": round(down / len(self.names)),
                "up": round(up / len(self.names)),
                "answers": sum(each["bytes"] for each in command_json("federation", "audit", first)["sent"]),
            },
        }

    def _exchanges(self, began: float) -> dict[str, float]:
        """Seconds from the start of the command to the app's first line, and of each exchange."""
        found, since, of = {}, began, "start"
        for line in (self.coordinator / "events.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["event"] == "started" or event.get("outcome") in ("asked", "total") or event["event"] == "done":
                at = datetime.fromisoformat(event["time"]).timestamp()
                found[of] = round(found.get(of, 0.0) + at - since, 1)
                since, of = at, event.get("exchange", "wait")
        return found

    def idle(self, seconds: float) -> float:
        """Bytes a member and minute while nothing is asked, both ways."""
        before = self.proxy.to_clients + self.proxy.from_clients
        time.sleep(seconds)
        return (self.proxy.to_clients + self.proxy.from_clients - before) / len(self.names) / seconds * 60

    def _computed(self) -> float:
        """CPU seconds so far of commands that ended, of the coordinator and the members, and all their processes."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = [pid for process in self.processes for pid in descendants(process.pid)]
        return ended.ru_utime + ended.ru_stime + sum(map(cpu_seconds, running))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(60)
            process.stdout.close()


def command(*arguments: str) -> str:
    done = subprocess.run([fedrouter(), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def command_json(*arguments: object) -> dict:
    return json.loads(command(*map(str, arguments), "--json"))


def logs_of(data: Path, members: int, folder: Path) -> list[Path]:
    """A log for each member: the paper's split of a table, or the logs that are in a folder."""
    if not data.is_dir():
        command("data", "split", "--data", str(data), "--clients", str(members), "--out", str(folder))
        data = folder
    return sorted(path for path in data.iterdir() if path.name.startswith("client-") and "-test" not in path.name)


def fedrouter() -> str:
    return str(Path(sys.executable).with_name("fedrouter"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [pid, *(each for child in children for each in descendants(int(child)))]


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    # Of the process itself, and of its children that have ended.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA / "routerbench_subset.parquet", help="a table, or a folder of client-*.csv"
    )
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="added to every byte, in each direction")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        logs = logs_of(given.data, given.members, Path(folder, "logs"))
        deployment = Deployment(Path(folder), logs, given.delay_ms / 1000)
        try:
            row = {
                "cores": os.cpu_count(),
                "load before": os.getloadavg()[0],
                **deployment.run(),
                "load after": os.getloadavg()[0],
                "idle bytes a minute": deployment.idle(60),
            }
        finally:
            deployment.stop()
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
