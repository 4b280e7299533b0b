"""Prometheus metrics of a coordinator: clients, runs, exchanges, answers that were not used, the certificate's end.

Everything is read from the state directory when it is scraped, so a restart loses nothing. Labels are names of clients,
verbs and states; nothing that a client sent.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedrouter.deployment.coordinator.enrollment import control_of, nodes_by_name
from fedrouter.deployment.runs.history import past_runs
from fedrouter.deployment.runs.progress import Tail
from fedrouter.deployment.state.config import split_address
from fedrouter.deployment.state.credentials import valid_until
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.deployment.state.process_lock import cannot_listen
from fedrouter.engines.flower.control import Unreachable
from fedrouter.errors import BadInput, FedrouterError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def metrics(directory: CoordinatorDirectory) -> str:
    """The metrics in Prometheus's text format."""
    config, runs = directory.config(), past_runs(directory)
    lines = [line for run in runs for line in Tail(directory.runs / run.name).lines()]
    exchanges = [line for line in lines if line["event"] == "exchange"]
    dropped = Counter((line["client"], line["verb"]) for line in lines if line["event"] == "dropped")
    finished = [datetime.fromisoformat(line["time"]).timestamp() for line in lines if line["event"] == "done"]
    expiry = valid_until(directory.certificate.read_bytes()).timestamp()
    families: list[tuple[str, str, str, list[Sample]]] = [
        ("clients_enrolled", "gauge", "Clients on the roster.", [({}, len(config.roster))]),
        ("client_online", "gauge", "Whether a client is connected.", _online(directory)),
        ("runs", "gauge", "Runs by state.", _counted("state", (run.state.partition(":")[0] for run in runs))),
        ("bundles", "gauge", "Bundles by status.", _counted("status", (run.bundle for run in runs if run.bundle))),
        ("exchanges_total", "counter", "Exchanges with clients.", [({}, len(exchanges))]),
        ("exchange_seconds_total", "counter", "Time that they took.", [({}, sum(one["seconds"] for one in exchanges))]),
        (
            "answers_not_used_total",
            "counter",
            "Answers that were missing, refused or not valid, by client and verb.",
            [({"client": client, "verb": verb}, count) for (client, verb), count in sorted(dropped.items())],
        ),
        ("last_run_done_timestamp_seconds", "gauge", "When a run was done last.", [({}, max(finished, default=0.0))]),
        ("certificate_expiry_timestamp_seconds", "gauge", "When the server certificate expires.", [({}, expiry)]),
    ]
    return "".join(
        _family(f"fedrouter_federation_{name}", kind, about, samples) for name, kind, about, samples in families
    )


@contextmanager
def serving_metrics(directory: CoordinatorDirectory, address: str) -> Iterator[int]:
    """Answer ``GET /metrics`` at ``host:port`` while the block runs; the port."""
    host, port = split_address(address)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, content = (200, metrics(directory)) if self.path == "/metrics" else (404, "")
            except FedrouterError as error:
                status, content = 500, f"{error}\n"
            body = content.encode()
            self.send_response(status)
            self.send_header("content-type", CONTENT_TYPE)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Scrapes are not logged."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise BadInput(f"--metrics {cannot_listen(address, error)}") from None
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


def _online(directory: CoordinatorDirectory) -> list[Sample]:
    """Which clients are connected; nothing while the SuperLink does not answer."""
    config, control = directory.config(), control_of(directory)
    try:
        nodes = nodes_by_name(config, control.nodes()) if control.ready() else None
    except Unreachable:
        nodes = None
    if nodes is None:
        return []
    return [({"client": name}, float(name in nodes and nodes[name].online)) for name in sorted(config.roster)]


def _counted(label: str, values: Iterator[str]) -> list[Sample]:
    return [({label: value}, count) for value, count in sorted(Counter(values).items())]


def _family(name: str, kind: str, about: str, samples: list[Sample]) -> str:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.15g}" if inside else f"{name} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
