"""State directories of a coordinator and of a client after a run under secure sums, in which one member fell silent."""

from __future__ import annotations

import json
import threading

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

import uvicorn
from typer.testing import CliRunner

from conftest import drawn_evaluations
from fedrouter.cli.federation.manage import app
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.runs.watched import Watched
from fedrouter.deployment.state.config import EnrolledClient
from fedrouter.deployment.state.directories import open_client, open_coordinator
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Middleware
from fedrouter.federation.privacy.journal import Journal
from fedrouter.gateway.page.federation.server import FederationPage

KEY = "frp-known-to-the-test"
NAMES = ("east", "north", "south", "west")


class SilentOnce(Middleware):
    """One member does not answer the last exchange but one."""

    def __init__(self, inner):
        self.inner, self.asked = inner, 0

    def clients(self):
        return self.inner.clients()

    def ask_all(self, questions, to=None):
        self.asked += 1
        answers = self.inner.ask_all(questions, to)
        if self.asked == 2:
            answers = [{name: reply for name, reply in each.items() if name != "west"} for each in answers]
        return answers


def answered(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def directories(tmp_path_factory):
    root = tmp_path_factory.mktemp("federation")
    made = answered("init", root / "coordinator", "--host", "router.example.org", "--port", 9999)
    answered("init", root / "client", "--client", "north", "--ca", made["ca"], "--coordinator", made["address"])
    coordinator, client = open_coordinator(root / "coordinator"), open_client(root / "client")
    with coordinator.editing() as config:
        roster = {name: EnrolledClient(client.public_key.read_text(), None) for name in NAMES}
        coordinator.write_config(type(config)(config.hosts, config.port, config.listen, roster))
    journal = Journal(client.journal)
    rows = {name: drawn_evaluations(queries=150, seed=ord(name[0])) for name in NAMES}
    members = [
        Client(name, own, encoder="one", memory=journal if name == "north" else None) for name, own in rows.items()
    ]
    job = Job(family="kmeans", settings={"k_local": 4, "k_global": 5})
    folder = coordinator.runs / "run-1"
    jobs.write(job, folder)
    log = ProgressLog(folder)
    perform(job, Watched(SilentOnce(LocalFederation(members)), log), folder, log)
    journal.close()
    return coordinator, client


@pytest.fixture(scope="session")
def serve_directory():
    """Serves the page of a state directory on a port of its own; returns its address."""
    servers = []

    def start(directory):
        page = FederationPage(directory, KEY)
        server = uvicorn.Server(uvicorn.Config(page, "127.0.0.1", 0, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        page.hosts = frozenset({f"127.0.0.1:{port}".encode()})
        servers.append((server, thread))
        return f"http://127.0.0.1:{port}"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(20)
