"""Secure sums through kills: a client at every step of the protocol, the coordinator at every step, the SuperLink.

Processes are real and are killed with SIGKILL, after the exchange that ends a step.
"""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from deployment.real_federation import RealFederation, descendants
from fedrouter.deployment.client.local_client import client_of
from fedrouter.deployment.runs.job import Job
from fedrouter.federation.federation import Federation

pytestmark = pytest.mark.slow
NAMES = ("alpha", "beta", "delta", "gamma")
JOB = Job(
    family="kmeans", settings={"k_local": 6, "k_global": 8}, quorum=2, timeout=20, gather=120, secure=2 / 3
)  # fmt: skip
MLP = replace(JOB, family="mlp", settings={"rounds": 1, "hidden": [8]})
"""Has sums that are unmasked in an exchange of their own; those of K-Means are joint."""
STEPS = ("keys", "shares", "masked")
"""Steps of a run of K-Means after which something is killed; the second ``masked`` is the vote's."""


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


class Gone(Federation):
    """A federation of which one client answers nothing after the exchange of one step."""

    def __init__(self, federation, step, client):
        self.federation, self.step, self.client, self.gone = federation, step, client, False

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        answers = super().ask_all(questions, to)
        self.gone = self.gone or any(question.verb == self.step for question in questions)
        return answers

    def ask(self, verb, payload, to=None):
        to = self.clients() if to is None else to
        return self.federation.ask(verb, payload, [name for name in to if not (self.gone and name == self.client)])


def after(step, kill):
    """Kills once, after the exchange of a step."""
    done = []

    def on_event(line):
        if not done and line["event"] == "exchange" and step in line["verbs"]:
            done.append(line)
            kill()

    return on_event


@pytest.mark.parametrize(
    ("job", "step"), [*((replace(JOB, seed=seed), step) for seed, step in enumerate(STEPS)), (MLP, "masked")]
)
def test_a_client_killed_after_any_step_costs_at_most_its_contribution(federation, mirror, job, step):
    before = federation.connections("gamma")
    name = f"{job.family}-client-killed-after-{step}"
    bundle, _ = federation.run(name, job, after(step, lambda: federation.kill("gamma")))
    local = federation.in_process(
        federation.root / "local" / name, job, mirror, lambda inner: Gone(inner, step, "gamma")
    )
    assert bundle == local
    federation.start("gamma")
    federation.until(lambda: federation.connections("gamma") > before, "the client is back")


@pytest.mark.parametrize(
    ("job", "step"),
    [
        *((replace(JOB, seed=10 + seed), step) for seed, step in enumerate(STEPS)),
        *((replace(MLP, seed=13 + seed), step) for seed, step in enumerate(("masked", "unmask"))),
    ],
)
def test_a_coordinator_killed_after_any_step_resumes_to_the_same_router(federation, mirror, job, step):
    name = f"{job.family}-coordinator-killed-after-{step}"

    class Killed(Exception):
        pass

    def kill():
        federation.kill("coordinator")
        raise Killed

    with pytest.raises(Killed):
        federation.run(name, job, after(step, kill))
    federation.start()
    federation.until(lambda: federation.online() == set(NAMES), "all clients are back by themselves")
    bundle, _ = federation.run(name, job)
    assert bundle == federation.in_process(federation.root / "local" / name, job, mirror)


def test_a_superlink_killed_alone_is_restarted_and_the_run_ends_in_the_same_router(federation, mirror):
    job, name = replace(JOB, seed=20, timeout=60), "superlink-killed"

    def kill():
        for pid in descendants(federation.processes["coordinator"].pid)[1:]:
            if b"superlink" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    bundle, _ = federation.run(name, job, after("shares", kill))
    assert bundle == federation.in_process(federation.root / "local" / name, job, mirror)
