"""The gateway beside LiteLLM's proxy: requests a second, added latency, memory and start-up time, in one run.

Both forward to the same upstream, which answers at once; it and the load are processes of their own (traffic.py).
Writes docs/results/gateway.md. LiteLLM wants an environment of its own:

    python3 -m venv out/litellm-venv && out/litellm-venv/bin/pip install 'litellm[proxy]'
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
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.gateway.demo import BASELINE, DEFAULT, demo_bundle
from gateway_page import Page, Server
from traffic import Measured

PROJECT = Path(__file__).parents[1]
CONCURRENCY = (1, 8, 32, 128)
STREAMED = (1, 32)
PROMPTS = 256
ONNX = """
import sys
from fedrouter.encoders.onnx import OnnxEncoder
from fedrouter.gateway import config_file, gateway, server
read = config_file.read_config(sys.argv[1])
def ready(url, key): print(f'{{"url": "{url}", "key": "{key}"}}', flush=True)
server.serve(read, ready, lambda: gateway.open_gateway(read, lambda identity: OnnxEncoder(identity.name).encode))
"""
"""The gateway with the ONNX encoder."""


@dataclass
class Running:
    """A server under test; seconds from its start until it listened and until it was ready."""

    process: subprocess.Popen[str]
    url: str
    key: str = "none"
    listens: float = 0.0
    ready: float = 0.0

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


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


def fetch(url: str, key: str = "", body: dict | None = None) -> str | None:
    """The body of a response, or None if there is none (yet)."""
    data = json.dumps(body).encode() if body else None
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
            return answer.read().decode()
    except OSError:
        return None


def completion(server: Running, model: str, text: str) -> str | None:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return fetch(f"{server.url}/v1/chat/completions", server.key, body)


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
def fedrouter(folder: Path, upstream: str, onnx: bool = False) -> Iterator[Running]:
    """The gateway as a user starts it: keys on, every request logged, a router over the demo's five models."""
    folder.mkdir()
    demo_bundle(folder / "bundle")
    prices = [(each.model.name, each.model.input_price, each.model.output_price) for each in CAST]
    models = [
        {"model_name": name, "input_price": prompt, "output_price": answer, "params": {"api_base": f"{upstream}/v1"}}
        for name, prompt, answer in prices
    ]
    routing = {"bundle": "bundle", "default_model": DEFAULT, "baseline_model": BASELINE}
    port, path = free_port(), folder / "gateway.yaml"
    config = {"model_list": models, "routing": routing, "server": {"port": port}}
    path.write_text(json.dumps(config | {"store": f"sqlite:///{folder / 'log.db'}"}, indent=1))
    usual = [str(Path(sys.executable).parent / "fedrouter"), "serve", "--json", "--config", str(path)]
    begun = time.perf_counter()
    with started("fedrouter", [sys.executable, "-c", ONNX, str(path)] if onnx else usual, folder) as process:
        until(process, lambda: fetch(f"http://127.0.0.1:{port}/health/live"))
        listens = time.perf_counter() - begun
        ready = json.loads(process.stdout.readline())  # printed once the encoder is loaded
        yield Running(process, ready["url"], ready["key"], listens, time.perf_counter() - begun)


