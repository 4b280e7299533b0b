"""A client subtracts its own sums from the router at home, and compares; its journal records nothing of it."""

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from cli import command
from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.client.contribution import contribution
from fedrouter.deployment.client.local_client import client_of
from fedrouter.deployment.client.own_sums import own_sums
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.credentials import make_client_key
from fedrouter.deployment.state.delivered import set_current
from fedrouter.deployment.state.directories import create_client, create_coordinator, open_coordinator
from fedrouter.deployment.state.question_signature import question_signer
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import remove_clients
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.pinned_keys import PinnedKeys

pytest.importorskip("cryptography")
KMEANS = Job(family="kmeans", settings={"k_local": 4, "k_global": 5}, secure=2 / 3)


@pytest.fixture
def directory(tmp_path):
    coordinator = create_coordinator(tmp_path / "coordinator", ("localhost",))
    made = create_client(tmp_path / "client", "alpha", "localhost:9092", coordinator.authority)
    rows = drawn_evaluations(queries=120, seed=9)
    table = {
        "embedding": [rows.embeddings[query].tolist() for query in rows.query],
        "model": [rows.pool.names[model] for model in rows.model],
        "accuracy": rows.accuracy,
        "cost": rows.cost,
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "log.parquet")
    made.write_config(replace(made.config(), log=str(tmp_path / "log.parquet"), encoder="one"))
    return made


@pytest.fixture
def bundle(directory, tmp_path):
    """A router of four clients under secure sums, one of them the one of the state directory."""
    made = {name: make_client_key() for name in "bcd"}
    keys = {name: key.public.decode().strip() for name, key in made.items()}
    keys["alpha"] = directory.public_key.read_text().strip()
    others = [
        Client(
            name,
            drawn_evaluations(queries=120, seed=ord(name)),
            encoder="one",
            identity=replace(Identity.read(key.private, {}), pins=PinnedKeys(ShortMemory(), name, keys[name])),
        )
        for name, key in made.items()
    ]
    folder = tmp_path / "run"
    folder.mkdir()
    sign = question_signer(open_coordinator(tmp_path / "coordinator").authority_key)
    members = LocalFederation([client_of(directory.path), *others])
    result = perform(KMEANS, members, folder, ProgressLog(folder), sign=sign, keys=keys)
    evidence = result["vote"]["evidence"]
    assert evidence["queries"] > 0  # the client of the state directory derived the vote, too
    assert evidence["from_others"]["queries"] == 120  # of the members, only it can take its own rows out
    return folder / "bundle"


def test_the_client_subtracts_exactly_its_own_sums_and_records_nothing(directory, bundle):
    before = directory.journal.read_bytes()
    router = load(bundle).router
    with own_sums(directory, client_of) as federation:
        without = remove_clients(router, federation)
    others = router.sums.count.sum() - without.sums.count.sum()
    assert 100 <= others <= 120  # rows that minimum group sizes withhold are not in the router either
    found = contribution(directory, bundle)
    assert found.queries == 120
    assert [one["tradeoff"] for one in found.gave] == [one["tradeoff"] for one in found.got]
    assert all(np.isfinite(list(one.values())).all() for one in (*found.gave, *found.got))
    assert directory.journal.read_bytes() == before


def test_the_bundle_delivered_last_is_the_default(directory, bundle):
    with pytest.raises(BadInput, match="no bundle was delivered yet; `fedrouter federation pull` fetches"):
        contribution(directory)
    directory.bundles.mkdir()
    set_current(directory, {"bundle": str(bundle), "run": "run-1", "digest": ""})
    assert contribution(directory).to_json() == contribution(directory, bundle).to_json()


def test_what_all_members_got_is_the_total_of_what_each_got(directory, bundle):
    """Here of one member, as the others cannot say: so it is what that one gets to see of itself."""
    evidence = json.loads((bundle.parent / "result.json").read_bytes())["vote"]["evidence"]
    directory.bundles.mkdir()
    entry = {"bundle": str(bundle), "run": "run-1", "digest": "", "from_others": evidence["from_others"]}
    set_current(directory, entry)
    found = contribution(directory)
    for whole, own in zip(found.whole["changes"], found.got, strict=True):
        assert whole == pytest.approx(own, rel=0.02, abs=1e-6)
    said = command.run("federation", "contribution", directory.path).stdout
    assert "What all got: the others' router instead of their best single model, on 120 queries of all members" in said
    assert said.count("for 1,000 queries") == 12
    set_current(directory, {**entry, "from_others": {"queries": 1, "changes": [{"tradeoff": "[bold]"}]}})
    assert contribution(directory).whole is None


def test_a_client_that_is_not_in_the_router_is_told(directory, bundle):
    directory.write_config(replace(directory.config(), name="omega"))
    with pytest.raises(BadInput, match="omega is not a client of this router, which has alpha, b, c, d"):
        contribution(directory, bundle)


def test_the_command_shows_both_sides(directory, bundle):
    said = command.run("federation", "contribution", directory.path, "--bundle", bundle).stdout
    assert "What you got" in said
    assert "What you gave" in said
    assert said.count("for 1,000 queries") == 8
    assert command.answer("federation", "contribution", directory.path, "--bundle", bundle)["queries"] == 120
