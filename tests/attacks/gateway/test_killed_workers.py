"""Workers that are killed while PostgreSQL is away: nothing that a client was told is lost."""

import os
import signal

import httpx2 as httpx
import psycopg
import pytest

from fedrouter.store.store import Store
from gateway.process import GatewayProcess, settings
from gateway.running import SQL, at_once, eventually
from postgres import databases

pytestmark = pytest.mark.slow


@pytest.fixture
def started():
    """Gateways that are ended, whatever happens."""
    found = []
    yield found
    for gateway in found:
        gateway.stop()


def test_answers_and_scores_survive_kills_of_workers_while_postgresql_is_away(tmp_path, bundle, upstream, started):
    with databases() as new:
        url = new()
        config = settings(tmp_path, bundle, upstream.url) | {"store": url, "outbox": str(tmp_path)}
        gateway = GatewayProcess(tmp_path, config, workers=2)
        started.append(gateway)
        gateway.start()
        headers = {"authorization": f"Bearer {gateway.key}"}

        def ask(number):
            body = {"model": "auto", "messages": [{"role": "user", "content": f"{SQL} {number}"}]}
            answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
            return answer.headers.get("x-fedrouter-decision-id")

        def scored(decision):
            body = {"decision_id": decision, "score": 0.5}
            answer = httpx.post(f"{gateway.url}/v1/feedback", json=body, headers=headers, timeout=60)
            return decision, answer.status_code

        def present(decision):
            row = store.get(decision)
            return row is not None and row.score == 0.5

        at_once([lambda n=n: ask(f"first {n}") for n in range(40)])  # so that both workers know the key
        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(url.replace(name, "postgres"), autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            acknowledged = []
            for turn in range(2):
                asked = at_once([lambda n=n, turn=turn: ask(f"{turn} {n}") for n in range(12)])
                answers = at_once([lambda decision=decision: scored(decision) for decision in asked if decision])
                acknowledged += [decision for decision, status in answers if status == 200]
                assert len(acknowledged) >= 8 * (turn + 1)
                victims = gateway.workers()
                for victim in victims if turn else victims[:1]:
                    os.kill(victim, signal.SIGKILL)
            admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        with Store.open(url) as store:
            assert eventually(lambda: all(present(decision) for decision in acknowledged), 120)
            gateway.stop()
