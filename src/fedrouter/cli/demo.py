"""`fedrouter demo`: the whole story in the simulated world, with what it measured at each step."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedrouter.cli.gateway.serve import require_gateway
from fedrouter.cli.output import Json, Voice, bars, quoted
from fedrouter.cli.simulate import compared, prepare_folder, written
from fedrouter.errors import FedrouterError

if TYPE_CHECKING:
    from fedrouter.experiments.protocol import Comparison

SEED = 0
FAMILY = "bayes"
QUESTION = "Write a SQL query that counts orders by month."
BAD_ANSWERS = 20
PATIENCE = 60.0
"""Seconds in which the gateway starts, and in which it has learned."""
Post = Callable[[str, Any], Any]


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for report, figures and bundle.")] = Path("out/demo"),
    as_json: Json = False,
) -> None:
    """Show the whole story on this machine: logs, alone and together, what left, a gateway that learns."""
    from fedrouter.data.partition import partition
    from fedrouter.data.simulator import simulated_world
    from fedrouter.federation.families.choice import chosen_settings

    voice = Voice(as_json)
    require_gateway()
    prepare_folder(out, replace=True)
    dataset = simulated_world()
    split = partition(dataset.evaluations, seed=SEED)
    voice.say("[yellow]Simulated:[/] fictional models, random accuracy and cost.")
    _step(voice, 1, "The logs: ten organizations, each with its own kind of queries and its own preferred models")
    _logs(voice, split)
    with bars() as shown:
        # Without cells, whose more features take most of the time of twenty routers.
        settings = {name: each.changed(cells=(0,)) for name, each in chosen_settings(FAMILY).items()}
        comparison = compared(split, settings, SEED, shown)
    document = written(comparison, dataset, SEED, f"fedrouter demo --out {quoted(out)}", out)
    _step(voice, 2, "Alone, and together")
    _gain(voice, comparison)
    _step(voice, 3, "What left each organization")
    left = _what_left(voice, comparison)
    _step(voice, 4, "The router in service, and scores that change it")
    service = _service(voice, Path(document["bundle"]))
    voice.say(f"\nPictures and tables: {document['report']}")
    voice.next(
        f"fedrouter route {quoted(document['bundle'])} {quoted(QUESTION)}",
        "fedrouter serve --demo",
    )
    voice.result(document | {"left": left, "service": service})


def _step(voice: Voice, number: int, title: str) -> None:
    voice.say(f"\n[bold]{number}. {title}[/]\n")


def _logs(voice: Voice, split: Any) -> None:
    def favorite(client: Any) -> tuple[str, float]:
        asked = np.bincount(client.train.model, minlength=len(client.train.pool))
        return client.train.pool.names[int(asked.argmax())], float(asked.max() / asked.sum())

    voice.table(
        ["organization", "rows", "models", "most used"],
        [
            [
                client.name,
                f"{len(client.train):,}",
                str(len(np.unique(client.train.model))),
                "{} ({:.0%})".format(*favorite(client)),
            ]
            for client in split
            if len(client.train)
        ],
        wrapped=("most used",),
    )


def _gain(voice: Voice, comparison: Comparison) -> None:
    """Accuracy of each way of learning, on all queries and on each organization's own."""
    from fedrouter.report.comparison import own_mean

    def cells(title: str, way: str) -> list[str]:
        found = comparison.curves[way][FAMILY].measures()
        return [title, f"{found['global'].aiq:.3f}", f"{found['own'].aiq:.3f}"]

    rows = [
        cells("each alone (mean)", "local"),
        cells("together, with noise", "federated"),
        ["together, then made personal", "", f"{own_mean(comparison, FAMILY).aiq:.3f}"],
        cells("all logs in one place", "centralized"),
        ["best coin toss, with hindsight", f"{comparison.baselines['mix'].measures.aiq:.3f}", ""],
    ]
    voice.table(["mean accuracy over all budgets", "all queries", "own queries"], rows)
    voice.say(f"\nVerdict on the router learned together: {comparison.verdicts[FAMILY].sentence()}")


def _what_left(voice: Voice, comparison: Comparison) -> dict[str, Any]:
    """The size and noise of a release."""
    from fedrouter.federation.noise import Noise
    from fedrouter.routers.bayes import BayesRouter

    router = comparison.routers[FAMILY]
    assert isinstance(router, BayesRouter)
    assert router.total is not None
    numbers, noise = router.total.vector().size, Noise()
    voice.say(
        f"One vector of {numbers:,} numbers ({numbers * 8 / 1000:.0f} KB), once: sums over all its rows, with noise. "
        f"No query, no embedding and no score of its own.\n"
        f"For each query: ε = {noise.epsilon:g}, δ = {noise.delta:g}. Only the total of all ten was used."
    )
    return {"numbers": numbers, "epsilon": noise.epsilon, "delta": noise.delta}


def _service(voice: Voice, bundle: Path) -> dict[str, Any]:
    """Serve the router over HTTP, ask it, score the answers badly, and ask again."""
    with tempfile.TemporaryDirectory(prefix="fedrouter-demo-") as folder:
        shutil.copytree(bundle, Path(folder) / "bundle")
        with _gateway(Path(folder)) as (url, post):
            body = {"model": "auto", "messages": [{"role": "user", "content": QUESTION}]}
            before = post("/v1/route", body)
            model = before["model"]
            voice.say(f'{url}/v1 is asked: "{QUESTION}"')
            voice.say(f"It asks {model}: predicted accuracy {_accuracy(before, model):.2f}.")
            for _ in range(BAD_ANSWERS):
                answer = post("/v1/chat/completions", body | {"model": model})
                post("/v1/feedback", {"id": answer["id"], "score": 0})
            after, end = post("/v1/route", body), time.monotonic() + PATIENCE
            while _accuracy(after, model) > _accuracy(before, model) - 0.01 and time.monotonic() < end:
                time.sleep(0.2)
                after = post("/v1/route", body)
    voice.say(
        f"After {BAD_ANSWERS} of its answers were scored 0: predicted accuracy {_accuracy(after, model):.2f}, and it "
        + (f"asks {after['model']}." if after["model"] != model else "is still asked.")
    )
    found = {"before": _accuracy(before, model), "after": _accuracy(after, model)}
    return {"model": model, "then": after["model"], "accuracy": found}


def _accuracy(decision: Any, model: str) -> float:
    return next(float(entry["accuracy"]) for entry in decision["ranking"] if entry["model"] == model)


@contextmanager
def _gateway(folder: Path) -> Iterator[tuple[str, Post]]:
    """A gateway over simulated models in a thread, and a function that posts to it."""
    from fedrouter.gateway.config import ServerConfig
    from fedrouter.gateway.demo import open_demo, placeholder
    from fedrouter.gateway.server import Service, serve

    server, ready, services, told = ServerConfig(port=0), threading.Event(), list[Service](), list[Any]()

    def say(url: str, key: str | None) -> None:
        told.extend((url, key))
        ready.set()

    def run() -> None:
        serve(placeholder(server), say, lambda: open_demo(folder, server), services.append)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if not ready.wait(PATIENCE):
        raise FedrouterError("demo: the gateway did not start")
    url, key = told

    def post(path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    try:
        yield url, post
    finally:
        services[0].stop()
        thread.join(PATIENCE)
