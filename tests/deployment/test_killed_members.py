"""Members' and coordinators' processes are killed at every moment of an epoch; its total is the exact sum, once.

Real processes with real journals over real sockets, without Flower, which ``test_kills.py`` has.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from deployment.epoch_over_sockets import JOB, OverSockets
from deployment.real_federation import COMMAND, NAMES, write_logs
from fedrouter.deployment.directories import CoordinatorDirectory, MemberDirectory, create_coordinator, create_member
from fedrouter.deployment.invitation import Invitation, JoinRequest
from fedrouter.deployment.member import opened
from fedrouter.deployment.own_log import read_own
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.encoders.identity import STATIC
from fedrouter.encoders.registry import open_encoder
from fedrouter.federation.coordinator import Coordinator
from fedrouter.federation.epoch import run_epoch
from fedrouter.federation.frame import Frame
from fedrouter.federation.member import EXCHANGES
from fedrouter.federation.policy import Policy
from fedrouter.release import Release

pytestmark = pytest.mark.slow
VICTIM = NAMES[0]
PARTS = 40


class Processes:
    """Three members' processes and a coordinator's directory."""

    def __init__(self, folder):
        self.folder, self.running, self.part = folder, {}, 0
        write_logs(folder, parts=PARTS)
        made = create_coordinator(
            folder / "c", ["localhost"], 9092, None, open_encoder(STATIC).identity(), {"epsilon": 0, "days": 7}
        )
        self.coordinator = made.path
        models = read_own(str(folder / f"{NAMES[0]}.csv"), STATIC)[0].pool.names
        for name in NAMES:
            settings = {"log": str(folder / f"{name}.csv"), "encoder": STATIC}
            create_member(folder / name, Invitation.unpack(made.invitation()), name, models, settings)
            file = folder / name / "policy.yaml"
            replace(Policy.read(file), interval_days=0.0, epsilon=0.0).write(file)
            with CoordinatorDirectory(folder / "c").editing_roster() as roster:
                roster[name] = JoinRequest.unpack((folder / name / "request").read_text().strip())
            self.start(name)

    def start(self, name):
        self.running[name] = subprocess.Popen(
            [*COMMAND, "federation", "member", self.folder / name, "--relay", self.folder / "r" / name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, name):
        self.running[name].kill()
        self.running.pop(name).wait()
        self.start(name)

    def close(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(60)

    def grow(self):
        self.part += 1
        write_logs(self.folder, parts=PARTS, part=self.part)

    def rows(self):
        return [read_own(str(self.folder / f"{name}.csv"), STATIC)[0] for name in NAMES]

    def require_exact_sum(self):
        """All totals together are the plain sum of all logs: every query has left, and none of them twice."""
        coordinator = Coordinator(self.coordinator)
        totals = coordinator.totals()
        coordinator.close()
        assert [total.epoch for total in totals] == list(range(1, self.part + 2))
        rows, features = self.rows(), map_of_width(totals[0].terms.dimension)
        exact = sum(Release.of(each.over(totals[0].terms.pool), features).vector() for each in rows)
        assert np.array_equal(sum(total.vector for total in totals), exact)
        for name in NAMES:
            with opened(MemberDirectory(self.folder / name)) as member:
                assert [each.epoch for each in member.journal.releases()] == [total.epoch for total in totals]
                assert [total.epoch for total in member.totals] == [total.epoch for total in totals]


@pytest.fixture
def processes(tmp_path):
    made = Processes(tmp_path)
    yield made
    made.close()


class Killing(OverSockets):
    """Kills a member at each exchange: while it works, or after its reply, which is lost."""

    def __init__(self, processes, moment):
        super().__init__(processes.folder / "r")
        self.processes, self.moment, self.killed = processes, moment, []

    def ask(self, name, content, end):
        kind = Frame.unpack(content).kind
        if name != VICTIM or kind in self.killed:
            return super().ask(name, content, end)
        self.killed.append(kind)
        if self.moment == "after":
            lost = super().ask(name, content, end)
            self.processes.kill(name)
            again = super().ask(name, content, end)
            assert again == lost
            return again
        super().ask(name, b"not a message", end)  # its process is there
        asking = threading.Thread(target=self._vainly, args=(name, content))
        asking.start()
        time.sleep(0.01 * len(self.killed))  # each exchange at another moment of its work
        self.processes.kill(name)
        asking.join()
        return super().ask(name, content, end)

    def _vainly(self, name, content):
        with suppress(OSError):
            OverSockets.ask(self, name, content, time.monotonic() + 0.2)


def test_a_member_that_is_killed_at_every_exchange_sends_everything_once(processes):
    for moment in ("while", "after"):
        coordinator, link = Coordinator(processes.coordinator), Killing(processes, moment)
        total = run_epoch(coordinator, link, JOB)
        coordinator.close()
        assert link.killed == [*EXCHANGES, "total"]
        assert total.survivors == NAMES
        if moment != "after":
            processes.grow()
    processes.require_exact_sum()


def test_a_coordinator_that_is_killed_at_every_exchange_goes_on_from_disk(processes):
    """At the beginning of each exchange and after its first reply; then another epoch without a kill."""
    command = [sys.executable, "-m", "deployment.epoch_over_sockets", processes.coordinator, processes.folder / "r"]
    tests = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    for exchange in (*EXCHANGES, "total"):
        for outcome in ("total" if exchange == "total" else "asked", "answered"):
            done = subprocess.run([*command, exchange, outcome], env=tests, timeout=300)
            assert done.returncode == -signal.SIGKILL, (exchange, outcome)
    assert subprocess.run([*command, "never", ""], env=tests, timeout=300).returncode == 0
    processes.grow()
    assert subprocess.run([*command, "never", ""], env=tests, timeout=300).returncode == 0
    processes.require_exact_sum()


def test_two_processes_that_make_routers_make_each_once(processes):
    """A member that was killed leaves one behind; the other one waits for it, and finds nothing to do."""
    coordinator = Coordinator(processes.coordinator)
    victim = processes.running.pop(VICTIM)  # nobody but those below makes its router
    victim.kill()
    victim.wait()
    run = [sys.executable, "-m", "fedrouter.deployment.home", processes.folder / VICTIM]
    link = OverSockets(processes.folder / "r")
    with opened(MemberDirectory(processes.folder / VICTIM)) as member:
        usual = link.ask
        link.ask = lambda name, content, end: member.answer(content) if name == VICTIM else usual(name, content, end)
        run_epoch(coordinator, link, JOB)
    coordinator.close()
    both = [subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = sorted(each.communicate(timeout=300)[0] for each in both)
    assert [each.returncode for each in both] == [0, 0]
    assert said[0] == ""
    assert said[1].startswith("router of epoch 1 in ")
    assert (processes.folder / VICTIM / "bundle").exists()
