"""The gateway beside LiteLLM's proxy and Portkey's gateway: throughput, added latency, memory, start, in one run.

All forward to the same upstream, which answers at once; it and the load are processes of their own (traffic.py).
Writes out/gateway.md. The others want environments of their own:

    python3 -m venv out/litellm-venv && out/litellm-venv/bin/pip install 'litellm[proxy]'
    npm install --prefix out/portkey @portkey-ai/gateway
    .venv/bin/python benchmarks/gateway.py
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import resource
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import PIPE

import traffic as traffic_of
from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.gateway.demo import BASELINE, DEFAULT, demo_bundle
from gateway_page import MANY, STREAMS, Page, Server, taking_part
from traffic import Measured

PROJECT = Path(__file__).parents[1]
CONCURRENCY = (1, 8, 32, 128)
STREAMED = (1, 32)
WORKERS, LOADED = 2, 32
"""The part of the run with several workers each: how many, at how many connections."""
PACED_STREAMS = ((200, 1.0), (400, 0.5))
"""How many streams with a pace at the same time, and for which share of `--paced` seconds."""
PROMPTS = 256
PORTKEY = Path("node_modules/@portkey-ai/gateway")
CLUSTER = """
import cluster from 'node:cluster';
const [program, workers] = process.argv.slice(2, 4);
if (cluster.isPrimary) for (let i = 0; i < workers; i++) cluster.fork();
else { process.argv.splice(2, 2); await import(program); }
"""
"""Portkey has no workers of its own: processes of Node's cluster module, which share a port."""
WORKLOADS: dict[str, int | None] = {"cached": None, "unique 100": 100, "unique 1,500": 1500}
"""Characters of prompts that are never repeated; None for the 256 short ones, whose embeddings are in the cache."""


@dataclass
class Running:
    """A server under test; seconds from its start until it listened and until it was ready."""

    process: subprocess.Popen[str]
    url: str
    key: str = "none"
    listens: float = 0.0
    ready: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def megabytes(self) -> float:
        """Memory of the process and of those that it started; what several share is counted once (Pss)."""
        found = [re.findall(r"^Pss:\s+(\d+)", (each / "smaps_rollup").read_text(), re.M) for each in self._processes]
        return sum(int(kilobytes[0]) for kilobytes in found if kilobytes) / 1024

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the process and of those that it started."""
        spent = [(each / "stat").read_text().rpartition(")")[2].split()[11:13] for each in self._processes]
        return sum(int(user) + int(system) for user, system in spent) / os.sysconf("SC_CLK_TCK")

    @property
    def _processes(self) -> list[Path]:
        """The process and all that come from it: any of its threads may have started another."""
        found = [Path(f"/proc/{self.process.pid}")]
        for each in found:
            children = " ".join((thread / "children").read_text() for thread in each.glob("task/*"))
            found += [Path(f"/proc/{pid}") for pid in children.split()]
        return found


Target = tuple[Running, str]
"""A server, and the model to ask it for."""


@contextmanager
def started(name: str, command: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder, env=os.environ | environment
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)
            if process.returncode not in (0, -15):
                print((folder / f"{name}.log").read_text()[-2000:], file=sys.stderr)


def traffic(role: str) -> list[str]:
    return [sys.executable, str(PROJECT / "benchmarks" / "traffic.py"), role]


@contextmanager
def upstream_in(folder: Path) -> Iterator[Running]:
    with started("upstream", traffic("upstream"), folder) as process:
        yield Running(process, f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}")


def fetch(url: str, key: str = "", body: dict | None = None, more: Mapping[str, str] | None = None) -> str | None:
    """The body of a response, or None if there is none (yet)."""
    data = json.dumps(body).encode() if body else None
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", **(more or {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
            return answer.read().decode()
    except OSError:
        return None


def completion(server: Running, model: str, text: str) -> str | None:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return fetch(f"{server.url}/v1/chat/completions", server.key, body, server.headers)


def until(process: subprocess.Popen[str], answers) -> None:
    end = time.perf_counter() + 300
    while answers() is None:
        if process.poll() is not None or time.perf_counter() > end:
            raise SystemExit(f"{process.args[0]} does not start")
        time.sleep(0.02)


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def fedrouter(folder: Path, upstream: str, workers: int = 1, more: Sequence[str] = ()) -> Iterator[Running]:
    """The gateway as a user starts it: keys on, every request logged, the default router over the demo's models.

    ``more``: models that are asked by name.
    """
    folder.mkdir()
    demo_bundle(folder / "bundle")
    prices = [(each.model.name, each.model.input_price, each.model.output_price) for each in CAST]
    models = [
        {"model_name": name, "input_price": prompt, "output_price": answer, "params": {"api_base": f"{upstream}/v1"}}
        for name, prompt, answer in [*prices, *((name, 0.0, 0.0) for name in more)]
    ]
    routing = {"bundle": "bundle", "default_model": DEFAULT, "baseline_model": BASELINE}
    port, path = free_port(), folder / "gateway.yaml"
    config = {"model_list": models, "routing": routing, "server": {"port": port}}
    path.write_text(json.dumps(config | {"store": f"sqlite:///{folder / 'log.db'}"}, indent=1))
    usual = [str(Path(sys.executable).parent / "fedrouter"), "serve", "--json", "--config", str(path)]
    usual += ["--workers", str(workers)] if workers > 1 else []
    begun = time.perf_counter()
    with started("fedrouter", usual, folder) as process:
        until(process, lambda: fetch(f"http://127.0.0.1:{port}/health/live"))
        listens = time.perf_counter() - begun
        ready = json.loads(process.stdout.readline())  # printed once the encoder is loaded
        yield Running(process, ready["url"], ready["key"], listens, time.perf_counter() - begun)


@contextmanager
def litellm(folder: Path, upstream: str, venv: Path, workers: int = 1) -> Iterator[Running]:
    """LiteLLM's proxy with one model, a master key and no database; its price list is the one it brings."""
    params = {"model": "openai/instant", "api_base": f"{upstream}/v1", "api_key": "none"}
    (folder / "litellm.yaml").write_text(
        json.dumps({"model_list": [{"model_name": "instant", "litellm_params": params}]})
    )
    port, key = free_port(), f"sk-{secrets.token_hex(32)}"
    command = [str(venv / "bin" / "litellm"), "--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--num_workers", str(workers), "--telemetry", "False"]
    command += ["--timeout_worker_healthcheck", "120"]  # on a busy machine its workers start in more than 5 s
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
    begun = time.perf_counter()
    with started("litellm", command, folder, LITELLM_MASTER_KEY=key, **quiet) as process:
        server = Running(process, f"http://127.0.0.1:{port}", key)
        until(process, lambda: fetch(f"{server.url}/health/liveliness"))
        server.listens = time.perf_counter() - begun
        until(process, lambda: completion(server, "instant", "Hello?"))
        server.ready = time.perf_counter() - begun
        yield server


