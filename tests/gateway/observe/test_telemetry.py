"""OpenTelemetry: what arrives at a collector, by its own protocol; and that nothing of a prompt does."""

import gzip
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedrouter.gateway.config import Upstream, UpstreamParams
from fedrouter.gateway.observe.telemetry import EXPORT_SECONDS, Telemetry, provider_of
from gateway.running import config_for, eventually

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from fedrouter.gateway.observe.collector import CollectorSession

CANARY = "canary-7f3a prompt"
OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "100", "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_SERVICE_NAME": "routing"}
"""OpenTelemetry's own settings, in milliseconds: a test does not wait for a minute."""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """An OTLP receiver that records what arrives."""

    def __init__(self) -> None:
        received = self.received = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                packed = self.headers.get("content-encoding") == "gzip"
                received.append((self.path, gzip.decompress(body) if packed else body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def spans(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = [ExportTraceServiceRequest.FromString(body) for path, body in self.received if path == "/v1/traces"]
        return [s for each in found for r in each.resource_spans for scope in r.scope_spans for s in scope.spans]

    def metrics(self):
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        found = [ExportMetricsServiceRequest.FromString(body) for path, body in self.received if path == "/v1/metrics"]
        return {
            metric.name: metric
            for each in found
            for resource in each.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def collector():
    found = Collector()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def gateway(collector, start, bundle, upstream, tmp_path_factory):
    behaviors = {"ember-med": "refuses"}
    config = config_for(tmp_path_factory.mktemp("otel"), bundle, upstream.url, behaviors, otlp_endpoint=collector.url)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OFTEN.items():
            patch.setenv(name, value)
        yield start(config)


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_requests_arrive_as_spans_and_metrics_without_their_prompts(gateway, collector, upstream):
    upstream.forget()
    caller = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
    plain = gateway.chat(CANARY, headers=caller, max_tokens=7)
    streamed = gateway.chat(CANARY, stream=True)
    by_id = {}

    def arrived():
        by_id.update((attributes(span).get("fedrouter.decision.id"), span) for span in collector.spans())
        ids = {answer.headers["x-fedrouter-decision-id"] for answer in (plain, streamed)}
        return ids <= by_id.keys() and "gen_ai.client.operation.time_to_first_chunk" in collector.metrics()

    assert eventually(arrived, 30)
    span = by_id[plain.headers["x-fedrouter-decision-id"]]
    record, found = gateway.record(plain), attributes(span)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert upstream.headers[0]["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert upstream.headers[0]["tracestate"] == "a=b"
    assert span.name == f"chat {found['gen_ai.request.model']}"
    assert (found["gen_ai.operation.name"], found["gen_ai.provider.name"]) == ("chat", "127.0.0.1")
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (
        record.input_tokens,
        record.output_tokens,
    )
    assert (found["gen_ai.request.max_tokens"], found["fedrouter.cost_usd"]) == (7, record.cost)
    assert found["fedrouter.decision.reason"] == record.reason
    assert "error.type" not in found
    assert 0 < (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6 <= record.latency_ms + 60_000
    other = by_id[streamed.headers["x-fedrouter-decision-id"]]
    assert attributes(other)["gen_ai.response.time_to_first_chunk"] > 0
    assert other.trace_id.hex() != TRACE
    metrics = collector.metrics()
    assert {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"} <= metrics.keys()
    tokens = metrics["gen_ai.client.token.usage"].histogram.data_points
    assert {attributes(point)["gen_ai.token.type"] for point in tokens} == {"input", "output"}
    assert not any(CANARY.encode() in body or b"canary" in body for _, body in collector.received)


def test_a_failed_request_has_an_error_type(gateway, collector):
    failed = gateway.chat(CANARY, model="ember-med")
    assert failed.status_code >= 400
    decision = failed.headers["x-fedrouter-decision-id"]

    def span():
        return next((s for s in collector.spans() if attributes(s).get("fedrouter.decision.id") == decision), None)

    assert eventually(span, 30)
    assert attributes(span())["error.type"] == gateway.record(failed).status
    assert span().status.code == 2


def test_a_decision_without_a_model_is_not_a_span(gateway, collector):
    before = len(collector.spans())
    assert gateway.http.post("/v1/route", json={"messages": [{"role": "user", "content": CANARY}]}).status_code == 200
    assert gateway.chat(CANARY, model="nobody").status_code == 404
    answer = gateway.chat(CANARY)
    decision = answer.headers["x-fedrouter-decision-id"]
    assert eventually(lambda: decision in {attributes(s).get("fedrouter.decision.id") for s in collector.spans()}, 30)
    assert len(collector.spans()) == before + 1


ENDLESS = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"


@pytest.mark.parametrize("way", ["drips", "floods"])
def test_what_a_collector_sends_back_is_not_waited_for(way):
    ended = threading.Event()

    def answer(server):
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            with suppress(OSError):  # the client has closed it
                connection.sendall(ENDLESS)
                while True:
                    connection.sendall(b"x" * (1 if way == "drips" else 1 << 16))
                    time.sleep(0.01 if way == "drips" else 0)
        ended.set()

    with socket.create_server(("127.0.0.1", 0)) as server, CollectorSession() as session:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        response = session.post(f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces", data=b"x", timeout=60)
        assert (response.status_code, response.content) == (200, b"")
        assert ended.wait(60)


@pytest.mark.slow
def test_a_collector_that_hangs_delays_neither_requests_nor_the_end(start, bundle, upstream, tmp_path):
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        telemetry = Telemetry.of(endpoint)
        for _ in range(5000):  # more than its queue holds
            telemetry._tracer.start_span("chat").end()
        began = time.monotonic()
        telemetry.close()
        assert time.monotonic() - began < 4 * EXPORT_SECONDS  # every batch would wait as long
        gateway = start(config_for(tmp_path, bundle, upstream.url, otlp_endpoint=endpoint))
        assert {gateway.chat(CANARY).status_code for _ in range(50)} == {200}


def test_providers_are_named_as_in_the_conventions():
    def provider(address):
        params = UpstreamParams(api_base=address)
        return provider_of(Upstream(name="m", params=params, input_price=0, output_price=0))

    assert provider("https://api.openai.com/v1") == "openai"
    assert provider("https://mine.openai.azure.com/openai") == "azure.ai.openai"
    assert provider("https://notapi.openai.com.example/v1") == "notapi.openai.com.example"


def test_it_is_off_unless_configured(start, bundle, upstream, tmp_path, collector):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    before, trace = len(collector.received), f"00-{TRACE}-{PARENT}-01"
    upstream.forget()
    assert gateway.chat(CANARY, headers={"traceparent": trace}).status_code == 200
    assert upstream.headers[0]["traceparent"] == trace
    assert len([path for path, _ in collector.received[before:] if path == "/v1/traces"]) == 0
