"""A federation in one process: real members and a real coordinator in their directories, each with a real journal."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedrouter.encoders.feature_map import map_of_width
from fedrouter.evaluations import Evaluations
from fedrouter.federation.coordinator import Coordinator
from fedrouter.federation.epoch import Job, run_epoch
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity, fingerprint
from fedrouter.federation.member import Log, Member
from fedrouter.federation.policy import Policy
from fedrouter.pool import ModelPool
from fedrouter.release import Release

ENCODER = "test-encoder"
POOL = ModelPool(["model-0", "model-1", "model-2"])
DIMENSION = 6


def rows_of(seed, queries=40, pool=POOL):
    """Evaluations of a member: each query answered by some of the models, with a text."""
    draw = np.random.default_rng(seed)
    answered = draw.random((queries, len(pool))) < 0.6
    answered[:, 0] |= ~answered.any(axis=1)
    query, model = np.nonzero(answered)
    return Evaluations(
        pool,
        draw.normal(size=(queries, DIMENSION)),
        query,
        model,
        draw.integers(0, 2, len(query)).astype(float),
        10 ** draw.uniform(-5, -2, len(query)),
        text=tuple(f"query {seed} {one}" for one in range(queries)),
    )


class InProcess:
    """A link to members in this process, by how they answer; ``lose`` says which replies are lost."""

    def __init__(self, members, lose=lambda exchange, member: False):
        self.members, self.lose = members, lose

    def exchange(self, messages, seconds, on_reply):
        for name, content in messages.items():
            reply = self.members[name](content)
            if not self.lose(Frame.unpack(content).kind, name):
                on_reply(name, reply)


class Federation:
    """Members ``m0`` to ``m(n-1)``, who trust each other unless told otherwise, and a coordinator."""

    def __init__(self, folder: Path, count=3, queries=40, trust=True, **policy):
        self.folder = folder
        self.names = [f"m{index}" for index in range(count)]
        self.clock = dict.fromkeys([*self.names, "coordinator"], 1000000.0)
        self.rows = {name: rows_of(index, queries) for index, name in enumerate(self.names)}
        signing = Identity.new()
        (folder / "coordinator").mkdir(parents=True)
        signing.write(folder / "coordinator" / "signing.key")
        facts = {"name": "test", "encoder": ENCODER, "dimension": DIMENSION}
        (folder / "coordinator" / "federation.json").write_text(json.dumps(facts))
        keys = {}
        for name in self.names:
            (folder / name).mkdir()
            keys[name] = Identity.new()
            keys[name].write(folder / name / "identity.key")
        for name in self.names:
            trusted = tuple(fingerprint(keys[one].public) for one in self.names) if trust else ()
            settings = {"models": POOL.names, "interval_days": 0.0, "trusted": trusted, **policy}
            Policy(signing.public.hex(), **settings).write(folder / name / "policy.yaml")
        self.keys, self.signing = keys, signing
        self.write_roster(self.names)
        self.coordinator = Coordinator(folder / "coordinator")
        self.members = {}
        self.events = []
        for name in self.names:
            self.open(name)

    def write_roster(self, names):
        declared = {"node": "", "models": list(POOL.names)}
        members = {name: {"identity": self.keys[name].public.hex(), **declared} for name in names}
        (self.folder / "coordinator" / "roster.json").write_text(json.dumps(members))

    def open(self, name):
        """Open a member from its directory, as after a restart."""
        if name in self.members:
            self.members[name].close()
        self.members[name] = Member(
            self.folder / name, name, lambda: Log(self.rows[name], ENCODER), now=lambda: self.clock[name]
        )

    def change_policy(self, name, **settings):
        path = self.folder / name / "policy.yaml"
        replace(Policy.read(path), **settings).write(path)

    def link(self, lose=lambda exchange, member: False):
        return InProcess(
            {name: (lambda content, name=name: self.members[name].answer(content)) for name in self.names}, lose
        )

    def run(self, lose=lambda exchange, member: False, **job):
        settings = {"least_rows": 0, "consent": True, **job}
        return run_epoch(self.coordinator, self.link(lose), Job(**settings), self.events.append)

    def restart_coordinator(self):
        self.coordinator.close()
        self.coordinator = Coordinator(self.folder / "coordinator")

    def exact(self, names=None, rows=None):
        """The plain sum of releases."""
        rows = rows or self.rows
        parts = [Release.of(rows[name].over(POOL), map_of_width(DIMENSION)).vector() for name in names or self.names]
        return sum(parts)

    def close(self):
        for member in self.members.values():
            member.close()
        self.coordinator.close()


def refusal(member, message):
    reply = Frame.unpack(member.answer(message))
    return reply.fields["reason"] if reply.kind == "refused" else None


__all__ = ["DIMENSION", "ENCODER", "POOL", "Federation", "refusal", "rows_of"]