@contextmanager
def portkey(folder: Path, upstream: str, packages: Path, workers: int = 1) -> Iterator[Running]:
    """Portkey's gateway, without a config: the provider and its address are in each request's headers."""
    port = free_port()
    program = str(packages.absolute() / PORTKEY / "build" / "start-server.js")
    command = ["node", program, f"--port={port}", "--headless"]
    if workers > 1:
        (folder / "cluster.mjs").write_text(CLUSTER)
        command[1:2] = [str(folder / "cluster.mjs"), program, str(workers)]
    begun = time.perf_counter()
    trusted = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
    with started("portkey", command, folder, **trusted) as process:
        headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{upstream}/v1"}
        server = Running(process, f"http://127.0.0.1:{port}", headers=headers)
        until(process, lambda: fetch(server.url))
        server.listens = time.perf_counter() - begun
        until(process, lambda: completion(server, "instant", "Hello?"))
        server.ready = time.perf_counter() - begun
        yield server


def measure(target: Target, texts: list[str], workload: str, concurrency: int, seconds: float) -> Measured:
    server, model = target
    headers = {"authorization": f"Bearer {server.key}", **server.headers}
    job = {"url": server.url, "headers": headers, "model": model, "texts": texts, "streamed": workload == STREAMS}
    job |= {"characters": WORKLOADS.get(workload), "seed": secrets.randbits(32)}
    job |= {"concurrency": concurrency, "seconds": seconds}
    before = server.cpu_seconds
    done = subprocess.run(traffic("load"), input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True)
    found = Measured(**json.loads(done.stdout))
    if set(found.statuses) != {"200"}:
        raise SystemExit(f"{model} at {server.url}: expected only 200, got {found.statuses}")
    return replace(found, cpu=(server.cpu_seconds - before) * 1000 / found.statuses["200"])


