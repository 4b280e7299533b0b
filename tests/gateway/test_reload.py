"""SIGHUP: a changed config is in use without a request lost; a wrong one changes nothing."""

import json
import os
import signal
import threading

import httpx2 as httpx
import pytest

from fedrouter.store.store import Store
from gateway.process import GatewayProcess, settings
from gateway.running import eventually

SLOW = {"*": "slow", "atlas-mini": "instant"}


@pytest.fixture
def gateway(tmp_path, bundle, upstream):
    process = GatewayProcess(tmp_path, settings(tmp_path, bundle, upstream.url, SLOW))
    process.start()
    yield process
    assert process.stop() in (0, -15)
    assert "Traceback" not in process.printed()


def ask(gateway, model, client=httpx):
    body = {"model": model, "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
    return client.post(
        f"{gateway.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {gateway.key}"}, timeout=30
    )


def reload(gateway, change, says):
    """Change the config file, tell the gateway, and wait until it says what it did."""
    path = gateway.folder / "gateway.yaml"
    path.write_text(change(path.read_text()))
    before = gateway.printed().count(says)
    os.kill(gateway.pid, signal.SIGHUP)
    assert eventually(lambda: gateway.printed().count(says) > before, 30)


def renamed(text):
    config = json.loads(text)
    config["model_list"].append({**config["model_list"][0], "model_name": "newcomer"})
    return json.dumps(config)


def test_a_changed_config_is_in_use_and_requests_in_progress_end_as_they_began(gateway):
    assert ask(gateway, "newcomer").status_code == 404
    answers = []
    waiting = [threading.Thread(target=lambda: answers.append(ask(gateway, "atlas-max"))) for _ in range(4)]
    with httpx.Client() as client:  # a connection stays open across the reload
        assert ask(gateway, "atlas-mini", client).status_code == 200
        for thread in waiting:
            thread.start()
        reload(gateway, renamed, "the config was reloaded")
        assert ask(gateway, "newcomer", client).status_code == 200
    for thread in waiting:
        thread.join(30)
    assert [answer.status_code for answer in answers] == [200] * 4
    metrics = httpx.get(f"{gateway.url}/metrics", headers={"authorization": f"Bearer {gateway.key}"}).text
    assert 'fedrouter_refused_total{code="model_not_found"} 1.0' in metrics  # counted before the reload
    with Store.open(f"sqlite:///{gateway.folder / 'log.db'}") as log:
        assert len([row for row in log.rows() if row.status == "ok"]) == 6


def test_a_wrong_config_is_told_and_changes_nothing(gateway):
    reload(gateway, lambda text: text.replace("default_model", "default_modle"), "the config was not reloaded")
    assert ask(gateway, "atlas-mini").status_code == 200
    reload(gateway, lambda text: text.replace("default_modle", "default_model"), "the config was reloaded")
    moved = lambda text: text.replace('"port": 0', '"port": 1, "host": "localhost"')  # noqa: E731
    reload(gateway, moved, "restart for a change of server.host, server.port")
    assert ask(gateway, "atlas-mini").status_code == 200


def test_requests_of_a_replaced_gateway_are_ended_at_the_shutdown(tmp_path, bundle, upstream):
    config = settings(tmp_path, bundle, upstream.url, {"*": "hang", "atlas-mini": "instant"})
    config["server"]["drain"] = 1
    process, answers = GatewayProcess(tmp_path, config), []
    process.start()
    waiting = threading.Thread(target=lambda: answers.append(ask(process, "atlas-max")))
    upstream.forget()
    waiting.start()
    assert eventually(lambda: "hang" in upstream.asked)
    reload(process, renamed, "the config was reloaded")
    assert process.stop() in (0, -15)
    waiting.join(30)
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "shutdown")
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        assert [row.status for row in log.rows()] == ["shutdown"]
