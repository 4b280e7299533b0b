"""The journal: everything sent is written down whole, only ever added to, and shows when it was not."""

import multiprocessing
import os
import sqlite3
import stat

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.errors import BadInput, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import Centroids, ClusterRequest
from fedrouter.federation.families.mlp import CostsRequest
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.verbs.hello import HelloRequest

MODELS = ("model-0", "model-1", "model-2")


def message(seed=0):
    draw = np.random.default_rng(seed)
    return Centroids(draw.normal(size=(3, 4)).astype(np.float32), np.array([5, 6, 7]))


@pytest.fixture
def journal(tmp_path):
    with_three = Journal(tmp_path / "journal.sqlite")
    for seed in range(3):
        with_three.sent("cluster", message(seed), '{"epsilon": 1.5}' if seed else "")
    yield with_three
    with_three.close()


def edit(journal, statement, *values):
    """As someone does who can write the file and knows SQL."""
    with sqlite3.connect(journal.path) as database:
        database.execute("DROP TRIGGER sent_is_never_changed")
        database.execute("DROP TRIGGER sent_is_never_deleted")
        database.execute(statement, values)
    database.close()


def test_everything_a_client_answers_is_written_down_as_it_left(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    client = Client("one", drawn_evaluations(), memory=journal)
    asked = {
        "hello": HelloRequest(),
        "cluster": ClusterRequest(4, 1, 5, 0),
        "costs": CostsRequest(MODELS),
    }
    replies = {verb: client.answer(verb, request) for verb, request in asked.items()}
    assert [(one.number, one.verb) for one in journal.entries()] == list(enumerate(asked, start=1))
    for one in journal.entries():
        verb, (arrays, scalars) = journal.message(one.number)
        kept, left = type(replies[verb]).unpack((arrays, scalars)).pack(), replies[verb].pack()
        assert kept[1] == left[1]
        assert kept[0].keys() == left[0].keys()
        for name, array in left[0].items():
            assert array.dtype == kept[0][name].dtype
            assert np.array_equal(array, kept[0][name])
        assert one.bytes == replies[verb].size
        assert one.shapes == {name: list(array.shape) for name, array in left[0].items()}


def test_a_refused_question_is_not_written_down_as_sent(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    client = Client("one", drawn_evaluations(), memory=journal)
    with pytest.raises(Exception, match="unknown verb"):
        client.answer("rows", HelloRequest())
    assert journal.verify() == 0


@pytest.mark.parametrize("statement", ["UPDATE sent SET verb = 'hello'", "DELETE FROM sent WHERE number = 3"])
def test_the_database_itself_refuses_to_change_what_was_sent(journal, statement):
    with sqlite3.connect(journal.path) as database, pytest.raises(sqlite3.IntegrityError, match="cannot be"):
        database.execute(statement)
    database.close()
    assert journal.verify() == 3


@pytest.mark.parametrize(
    ("statement", "first"),
    [
        ("UPDATE sent SET time = '2001-01-01' WHERE number = 2", 2),
        ("UPDATE sent SET bytes = bytes + 1 WHERE number = 1", 1),
        ("UPDATE sent SET spent = '' WHERE number = 3", 3),
        ("UPDATE sent SET arrays = (SELECT arrays FROM sent WHERE number = 1) WHERE number = 2", 2),
        ("DELETE FROM sent WHERE number = 2", 2),
        ("DELETE FROM sent WHERE number = 1", 1),
    ],
)
def test_an_edit_around_the_database_shows(journal, statement, first):
    edit(journal, statement)
    with pytest.raises(BadInput, match=f"message {first} is missing or is not as it was written"):
        journal.verify()


def test_a_tail_that_was_cut_off_shows_only_in_the_last_fingerprint(journal):
    last = [one.chain for one in journal.entries()]
    edit(journal, "DELETE FROM sent WHERE number = 3")
    assert journal.verify() == 2
    assert [one.chain for one in journal.entries()][-1] == last[1] != last[2]


def test_only_its_owner_may_read_it(tmp_path):
    before = os.umask(0)
    try:
        journal = Journal(tmp_path / "journal.sqlite")
        journal.sent("cluster", message())
        journal.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_it_goes_on_where_it_was_when_opened_again(journal):
    journal.remember("centroids", {"centres": np.eye(2)})
    last = list(journal.entries())[-1]
    again = Journal(journal.path)
    again.sent("cluster", message(3))
    assert again.verify() == 4
    assert list(again.entries())[2] == last
    assert np.array_equal(again.recall("centroids")["centres"], np.eye(2))
    again.close()


def send_many(path, seed):
    journal = Journal(path)
    for _ in range(20):
        journal.sent("cluster", message(seed))
    journal.close()


def test_two_processes_at_once_keep_one_chain(tmp_path):
    path = tmp_path / "journal.sqlite"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=send_many, args=(path, seed)) for seed in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    journal = Journal(path, reading=True)
    assert journal.verify() == 40
    journal.close()


def test_what_is_remembered_is_recalled_changed_and_forgotten(journal):
    assert journal.recall("sums/a") is None
    for key in ("sums/b", "sums/a", "summary"):
        journal.remember(key, {"": np.arange(3), "two words": np.zeros((0, 2), np.float32)})
    journal.remember("sums/b", {"x": np.array([9])})
    assert [sorted(arrays) for arrays in journal.remembered("sums/")] == [["x"], ["", "two words"]]
    kept = journal.recall("sums/a")
    assert np.array_equal(kept[""], np.arange(3))
    assert kept["two words"].shape == (0, 2)
    journal.forget("sums/a")
    journal.forget("never there")
    assert journal.recall("sums/a") is None
    assert journal.verify() == 3


def test_a_journal_that_is_read_stays_as_it_is(journal):
    reader = Journal(journal.path, reading=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.sent("cluster", message())
    reader.close()


def test_what_is_no_journal_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no journal"):
        Journal(tmp_path / "none.sqlite", reading=True)
    assert not (tmp_path / "none.sqlite").exists()
    (tmp_path / "text").write_text("not a database, but long enough to be taken for one" * 20)
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE things (a)")
    other.close()
    for name, reading in (("text", False), ("text", True), ("other.sqlite", True)):
        with pytest.raises(BadInput, match="another kind of file"):
            Journal(tmp_path / name, reading=reading)


def test_a_message_that_was_never_sent_is_refused(journal):
    with pytest.raises(BadInput, match="no message number 4"):
        journal.message(4)


def test_every_question_is_written_down_with_what_became_of_it(tmp_path):
    journal = Journal(tmp_path / "journal.sqlite")
    client = Client("one", drawn_evaluations(), PrivacyPolicy(secure_only=True), memory=journal)
    client.answer("cluster", ClusterRequest(4, 1, 5, 7))
    with pytest.raises(Refused, match="secure aggregation only"):
        client.answer("costs", CostsRequest(MODELS))
    client.reply_to_mask("costs", CostsRequest(MODELS))
    asked = list(journal.questions())
    assert [(one.verb, one.outcome) for one in asked] == [
        ("cluster", "sent"),
        ("costs", "refused"),
        ("costs", "masked"),
    ]
    assert ClusterRequest.unpack(journal.question(1)[1]).seed == 7
    assert journal.verify() == 1
    with sqlite3.connect(journal.path) as database:
        with pytest.raises(sqlite3.IntegrityError, match="cannot be changed"):
            database.execute("UPDATE asked SET outcome = 'sent'")
        database.execute("DROP TRIGGER asked_is_never_changed")
        database.execute("UPDATE asked SET outcome = 'sent' WHERE number = 2")
    database.close()
    with pytest.raises(BadInput, match="question 2 is missing or is not as it was written down"):
        journal.verify()
    journal.close()


def test_a_client_answers_so_many_questions_of_a_kind_in_a_day(tmp_path):
    for memory in (None, Journal(tmp_path / "journal.sqlite")):
        client = Client("one", drawn_evaluations(), PrivacyPolicy(questions_a_day=2, secure_only=False), memory=memory)
        for size in (1, 2):
            client.answer("costs", CostsRequest(MODELS[:size]))
        with pytest.raises(Refused, match="answered it 2 times in a day"):
            client.answer("costs", CostsRequest(MODELS))
        client.answer("cluster", ClusterRequest(4, 1, 5, 0))
        if memory:
            memory.close()


@pytest.mark.parametrize("setting", [{"least_cohort": 2}, {"cohort_gap": -1}, {"questions_a_day": 0}])
def test_impossible_settings_are_refused(setting):
    with pytest.raises(BadInput, match=f"privacy, {next(iter(setting))}: expected a whole number"):
        PrivacyPolicy(**setting)
