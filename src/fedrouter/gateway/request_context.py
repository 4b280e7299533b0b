"""One request on its way: what was decided, what to tell the client about it, and the record it leaves in the log."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import orjson

from fedrouter.gateway.access.pricing import Usage, cost_of
from fedrouter.gateway.config import Config, Upstream
from fedrouter.gateway.http import Headers
from fedrouter.gateway.routing.decision import Decision
from fedrouter.gateway.routing.embedding import Embedder
from fedrouter.gateway.routing.options import Wishes
from fedrouter.gateway.routing.prompt import Ask
from fedrouter.store.records import Record

SHOWN = 20
"""Models of a ranking that fit into a header."""


@dataclass(eq=False)
class Turn:
    """Everything known about one request once it is decided; times are seconds of ``perf_counter``."""

    config: Config
    key: str
    ask: Ask
    wishes: Wishes
    decision: Decision
    streamed: bool
    begun: float
    upstream_seconds: float = 0.0

    def headers(self, served: Upstream | None) -> Headers:
        """What every answer says about its routing: short, and nothing of the prompt."""
        decision, serving = self.decision, self.decision.serving
        shown: Headers = [
            (b"x-fedrouter-decision-id", decision.id.encode()),
            (b"x-fedrouter-reason", decision.reason.encode()),
            (b"x-fedrouter-tradeoff", b"%g" % decision.tradeoff),
            (b"x-fedrouter-overhead-ms", b"%.2f" % self.overhead_ms()),
        ]
        if served is not None:
            shown.append((b"x-fedrouter-model", served.name.encode("latin-1", "replace")))
            if served.name != decision.model:
                shown.append((b"x-fedrouter-instead-of", decision.model.encode("latin-1", "replace")))
        if serving is not None:
            shown.append((b"x-fedrouter-family", serving.family.encode()))
            shown.append((b"x-fedrouter-bundle-version", b"%d" % serving.version))
        if decision.predicted_accuracy is not None and decision.predicted_cost is not None:
            shown.append((b"x-fedrouter-predicted-accuracy", b"%.4f" % decision.predicted_accuracy))
            shown.append((b"x-fedrouter-predicted-cost", b"%.3g" % decision.predicted_cost))
        if self.wishes.explain:
            shown.append(
                (b"x-fedrouter-ranking", orjson.dumps(decision.ranking[:SHOWN]).decode().encode("latin-1", "replace"))
            )
        return shown

    def overhead_ms(self) -> float:
        return (time.perf_counter() - self.begun - self.upstream_seconds) * 1000

    def record(
        self, status: str, served: Upstream | None, usage: Usage | None, attempts: int, embedder: Embedder
    ) -> Record:
        """The row of the log. An encoder that was late may have its embedding by now."""
        decision, serving = self.decision, self.decision.serving
        embedding = decision.embedding
        if embedding is None and self.ask.text:
            embedding = embedder.peek(self.ask.digest)
        baseline = self.config.model(self.config.routing.baseline_model)
        latency = (time.perf_counter() - self.begun) * 1000
        return Record(
            id=decision.id,
            time=time.time(),
            key=self.key,
            bundle=serving.digest if serving else "",
            version=serving.version if serving else 0,
            family=serving.family if serving else "",
            tradeoff=decision.tradeoff,
            chosen=decision.model,
            reason=decision.reason,
            session=self.wishes.session or self.ask.conversation,
            served=served.name if served else None,
            predicted_accuracy=decision.predicted_accuracy,
            predicted_cost=decision.predicted_cost,
            propensity=decision.propensity,
            explored=decision.explored,
            embedding=None if embedding is None else np.asarray(embedding, "<f4").tobytes(),
            encoder=serving.encoder.name if serving else "",
            text=self.ask.text if self.config.keep_text else None,
            task=self.wishes.task,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            cost=cost_of(usage, served) if usage and served else None,
            baseline_cost=cost_of(usage, baseline) if usage and served else None,
            latency_ms=latency,
            overhead_ms=max(0.0, latency - self.upstream_seconds * 1000),
            attempts=max(1, attempts),
            status=status,
            streamed=self.streamed,
            estimated=usage.estimated if usage else None,
        )
