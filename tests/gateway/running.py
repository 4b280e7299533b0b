"""A running gateway as tests see it, and configs of the simulated cast over a controlled upstream."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2 as httpx

from fedrouter.data.simulator import CAST
from fedrouter.gateway.config import (
    Config,
    ExploreConfig,
    LearningConfig,
    RoutingConfig,
    ServerConfig,
    TimingConfig,
    Upstream,
    UpstreamParams,
)
from fedrouter.gateway.gateway import open_gateway
from fedrouter.gateway.server import Service, serve
from fedrouter.store.store import Store

SQL = "Write a SQL query that counts orders."
NAMES = tuple(character.model.name for character in CAST)
QUICK = TimingConfig(answer=2, retries=1, breaker_rest=0)
PATIENT = QUICK.replace(answer=60)  # where nothing is to time out
SILENT = {"hang", "stalls"}
"""Behaviors that only a timeout ends; every other upstream is slow on a slow machine, and is waited for."""


@dataclass
class Running:
    """A gateway that is up: its address, a key, its log, and a client."""

    url: str
    key: str
    store: Store
    http: httpx.Client
    app: object = None
    config: Config | None = None

    def chat(self, text=SQL, model="auto", headers=None, **more):
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        return self.http.post("/v1/chat/completions", json=body, headers=headers or {})

    def record(self, response):
        return self.store.get(response.headers["x-fedrouter-decision-id"])

    def openai(self, **more):
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key, max_retries=0, timeout=20, **more)


def models_named(*names: str) -> tuple[Upstream, ...]:
    """Models of a config, all at one price, that nobody calls."""
    params = UpstreamParams(api_base="http://127.0.0.1:9/v1")
    return tuple(Upstream(name=name, params=params, input_price=1.0, output_price=1.0) for name in names)


def config_for(folder, bundle, url, behaviors=None, **more) -> Config:
    """The simulated cast at the controlled upstream; a model behaves as ``behaviors`` says, or answers at once."""
    behaviors = behaviors or {}
    models = tuple(
        Upstream(
            name=character.model.name,
            params=UpstreamParams(
                api_base=url,
                model=behaviors.get(character.model.name, behaviors.get("*", "instant")),
                api_key="upstream-secret",
            ),
            input_price=character.model.input_price,
            output_price=character.model.output_price,
            context=character.model.context,
        )
        for character in CAST
    )
    routing = RoutingConfig(
        bundle=str(bundle),
        default_model="atlas-mini",
        baseline_model="atlas-max",
        tradeoff=100.0,
        encoder_timeout=30,  # a busy machine is not a late encoder
        explore=ExploreConfig(share=0.0),
    )
    config = Config(
        models=models,
        routing=routing,
        learning=LearningConfig(enabled=False),
        timing=PATIENT if SILENT.isdisjoint(behaviors.values()) else QUICK,
        server=ServerConfig(port=0),
        store=f"sqlite:///{folder / 'log.db'}",
    )
    return config.replace(**more)


@contextmanager
def served(config: Config, encoder_of=None) -> Iterator[tuple[str, str | None, Service]]:
    """Address, first key and server of a gateway in a thread of its own, which is stopped when the block ends."""
    ready, ended, said, servers = threading.Event(), threading.Event(), [], []

    def run():
        try:
            serve(
                config,
                lambda *told: (said.extend(told), ready.set()),
                lambda: open_gateway(config, encoder_of),
                servers.append,
            )
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert ready.wait(60), "the gateway did not start"
    try:
        yield *said, servers[0]
    finally:
        servers[0].stop()
        assert ended.wait(60), "the gateway did not stop"


def eventually(look, seconds=8.0):
    """Whether something comes true in time; not looked at again then: another worker may be a second behind."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def at_once(calls):
    """Responses of requests that are sent at the same time."""
    found = []
    threads = [threading.Thread(target=lambda call=call: found.append(call())) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def events(response) -> list[dict]:
    """The JSON events of a stream."""
    lines = (line for line in response.text.split("\n") if line.startswith("data: ") and "[DONE]" not in line)
    return [json.loads(line.removeprefix("data: ")) for line in lines]
