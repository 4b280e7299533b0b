"""Two versions of the gateway side by side: requests a second and CPU time a request, alternating in one run.

    .venv/bin/python benchmarks/gateway_versions.py --before PATH-OF-AN-OLDER-CHECKOUT

Both serve the same bundle over the same instant upstream with hashed embeddings, so that no encoder is measured. On a
busy machine compare the CPU time of the best round: everything else depends on what else runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.gateway.demo import BASELINE, DEFAULT, demo_bundle
from gateway import Running, measure, started, traffic

PROJECT = Path(__file__).parents[1]
CONNECTIONS = (32, 1)
PROMPTS = 256
SERVER = """
import sys
from fedrouter.data.simulator import simulated_world
from fedrouter.gateway import gateway, server
try:
    from fedrouter.gateway.config_file import read_config
except ImportError:
    from fedrouter.gateway.config import read_config
world, config = simulated_world().evaluations, read_config(sys.argv[1])
known = dict(zip(world.text, world.embeddings))
def encode(texts):
    import numpy as np
    return np.stack([known.get(text, world.embeddings[0]) for text in texts])
def ready(url, key): print(f'{{"url": "{url}", "key": "{key}"}}', flush=True)
server.serve(config, ready, lambda: gateway.open_gateway(config, lambda identity: encode))
"""


def serve(stack: ExitStack, folder: Path, source: Path, bundle: Path, upstream: str) -> Running:
    """A gateway of one version, started from its sources."""
    folder.mkdir()
    models = [
        {
            "model_name": each.model.name,
            "input_price": each.model.input_price,
            "output_price": each.model.output_price,
            "params": {"api_base": f"{upstream}/v1"},
        }
        for each in CAST
    ]
    routing = {"bundle": str(bundle), "default_model": DEFAULT, "baseline_model": BASELINE}
    config = {"model_list": models, "routing": routing, "server": {"port": 0}, "store": f"sqlite:///{folder}/log.db"}
    (folder / "gateway.yaml").write_text(json.dumps(config))
    command = [sys.executable, "-c", SERVER, str(folder / "gateway.yaml")]
    process = stack.enter_context(started("gateway", command, folder, PYTHONPATH=str(source)))
    ready = json.loads(process.stdout.readline())
    return Running(process, ready["url"], ready["key"])


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("--before", type=Path, required=True, help="checkout of the older version")
    given.add_argument("--rounds", type=int, default=6)
    given.add_argument("--seconds", type=float, default=4.0)
    chosen = given.parse_args()
    sources = {"before": chosen.before / "src", "after": PROJECT / "src"}
    texts = list(dict.fromkeys(simulated_world().evaluations.text or ()))[:PROMPTS]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedrouter-bench-")))
        bundle = demo_bundle(folder / "bundle")
        process = stack.enter_context(started("upstream", traffic("upstream"), folder))
        upstream = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        servers = {name: serve(stack, folder / name, source, bundle, upstream) for name, source in sources.items()}
        for server in servers.values():
            measure((server, "auto"), texts, "cached", 8, 2.0)  # fills the caches
        for connections in CONNECTIONS:
            rates: dict[str, list[float]] = {name: [] for name in servers}
            cpu: dict[str, list[float]] = {name: [] for name in servers}
            for number in range(chosen.rounds):
                for name in list(servers) if number % 2 else reversed(list(servers)):
                    found = measure((servers[name], "auto"), texts, "cached", connections, chosen.seconds)
                    rates[name].append(found.rate)
                    cpu[name].append(found.cpu * 1000)
            for what, values, unit, best in (("rate", rates, "/s", max), ("CPU", cpu, " µs", min)):
                shown = ", ".join(f"{name} {statistics.median(each):,.0f}{unit}" for name, each in values.items())
                ratio = statistics.median(values["after"]) / statistics.median(values["before"])
                least = best(values["after"]) / best(values["before"])
                ratios = f"after/before {ratio:.3f} in the median, {least:.3f} in the best round"
                print(f"{connections} connections, {what}: {shown}; {ratios}", flush=True)


if __name__ == "__main__":
    main()
