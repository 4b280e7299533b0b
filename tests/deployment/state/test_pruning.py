"""A pruned journal is smaller and can still be verified; budget and memory of what was released are as before."""

import json
import sqlite3
import time
from datetime import UTC, datetime

import pytest

from conftest import drawn_evaluations
from fedrouter.deployment.state.pruning import LEAST_AGE, prune
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.privacy import journal as journals
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.verbs.cost_scale import CostScaleRequest

DAY = 86400.0
POLICY = PrivacyPolicy(differential_privacy=DifferentialPrivacy(50.0), secure_only=False)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The journal of a client that answered two questions sixty days ago, and two today."""

    class LongAgo(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime.fromtimestamp(time.time() - 60 * DAY, zone or UTC)

    path = tmp_path / "journal.sqlite"
    for models, clock in ((("model-0",), LongAgo), (("model-1",), LongAgo), (("model-2",), datetime), ((), datetime)):
        with monkeypatch.context() as patched:
            patched.setattr(journals, "datetime", clock)
            journal = Journal(path)
            request = CostScaleRequest(models or ("model-0", "model-1"))
            Client("one", drawn_evaluations(), POLICY, journal).answer("cost_scale", request)
            journal.close()
    return path


def test_old_messages_go_and_the_rest_is_verified_with_the_same_last_fingerprint(path):
    before = Journal(path)
    entries, spent = list(before.entries()), Client("one", drawn_evaluations(), POLICY, before).accountant.spent()
    before.close()
    done = prune(path, time.time() - 30 * DAY)
    assert done.removed["sent"] == 2
    after = Journal(path)
    assert after.verify() == 2
    assert [entry.number for entry in after.entries()] == [3, 4]
    assert list(after.entries()) == entries[2:]
    assert Client("one", drawn_evaluations(), POLICY, after).accountant.spent() == spent
    with pytest.raises(BadInput, match="no message number 1"):
        after.message(1)
    Client("one", drawn_evaluations(), POLICY, after).answer("cost_scale", CostScaleRequest(("model-2", "model-0")))
    assert after.verify() == 3
    after.close()
    assert json.loads(entries[-1].spent)["epsilon"] == pytest.approx(spent, abs=1e-5)
    assert prune(path, time.time() - 30 * DAY).removed["sent"] == 0


def test_what_is_left_still_cannot_be_changed_or_deleted(path):
    prune(path, time.time() - 30 * DAY)
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("DELETE FROM sent", "UPDATE sent SET verb = 'x'"):
        with pytest.raises(sqlite3.DatabaseError, match="what was sent cannot be"):
            database.execute(statement)
    database.execute("DROP TRIGGER sent_is_never_changed")
    database.execute("UPDATE sent SET verb = 'x' WHERE number = 3")
    database.close()
    journal = Journal(path)
    with pytest.raises(BadInput, match="message 3 is missing or is not as it was"):
        journal.verify()
    journal.close()


def test_the_last_message_stays_so_that_the_chain_goes_on(path):
    database = sqlite3.connect(path)
    (last,) = database.execute("SELECT max(number) FROM sent").fetchone()
    database.close()
    assert last == 4
    prune(path, time.time() - LEAST_AGE - 1)
    journal = Journal(path)
    assert [entry.number for entry in journal.entries()][-1] == 4
    journal.close()


def test_recent_messages_and_altered_journals_are_not_pruned(path):
    with pytest.raises(BadInput, match="at least 7 days"):
        prune(path, time.time() - DAY)
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("DROP TRIGGER sent_is_never_changed")
    database.execute("UPDATE sent SET verb = 'x' WHERE number = 1")
    database.close()
    with pytest.raises(BadInput, match="message 1 is missing or is not as it was"):
        prune(path, time.time() - 30 * DAY)
