"""Judges in the background: answers wait in a short queue, and what a judge says becomes their score."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Self

import orjson

from fedrouter.errors import FedrouterError
from fedrouter.gateway.access.pricing import Usage, cost_of
from fedrouter.gateway.config import Config, Upstream
from fedrouter.gateway.upstream.stream import answer_text
from fedrouter.gateway.upstream.upstreams import Upstreams
from fedrouter.learning.allowance import Allowance
from fedrouter.learning.judges import Answered, AskModel, PricedModel
from fedrouter.learning.panel import Panel, judge_of
from fedrouter.store.records import Record
from fedrouter.store.writer import Writer

LOG = logging.getLogger("fedrouter.gateway")
MOST_WAITING = 200
"""Answers that wait to be judged; when judges are slower than answers, the newest go unjudged."""


class Background:
    """Takes answers from the request path without ever making it wait."""

    def __init__(self, panel: Panel, share: float, writer: Writer) -> None:
        self.panel, self._share, self._writer = panel, share, writer
        self._queue: asyncio.Queue[tuple[str, Mapping[str, Any], str]] = asyncio.Queue(MOST_WAITING)
        self.dropped = 0

    @classmethod
    def of(cls, config: Config, upstreams: Upstreams, writer: Writer) -> Self | None:
        """None where no judge is configured."""
        judging = config.judging
        if not judging.judges:
            return None
        models = {
            model.name: PricedModel(model.name, _asker(model, upstreams), model.input_price, model.output_price)
            for model in config.models
        }
        judges = [judge_of(judge.kind, judge.settings, models) for judge in judging.judges]
        return cls(Panel(judges, Allowance(judging.daily_budget, judging.per_minute)), judging.share, writer)

    def offer(self, record: Record, body: Mapping[str, Any], text: str) -> None:
        if self._share < 1 and random.random() >= self._share:
            return
        try:
            self._queue.put_nowait((record.id, body, text))
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        while True:
            decision, body, text = await self._queue.get()
            try:
                found = await self.panel.score(body, text)
                if found is not None:
                    await self._writer.score(decision, found.score, found.by)
            except FedrouterError as error:
                LOG.error("a judge's score was not stored: %s", error)
            except Exception as error:  # one answer that cannot be judged does not end judging; its text stays out
                LOG.error("an answer was not judged: %s", type(error).__name__)


def _asker(model: Upstream, upstreams: Upstreams) -> AskModel:
    async def ask(messages: Sequence[Mapping[str, str]], most: int) -> Answered:
        body = orjson.dumps({"model": model.model, "messages": list(messages), "max_tokens": most, "temperature": 0})
        found = await upstreams.ask([model.name], lambda _: body, streamed=False)
        usage = Usage.of(found.document.get("usage")) if found.document else None
        if usage is None:
            raise ValueError("no usage")  # the panel then counts the most it can have cost
        return Answered(answer_text(found.document), cost_of(usage, model))

    return ask
