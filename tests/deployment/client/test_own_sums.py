"""A client subtracts its own sums from the router at home, to vote on it; its journal records nothing of it."""

from dataclasses import replace

import pytest

from conftest import drawn_evaluations, write_log
from fedrouter.bundle import load
from fedrouter.deployment.client.local_client import client_of, without_own
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.credentials import make_client_key, question_signer
from fedrouter.deployment.state.directories import create_client, create_coordinator, open_coordinator
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
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
    made.write_config(replace(made.config(), log=str(write_log(tmp_path / "log.parquet", rows)), encoder="one"))
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
    without = without_own(directory, router)
    own = router.sums.count.sum() - without.sums.count.sum()
    assert 100 <= own <= 120  # rows that minimum group sizes withhold are not in the router either
    assert directory.journal.read_bytes() == before
