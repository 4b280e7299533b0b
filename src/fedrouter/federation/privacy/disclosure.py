"""Disclosure control: which centroids and which sums may leave a client, given its minimum group sizes.

A centroid of one query is that query's embedding, and an embedding can be turned back into text. A sum over one row is
that row, and so is the difference of two sums that differ by one row. So each needs several different queries behind
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.federation.privacy.fingerprints import (
    Keys,
    Mask,
    distinct,
    distinct_pairs,
    fingerprints,
    joint_fingerprints,
    places,
    repetitions,
)
from fedrouter.federation.privacy.leverage import SumsSoFar, heard_evenly
from fedrouter.federation.privacy.memory import Arrays, Memory
from fedrouter.federation.privacy.policy import MinimumGroupSizes
from fedrouter.routers.kmeans import nearest_centre

MOST_TOGETHER = 0.5
"""The most say that one row may have in any combination of all sums by group that were ever sent. More than in a single
question: cells of five rows would otherwise end after one training."""


class DisclosureControl:
    """Decides what may leave, given the minimum group ``sizes`` and, from ``memory``, what has left before.

    ``applied`` collects which of the sizes (``cluster``, ``cell``, ``say``) were applied: a client compares them with
    those that its verb states. ``emptied_by`` is the size by which there is nothing left to send, if there is: the
    minimum size of a cell, unless there were enough queries for that. So it does not tell few rows from none.
    """

    def __init__(self, sizes: MinimumGroupSizes, memory: Memory) -> None:
        self.sizes = sizes
        self.applied: set[str] = set()
        self.emptied_by = "cell"
        self._memory = memory

    def admitted(self, rows: Evaluations) -> Evaluations:
        """The rows that take part: of a model that took part before, new ones only once there are enough of them.

        Otherwise a sum today and the same sum tomorrow would differ by the one row that came in between.
        """
        keys = evaluation_keys(rows)
        known = self._memory.recall("admitted")
        if known is not None:
            fresh = ~np.isin(keys, known["keys"])
            fewer = distinct(rows.model[fresh], row_keys(rows)[fresh], len(rows.pool)) < self.sizes.cell
            # A model none of whose rows was there before has nothing to be compared with.
            before = np.bincount(rows.model[~fresh], minlength=len(rows.pool)) > 0
            rows = rows.take(np.flatnonzero(~(fresh & (fewer & before)[rows.model])))
            keys = evaluation_keys(rows)
        self._memory.remember("admitted", {"keys": np.unique(keys)})
        return rows

    def may_name(self, rows: Evaluations) -> Mask:
        """Which models ``(M,)`` may be named in any reply: those with enough queries."""
        return np.asarray(distinct(rows.model, row_keys(rows), len(rows.pool)) >= self.sizes.cell)

    def may_send(
        self,
        keys: Keys,
        group: Integers,
        size: int,
        content: Keys | None = None,
        kind: str = "sums",
        least: int | None = None,
        jointly: bool = False,
    ) -> Mask:
        """Which of ``size`` groups of rows may be summed, given the group ``(n,)`` of each row's key ``(n,)``.

        A group needs enough rows, and so does its difference from any group summed before and from any such groups
        that together make up most of it. What may be sent is remembered. A row whose ``content`` ``(n,)`` has changed
        counts as different. "Enough" is the minimum size of a cell, or ``least`` for a ``kind`` of sums that discloses
        more. With ``jointly``, no row may have too much say in any combination of all sums so far, either.
        """
        self.applied.add("cell" if kind == "sums" else "say")
        least = self.sizes.cell if least is None else least
        keys, group, held = distinct_pairs(keys, group, keys if content is None else content)
        allowed = np.bincount(group, minlength=size) >= least
        for earlier in self._memory.remembered(f"{kind}/"):
            allowed &= self._apart(keys, group, held, allowed, least, earlier)
        if jointly and self.sizes.say < 1:
            allowed &= self._jointly(keys, group, held, allowed, list(self._memory.remembered(f"{kind}/")))
        if kind != "sums" and not allowed.any():
            self._emptied_by_say(keys)
        sent = allowed[group]
        now = {"keys": keys, "group": group, "content": held}
        now = {name: values[sent] for name, values in now.items()}
        digest = hashlib.sha256()
        for part in now.values():
            digest.update(part.data)
        name = f"{kind}/{digest.hexdigest()}"
        if self._memory.recall(name) is None:
            self._memory.remember(name, now)
        return np.asarray(allowed)

    def _apart(self, keys: Keys, group: Integers, held: Keys, allowed: Mask, least: int, earlier: Arrays) -> Mask:
        """Which groups equal, or differ by enough rows from, those of one earlier answer."""
        old_keys, old_group = earlier["keys"], earlier["group"]
        if not len(old_keys):
            return allowed
        sizes = np.bincount(group, minlength=len(allowed))
        old_sizes = np.bincount(old_group)
        overlap, alike = (np.zeros((len(allowed), len(old_sizes)), np.int64) for _ in range(2))
        index = places(keys, old_keys)
        both = index >= 0
        for count, which in ((overlap, both), (alike, both & (earlier["content"][index] == held))):
            np.add.at(count, (group[which], old_group[index[which]]), 1)
        apart = sizes[:, None] + old_sizes[None] - overlap - alike
        near = ((apart > 0) & (apart < least) & (overlap > 0)).any(axis=1)
        # Earlier groups that lie wholly within a new one: the rest of the new one must be large enough, too.
        within = (overlap == old_sizes[None]) & (overlap > 0)
        rest = sizes - np.where(within, alike, 0).sum(axis=1)
        near |= within.any(axis=1) & (rest > 0) & (rest < least)
        keep = np.asarray(allowed & ~near)
        # And the reverse: of the new groups within an earlier one, the smallest is withheld.
        inside = (overlap == sizes[:, None]) & (overlap > 0) & keep[:, None]
        rest = old_sizes - np.where(inside, alike, 0).sum(axis=0)
        for old in np.flatnonzero(inside.any(axis=0) & (rest > 0) & (rest < least)):
            members = np.flatnonzero(inside[:, old])
            keep[members[np.argmin(sizes[members])]] = False
        return keep

    def _jointly(self, keys: Keys, group: Integers, held: Keys, allowed: Mask, before: list[Arrays]) -> Mask:
        """Which groups leave every row little say in any combination of them and of all earlier ones."""
        now = {"keys": keys, "group": np.where(allowed[group], group, -1), "content": held}
        answers = [*(earlier for earlier in before if len(earlier["keys"])), now]
        # A row with another content is another row: its accuracy and cost are what is unknown.
        names = [answer["keys"] ^ (answer["content"] * np.uint64(0x9E3779B97F4A7C15)) for answer in answers]
        rows = np.unique(np.concatenate(names))
        labels = np.full((len(rows), len(answers)), -1, np.int64)
        for place, (name, answer) in enumerate(zip(names, answers, strict=True)):
            labels[np.searchsorted(rows, name), place] = answer["group"]
        mine = labels[:, -1].copy()
        sums = SumsSoFar(labels, new=1)
        keep = allowed.copy()
        sizes = np.bincount(group, minlength=len(allowed))
        for one in sorted(np.flatnonzero(allowed), key=lambda one: -sizes[one]):
            keep[one] = sums.admits(mine == one, max(MOST_TOGETHER, self.sizes.say))
        return keep

    def gathered(self, rows: Evaluations, centre: Integers, centres: Embeddings) -> tuple[Evaluations, Integers]:
        """The rows, and the centre of each, after a model's small cells have joined the model's nearest other cell.

        Withholding small cells instead would leave a small client without influence. They would also be the difference
        between the model's cells and its total, which could then never be sent.

        If the same centres were asked about before, rows stay where they were then, and the new ones of a model are
        gathered among themselves. So a cell grows by enough rows or not at all: one more row in it would otherwise
        withhold the whole cell. New rows that are too few wait.
        """
        own = evaluation_keys(rows)
        name = f"cells/{hashlib.sha256(centres.tobytes()).hexdigest()}"
        before = self._memory.recall(name)
        if before is None:
            centre, _ = self._joined(rows, centre, centres)
            keys, index = np.unique(own, return_index=True)
            self._memory.remember(name, {"keys": keys, "centre": centre[index]})
            return rows, centre
        stays = np.isin(own, before["keys"])
        centre = centre.copy()
        centre[stays] = before["centre"][np.searchsorted(before["keys"], own[stays])]
        new = np.flatnonzero(~stays)
        centre[new], filled = self._joined(rows.take(new), centre[new], centres)
        waits = np.zeros(len(rows), np.bool_)
        waits[new] = ~filled & np.isin(rows.model[new], rows.model[stays])
        rows, centre, own = rows.take(np.flatnonzero(~waits)), centre[~waits], own[~waits]
        keys, index = np.unique(np.concatenate([before["keys"], own]), return_index=True)
        self._memory.remember(name, {"keys": keys, "centre": np.concatenate([before["centre"], centre])[index]})
        return rows, centre

    def _joined(self, rows: Evaluations, centre: Integers, centres: Embeddings) -> tuple[Integers, Mask]:
        """The centre ``(n,)`` of each row after small cells have joined others, and whether its cell is enough."""
        keys, centre = row_keys(rows), centre.copy()
        filled = np.zeros(len(rows), np.bool_)
        apart = ((centres[:, None].astype(np.float64) - centres[None]) ** 2).sum(axis=2)
        for model in np.unique(rows.model):
            mine = rows.model == model
            own = centre[mine]
            sizes = distinct(own, keys[mine], len(centres))
            cells = np.flatnonzero(sizes)
            while len(cells) > 1:
                smallest = cells[np.argmin(sizes[cells])]
                if sizes[smallest] >= self.sizes.cell:
                    break
                cells = cells[cells != smallest]
                nearest = cells[np.argmin(apart[smallest, cells])]
                own[own == smallest] = nearest
                sizes[nearest] += sizes[smallest]  # different cells have different queries
            centre[mine], filled[mine] = own, sizes[own] >= self.sizes.cell
        return centre, filled

    def clusters(self, distinct_queries: int, wanted: int) -> int:
        """How many clusters to look for: few enough that most have twice the minimum number of queries."""
        return max(1, min(wanted, distinct_queries // (2 * self.sizes.cluster)))

    def few_changes(self, keys: Keys, before: Keys) -> bool:
        """Whether too few queries have come or gone since ``before`` to release new centroids."""
        self.applied.add("cluster")
        return len(np.setxor1d(keys, before)) < self.sizes.cluster

    def merged(self, queries: Embeddings, centres: Embeddings) -> tuple[Embeddings, Integers]:
        """Centres ``(k, d)`` and sizes after every small cluster has joined its nearest; none if all are too small."""
        self.applied.add("cluster")
        keys = query_keys(queries)
        label = nearest_centre(queries, centres)
        while True:
            different = distinct(label, keys, len(centres))
            alive = np.flatnonzero(different)
            smallest = alive[np.argmin(different[alive])]
            if different[smallest] >= self.sizes.cluster:
                break
            if len(alive) == 1:
                return centres[:0], np.zeros(0, np.int64)
            others = alive[alive != smallest]
            mine = label == smallest
            means = np.stack([queries[label == index].mean(axis=0) for index in others])
            label[mine] = others[nearest_centre(queries[mine], means.astype(np.float32))]
        # Each query once: a centroid of five queries, one of them a thousand times, is that one.
        once = np.zeros(len(keys), np.bool_)
        once[np.unique(keys, return_index=True)[1]] = True
        found = [queries[once & (label == index)].mean(axis=0, dtype=np.float64) for index in alive]
        return np.asarray(found, np.float32), np.bincount(label, minlength=len(centres))[alive]

    def heard(self, columns: Callable[[], Floats], query: Keys, group: Integers, least: float = 0.0) -> Integers:
        """Rows ``(m,)``, sorted, in whose group ``(n,)`` no query has too much say in any combination of columns.

        A query may have at ``least`` this much of it. The columns are made only where that is less than all.
        """
        self.applied.add("say")
        most = max(self.sizes.say, least)
        if most >= 1:
            return np.arange(len(query))
        weights = columns()
        parts = [np.flatnonzero(group == one) for one in np.unique(group)]
        kept = [part[heard_evenly(weights[part], query[part], most)] for part in parts]
        if not any(map(len, kept)):
            self._emptied_by_say(query)
        return np.sort(np.concatenate([np.zeros(0, np.int64), *kept]))

    def _emptied_by_say(self, keys: Keys) -> None:
        if len(np.unique(keys)) >= self.sizes.cell:
            self.emptied_by = "say"

    def enough(self, rows: Evaluations) -> bool:
        """Whether these rows together have enough queries."""
        self.applied.add("cell")
        return rows.queries >= self.sizes.cell


def query_keys(embeddings: Embeddings) -> Keys:
    """A fingerprint ``(q,)`` of each embedding; equal embeddings have equal ones."""
    return fingerprints(embeddings)


def row_keys(rows: Evaluations) -> Keys:
    """A fingerprint ``(n,)`` of each evaluation's query and model; the same query asked again has the same one."""
    names = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in rows.pool.names]
    models = np.frombuffer(b"".join(names), np.uint64)
    # An odd factor keeps the pair's fingerprint from depending on their sum alone.
    keys = query_keys(rows.embeddings)[rows.query] * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(keys ^ models[rows.model])


def evaluation_keys(rows: Evaluations) -> Keys:
    """A fingerprint ``(n,)`` of each evaluation with its accuracy and cost; each repetition gets one of its own."""
    once = joint_fingerprints(row_keys(rows), rows.accuracy.view(np.uint64), rows.cost.view(np.uint64))
    return joint_fingerprints(once, repetitions(once))


def rows_digest(rows: Evaluations) -> bytes:
    """A SHA-256 digest of all evaluations, whatever their order."""
    return hashlib.sha256(np.sort(evaluation_keys(rows)).data).digest()
