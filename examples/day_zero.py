"""Day zero: three models with prices, no router, no data. The gateway routes, explores, learns and swaps by itself.

Three fictional models answer on localhost; the config lists them with their prices. After every 600 scored requests the
gateway learns a router, tries it on the logged traffic, and puts it into service or says why not yet; most often
it swaps at 600 or 1,200. It takes a minute (extra: `serve`).

    python examples/day_zero.py
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.gateway.upstream.simulated import Cast, SimulatedServer

NAMES = ("atlas-max", "juniper-open", "cobalt-code")
CONFIG = """
store: sqlite:///{folder}/log.db
server: {{port: 0}}
learning: {{every: 600}}
model_list:
"""
MODEL = '  - {{model_name: {name}, params: {{api_base: "{url}"}}, input_price: {paid_in}, output_price: {paid_out}}}\n'
BATCH, MOST = 600, 3000
"""Autopilot tries after this many requests; where 600 are too few for a clear interval, with as many more."""


def models_on_localhost() -> str:
    """The address of the fictional models."""
    loop, server = asyncio.new_event_loop(), SimulatedServer(Cast(), delay=0)
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    return server.url


def post(url: str, key: str, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response), {name.lower(): value for name, value in response.headers.items()}


def ask(url: str, key: str, prompt: str) -> dict[str, str]:
    """Ask, and score the answer as a user would; the fictional models say how good their answers are."""
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    answer, headers = post(f"{url}/v1/chat/completions", key, body)
    score = {"decision_id": headers["x-fedrouter-decision-id"], "score": answer["simulated"]["accuracy"]}
    post(f"{url}/v1/feedback", key, score)
    return headers


def wait_for(journal: Path, attempts: int) -> list[dict[str, Any]]:
    """What autopilot did, once it has tried so many times."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        lines = journal.read_text().splitlines() if journal.exists() else []
        if len(lines) >= attempts:
            return [json.loads(line) for line in lines]
        time.sleep(0.5)
    raise TimeoutError("autopilot did not try")


def main() -> None:
    prompts = simulated_world().evaluations.text or ()
    order = np.random.default_rng(0).permutation(len(prompts))
    models, address = {each.model.name: each.model for each in CAST}, models_on_localhost()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = CONFIG.format(folder=folder)
        for model in NAMES:
            paid_in, paid_out = models[model].input_price, models[model].output_price
            config += MODEL.format(name=model, url=address, paid_in=paid_in, paid_out=paid_out)
        (folder / "gateway.yaml").write_text(config)
        command = [str(Path(sys.executable).with_name("fedrouter")), "serve", "--json"]
        command += ["--config", str(folder / "gateway.yaml")]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert gateway.stdout is not None
            ready = json.loads(gateway.stdout.readline())
            sent, outcomes = Counter[str](), list[dict[str, Any]]()
            while not (outcomes and outcomes[-1]["swapped"]) and sent.total() < MOST:
                batch = order[sent.total() : sent.total() + BATCH]
                for place, at in enumerate(batch, 1):
                    sent[ask(ready["url"], ready["key"], prompts[at])["x-fedrouter-model"]] += 1
                    if place % 150 == 0:
                        print(f"{sent.total()} requests answered and scored", flush=True)
                outcomes = wait_for(folder / "bundles" / "autopilot.jsonl", sent.total() // BATCH)
                found = outcomes[-1]
                print(f"{sent.total()} requests without a router: {dict(sent.most_common())}")
                print(f"Autopilot {'swapped' if found['swapped'] else 'kept what it had'}: {found['why']}", flush=True)
            for what, unit in (("accuracy", ""), ("cost", " dollars a request")):
                change = found["trial"][what]
                before = found["trial"]["present"][what]["value"]
                print(f"  {what}: {before:.4g}, changes by {change['value']:+.3g} ± {1.96 * change['error']:.2g}{unit}")
            time.sleep(5)  # gateways look for a new bundle every two seconds
            later = [ask(ready["url"], ready["key"], prompts[at]) for at in order[-100:]]
            shares = Counter(headers["x-fedrouter-model"] for headers in later)
            print(f"100 requests with version {later[0]['x-fedrouter-bundle-version']}: {dict(shares.most_common())}")
        finally:
            gateway.terminate()
            gateway.wait(60)


if __name__ == "__main__":
    main()
