"""Several workers behind one port: what they agree on, and that one which ends is replaced."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

import httpx2 as httpx
import pytest
from sqlalchemy import select

from fedrouter.bundle import load
from fedrouter.gateway.demo import demo_bundle
from fedrouter.store.outbox import Outbox
from fedrouter.store.store import Store
from fedrouter.store.tables import LEASES
from gateway.process import GatewayProcess, settings
from gateway.running import at_once, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, bundle, upstream):
    folder = tmp_path_factory.mktemp("workers")
    config = settings(folder, bundle, upstream.url, {"*": "no-usage"})
    config["learning"] = {"enabled": True}
    for model in config["model_list"]:
        model["cached_input_price"] = 0
        model["params"]["api"] = ["chat", "responses"]
    process = GatewayProcess(folder, config, workers=2)
    process.start()
    yield process
    assert process.stop() == 0
    assert "Traceback" not in process.printed()
    assert not len(Outbox(folder / "log.db", 1 << 16))


@pytest.fixture
def store(gateway):
    with Store.open(f"sqlite:///{gateway.folder / 'log.db'}") as log:
        yield log


def ask(gateway, content, token=None, client=httpx, path="/v1/chat/completions", **more):
    """One request on a connection of its own, so that any worker may get it."""
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    body = {"model": "auto", ("input" if path.endswith("responses") else "messages"): messages} | more
    headers = {"authorization": f"Bearer {token or gateway.key}"}
    return client.post(f"{gateway.url}{path}", json=body, headers=headers, timeout=60)


def metrics(gateway):
    return httpx.get(f"{gateway.url}/metrics", headers={"authorization": f"Bearer {gateway.key}"}).text


def counted(gateway, name):
    """A counter of all workers, as any of them shows it."""
    lines = metrics(gateway).splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def served(gateway):
    return counted(gateway, "fedrouter_requests_total")


def test_both_workers_serve_and_any_of_them_shows_what_all_have_counted(gateway, store):
    before = len(list(store.rows()))
    assert all(answer.status_code == 200 for answer in at_once([lambda: ask(gateway, "Hello")] * 40))
    assert len(list(store.rows())) == before + 40
    assert eventually(lambda: served(gateway) == before + 40)
    assert re.search("^fedrouter_tasks [0-9.]+$", metrics(gateway), re.MULTILINE)


def test_a_budget_holds_with_a_hundred_requests_at_once_over_both(gateway, store):
    budget = 0.02
    identity, token = store.create_key("careful", daily_budget=budget)
    body = {"model": "atlas-max", "max_tokens": 40}
    answers = at_once([lambda number=n: ask(gateway, f"Hello {number}", token, **body) for n in range(100)])
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}
    assert store.spent(identity, 0.0) <= budget


def test_a_rate_holds_over_both_workers(gateway, store):
    _, token = store.create_key("slow", rate_per_minute=12)
    began = time.monotonic()
    statuses = Counter(
        answer.status_code for answer in at_once([lambda: ask(gateway, "Hello", token) for _ in range(40)])
    )
    refilled = (time.monotonic() - began) * 12 / 60
    assert set(statuses) == {200, 429}
    assert 12 <= statuses[200] <= 12 + refilled


def test_a_conversation_stays_with_its_model_at_whichever_worker_it_arrives(gateway, store):
    first = {"role": "user", "content": "Prove that there are infinitely many primes."}
    said = [{"role": "system", "content": "word " * 4_000}, first]
    model = ask(gateway, said, fedrouter={"dial": 10}).headers["x-fedrouter-model"]

    def switches(tradeoff):
        return ask(gateway, said, path="/v1/route", fedrouter={"tradeoff": tradeoff}).json()["model"] != model

    tradeoff = next(each for each in (10.0**power for power in range(7)) if switches(each))
    said += [{"role": "assistant", "content": "No."}, first]
    turns = [ask(gateway, said, fedrouter={"tradeoff": tradeoff}) for _ in range(12)]
    assert {turn.headers["x-fedrouter-model"] for turn in turns} == {model}
    assert {turn.headers["x-fedrouter-reason"] for turn in turns} == {"sticky"}


def test_a_response_can_be_referred_to_at_any_worker(gateway):
    first = ask(gateway, "Hello", path="/v1/responses").json()
    later = [ask(gateway, "And?", path="/v1/responses", previous_response_id=first["id"]) for _ in range(12)]
    assert {answer.status_code for answer in later} == {200}


def test_feedback_reaches_the_decision_of_any_worker(gateway, store):
    decisions = [ask(gateway, "Hello").headers["x-fedrouter-decision-id"] for _ in range(8)]
    headers = {"authorization": f"Bearer {gateway.key}"}
    for decision in decisions:
        body = {"decision_id": decision, "score": 0.5}
        assert httpx.post(f"{gateway.url}/v1/feedback", json=body, headers=headers).json()["outcome"] == "stored"
    assert [store.get(decision).score for decision in decisions] == [0.5] * 8
    assert eventually(lambda: counted(gateway, "fedrouter_scores_total") == 8, 60)


def test_a_new_bundle_comes_into_service_at_all_workers(gateway, store, tmp_path):
    other = demo_bundle(tmp_path / "other", seed=3)
    digest = load(other).manifest["digest"]
    store.set_current(digest, str(other))

    def digests():
        """Of the bundles that are in service at any worker."""
        return re.findall('^fedrouter_bundle_info{digest="(.*?)".*} 1.0$', metrics(gateway), re.MULTILINE)

    assert eventually(lambda: set(digests()) == {digest}, 60)
    store.roll_back()


def test_a_changed_config_is_in_use_at_all_workers(gateway):
    path = gateway.folder / "gateway.yaml"
    config = json.loads(path.read_text())
    config["model_list"].append({**config["model_list"][0], "model_name": "newcomer"})
    path.write_text(json.dumps(config))
    os.kill(gateway.pid, signal.SIGHUP)
    assert eventually(lambda: gateway.printed().count("the config was reloaded") == 2, 60)
    assert {ask(gateway, "Hello", model="newcomer").status_code for _ in range(12)} == {200}


def test_one_process_does_the_work_that_one_should_do(gateway, store):
    def holders():
        with store.reading() as connection:
            return connection.execute(select(LEASES.c.holder).where(LEASES.c.until > time.time())).scalars().all()

    assert eventually(lambda: len(holders()) == 1, 60)
    assert not store.take_lease("upkeep", "another", 1.0)


def test_a_killed_worker_is_replaced_and_its_counts_stay(gateway, store):
    rows = len(list(store.rows()))
    assert eventually(lambda: served(gateway) == rows)
    victim, other = gateway.workers()
    os.kill(victim, signal.SIGKILL)
    assert eventually(lambda: "ended (killed by SIGKILL)" in gateway.printed(), 60)
    assert ask(gateway, "Hello").status_code == 200  # by the other one
    assert eventually(lambda: len(gateway.workers()) == 2 and victim not in gateway.workers(), 60)
    assert eventually(lambda: served(gateway) == rows + 1)
    assert other in gateway.workers()


def test_workers_end_when_their_supervisor_is_killed(tmp_path, bundle, upstream):
    process = GatewayProcess(tmp_path, settings(tmp_path, bundle, upstream.url), workers=2)
    process.start()
    workers = process.workers()
    process.kill()
    process.ended()
    assert eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), 60)


def test_a_worker_that_cannot_start_ends_the_start(tmp_path, bundle, upstream):
    config = settings(tmp_path, bundle, upstream.url)
    config["store"] = f"sqlite:///{tmp_path / 'nowhere' / 'log.db'}"
    process = GatewayProcess(tmp_path, config, workers=2)
    with pytest.raises(AssertionError, match="a worker did not start"):
        process.start()
    assert process.ended() != 0


def begun(process) -> tuple[threading.Thread, list[int]]:
    """What starts a gateway that ends instead, and its workers as soon as they are there."""

    def start():
        with suppress(AssertionError):
            process.start()

    starting = threading.Thread(target=start)
    starting.start()
    assert eventually(lambda: process.alive() and len(process.workers()) == 2, 60)
    return starting, process.workers()


def test_a_signal_while_workers_start_ends_all_without_a_traceback(tmp_path, bundle, upstream):
    process = GatewayProcess(tmp_path, settings(tmp_path, bundle, upstream.url), workers=2)
    starting, workers = begun(process)
    assert process.stop() == 0
    starting.join()
    assert "Traceback" not in process.printed()
    assert eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), 60)


def test_the_first_key_is_not_lost_with_a_signal_while_workers_start(tmp_path, bundle, upstream):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = settings(tmp_path, bundle, upstream.url) | {"server": {"port": port}}
    process = GatewayProcess(tmp_path, config, workers=2)
    starting, (_, late) = begun(process)
    os.kill(late, signal.SIGSTOP)  # the other one serves, and has made the key

    def serves():
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200

    assert eventually(serves, 60)
    time.sleep(0.5)  # it tells its supervisor at the same time
    os.kill(process.pid, signal.SIGTERM)
    os.kill(late, signal.SIGCONT)
    process.ended()
    starting.join()
    [shown] = re.findall(r"shown only here: (\S+)", process.printed())
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        assert store.key_of(shown) is not None
