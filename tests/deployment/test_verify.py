"""`federation verify` on another machine, `audit` as an owner reads it: totals and journals of real members."""

import json
import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("flwr")

from cli.command import COMMAND, answer, run
from federation.federations import ENCODER, Federation, rows_of
from fedrouter.bundle import load
from fedrouter.deployment.home import AGREEMENT, furthest
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import fingerprint
from fedrouter.federation.member import EXCHANGES

MACHINES = {"one": {}, "other": {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "2", "PYTHONHASHSEED": "1"}}
"""Linear algebra of two kinds of CPU: the routines chosen for this one, and those of twenty years ago."""


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    made = Federation(tmp_path_factory.mktemp("federation"))
    for epoch in (1, 2):
        made.rows = {name: learnable(rows_of(10 * epoch + at, 400)) for at, name in enumerate(made.names)}
        made.run()
    yield made
    made.close()


def learnable(rows):
    """Accuracies that follow from the embeddings, so that there is a router to compute."""
    return replace(rows, accuracy=(rows.embeddings[rows.query, rows.model] > 0).astype(float))


def verified(folder, coordinator, out, environment):
    words = ["verify", folder, "--coordinator", coordinator, "--out", out, "--json"]
    done = subprocess.run(
        [*COMMAND, "federation", *map(str, words)], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), load(out).router


def test_another_machine_computes_the_same_evidence_to_the_bit_and_the_same_router(federation, tmp_path):
    key, found = federation.signing.public.hex(), []
    for name, environment in MACHINES.items():
        # Each has the totals of another member, and nothing else of the federation.
        folder = federation.folder / ("m0" if name == "one" else "m1") / "totals"
        found.append(verified(folder, key, tmp_path / name, environment))
    (first, one), (second, other) = found
    assert first["epochs"] == second["epochs"] == [1, 2]
    assert first["sum"] == second["sum"]
    assert np.array_equal(one.total.vector(), other.total.vector())
    queries = np.random.default_rng(1).normal(size=(256, one.dimension))
    assert furthest([one, other]) <= AGREEMENT
    before, after = (router.estimate(queries) for router in (one, other))
    assert np.abs(before.accuracy - after.accuracy).max() <= AGREEMENT
    assert np.abs(before.cost / after.cost - 1).max() <= AGREEMENT
    assert before.accuracy.std() > 0.01  # or agreeing would be no feat


def test_a_changed_total_and_another_key_are_refused(federation):
    folder, key = federation.folder / "m2" / "totals", federation.signing.public.hex()
    assert "did not sign" in run("federation", "verify", folder, "--coordinator", "00" * 32).stderr
    file = folder / "epoch-2.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "rows": document["rows"] + 100}))
    done = run("federation", "verify", folder, "--coordinator", key)
    assert (done.returncode, "epoch 2: a total that the coordinator did not sign" in done.stderr) == (2, True)


def test_audit_shows_everything_that_left_and_the_very_numbers(federation, tmp_path):
    folder, member = federation.folder / "m1", federation.members["m1"]
    member.answer(Frame("keys", {"epoch": 9, "terms": []}).pack())
    config = {"name": "m1", "log": "log.csv", "encoder": ENCODER}
    (folder / "member.json").write_text(json.dumps(config))
    told = answer("federation", "audit", folder, "--out", tmp_path / "numbers")
    assert [(each["epoch"], each["exchange"]) for each in told["sent"]] == [
        (epoch, exchange) for epoch in (1, 2) for exchange in EXCHANGES
    ]
    assert all(each["words"] and each["bytes"] for each in told["sent"])
    assert "a signature under the list of members in the total: m0, m1, m2" in [each["words"] for each in told["sent"]]
    assert (told["totals"], told["refused"]) == ([1, 2], {"message": 1})
    for release, file in zip(member.journal.releases(), told["files"], strict=True):
        with np.load(file) as arrays:
            assert np.array_equal(arrays["sent"], release.sent)
            assert np.array_equal(arrays["without_noise"], release.exact)
    fingerprints = {name: fingerprint(key.public) for name, key in federation.keys.items()}
    assert told["epochs"] == [{"epoch": epoch, "members": fingerprints, "total": federation.names} for epoch in (1, 2)]
    words = run("federation", "audit", folder).stdout
    assert words.split("Who took part")[1].count("m0, m1, m2") == 4  # of two epochs, in the terms and in the total
    for said in ("about 400 queries", "never leaves again", "ε = 8", "with a word each", "model-0, model-1, model-2"):
        assert said in words