def paced(folder: Path, upstream: Running, texts: list[str], seconds: float) -> list[str]:
    """Rows of a table: streams of 40 tokens at 20 tokens a second, asked directly and through the gateway.

    Every answer must be whole, and have its row in the log.
    """
    rows = []
    with fedrouter(folder / "paced", upstream.url, more=[traffic_of.PACED]) as gateway:
        made = fetch(f"{gateway.url}/v1/keys", gateway.key, {"name": "second"})
        second = json.loads(made or "{}")["token"]
        log = sqlite3.connect(folder / "paced" / "log.db")
        for streams, share in PACED_STREAMS:
            for name, target in (("asked directly", upstream), ("through the gateway", gateway)):
                before = log.execute("SELECT count(*) FROM decisions WHERE status = 'ok'").fetchone()[0]
                keys = [target.key] if target is upstream else [gateway.key, second]  # a key may have 256 at a time
                load = {"url": target.url, "model": traffic_of.PACED, "texts": texts, "streamed": True}
                load |= {"characters": None, "seed": 0, "concurrency": streams // len(keys), "seconds": seconds * share}
                load["spread"] = traffic_of.TOKENS / traffic_of.PER_SECOND
                running = [subprocess.Popen(traffic("load"), stdin=PIPE, stdout=PIPE, text=True) for _ in keys]
                for each, key in zip(running, keys, strict=True):
                    each.stdin.write(json.dumps(load | {"headers": {"authorization": f"Bearer {key}"}}))
                    each.stdin.close()
                parts = [Measured(**json.loads(each.stdout.read())) for each in running]
                assert all(set(part.statuses) == {"200"} for part in parts), [part.statuses for part in parts]
                answers = sum(part.statuses["200"] for part in parts)
                worst = max(parts, key=lambda part: part.first_p99)
                after = log.execute("SELECT count(*) FROM decisions WHERE status = 'ok'").fetchone()[0]
                assert name == "asked directly" or after - before >= answers, (before, after, answers)
                rows.append(
                    f"| {streams}, {name} | {answers:,} | {worst.first_p50:.0f} | {worst.first_p99:.0f} "
                    f"| {worst.p99:.0f} |"
                )
                print(rows[-1], file=sys.stderr)
        log.close()
    return rows


def with_workers(
    folder: Path, upstream: Running, texts: list[str], rounds: int, seconds: float, venv: Path, packages: Path
) -> dict[tuple[str, str, int], list[Measured]]:
    """The same with several workers each, which share the cores with the load and the upstream."""
    cells: dict[tuple[str, str, int], list[Measured]] = defaultdict(list)
    folder.mkdir()
    with ExitStack() as stack:
        targets: dict[str, Target] = {
            "upstream": (upstream, "instant"),
            "routed": (stack.enter_context(fedrouter(folder / "fedrouter", upstream.url, WORKERS)), "auto"),
            "portkey": (stack.enter_context(portkey(folder, upstream.url, packages, WORKERS)), "instant"),
            "litellm": (stack.enter_context(litellm(folder, upstream.url, venv, WORKERS)), "instant"),
        }
        for target in targets.values():
            measure(target, texts, "cached", LOADED, 2.0)  # so that each worker has the short prompts in its cache
        for _ in range(rounds):
            for workload in MANY:
                for name, target in targets.items():
                    found = measure(target, texts, workload, LOADED, seconds)
                    cells[name, workload, LOADED].append(found)
                    print(f"{WORKERS} workers,", name, workload, LOADED, f"{found.rate:,.0f}/s", file=sys.stderr)
    return cells


def counters(gateway: Running) -> dict[str, float]:
    page = fetch(f"{gateway.url}/metrics", gateway.key) or ""
    return {name: float(value) for name, value in re.findall(r"^(fedrouter_[^ ]+) ([^ ]+)$", page, re.MULTILINE)}


class Others:
    """Cores that other programs kept busy: all the machine did, less what this program and its children did.

    Children count once they have ended.
    """

    def __init__(self) -> None:
        self._before, self._start = self._seconds(), time.perf_counter()

    def cores(self) -> float:
        return max(0.0, (self._seconds() - self._before) / (time.perf_counter() - self._start))

    @staticmethod
    def _seconds() -> float:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
        everyone = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
        ours = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return everyone - sum(each.ru_utime + each.ru_stime for each in ours)


def encoded(gateway: Running) -> Counter[str]:
    """How many embeddings were found, made, late or failed since the start, by what became of them."""
    found = counters(gateway)
    return Counter(
        {
            kind: int(found[f'fedrouter_encoder_asks{{outcome="{kind}"}}'])
            for kind in ("hits", "misses", "late", "failed")
        }
    )


def version_of(command: list[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("--litellm-venv", type=Path, default=PROJECT / "out" / "litellm-venv")
    given.add_argument("--portkey", type=Path, default=PROJECT / "out" / "portkey", help="npm's --prefix")
    given.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--paced", type=float, help="only streams with a pace, for so many seconds")
    given.add_argument("--out", type=Path, default=PROJECT / "out" / "gateway.md")
    chosen = given.parse_args()
    texts = list(dict.fromkeys(simulated_world().evaluations.text or ()))[:PROMPTS]
    if chosen.paced:
        with tempfile.TemporaryDirectory(prefix="fedrouter-bench-") as name, upstream_in(Path(name)) as upstream:
            print("\n".join(paced(Path(name), upstream, texts, chosen.paced)))
        return
    wanted = (chosen.litellm_venv / "bin" / "litellm", chosen.portkey / PORTKEY / "package.json")
    missing = [path for path in wanted if not path.exists()]
    if missing:
        raise SystemExit(f"{missing[0]}: not there; {__doc__.split('own:')[1]}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the servers are stopped too
    others, load = Others(), os.getloadavg()[0]
    cells: dict[tuple[str, str, int], list[Measured]] = defaultdict(list)
    asked: dict[str, Counter[str]] = defaultdict(Counter)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedrouter-bench-")))
        upstream = stack.enter_context(upstream_in(folder))
        several = with_workers(
            *(folder / "workers", upstream, texts, chosen.rounds, chosen.seconds),
            *(chosen.litellm_venv, chosen.portkey),
        )
        gateway = stack.enter_context(fedrouter(folder / "fedrouter", upstream.url))
        running = {
            "fedrouter": gateway,
            "portkey": stack.enter_context(portkey(folder, upstream.url, chosen.portkey)),
            "litellm": stack.enter_context(litellm(folder, upstream.url, chosen.litellm_venv)),
        }
        idle = {name: server.megabytes for name, server in running.items()}
        targets: dict[str, Target] = {
            "upstream": (upstream, "instant"),
            "routed": (gateway, "auto"),
            "named": (gateway, DEFAULT),
            "portkey": (running["portkey"], "instant"),
            "litellm": (running["litellm"], "instant"),
        }
        # Loads what is loaded lazily; afterwards the short prompts are in the cache.
        for workload in ("cached", STREAMS):
            for target in (targets[name] for name in taking_part(workload)):
                measure(target, texts, workload, 8, 1.0)
        for _ in range(chosen.rounds):
            for workload in (*WORKLOADS, STREAMS):
                for concurrency in CONCURRENCY if workload in WORKLOADS else STREAMED:
                    for name in taking_part(workload):
                        before = encoded(gateway)
                        found = measure(targets[name], texts, workload, concurrency, chosen.seconds)
                        cells[name, workload, concurrency].append(found)
                        if name == "routed":
                            asked[workload] += encoded(gateway) - before
                        shown = f"{found.rate:,.0f}/s, p50 {found.p50:.2f} ms, p99 {found.p99:.2f} ms"
                        print(name, workload, concurrency, shown, file=sys.stderr)
        # Check what the page claims: nothing cached was encoded, and every request is in the log.
        assert not any(asked["cached"][kind] for kind in ("misses", "late", "failed")), asked["cached"]
        answered = sum(
            found.statuses["200"] for (name, *_), all in cells.items() for found in all if name in ("routed", "named")
        )
        with closing(sqlite3.connect(folder / "fedrouter" / "log.db")) as log:
            reasons = Counter(dict(log.execute("SELECT reason, count(*) FROM decisions GROUP BY reason")))
            (logged,) = log.execute("SELECT count(*) FROM decisions WHERE status = 'ok'").fetchone()
        assert logged >= answered, (logged, answered)
        servers = {
            name: Server(server.listens, server.ready, idle[name], server.megabytes) for name, server in running.items()
        }
    asking = "import importlib.metadata as found; print(found.version('litellm'))"
    versions = {
        "fedrouter": importlib.metadata.version("fedrouter"),
        "Portkey": json.loads((chosen.portkey / PORTKEY / "package.json").read_text())["version"],
        "LiteLLM": version_of([chosen.litellm_venv / "bin" / "python", "-c", asking]),
    }
    page = Page(
        *(cells, several, servers, asked, reasons, logged, len(texts)),
        *(others.cores(), load, chosen.seconds, chosen.rounds, versions),
    )
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(page.text())
    print(page.text())


if __name__ == "__main__":
    main()
