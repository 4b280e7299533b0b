"""Retention by the gateway itself: what goes, what stays, and that others can write meanwhile."""

import asyncio
import time

import pytest

from fedrouter.gateway import upkeep
from fedrouter.gateway.config import Config, RetentionConfig, Upstream, UpstreamParams
from fedrouter.gateway.upkeep import DAY, Leadership, Retention
from fedrouter.store.records import Record, new_id
from fedrouter.store.store import Store
from gateway.running import config_for, eventually
from postgres import databases

MODEL = Upstream(name="m", params=UpstreamParams(api_base="http://127.0.0.1:1"), input_price=1, output_price=1)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store(request, tmp_path):
    if request.param == "sqlite":
        with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as opened:
            yield opened
        return
    with databases() as new, Store.open(new()) as opened:
        yield opened


def record(age: float) -> Record:
    at = time.time() - age * DAY
    return Record(
        id=new_id(at), time=at, key="k", bundle="", version=0, family="", tradeoff=1.0, chosen="m", reason="best",
        served="m", cost=0.5, text="a prompt", embedding=b"1234", encoder="static",
    )  # fmt: skip


def test_old_rows_go_in_small_steps_while_others_are_written_and_sums_stay(store, monkeypatch, caplog):
    monkeypatch.setattr(upkeep, "AT_ONCE", 7)
    monkeypatch.setattr(upkeep, "LEAST_PAUSE", 0.0)
    caplog.set_level("INFO")
    old, young = [record(40 + number / 100) for number in range(30)], [record(1)]
    store.append(old + young)
    removed = []

    async def main():
        config = Config(models=(MODEL,), retention=RetentionConfig(days=30))
        removing = asyncio.create_task(Retention(config, store, lambda *what: removed.append(what)).once())
        while not removed:
            await asyncio.sleep(0.001)
        young.append(record(0))
        await asyncio.to_thread(store.append, young[1:])
        await removing

    asyncio.run(main())
    assert {row.id for row in store.rows()} == {row.id for row in young}
    assert all(what == "rows" and count <= 7 for what, count in removed)
    assert sum(count for _, count in removed) == 30
    assert "30 rows older than 30 days" in caplog.text
    assert sum(row.requests for row in store.usage()) == 32
    assert store.spent("k", 0.0) == 16.0


def test_prompts_and_embeddings_can_go_before_their_rows(store, monkeypatch):
    monkeypatch.setattr(upkeep, "AT_ONCE", 4)
    rows = [record(age) for age in (20, 10, 10, 10, 10, 10, 8, 6, 1)]
    rows += [Record(**vars(rows[1]) | {"id": new_id(rows[1].time)})]  # at the very same time
    store.append(rows)
    removed = []
    config = Config(models=(MODEL,), retention=RetentionConfig(days=15, prompt_days=7))
    keeping = Retention(config, store, lambda *what: removed.append(what))
    asyncio.run(keeping.once())
    left = list(store.rows())
    assert len(left) == 9
    assert [row.age for row in map(Aged, left) if row.whole] == [6, 1]
    assert all(row.whole or row.erased for row in map(Aged, left))
    assert sum(count for what, count in removed if what == "prompts") == 7
    late = record(7.5)  # it waited for the store
    store.append([late])
    asyncio.run(keeping.once())
    assert store.get(late.id).text is None


class Aged:
    def __init__(self, row: Record) -> None:
        self.age = round((time.time() - row.time) / DAY)
        self.whole = row.text == "a prompt" and row.embedding == b"1234"
        self.erased = row.text is None and row.embedding is None


def test_only_the_process_with_the_lease_removes(store):
    store.append([record(40)])
    store.take_lease("upkeep", "another", 60)

    async def main():
        config, leadership = Config(models=(MODEL,), retention=RetentionConfig(days=30)), Leadership(store)
        leading = asyncio.create_task(leadership.run())
        await Retention(config, store).once(leadership)
        leading.cancel()

    asyncio.run(main())
    assert len(list(store.rows())) == 1


def test_a_gateway_does_it_by_itself_and_says_so(start, bundle, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url, retention=RetentionConfig(days=30))
    with Store.open(config.store) as before:
        before.append([record(40), record(1)])
    gateway = start(config)
    assert eventually(lambda: len(list(gateway.store.rows())) == 1, 30)
    assert eventually(lambda: 'fedrouter_removed_total{what="rows"} 1.0' in gateway.http.get("/metrics").text, 30)
