"""OpenTelemetry: a span and metrics for each request, by the GenAI semantic conventions, exported by OTLP over HTTP.

Names and numbers only: nothing of a prompt, an answer or a conversation is in any attribute. The conventions are in
development; these are the names of version 1.41 (https://opentelemetry.io/docs/specs/semconv/gen-ai/).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fedrouter.gateway.config import Upstream
from fedrouter.store.records import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from fedrouter.gateway.pipeline import RequestContext

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = tuple(4**power for power in range(14))
"""Bounds of buckets that the conventions recommend."""
EXPORT_SECONDS = 5.0
"""For one export; requests never wait for it."""
TRACE = ("traceparent", "tracestate")
OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}
"""Operations by API; those of the others are `chat`."""
PROVIDERS = {
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.cohere.com": "cohere",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
}
"""Providers that the conventions name, by how their hosts end; others are known by their host."""


class Telemetry:
    """Traces and metrics of one gateway; they are not the process's global ones."""

    def __init__(self, spans: SpanExporter, metrics: MetricReader) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from fedrouter import __version__

        name = os.environ.get("OTEL_SERVICE_NAME", "fedrouter")
        about = Resource.create({"service.name": name, "service.version": __version__})
        self._traces = TracerProvider(resource=about)
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        self._meters = MeterProvider([metrics], resource=about)
        self._tracer = self._traces.get_tracer("fedrouter.gateway", __version__)
        meter = self._meters.get_meter("fedrouter.gateway", __version__)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of a request.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._first_chunk = meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time until a streamed answer begins.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a request.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )

    @classmethod
    def of(cls, endpoint: str | None) -> Telemetry | None:
        """Export to a collector; None without one. Sampling and intervals are OpenTelemetry's, from the environment."""
        if endpoint is None:
            return None
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        from fedrouter.gateway.observe.collector import CollectorSession

        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        base = endpoint.rstrip("/")
        spans = OTLPSpanExporter(f"{base}/v1/traces", timeout=EXPORT_SECONDS, session=CollectorSession())
        metrics = OTLPMetricExporter(f"{base}/v1/metrics", timeout=EXPORT_SECONDS, session=CollectorSession())
        return cls(spans, PeriodicExportingMetricReader(metrics))

    def begin(self, context: RequestContext) -> RequestSpan:
        """Begin the span of a request that was routed, in the trace of its caller; upstreams are told this span."""
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator, headers = TraceContextTextMapPropagator(), context.headers_passed
        parent = propagator.extract({name: headers[name] for name in TRACE if name in headers})
        began = time.time_ns() - int(1e9 * (time.perf_counter() - context.started))
        operation = OPERATIONS.get(context.api.name, "chat")
        span = self._tracer.start_span(operation, context=parent, kind=SpanKind.CLIENT, start_time=began)
        for name in TRACE:
            headers.pop(name, None)
        propagator.inject(headers, context=set_span_in_context(span))
        return RequestSpan(self, span)

    def measure(self, record: Record, about: dict[str, Any], first_chunk: float | None) -> None:
        """Add a request to the metrics."""
        self._duration.record(record.latency_ms / 1000, about)
        if first_chunk is not None:
            self._first_chunk.record(first_chunk, about)
        for kind, count in (("input", record.input_tokens), ("output", record.output_tokens)):
            if count is not None and not record.estimated:
                self._tokens.record(count, about | {"gen_ai.token.type": kind})

    def close(self) -> None:
        """Export what waits, within some seconds: a collector that does not answer holds up no restart."""
        end = time.monotonic() + EXPORT_SECONDS
        last = partial(self._meters.shutdown, timeout_millis=1000 * EXPORT_SECONDS)
        closing = [threading.Thread(target=work, daemon=True) for work in (self._traces.shutdown, last)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, end - time.monotonic()))


@dataclass(eq=False)
class RequestSpan:
    """The span of one request, from its first byte to its row in the log."""

    telemetry: Telemetry
    span: Span

    def end(self, context: RequestContext, record: Record, served: Upstream | None) -> None:
        """The request has its row."""
        chosen = context.config.model(record.chosen)
        model = served or chosen
        about: dict[str, Any] = {
            "gen_ai.operation.name": OPERATIONS.get(context.api.name, "chat"),
            "gen_ai.provider.name": provider_of(model),
            "gen_ai.request.model": chosen.target,
        }
        if served is not None:
            about["gen_ai.response.model"] = served.target
        if record.status != "ok":
            about["error.type"] = record.status
        parts = urlsplit(model.params.api_base)
        about |= {"server.address": parts.hostname or "", "server.port": parts.port or _port(parts.scheme)}
        self.telemetry.measure(record, about, context.first_token)
        more: dict[str, Any] = {
            "gen_ai.request.max_tokens": context.prompt.max_output,
            "gen_ai.request.choice.count": context.prompt.choices if context.prompt.choices > 1 else None,
            "gen_ai.request.stream": context.streamed,
            "gen_ai.response.time_to_first_chunk": context.first_token,
            "gen_ai.usage.input_tokens": record.input_tokens,
            "gen_ai.usage.output_tokens": record.output_tokens,
            "fedrouter.decision.id": record.id,
            "fedrouter.decision.reason": record.reason,
            "fedrouter.decision.tradeoff": record.tradeoff,
            "fedrouter.router.family": record.family,
            "fedrouter.bundle.version": record.version,
            "fedrouter.key.name": context.key_name,
            "fedrouter.cost_usd": record.cost,
            "fedrouter.attempts": record.attempts,
        }
        self.span.update_name(f"{about['gen_ai.operation.name']} {chosen.target}")
        self._finish(about | {name: value for name, value in more.items() if value is not None}, record.status != "ok")

    def give_up(self) -> None:
        """The request ended without a row; does nothing if it has one."""
        if self.span.is_recording():
            self._finish({"error.type": "internal"}, True)

    def _finish(self, attributes: dict[str, Any], failed: bool) -> None:
        from opentelemetry.trace import Status, StatusCode

        self.span.set_attributes(attributes)
        if failed:
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


def provider_of(model: Upstream) -> str:
    """The provider of a model by its address, as the conventions name it; the host itself if they do not."""
    host = urlsplit(model.params.api_base).hostname or "unknown"
    return next((name for end, name in PROVIDERS.items() if f".{host}".endswith(f".{end}")), host)


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80
