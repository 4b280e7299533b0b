"""Simulated traffic for the demo: a week of requests that were answered by fictional models, and more as time goes by.

The rows are written to the log as if clients had sent the requests; router, prices, scores and propensities are the
demo's, so that everything computed from the log is right for it.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import numpy as np

from fedrouter.data.simulator import simulated_world
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.estimates import choose, utility
from fedrouter.evaluations import Floats
from fedrouter.gateway.apis import Usage, cost_of
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.routing.served import guesses_of, pool_of
from fedrouter.gateway.upkeep import QualityHistory
from fedrouter.gateway.upstream.simulated import Cast
from fedrouter.learning.learner import Learner
from fedrouter.learning.online import Explorer, OnlineRouter
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store.records import Record, new_id

DAYS, REQUESTS, PARTS = 7, 3000, 8
EVERY = 1.5
"""Seconds between two live requests, on average."""
SCORED, FAILED = 0.4, 0.01
"""Shares of requests that are scored, and that fail."""
APPS: dict[str, dict[str, Any]] = {
    "key-search": {"name": "search", "daily_budget": 1.0, "rate_per_minute": 600},
    "key-support": {"name": "support", "daily_budget": 2.0},
    "key-tutor": {"name": "tutor", "daily_budget": 2.0},
}
"""The API keys that send the requests, by id."""


class SimulatedTraffic:
    """Draws requests from the simulated world and records how the gateway's router would have served them."""

    def __init__(self, gateway: Gateway, cast: Cast, seed: int = 0) -> None:
        self._gateway, self._cast, self._draw = gateway, cast, np.random.default_rng(seed)
        self._keys = tuple(APPS)
        self._explorer = Explorer(gateway.config.routing.explore.share, seed)
        world = simulated_world().evaluations
        self._embeddings, self._text, self._task = world.embeddings, world.text or (), world.task or ()

    def moments(self, now: float) -> Floats:
        """When requests of the past days came, oldest first; there are more of them by day than by night."""
        at = self._draw.uniform(now - DAYS * 86_400, now, 4 * REQUESTS)
        busy = 0.55 + 0.45 * np.sin(2 * math.pi * (at / 86_400 - 0.3))
        kept = self._draw.choice(at[self._draw.random(len(at)) < busy], REQUESTS, replace=False)
        return np.sort(kept)

    def record(self, at: float) -> Record:
        """One request at a time."""
        gateway, draw = self._gateway, self._draw
        serving = gateway.bundles.current
        assert serving is not None
        query = int(draw.integers(len(self._text)))
        text, names = self._text[query], gateway.decider.names
        estimates, tradeoff = serving.estimate(self._embeddings[query]), gateway.decider.default_tradeoff(serving)
        known = ~np.isnan(estimates.accuracy)
        best = choose(estimates.accuracy, estimates.cost, tradeoff, known)
        drawn = estimates.draws()
        choice = self._explorer.choose(
            best, utility(drawn, np.broadcast_to(estimates.cost, drawn.shape), tradeoff), known, serving.asked
        )
        chosen = choice.index
        model, answer = gateway.config.models[chosen], self._cast.answer(names[chosen], text)
        usage = Usage(max(1, len(text) // 4), answer.output_tokens)
        failed = bool(draw.random() < FAILED)
        scored = bool(draw.random() < SCORED) and not failed
        return Record(
            id=new_id(at),
            time=at,
            key=self._keys[query % len(self._keys)],
            bundle=serving.digest,
            version=serving.version,
            family=serving.family,
            tradeoff=tradeoff,
            chosen=model.name,
            served=None if failed else model.name,
            status="timeout" if failed else "ok",
            reason="explored" if choice.explored else "best",
            predicted_accuracy=float(estimates.accuracy[chosen]),
            predicted_cost=float(estimates.cost[chosen]),
            propensity=choice.propensity,
            explored=choice.explored,
            embedding=self._embeddings[query].astype("<f4").tobytes(),
            encoder=serving.encoder.name,
            text=text,
            task=self._task[query],
            input_tokens=usage.input_tokens,
            output_tokens=0 if failed else usage.output_tokens,
            cost=None if failed else cost_of(usage, model),
            baseline_cost=None if failed else cost_of(usage, gateway.config.model(gateway.config.baseline_model)),
            latency_ms=float(200 + 8 * usage.output_tokens * draw.lognormal(0, 0.2)),
            overhead_ms=float(draw.lognormal(0.4, 0.4)),
            score=answer.accuracy if scored else None,
            scored_by="simulated" if scored else None,
            scored_at=at if scored else None,
            quality=gateway.decider.default.kept_quality,
        )

    async def write_history(self) -> None:
        """Write the requests of the past days, learn from them day by day, and note what was kept.

        Before anybody looks: sums of hours that are over are kept.
        """
        await asyncio.to_thread(self._write_history)

    def _write_history(self) -> None:
        gateway, config = self._gateway, self._gateway.config
        assert config.routing.bundle is not None
        base = gateway.bundles.prepare(config.routing.bundle)
        assert isinstance(base.router, BayesRouter)
        width, known = map_of_width(base.encoder.dimension), guesses_of(config.models)
        online = OnlineRouter(pool_of(config.models), width, known, base.router)
        learner = Learner(gateway.store, online, base.encoder, config.routing.explore.share)
        history = QualityHistory(gateway.store)
        for part in np.array_split(self.moments(time.time()), PARTS):
            gateway.store.append([self.record(float(moment)) for moment in part])
            version = learner.step(gateway.decider.default.kept_quality)
            gateway.bundles.look(gateway.store)
            if version is not None:
                history.note(version, float(part[-1]))

    async def run(self) -> None:
        """Write one request after another, until cancelled."""
        await self._create_keys()
        while True:
            await asyncio.sleep(float(self._draw.exponential(EVERY)))
            await self._gateway.writer.put(self.record(time.time()))

    async def _create_keys(self) -> None:
        """Create the keys once the operator's is there: that one is made for a store that has none."""
        store = self._gateway.store
        while not await asyncio.to_thread(store.all_keys):
            await asyncio.sleep(0.1)
        for identity, settings in APPS.items():
            store.create_key(**settings, identity=identity)
