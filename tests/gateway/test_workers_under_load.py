"""Faults of several workers under load: wrong configs, and workers that are killed one after the other."""

import asyncio
import json
import os
import signal
import threading
import time
from contextlib import suppress

import httpx2 as httpx
import pytest
from sqlalchemy import select

from fedrouter.store.outbox import Outbox
from fedrouter.store.store import Store
from fedrouter.store.tables import LEASES
from gateway.process import GatewayProcess, settings
from gateway.running import at_once, eventually
from gateway.traffic import BEHAVIOURS, Heard, clients_at_work, missing

pytestmark = pytest.mark.slow
BETWEEN = 60
"""Answers between two events, so that each of them comes under load."""
BUDGET = 0.02


async def answered(heard: Heard, more: int) -> None:
    goal = len(heard.answered) + more
    while len(heard.answered) < goal:
        assert not heard.wrong
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("workers", [None, 2])
def test_wrong_configs_under_load_change_nothing(tmp_path, bundle, upstream, workers):
    config, heard = settings(tmp_path, bundle, upstream.url, BEHAVIOURS), Heard()
    gateway = GatewayProcess(tmp_path, config, workers=workers)
    gateway.start()
    path, right = tmp_path / "gateway.yaml", json.dumps(config)
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "bundle.json").write_text("{}")
    routing = {name: config["routing"] | {"bundle": str(tmp_path / name)} for name in ("nowhere", "damaged")}
    other_store = {"store": f"sqlite:///{tmp_path / 'new.db'}"}  # which names no bundle yet
    without_folder = config | {"store": f"sqlite:///{tmp_path / 'no' / 'folder' / 'log.db'}"}
    unreadable = [right[: len(right) // 2], "", "\0", "- a\n- b", right.replace("default_model", "default_modle")]
    unreadable.append(json.dumps(config | other_store | {"routing": routing["nowhere"]}))
    unusable = [json.dumps(config | other_store | {"routing": routing["damaged"]}), json.dumps(without_folder)]

    def not_reloaded() -> list[str]:
        return [line for line in gateway.printed().splitlines() if "the config was not reloaded" in line]

    async def main() -> None:
        async with clients_at_work(gateway.url, gateway.key, heard, "configs"):
            for text in [*unreadable, *unusable]:
                path.write_text(text)
                # What cannot be read is said once, by whoever reads it first; the rest by each worker.
                goal = len(not_reloaded()) + (1 if text in unreadable else workers or 1)
                os.kill(gateway.pid, signal.SIGHUP)
                assert await asyncio.to_thread(eventually, lambda goal=goal: len(not_reloaded()) >= goal, 60)
                assert len(not_reloaded()) == goal
                await answered(heard, BETWEEN)
            path.write_text(right)
            os.kill(gateway.pid, signal.SIGHUP)
            said = "the config was reloaded"
            count = workers or 1
            assert await asyncio.to_thread(eventually, lambda: gateway.printed().count(said) == count, 60)
            await answered(heard, BETWEEN)

    asyncio.run(main())
    assert gateway.stop() in (0, -15)
    assert "Traceback" not in gateway.printed()
    assert "Unclosed" not in gateway.printed()
    assert (heard.wrong, heard.broken_off) == ([], 0)
    assert missing(tmp_path / "log.db", heard) == []
    print(f"\n{len(unreadable + unusable)} wrong configs, {workers or 1} workers: {len(heard.answered)} answers")


def holder(store: Store) -> str | None:
    with store.reading() as connection:
        return connection.execute(select(LEASES.c.holder).where(LEASES.c.until > time.time())).scalar()


def test_workers_killed_under_load_lose_nothing_and_budgets_and_the_lease_hold(tmp_path, bundle, upstream):
    config, heard = settings(tmp_path, bundle, upstream.url, BEHAVIOURS | {"atlas-max": "slow"}), Heard()
    gateway = GatewayProcess(tmp_path, config | {"learning": {"enabled": True}}, workers=2)
    gateway.start()
    with Store.open(config["store"]) as store:
        identity, token = store.create_key("careful", daily_budget=BUDGET)
        assert eventually(lambda: holder(store) is not None, 60)
        leader = holder(store)

        def spend() -> list[int]:
            body = {"model": "atlas-max", "max_tokens": 40, "messages": [{"role": "user", "content": "Hello"}]}
            headers = {"authorization": f"Bearer {token}"}

            def ask() -> int:
                try:
                    return httpx.post(
                        f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=60
                    ).status_code
                except httpx.HTTPError:
                    return 0  # its worker was killed

            return at_once([ask] * 20)

        async def main() -> None:
            for number in range(4):
                async with clients_at_work(gateway.url, gateway.key, heard, f"kill {number}"):
                    await answered(heard, BETWEEN)
                    spending = asyncio.create_task(asyncio.to_thread(spend))
                    victim, other = gateway.workers()[:: 1 if number % 2 else -1]
                    os.kill(victim, signal.SIGKILL)
                async with clients_at_work(gateway.url, gateway.key, heard, f"after {number}"):
                    await answered(heard, BETWEEN)  # by the other one, and by what takes the place of the first
                assert set(await spending) <= {0, 200, 429}
                replaced = lambda gone=victim: len(set(gateway.workers()) - {gone}) == 2  # noqa: E731
                assert await asyncio.to_thread(eventually, replaced, 60)
                assert other in gateway.workers()

        asyncio.run(main())
        assert store.spent(identity, 0.0) <= BUDGET
        assert eventually(lambda: holder(store) not in (None, leader), 90)
    assert gateway.stop() == 0
    assert "Traceback" not in gateway.printed()
    assert (heard.wrong, heard.broken_off > 0) == ([], True)
    assert missing(tmp_path / "log.db", heard) == []
    assert not len(Outbox(tmp_path / "log.db", 1 << 16))
    print(f"\n4 of 2 workers killed: {len(heard.answered)} answers, {len(heard.scored)} scores, {heard.broken_off} cut")


def test_a_kill_in_the_middle_of_key_edits_leaves_each_key_whole(tmp_path, bundle, upstream):
    gateway = GatewayProcess(tmp_path, settings(tmp_path, bundle, upstream.url))
    acknowledged = {}
    for _ in range(3):
        gateway.start()
        headers = {"authorization": f"Bearer {gateway.key}"}
        with httpx.Client(base_url=gateway.url, headers=headers, timeout=60) as http, suppress(httpx.HTTPError):
            made = http.post("/v1/keys", json=settings_of(1)).json()["id"]
            acknowledged[made] = 1
            for number in range(2, 10_000):
                if number == 20:
                    threading.Thread(target=gateway.kill).start()
                assert http.patch(f"/v1/keys/{made}", json=settings_of(number)).status_code == 200
                acknowledged[made] = number
        assert gateway.ended() == -9
        with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
            for key in store.all_keys():
                if key.id in acknowledged:
                    assert int(key.name) == key.rate_per_minute == key.daily_budget
                    assert key.rate_per_minute - acknowledged[key.id] in (0, 1)  # the last one may be unanswered
    assert len(acknowledged) == 3


def settings_of(number: int) -> dict[str, object]:
    return {"name": str(number), "rate_per_minute": number, "daily_budget": number}
