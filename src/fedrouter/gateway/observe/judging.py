"""Background judging: answers wait in a bounded queue, and the panel's scores are written to the log."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Self

import orjson

from fedrouter.errors import FedrouterError
from fedrouter.gateway.apis import CHAT, Usage, cost_of
from fedrouter.gateway.config import Config, Upstream
from fedrouter.gateway.upstream.bodies import MAX_TEXT
from fedrouter.gateway.upstream.upstreams import Upstreams
from fedrouter.learning.judges import CallModel, ModelAnswer, Panel, PricedModel, judge_of
from fedrouter.store.records import Record
from fedrouter.store.writer import OutboxWriter

LOG = logging.getLogger("fedrouter.gateway")
MAX_WAITING = 200
"""Answers that may wait to be judged; while the queue is full, new answers are not judged."""


class JudgeQueue:
    """Takes answers from the request path without ever delaying it."""

    def __init__(self, panel: Panel, share: float, writer: OutboxWriter) -> None:
        self.panel, self._share, self._writer = panel, share, writer
        self._queue: asyncio.Queue[tuple[str, Mapping[str, Any], str]] = asyncio.Queue(MAX_WAITING)
        self.dropped = 0

    @classmethod
    def of(cls, config: Config, upstreams: Upstreams, writer: OutboxWriter, workers: int = 1) -> Self | None:
        """The queue of one of some worker processes, which share what judges may cost; None if there are no judges."""
        if not config.judges.list:
            return None
        models = {
            model.name: PricedModel(model.name, _caller(model, upstreams), model.input_price, model.output_price)
            for model in config.models
        }
        judges = [judge_of(judge.kind, judge.settings, models) for judge in config.judges.list]
        panel = Panel(judges, config.judges.daily_budget / workers)
        return cls(panel, config.judges.share, writer)

    def offer(self, record: Record, body: Mapping[str, Any], text: str) -> None:
        """Queue an answer for judging, if it is sampled and there is room."""
        if len(text) > MAX_TEXT or (self._share < 1 and random.random() >= self._share):
            return
        try:
            self._queue.put_nowait((record.id, body, text))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Judge answers one after another, until cancelled."""
        while True:
            decision, body, text = await self._queue.get()
            try:
                found = await self.panel.score(body, text)
                if found is not None:
                    await self._writer.score(decision, found.score, found.by)
            except FedrouterError as error:
                LOG.error("a judge's score was not stored: %s", error)
            except Exception as error:  # one answer must not end judging; the message may quote it
                LOG.error("an answer was not judged: %s", type(error).__name__)


def _caller(model: Upstream, upstreams: Upstreams) -> CallModel:
    async def call(messages: Sequence[Mapping[str, str]], max_tokens: int) -> ModelAnswer:
        request = {"model": model.target, "messages": list(messages), "max_tokens": max_tokens, "temperature": 0}
        body = orjson.dumps(request)
        found = await upstreams.complete([model.name], lambda _: body, streamed=False)
        usage = Usage.of(found.document.get("usage")) if found.document else None
        if usage is None:
            raise ValueError("no usage")  # the panel then charges the maximum
        return ModelAnswer(CHAT.answer(found.document)[0], cost_of(usage, model))

    return call
