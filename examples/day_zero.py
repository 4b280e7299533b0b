"""Day zero: three models with prices, no router, no data. The gateway routes, explores, and learns from every score.

Three fictional models answer on localhost; the config lists them with their prices. Each answer is scored by its own
id, as a user would, and the router changes within seconds. It takes a minute (extra: `serve`).

    python examples/day_zero.py
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
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
model_list:
"""
MODEL = '  - {{model_name: {name}, params: {{api_base: "{url}"}}, input_price: {paid_in}, output_price: {paid_out}}}\n'
BATCH, REQUESTS = 200, 1000


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


def ask(url: str, key: str, prompt: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Ask, and score the answer as a user would; the fictional models say how good their answers are."""
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}]}
    answer, headers = post(f"{url}/v1/chat/completions", key, body)
    post(f"{url}/v1/feedback", key, {"id": answer["id"], "score": answer["simulated"]["accuracy"]})
    return answer, headers


def main() -> None:
    prompts = simulated_world().evaluations.text or ()
    order = np.random.default_rng(0).permutation(len(prompts))
    known, address = {each.model.name: each.model for each in CAST}, models_on_localhost()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = CONFIG.format(folder=folder)
        for model in NAMES:
            paid_in, paid_out = known[model].input_price, known[model].output_price
            config += MODEL.format(name=model, url=address, paid_in=paid_in, paid_out=paid_out)
        (folder / "gateway.yaml").write_text(config)
        command = [str(Path(sys.executable).with_name("fedrouter")), "serve", "--json"]
        command += ["--config", str(folder / "gateway.yaml")]
        gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert gateway.stdout is not None
            ready = json.loads(gateway.stdout.readline())
            for start in range(0, REQUESTS, BATCH):
                models, scores = Counter[str](), []
                for at in order[start : start + BATCH]:
                    answer, headers = ask(ready["url"], ready["key"], prompts[at])
                    models[headers["x-fedrouter-model"]] += 1
                    scores.append(answer["simulated"]["accuracy"])
                version = headers["x-fedrouter-bundle-version"]
                print(
                    f"{start + BATCH} requests, version {version}: score {np.mean(scores):.2f}, {dict(models)}",
                    flush=True,
                )
            request = Request(f"{ready['url']}/v1/usage", headers={"authorization": f"Bearer {ready['key']}"})
            with urlopen(request) as response:
                kept = json.load(response)["quality"]
            print(f"{kept['value']:.0%} of the quality of {kept['best']} for {kept['cost']:.0%} of its cost")
            print(f"95%: {kept['low']:.0%} to {kept['high']:.0%}, {kept['answers']} scored answers")
        finally:
            gateway.terminate()
            gateway.wait(60)


if __name__ == "__main__":
    main()
