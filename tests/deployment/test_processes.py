"""A federation of real processes makes the same routers as one in a single process, through kills on both sides, and
nothing of a prompt or an embedding is found in anything they leave behind."""

import io
import json
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from deployment.real_federation import RealFederation
from fedrouter.deployment.client.local_client import client_of
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import CHECKPOINT
from fedrouter.deployment.runs.submission import RunFailed, submit
from fedrouter.federation.federation import Federation
from fedrouter.federation.privacy.journal import Journal

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta", "gamma")
KMEANS = Job(family="kmeans", settings={"k_local": 6, "k_global": 8}, quorum=2, timeout=90, gather=90)
MLP = Job(family="mlp", settings={"rounds": 3, "hidden": [16]}, quorum=2, timeout=90, gather=90)


@pytest.fixture(scope="module")
def federation(world, tmp_path_factory):
    real = RealFederation(tmp_path_factory.mktemp("federation"), world, NAMES)
    try:
        real.start_all()
        yield real
    finally:
        real.stop_all()


@pytest.fixture(scope="module")
def mirror(federation):
    """The same clients in this process. They remember what they have sent as the others do, so runs go in step."""
    return [client_of(federation.root / "mirror" / name) for name in NAMES]


def same_over_the_wire(job, federation, mirror):
    bundle, lines = federation.run(f"plain-{job.family}", job)
    assert bundle == federation.in_process(federation.root / "local" / job.family, job, mirror)
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["step"] for line in steps] == list(range(1, steps[0]["steps"] + 1))
    assert not any(line["missing"] for line in steps)
    # What the clients sent one by one is gone once the router is made.
    assert not (federation.coordinator.runs / f"plain-{job.family}" / CHECKPOINT).exists()


def test_a_kmeans_router_learned_over_the_wire_is_the_one_that_the_in_process_engine_makes(federation, mirror):
    same_over_the_wire(KMEANS, federation, mirror)


def test_an_mlp_learned_over_the_wire_is_the_one_that_the_in_process_engine_makes(federation, mirror):
    same_over_the_wire(MLP, federation, mirror)


def test_a_coordinator_killed_and_restarted_continues_to_the_same_router(federation, mirror):
    job = replace(MLP, seed=6)

    class Enough(Exception):
        pass

    def kill(line):
        if line.get("step") == 1:
            federation.kill("coordinator")
            raise Enough

    with pytest.raises(Enough):
        federation.run("coordinator-killed", job, kill)
    checkpoint = federation.coordinator.runs / "coordinator-killed" / CHECKPOINT
    before = {path.name for path in checkpoint.glob("*.safetensors")}
    assert "00002-train.safetensors" in before
    shutil.copytree(checkpoint, federation.root / "checkpoint-kept")  # to be searched below
    federation.start()
    federation.until(lambda: federation.online() == set(NAMES), "all clients are back by themselves")
    bundle, lines = federation.run("coordinator-killed", job)
    assert [line["step"] for line in lines if line["event"] == "step"] == [2, 3]  # the first round is not done again
    assert bundle == federation.in_process(federation.root / "local" / "resumed", job, mirror)


def test_a_secure_run_over_the_wire_makes_the_same_router_from_totals_alone(federation, mirror):
    job = replace(KMEANS, seed=7, secure=2 / 3)
    bundle, _ = federation.run("secure", job)
    assert bundle == federation.in_process(federation.root / "local" / "secure", job, mirror)
    over_the_wire, local = (
        json.loads((folder / "secure" / "result.json").read_bytes())["vote"]["evidence"]
        for folder in (federation.coordinator.runs, federation.root / "local")
    )
    assert over_the_wire["from_others"] == local["from_others"]
    assert 0 < local["from_others"]["queries"] <= local["queries"]
    sent = {name: journal_verbs(directory) for name, directory in federation.clients.items()}
    steps = ["hello", "keys", "cluster", "shares", "deliver", *["masked"] * 2]
    asked = {name: [verb for verb in verbs if verb != "follow"] for name, verbs in sent.items()}
    assert {name: verbs[-len(steps) :] for name, verbs in asked.items()} == dict.fromkeys(sent, steps)


def journal_verbs(directory):
    journal = Journal(directory.journal)
    verbs = [entry.verb for entry in journal.entries()]
    journal.close()
    return verbs


class Without(Federation):
    """A federation of which one client no longer answers one verb."""

    def __init__(self, federation, verb, client):
        self.federation, self.verb, self.client = federation, verb, client

    def clients(self):
        return self.federation.clients()

    def ask(self, verb, payload, to=None):
        to = self.clients() if to is None else to
        return self.federation.ask(verb, payload, [n for n in to if (verb, n) != (self.verb, self.client)])


