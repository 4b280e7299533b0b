"""Hot reload: another bundle goes into service without a request failing, or is refused and the present one stays."""

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from fedrouter.bundle import Provenance, load, save
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadBundle
from fedrouter.gateway.routing import bundles
from fedrouter.gateway.routing.bundles import Bundles, ServedBundle
from fedrouter.store.store import Store
from gateway.running import SQL, config_for, eventually, models_named
from learning.logs import learned


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(bundles, "POLL", 0.1)


@pytest.fixture(scope="module")
def second(bundle, tmp_path_factory):
    """The same router as a later version."""
    saved = load(bundle)
    provenance = saved.child(list(saved.clients.values()), {"test": "a later version"})
    return save(tmp_path_factory.mktemp("bundles") / "second", saved.router, saved.encoder, provenance)


def command(*arguments):
    program = "from fedrouter.cli.gateway.serve import bundle; bundle()"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_new_version_is_swapped_in_under_load_and_rolled_back_by_one_command(
    start, bundle, second, upstream, tmp_path
):
    config = config_for(tmp_path, bundle, upstream.url)
    gateway = start(config)
    statuses, stop = [], threading.Event()

    def load_it():
        while not stop.is_set():
            statuses.append(gateway.chat(SQL).status_code)

    thread = threading.Thread(target=load_it)
    thread.start()
    version = lambda: gateway.chat(SQL).headers["x-fedrouter-bundle-version"]  # noqa: E731
    assert version() == "1"
    command("use", str(second), "--store", config.store, "--json")
    assert eventually(lambda: version() == "2")
    assert gateway.record(gateway.chat(SQL)).bundle == load(second).manifest["digest"]
    command("rollback", "--store", config.store, "--json")
    assert eventually(lambda: version() == "1")
    stop.set()
    thread.join()
    assert set(statuses) == {200}
    with Store.open(config.store) as store:
        assert store.current() is None


