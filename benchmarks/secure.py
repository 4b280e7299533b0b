"""What an epoch costs: members with journals and keys of their own, all in this process, of which a tenth drops out.

Writes out/secure.md, from which docs/results/federation.md is made. Run with `.venv/bin/python benchmarks/secure.py`.
Members keep their state in memory where there is /dev/shm, so that what is measured is work and not a
disk. Of those that drop out, a third does so before masking, a third while masked vectors are sent, a third after.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.encoders.identity import STATIC
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.federation.coordinator import Coordinator
from fedrouter.federation.epoch import Job, run_epoch
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity, fingerprint
from fedrouter.federation.member import Log, Member
from fedrouter.federation.policy import Policy
from fedrouter.federation.total import Total
from fedrouter.frontier import sweep
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter

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


def epoch(rows: Mapping[str, Evaluations], dropped: int, epsilon: float) -> Run:
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
            Policy(signing.public.hex(), trusted, epsilon=epsilon, models=pool.names).write(folder / "policy.yaml")
            members[name] = Member(folder, name, lambda own=own: Log(own, STATIC))  # type: ignore[misc]
        draw = np.random.default_rng(0).permutation(sorted(rows))[:dropped]
        lost = {step: set(part.tolist()) for step, part in zip(DROPPING, np.array_split(draw, 3), strict=True)}
        link, coordinator = Counting(members, lost), Coordinator(home)
        began = time.process_time()
        total = run_epoch(coordinator, link, Job(epsilon=epsilon, least_rows=0, consent=True))
        spent = time.process_time() - began
        exact = [np.asarray(members[name].journal.releases()[0].sent) for name in total.survivors]
        for member in members.values():
            member.close()
        coordinator.close()
        size = len(rows)
        ways = (float(np.mean([way[name] for name in rows])) for way in (link.up, link.down))
        equal = bool((total.vector == reduce(add, exact)).all())
        return Run(total, link.seconds / size, spent - link.seconds, *ways, equal)


def line(size: int, dropped: int, run: Run) -> str:
    cells = [f"{size:,}", str(dropped), str(len(run.total.survivors)), f"{run.member:.2f}", f"{run.coordinator:.1f}"]
    cells += [f"{way / 1000:,.0f}" for way in (run.up, run.down)]
    found = f"| {' | '.join(cells)} | {'yes' if run.equal else 'NO'} |"
    print(found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA / "mmlu_pro.parquet", help="divided among the members")
    given = parser.parse_args()
    data = read(given.data, encoder=STATIC).evaluations
    crowd = []
    for size in SIZES:
        rows = {client.name: client.train for client in partition(data, size)}
        for dropped in sorted({0, size // 10}):
            run = epoch(rows, dropped, 8.0)
            crowd.append(line(size, dropped, run))
    numbers = len(run.total.vector)
    # A thousand members in ten groups, whose totals add up.
    clients = partition(data, 100 * GROUPS)
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    train = Evaluations.concatenate([client.train for client in clients])
    truth = test.grid()
    parts = [clients[start::GROUPS] for start in range(GROUPS)]
    quality, runs = {}, []
    for epsilon in (0.0, 8.0):
        found = [epoch({client.name: client.train for client in part}, 0, epsilon) for part in parts]
        runs = found
        total: Release = reduce(add, (each.total.release for each in found))
        router = BayesRouter.of(Evidence.none(total.pool, total.features), total)
        quality[epsilon] = sweep(router.estimate(test.embeddings).over(train.pool), truth).measures.aiq
        print(epsilon, quality[epsilon], file=sys.stderr, flush=True)
    hundred = epoch({client.name: client.train for client in partition(data, 100)}, 0, 8.0).total.release
    single = BayesRouter.of(Evidence.none(hundred.pool, hundred.features), hundred)
    one = sweep(single.estimate(test.embeddings).over(train.pool), truth).measures.aiq
    toss = baselines(ModelMeans.of(train), truth)["mix"].measures.aiq
    spent = [float(np.mean([getattr(each, name) for each in runs])) for name in ("member", "coordinator", "up", "down")]
    page = f"""# What an epoch costs

    .venv/bin/python benchmarks/secure.py

One run each of the real members and the real coordinator in one process ({os.cpu_count()} cores, {platform.machine()},
shared with other work; processor seconds, not waiting). {given.data.stem} divided among all members, releases of
{numbers:,} numbers with the noise of ε = 8. "In the total" are those whose vector arrived; "equal" is to the sum of
what they sent, to the bit. Over Flower each exchange also takes a process a message and some seconds of polling:
[federation.md](federation.md).

| members | drop out | in the total | s, member | s, coordinator | KB sent, member | KB received, member | equal |
|---|---|---|---|---|---|---|---|
{chr(10).join(crowd)}

Every member shares secrets with every other one, so that a member's bytes and work grow with their number, and the
coordinator's with its square: a hundred is the most that terms may have.

## A thousand members: ten groups of a hundred

Each group is a federation of its own, with the same encoder and models; their totals add up, and so does their noise.
A member spends {spent[0]:.2f} s, sends {spent[2] / 1000:,.0f} KB and receives {spent[3] / 1000:,.0f} KB, as in any
group of a hundred; the coordinator spends {spent[1] * GROUPS:,.0f} s in all. The same {train.queries:,} queries
({train.queries / len(clients):.0f} a member), `aiq` of the totals' router on all test sets:

| no noise | ten groups, ε = 8 | one group of 100, ε = 8 | coin toss between single models |
|---|---|---|---|
| {quality[0.0]:.4f} | {quality[8.0]:.4f} | {one:.4f} | {toss:.4f} |

## A plan for more

- **What is there.** Groups of at most 100, each with terms, survivors and a total of its own. A member that gets the
  totals of all groups adds them up ({numbers * 6 / 1000:.0f} KB each), as `sum_of` does for epochs.
- **What noise costs.** G groups have G times the variance of one, since each must protect its members alone: G may grow
  with the rows. The table is of {train.queries / len(clients):.0f} queries a member; of more it costs less.
- **Groups of groups.** The noise of one group could serve all if totals stayed masked until all groups are summed: each
  group's survivors would keep a second mask, which a committee of some thirty members of all groups opens, one sum a
  level. That is a second secure sum among committee members, with code that exists; what is missing is that members
  sign which groups belong together, in the terms.
- **A sparse graph** (each member shares with some log n others) makes one group of thousands cheap, but then a
  coordinator chooses neighbors, and what members must check of that choice was 2,160 lines once. Not before groups of
  groups have been found wanting.
- **The coordinator** handles members one after the other; its work at a hundred is seconds. Flower's polling and a
  process a message are what an epoch waits for, so groups should run side by side.
"""
    (PROJECT / "out").mkdir(exist_ok=True)
    (PROJECT / "out" / "secure.md").write_text(page)


if __name__ == "__main__":
    main()
