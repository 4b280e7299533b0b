"""Requests under load while the encoder's process is killed and bundles change: every one is routed, by its bundle."""

import os
import signal
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest

from fedrouter.bundle import load
from fedrouter.encoders.static import static_encoder
from fedrouter.gateway.demo import demo_bundle
from fedrouter.gateway.routing import bundles
from gateway.running import config_for, eventually

CLIENTS, KILLS = 8, 3


def encoder_processes() -> set[int]:
    """The processes that this one, in which the gateway runs, has started for the encoder."""
    found = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children"))
    return {int(pid) for pid in found.split() if b"encoder_worker" in _command(pid)}


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


@pytest.mark.slow
def test_requests_are_routed_by_the_bundle_in_service_while_the_encoders_process_dies(
    start, bundle, upstream, tmp_path, monkeypatch
):
    monkeypatch.setattr(bundles, "POLL", 0.1)
    other = demo_bundle(tmp_path / "other", seed=3)
    both = {load(path).manifest["digest"]: (path, load(path).router) for path in (bundle, other)}
    gateway = start(config_for(tmp_path, bundle, upstream.url), None)
    answers: list[tuple[str, httpx.Response]] = []
    enough = threading.Event()

    def ask(client: int) -> None:
        with httpx.Client(base_url=gateway.url, headers=gateway.http.headers, timeout=60) as http:
            number = 0
            while not enough.is_set():
                number += 1
                text = f"Write a SQL query that counts the orders of customer {number * CLIENTS + client}."
                body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
                answers.append((text, http.post("/v1/chat/completions", json=body)))

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        for number in range(KILLS):
            before = eventually(encoder_processes, 60)
            assert before
            path, _ = list(both.values())[number % 2]
            gateway.store.set_current(load(path).manifest["digest"], str(path))
            time.sleep(1.0)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            assert eventually(lambda before=before: encoder_processes() - before, 60)  # another one
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    records = {text: gateway.record(response) for text, response in answers if response.status_code == 200}
    assert len(records) == len(answers) > 100
    assert {record.reason for record in records.values()} == {"best"}
    assert {record.bundle for record in records.values()} == both.keys()
    embeddings = static_encoder().encode(list(records))
    for digest, (_, router) in both.items():
        estimates = router.estimate(embeddings)
        for row, record in enumerate(records.values()):
            if record.bundle == digest:
                expected = estimates.accuracy[row, router.pool.index(record.chosen)]
                assert record.predicted_accuracy == pytest.approx(expected, abs=1e-6)
