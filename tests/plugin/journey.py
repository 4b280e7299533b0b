"""What a user does with a family of another package (docs/own-family.md), in an environment that has the package.

Arguments: a table of answers, and a folder for everything that is made. Prints one JSON document.
"""

import asyncio
import json
import queue
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from fedrouter.bundle import load
from fedrouter.cli.main import app
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.demo import demo_config
from fedrouter.gateway.server import serve
from fedrouter.gateway.upstream.simulated import Cast, SimulatedServer
from fedrouter.testing.families import FAMILY_CHECKS
from fedrouter.testing.samples import drawn_evaluations
from fedrouter.testing.verbs import check_verb

QUESTION = "Write a SQL query that counts orders by month."


def command(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def served(bundle: Path, folder: Path) -> dict:
    """One routed chat completion from a gateway that serves the bundle, over simulated upstreams."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    upstreams = SimulatedServer(Cast())
    asyncio.run_coroutine_threadsafe(upstreams.start(), loop).result(60)
    try:
        config = demo_config(folder, upstreams.url, ServerConfig(port=0, auth=False))
        config = config.replace(routing=config.routing.replace(bundle=str(bundle)))
        urls, servers = queue.SimpleQueue(), []
        serving = (config, lambda url, key: urls.put(url), None, servers.append)
        threading.Thread(target=serve, args=serving, daemon=True).start()
        body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": QUESTION}]}).encode()
        with urllib.request.urlopen(f"{urls.get(timeout=60)}/v1/chat/completions", body, timeout=60) as answer:
            choices, said = json.load(answer)["choices"], answer.headers
        servers[0].should_exit = True
        return {"model": said["x-fedrouter-model"], "reason": said["x-fedrouter-reason"], "choices": len(choices)}
    finally:
        asyncio.run_coroutine_threadsafe(upstreams.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)


def main(table: Path, out: Path) -> None:
    asked = ("--router", "median", "--clients", 3, "--seed", 1, "--privacy", "open")  # the table is too small for more
    simulated = command("simulate", "--data", table, *asked, "--out", out / "simulate")
    bundle = Path(simulated["bundle"])
    where = ("--data", table, "--seeds", 1, "--jobs", 1, "--out", out / "reproduce")
    reproduced = command("reproduce", "global", "--router", "median", *where)
    router = load(bundle).router
    contract = {}
    for check in FAMILY_CHECKS:
        try:
            check(FAMILIES["median"])
        except Exception as error:
            contract[check.__name__] = repr(error)
    rows = drawn_evaluations(200)
    try:
        verb = VERBS["cost_histogram"]
        check_verb(verb, rows, verb.request(rows.pool.names, np.geomspace(1e-7, 1, 8)))
    except Exception as error:
        contract["check_verb"] = repr(error)
    print(
        json.dumps(
            {
                "families": list(FAMILIES),
                "verbs": list(VERBS),
                "help": CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "400"}).output,
                "simulated": simulated["results"]["federated"],
                "bundle": str(bundle),
                "reproduced": reproduced["experiments"]["global"]["summary"],
                "claims": [claim["name"] for claim in reproduced["claims"]],
                "family": router.family,
                "known_models": int(np.isfinite(router.estimate(np.zeros(router.dimension)).accuracy).sum()),
                "routed": command("route", bundle, QUESTION, "--tradeoff", 100),
                "served": served(bundle, out),
                "contract": contract,
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
