"""Restarts and reloads under load: no connection is refused or cut, no error is the gateway's own, no row is lost."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from fedrouter.gateway.workers.listening import FIRST
from gateway import process
from gateway.process import GatewayProcess, settings
from gateway.running import eventually
from gateway.traffic import BEHAVIOURS, Heard, clients_at_work, missing

pytestmark = pytest.mark.slow
BETWEEN = 100
"""Answers between two events, so that each of them comes under load."""
AS_SYSTEMD = f"""
import os, sys
os.dup2(int(sys.argv[1]), {FIRST})
os.environ |= {{"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}}
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


async def answered(heard: Heard, more: int) -> None:
    goal = len(heard.answered) + more
    while len(heard.answered) < goal:
        assert not heard.wrong
        await asyncio.sleep(0.02)


def test_workers_are_replaced_and_reloaded_under_load(tmp_path, bundle, upstream):
    gateway, heard = GatewayProcess(tmp_path, settings(tmp_path, bundle, upstream.url, BEHAVIOURS), workers=2), Heard()
    gateway.start()
    first = set(gateway.workers())

    async def says(text, times):
        return await asyncio.to_thread(eventually, lambda: gateway.printed().count(text) == times, 120)

    async def main():
        async with clients_at_work(gateway.url, gateway.key, heard, "restart"):
            for number in range(1, 3):
                await answered(heard, BETWEEN)
                os.kill(gateway.pid, signal.SIGUSR2)
                assert await says("all workers were replaced", number)
                await answered(heard, BETWEEN)
                os.kill(gateway.pid, signal.SIGHUP)
                assert await says("the config was reloaded", 2 * number)
            await answered(heard, BETWEEN)

    asyncio.run(main())
    assert eventually(lambda: len(gateway.workers()) == 2, 60)
    assert not first & set(gateway.workers())
    assert gateway.stop() == 0
    assert "Traceback" not in gateway.printed()
    assert (heard.wrong, heard.broken_off) == ([], 0)
    assert missing(tmp_path / "log.db", heard) == []
    print(f"\n2 restarts and 2 reloads of 2 workers: {len(heard.answered)} answers, {len(heard.scored)} scores")


def test_a_new_worker_that_does_not_start_leaves_the_old_ones(tmp_path, bundle, upstream):
    config = settings(tmp_path, bundle, upstream.url)
    gateway = GatewayProcess(tmp_path, config, workers=2)
    gateway.start()
    workers, path = gateway.workers(), tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config | {"model_list": []}))
    os.kill(gateway.pid, signal.SIGUSR2)
    assert eventually(lambda: "the workers were not all replaced" in gateway.printed(), 60)
    assert eventually(lambda: gateway.workers() == workers, 60)
    assert gateway.stop() == 0


def test_a_service_restarts_behind_the_socket_of_systemd(tmp_path, bundle, upstream):
    """systemd passes file descriptor 3, and LISTEN_PID says for whom; it keeps the socket while no process runs."""
    (tmp_path / "gateway.yaml").write_text(json.dumps(settings(tmp_path, bundle, upstream.url, BEHAVIOURS)))
    heard, said = Heard(), tmp_path / "stdout"
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening, said.open("wb") as out:
        handle = listening.fileno()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-c", AS_SYSTEMD, str(handle), process.__file__, str(tmp_path / "gateway.yaml")],
                stdout=out,
                env=os.environ | {"UPSTREAM_KEY": "secret"},
                pass_fds=[handle],
            )

        running = start()
        assert eventually(lambda: said.read_bytes().endswith(b"\n"), 60)
        ready = json.loads(said.read_bytes())
        assert ready["url"].endswith(f":{listening.getsockname()[1]}")

        async def main():
            nonlocal running
            async with clients_at_work(ready["url"], ready["key"], heard, "systemd"):
                for _ in range(2):
                    await answered(heard, BETWEEN)
                    running.send_signal(signal.SIGTERM)
                    await asyncio.to_thread(running.wait, 60)
                    running = start()
                await answered(heard, BETWEEN)

        asyncio.run(main())
        running.send_signal(signal.SIGTERM)
        running.wait(60)
    assert (heard.wrong, heard.broken_off) == ([], 0)
    assert missing(tmp_path / "log.db", heard) == []