def test_a_damaged_or_foreign_bundle_is_refused_and_the_present_one_stays(start, bundle, second, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    damaged = tmp_path / "damaged"
    shutil.copytree(second, damaged)
    (damaged / "router.safetensors").write_bytes(b"cut short")
    digest = load(second).manifest["digest"]
    saved = load(second)
    other = save(tmp_path / "other", saved.router, replace(saved.encoder, name="another-encoder"), saved.child([], {}))
    for path, told in ((damaged, digest), (other, load(other).manifest["digest"]), (second, "sha256:of-another")):
        gateway.store.set_current(told, str(path))
        assert eventually(lambda: "fedrouter_bundle_refused 1" in gateway.http.get("/metrics").text)
        response = gateway.chat(SQL)
        assert (response.status_code, response.headers["x-fedrouter-bundle-version"]) == (200, "1")
    gateway.store.set_current(digest, str(second))
    assert eventually(lambda: gateway.chat(SQL).headers["x-fedrouter-bundle-version"] == "2")
    assert "fedrouter_bundle_refused 0" in gateway.http.get("/metrics").text


def test_two_gateways_on_one_store_follow_one_switch(start, bundle, second, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url)
    first = start(config)
    other = start(config)
    assert other.key is None  # the first key was made, and shown, once
    first.store.set_current(load(second).manifest["digest"], str(second))
    key = {"authorization": f"Bearer {first.key}"}
    assert eventually(lambda: first.chat(SQL).headers["x-fedrouter-bundle-version"] == "2")
    assert eventually(lambda: other.chat(SQL, headers=key).headers["x-fedrouter-bundle-version"] == "2")


def test_a_gateway_without_a_bundle_routes_by_guesses_and_takes_the_first_bundle_it_is_given(
    start, bundle, upstream, tmp_path
):
    config = config_for(tmp_path, bundle, upstream.url)
    gateway = start(config.replace(routing=config.routing.replace(bundle=None)))
    first = gateway.chat(SQL).headers
    assert (first["x-fedrouter-bundle-version"], first["x-fedrouter-reason"]) == ("0", "prior")
    gateway.store.set_current(load(bundle).manifest["digest"], str(bundle))
    assert eventually(lambda: gateway.chat(SQL).headers["x-fedrouter-reason"] == "best")
    gateway.store.roll_back()
    assert eventually(lambda: gateway.chat(SQL).headers["x-fedrouter-reason"] == "prior")


def test_a_bundle_that_knows_none_of_the_models_is_refused(bundle):
    known = load(bundle).router.pool.names[0]
    with pytest.raises(BadBundle, match=rf"somebody, {known.upper()} \(the router calls it {known}: use that name\)"):
        Bundles(models_named("somebody", known.upper())).prepare(bundle)


def test_a_model_that_only_case_tells_from_a_learned_one_is_told(bundle, caplog):
    first, second, *_ = load(bundle).router.pool.names
    served = Bundles(models_named(first, second.upper()))
    served.swap(served.prepare(bundle))
    assert f"{second.upper()} (the router calls it {second}: use that name)" in caplog.text


@pytest.mark.parametrize("family", ["bayes", "kmeans"])
def test_every_family_can_be_served(family, world, tmp_path):
    router = learned(world.evaluations, family)
    path = save(tmp_path / family, router, world.encoder, Provenance("d", "x", 0, 1, [], {}))
    names = ("unknown", *reversed(world.evaluations.pool.names[:4]))
    serving = ServedBundle(load(path), models_named(*names))
    embedding = world.evaluations.embeddings[3]
    found = serving.estimate(embedding)
    truth = router.estimate(embedding)
    columns = [router.pool.index(name) for name in names[1:]]
    np.testing.assert_allclose(found.accuracy[1:], truth.accuracy[0, columns])
    np.testing.assert_allclose(found.cost[1:], truth.cost[0, columns])
    np.testing.assert_allclose(found.error[1:], truth.error[0, columns])
    assert serving.guessed == {"unknown": "price and size"}
    whole = serving.estimate_all(world.evaluations.embeddings[:5])
    np.testing.assert_allclose(whole.accuracy[3], found.accuracy)
    np.testing.assert_allclose(whole.error[3], found.error)
    points = serving.points
    assert points.of_dial(10) == 0 < points.of_dial(9) < points.of_dial(0)


def test_guesses_are_at_the_level_of_what_was_learned(world, tmp_path):
    """Where all models do badly and answer at length, so does one of which only its name and price are known."""
    rows = replace(world.evaluations, accuracy=world.evaluations.accuracy * 0.3, cost=world.evaluations.cost * 10)
    served = []
    for number, evaluations in enumerate((world.evaluations, rows)):
        provenance = Provenance("d", "x", 0, 1, [], {})
        path = save(tmp_path / str(number), learned(evaluations, "bayes"), world.encoder, provenance)
        served.append(ServedBundle(load(path), models_named("gpt-5-mini", *world.evaluations.pool.names)))
    usual, hard = (each.estimate(world.evaluations.embeddings[0]) for each in served)
    assert 0 <= hard.accuracy[0] < usual.accuracy[0] - 0.2
    assert hard.cost[0] == pytest.approx(10 * usual.cost[0], rel=0.2)
    assert hard.error[0] == usual.error[0] > 0


def test_a_model_without_a_row_is_guessed_though_the_router_lists_it(world, tmp_path):
    rows = world.evaluations.take(np.flatnonzero(world.evaluations.model > 0))
    path = save(tmp_path / "b", learned(rows, "bayes"), world.encoder, Provenance("d", "x", 0, 1, [], {}))
    assert list(ServedBundle(load(path), models_named(*rows.pool.names)).guessed) == [rows.pool.names[0]]


def test_another_encoder_of_the_same_width_is_refused(bundle):
    found = Bundles(models_named(*load(bundle).router.pool.names))
    found.encoder = EncoderIdentity("other", 384, True)
    with pytest.raises(Exception, match=r"made for the encoder static"):
        found.prepare(bundle)
