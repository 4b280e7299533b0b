"""What an epoch costs: members with journals and keys of their own, all in this process, of which a tenth drops out.

Prints the table of docs/results/federation.md; the last row is of a thousand members in ten groups. Members keep their
state in memory where there is /dev/shm, so that what is measured is work and not a disk. Of those that drop out, a
third does so before masking, a third while masked vectors are sent, a third after.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.encoders.identity import STATIC
from fedrouter.evaluations import Evaluations
from fedrouter.federation.coordinator import Coordinator
from fedrouter.federation.epoch import Job, run_epoch
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity, fingerprint
from fedrouter.federation.member import Log, Member
from fedrouter.federation.policy import Policy
from fedrouter.federation.total import Total

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SIZES, GROUPS = (3, 10, 100), 10
DROPPING = ("shares", "masked", "unmask")


@dataclass
class Counting:
    """A link to members in this process that loses some replies, and counts bytes and seconds."""

    members: Mapping[str, Member]
    lost: Mapping[str, set[str]]
    up: Counter[str] = field(default_factory=Counter)
    down: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def exchange(self, messages: Mapping[str, bytes], seconds: float, on_reply: Callable[[str, bytes], None]) -> None:
        for name, content in messages.items():
            kind = Frame.unpack(content).kind
            gone = DROPPING[: DROPPING.index(kind) + 1] if kind in DROPPING else DROPPING[:2] if kind == "agree" else ()
            if any(name in self.lost.get(step, ()) for step in gone):
                continue
            began = time.process_time()
            reply = self.members[name].answer(content)
            self.seconds += time.process_time() - began
            self.down[name] += len(content)
            self.up[name] += len(reply)
            on_reply(name, reply)


@dataclass(frozen=True)
class Run:
    """One epoch: its total, and processor seconds of a member and of the coordinator, bytes of a member each way."""

    total: Total
    member: float
    coordinator: float
    up: float
    down: float
    equal: bool


def epoch(rows: Mapping[str, Evaluations], dropped: int) -> Run:
    """An epoch of members that trust each other."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as root:
        signing, keys = Identity.new(), {name: Identity.new() for name in rows}
        pool, dimension = next(iter(rows.values())).pool, next(iter(rows.values())).dimension
        home = Path(root, "coordinator")
        home.mkdir()
        signing.write(home / "signing.key")
        (home / "federation.json").write_text(json.dumps({"name": "b", "encoder": STATIC, "dimension": dimension}))
        roster = {name: {"identity": key.public.hex(), "models": list(pool.names)} for name, key in keys.items()}
        (home / "roster.json").write_text(json.dumps(roster))
        trusted = tuple(fingerprint(key.public) for key in keys.values())
        members = {}
        for name, own in rows.items():
            folder = Path(root, name)
            folder.mkdir()
            keys[name].write(folder / "identity.key")
            Policy(signing.public.hex(), trusted, models=pool.names).write(folder / "policy.yaml")
            members[name] = Member(folder, name, lambda own=own: Log(own, STATIC))  # type: ignore[misc]
        draw = np.random.default_rng(0).permutation(sorted(rows))[:dropped]
        lost = {step: set(part.tolist()) for step, part in zip(DROPPING, np.array_split(draw, 3), strict=True)}
        link, coordinator = Counting(members, lost), Coordinator(home)
        began = time.process_time()
        total = run_epoch(coordinator, link, Job(least_rows=0, consent=True))
        spent = time.process_time() - began
        exact = [np.asarray(members[name].journal.releases()[0].sent) for name in total.survivors]
        for member in members.values():
            member.close()
        coordinator.close()
        size = len(rows)
        ways = (float(np.mean([way[name] for name in rows])) for way in (link.up, link.down))
        equal = bool((total.vector == reduce(add, exact)).all())
        return Run(total, link.seconds / size, spent - link.seconds, *ways, equal)


def line(size: int, dropped: int, runs: Sequence[Run]) -> str:
    inside = sum(len(run.total.survivors) for run in runs)
    member, up, down = (float(np.mean([getattr(run, name) for run in runs])) for name in ("member", "up", "down"))
    cells = [f"{size:,}", str(dropped), f"{inside:,}", f"{member:.2f}", f"{sum(run.coordinator for run in runs):.1f}"]
    cells += [f"{way / 1000:,.0f}" for way in (up, down)]
    return f"| {' | '.join(cells)} | {'yes' if all(run.equal for run in runs) else 'NO'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA / "mmlu_pro.parquet", help="divided among the members")
    given = parser.parse_args()
    data = read(given.data, encoder=STATIC).evaluations
    print("| members | drop out | in totals | s, member | s, coordinator | KB up, member | KB down, member | equal |")
    print("|---|---|---|---|---|---|---|---|")
    for size in SIZES:
        rows = {client.name: client.train for client in partition(data, size)}
        for dropped in sorted({0, size // 10}):
            print(line(size, dropped, [epoch(rows, dropped)]), flush=True)
    clients = partition(data, 100 * GROUPS)
    parts = [clients[start::GROUPS] for start in range(GROUPS)]
    groups = [epoch({client.name: client.train for client in part}, 10) for part in parts]
    print(line(len(clients), 10 * GROUPS, groups))
    print(f"{len(groups[0].total.vector):,} numbers; load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