@contextmanager
def litellm(folder: Path, upstream: str, venv: Path) -> Iterator[Running]:
    """LiteLLM's proxy with one model, a master key, no database, one worker; its price list is the one it brings."""
    params = {"model": "openai/instant", "api_base": f"{upstream}/v1", "api_key": "none"}
    (folder / "litellm.yaml").write_text(
        json.dumps({"model_list": [{"model_name": "instant", "litellm_params": params}]})
    )
    port, key = free_port(), f"sk-{secrets.token_hex(32)}"
    command = [str(venv / "bin" / "litellm"), "--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
    begun = time.perf_counter()
    with started("litellm", command, folder, LITELLM_MASTER_KEY=key, **quiet) as process:
        server = Running(process, f"http://127.0.0.1:{port}", key)
        until(process, lambda: fetch(f"{server.url}/health/liveliness"))
        server.listens = time.perf_counter() - begun
        until(process, lambda: completion(server, "instant", "Hello?"))
        server.ready = time.perf_counter() - begun
        yield server


def measure(
    server: Running, model: str, texts: list[str], concurrency: int, seconds: float, streamed: bool
) -> Measured:
    job = {"url": server.url, "key": server.key, "model": model, "texts": texts, "streamed": streamed}
    job |= {"concurrency": concurrency, "seconds": seconds}
    done = subprocess.run(traffic("load"), input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True)
    found = Measured(**json.loads(done.stdout))
    if set(found.statuses) != {"200"}:
        raise SystemExit(f"{model} at {server.url}: expected only 200, got {found.statuses}")
    return found


def first_requests(gateway: Running, texts: list[str]) -> float:
    """Milliseconds of a request whose text has to be encoded, the median; afterwards every embedding is cached."""
    taken = []
    for text in texts:
        begun = time.perf_counter()
        if completion(gateway, "auto", text) is None:
            raise SystemExit("the gateway did not answer")
        taken.append((time.perf_counter() - begun) * 1000)
    return statistics.median(taken)


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


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("--litellm-venv", type=Path, default=PROJECT / "out" / "litellm-venv")
    given.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    given.add_argument("--rounds", type=int, default=3)
    given.add_argument("--out", type=Path, default=PROJECT / "docs" / "results" / "gateway.md")
    chosen = given.parse_args()
    if not (chosen.litellm_venv / "bin" / "litellm").exists():
        raise SystemExit(f"{chosen.litellm_venv}: no LiteLLM there; {__doc__.split('own:')[1]}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that the servers are stopped too
    texts = list(dict.fromkeys(simulated_world().evaluations.text or ()))[:PROMPTS]
    others, load = Others(), os.getloadavg()[0]
    cells: dict[tuple[str, int, bool], list[Measured]] = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedrouter-bench-")))
        process = stack.enter_context(started("upstream", traffic("upstream"), folder))
        upstream = Running(process, f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}")
        with fedrouter(folder / "onnx", upstream.url, onnx=True) as gateway:
            idle = gateway.megabytes
            first = first_requests(gateway, texts)
            with_onnx = Server(gateway.listens, gateway.ready, idle, gateway.megabytes, first)
        gateway = stack.enter_context(fedrouter(folder / "torch", upstream.url))
        proxy = stack.enter_context(litellm(folder, upstream.url, chosen.litellm_venv))
        idle, idle_proxy = gateway.megabytes, proxy.megabytes
        first = first_requests(gateway, texts)
        targets = {
            "upstream": (upstream, "instant"),
            "routed": (gateway, "auto"),
            "named": (gateway, DEFAULT),
            "litellm": (proxy, "instant"),
        }
        for server, model in targets.values():  # loads what is loaded lazily
            for streamed in (False, True):
                measure(server, model, texts, 8, 1.0, streamed)
        before = counters(gateway)
        for _ in range(chosen.rounds):
            for streamed, concurrencies in ((False, CONCURRENCY), (True, STREAMED)):
                for concurrency in concurrencies:
                    for name, (server, model) in targets.items():
                        found = measure(server, model, texts, concurrency, chosen.seconds, streamed)
                        cells[name, concurrency, streamed].append(found)
                        shown = f"{found.rate:,.0f}/s, p50 {found.p50:.2f} ms, p99 {found.p99:.2f} ms"
                        print(name, concurrency, "streamed" * streamed, shown, file=sys.stderr)
        after = counters(gateway)
        # Check what the page claims: nothing was encoded, and every request is in the log.
        for outcome in ("misses", "late", "failed"):
            name = f'fedrouter_encoder_asks{{outcome="{outcome}"}}'
            assert before[name] == after[name], (name, before[name], after[name])
        answered = sum(
            found.statuses["200"] for (name, *_), all in cells.items() for found in all if name in ("routed", "named")
        )
        with closing(sqlite3.connect(folder / "torch" / "log.db")) as log:
            reasons = Counter(dict(log.execute("SELECT reason, count(*) FROM decisions GROUP BY reason")))
            (logged,) = log.execute("SELECT count(*) FROM decisions WHERE status = 'ok'").fetchone()
        assert logged >= answered + len(texts), (logged, answered)
        servers = {
            "fedrouter": Server(gateway.listens, gateway.ready, idle, gateway.megabytes, first),
            "onnx": with_onnx,
            "litellm": Server(proxy.listens, proxy.ready, idle_proxy, proxy.megabytes),
        }
    version = subprocess.run(
        [chosen.litellm_venv / "bin" / "python", "-c", "import importlib.metadata as m; print(m.version('litellm'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    page = Page(
        cells,
        servers,
        reasons,
        logged,
        len(texts),
        others.cores(),
        load,
        chosen.seconds,
        chosen.rounds,
        {"fedrouter": importlib.metadata.version("fedrouter"), "LiteLLM": version},
    )
    chosen.out.write_text(page.text())
    print(page.text())


if __name__ == "__main__":
    main()
