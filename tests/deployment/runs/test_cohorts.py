"""Runs under secure sums after a client dropped out, joined or left: what unchanged logs do not allow."""

from collections import defaultdict
from dataclasses import replace

import pytest

from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog, Tail
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.federation import NothingToLearn
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.rederivation import Rederivation

AUTO = Job(
    family="auto",
    secure=2 / 3,
    settings={"candidates": ["query_blind", "linear"], "folds": 1, "directions": 4},
)
LEFT_OUT = (
    "linear: left out of the blend, clients withhold second moments of its queries: they sent the same with one client "
    "more or less, and their logs have not changed since"
)


class Members:
    """Clients whose memories outlive the runs and the changes of the logs."""

    def __init__(self):
        self.memories = defaultdict(ShortMemory)

    def federation(self, names, seed=0, kind=LocalFederation):
        return kind(
            Client(
                name,
                drawn_evaluations(queries=150, seed=100 * seed + ord(name)),
                memory=self.memories[name],
                encoder="one",
                rederivation=Rederivation(name),
            )
            for name in names
        )


@pytest.fixture
def members():
    return Members()


def run(folder, federation, job=AUTO):
    """The families in the router that is learned, and the notes to the user."""
    folder.mkdir()
    perform(job, federation, folder, ProgressLog(folder))
    notes = [line["text"] for line in Tail(folder).lines() if line["event"] == "note"]
    return {part.family for part in load(folder / "bundle").router.parts}, notes


@pytest.mark.parametrize("others", ["abc", "abcde"], ids=["one client less", "one client more"])
def test_auto_leaves_out_what_is_withheld_and_says_so_until_the_logs_have_changed(members, tmp_path, others):
    assert run(tmp_path / "first", members.federation("abcd"))[1] == []
    learned, notes = run(tmp_path / "others", members.federation(others))
    assert "linear" not in learned
    assert notes == [LEFT_OUT]
    assert run(tmp_path / "changed", members.federation(others, seed=1))[1] == []


class Losing(LocalFederation):
    """Loses the masked vectors of the client ``d``."""

    def ask(self, verb, payload, to=None):
        replies = super().ask(verb, payload, to)
        return {name: reply for name, reply in replies.items() if (name, verb) != ("d", "masked")}


def test_a_client_that_drops_out_of_a_later_run_costs_what_is_withheld_and_not_the_run(members, tmp_path):
    run(tmp_path / "first", members.federation("abcd"))
    learned, notes = run(tmp_path / "lossy", members.federation("abcd", kind=Losing))
    assert "linear" not in learned
    assert notes == [LEFT_OUT]


def test_a_family_that_needs_what_is_withheld_says_so_in_one_line(members, tmp_path):
    job = replace(AUTO, family="linear", settings={"directions": 4})
    (tmp_path / "first").mkdir()
    perform(job, members.federation("abcd"), tmp_path / "first", ProgressLog(tmp_path / "first"))
    with pytest.raises(NothingToLearn, match="nothing to learn: clients withhold second moments"):
        run(tmp_path / "second", members.federation("abc"), job)
    assert not (tmp_path / "second" / "bundle").exists()