def test_a_client_killed_in_a_round_costs_only_its_contribution(federation, mirror):
    job = replace(KMEANS, seed=5, timeout=30)

    def kill(line):
        if line.get("stage") == "cluster":
            federation.kill("gamma")

    bundle, lines = federation.run("client-killed", job, kill)
    named = [line for line in lines if line["event"] == "dropped"]
    assert [(line["client"], line["verb"]) for line in named] == [("gamma", "statistics")]
    assert [line["missing"] for line in lines if line.get("stage") == "statistics"] == [
        {"gamma": {"statistics": named[0]["reason"]}}
    ]
    expected = federation.in_process(
        federation.root / "local" / "killed", job, mirror, lambda local: Without(local, "statistics", "gamma")
    )
    assert bundle == expected
    before = federation.connections("gamma")
    federation.start("gamma")
    federation.until(lambda: federation.connections("gamma") > before, "the client is back")


def test_a_run_that_is_done_is_not_done_again_and_another_of_its_name_is_refused(federation):
    assert submit(federation.coordinator, "plain-kmeans", KMEANS).done
    with pytest.raises(Exception, match="other settings"):
        submit(federation.coordinator, "plain-kmeans", replace(KMEANS, seed=1))


def test_an_error_in_a_client_sends_its_type_and_nothing_else(federation):
    directory = federation.clients["beta"]
    before = directory.config()
    secret = "CANARY-in-an-error the text of a prompt"
    directory.write_config(replace(before, log=str(federation.root / f"{secret}.parquet")))  # its error quotes the path
    with pytest.raises(RunFailed, match="quorum"):
        federation.run("error", replace(KMEANS, quorum=3))
    directory.write_config(before)
    progress = (federation.coordinator.runs / "error" / "progress.jsonl").read_text()
    assert '"client": "beta", "verb": "hello", "reason": "refused: BadInput"' in progress
    assert not [path for path, content in left_behind(federation) if secret.encode() in content]


def left_behind(federation):
    """Every file of the federation, and of the journals what they hold compressed; the clients' own logs apart."""
    for path in federation.root.rglob("*"):
        if path.is_file() and path.parent.name != "logs" and path.parent.parent.name != "mirror":
            yield path, path.read_bytes()
    for directory in federation.clients.values():
        database = sqlite3.connect(f"file:{directory.journal}?mode=ro", uri=True)
        for table in ("sent", "memory"):
            for (content,) in database.execute(f"SELECT arrays FROM {table}"):
                with np.load(io.BytesIO(content)) as arrays:
                    for name in arrays.files:
                        yield f"{directory.journal}:{table}:{name}", arrays[name].tobytes()
        database.close()


def test_no_prompt_and_no_embedding_is_found_in_anything_left_behind(federation):
    federation.stop_all()
    places = list(left_behind(federation))
    names = {str(path) for path, _ in places}
    # The search looks where things are: databases, journals, checkpoints, logs, outputs, bundles.
    for part in ("superlink.db", "superlink.log", "journal.sqlite", "coordinator.output",
                 "checkpoint-kept", "progress.jsonl", "router.safetensors", ":sent:", "client.log"):  # fmt: skip
        assert any(part in name for name in names), part
    prompts = {mark.split(" ", 1)[1].encode() for mark in federation.marks}
    embeddings = Needles(np.concatenate(federation.embeddings))
    for path, content in places:
        assert b"CANARY-" not in content, path
        assert not [prompt for prompt in prompts if prompt in content], path
        assert not embeddings.are_in(content), path


class Needles:
    """Every sixteen bytes of some embeddings, at three precisions, to look for wherever they may begin.

    Of their first 256 numbers, which come from words: the others, from the shape of a text, are mostly zero.
    """

    def __init__(self, embeddings):
        words = embeddings[:, :256]
        pieces = np.concatenate([words.astype(kind).view("<u8").reshape(-1, 2) for kind in ("<f2", "<f4", "<f8")])
        self.whole = {piece.tobytes() for piece in pieces}
        self.starts = np.unique(pieces[:, 0])

    def are_in(self, content):
        count = max(0, len(content) - 15)
        single = np.frombuffer(content, np.uint8)
        eights = np.zeros(count, np.uint64)
        for place in range(8):
            eights |= single[place : place + count].astype(np.uint64) << np.uint64(8 * place)
        near = np.minimum(np.searchsorted(self.starts, eights), len(self.starts) - 1)
        likely = np.flatnonzero(self.starts[near] == eights)
        return any(content[place : place + 16] in self.whole for place in likely)


def test_the_search_would_find_a_part_of_an_embedding(federation):
    row = federation.embeddings[0][3]
    for kind in ("<f2", "<f4", "<f8"):
        part = row.astype(kind).tobytes()[64:96]
        assert Needles(row[None]).are_in(b"\x07rubbish" + part + b"and more of it")
        assert not Needles(row[None]).are_in(b"\x07rubbish" + part[::-1] + b"and more of it")
