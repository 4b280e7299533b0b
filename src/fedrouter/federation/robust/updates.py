"""Robust averages of trained weights: clipped updates, capped rows, trimmed means and medians."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.federation.verbs.messages import TrainRequest, Update, sent_back

Updates = Mapping[str, Update]

EVERYONE = "everyone"
"""The name of a reply that speaks for all clients."""


def clipped(request: TrainRequest, replies: Updates, longest: float) -> Updates:
    """Updates, as differences from what was sent, no longer than so many times the median client's that has rows."""
    sent = sent_back(request)
    steps = {
        name: {part: array.astype(np.float64) - sent[part] for part, array in reply.weights.items()}
        for name, reply in replies.items()
    }
    length = {name: float(np.sqrt(sum((step**2).sum() for step in parts.values()))) for name, parts in steps.items()}
    active = [length[name] for name, reply in replies.items() if reply.rows]
    most = longest * float(np.median(active)) if active else 0.0
    return {
        name: reply
        if length[name] <= most
        else replace(
            reply,
            weights={
                part: (sent[part] + step * (most / length[name])).astype(np.float32)
                for part, step in steps[name].items()
            },
        )
        for name, reply in replies.items()
    }


def capped_updates(replies: Updates, most_rows: float) -> Updates:
    """No update weighs more than so many times the median client's that has rows."""
    rows = [reply.rows for reply in replies.values() if reply.rows]
    most = max(1, int(most_rows * np.median(rows))) if rows else 0
    return {name: reply if reply.rows <= most else replace(reply, rows=most) for name, reply in replies.items()}


def trimmed_mean(replies: Updates, trim: float) -> Updates:
    """Of every weight the mean over clients, without a share of them at either end; at least one client at each."""

    def middle(values: Floats, rows: Floats) -> Floats:
        order = np.argsort(values, axis=0, kind="stable")
        left_out = min(max(1, round(trim * len(values))), (len(values) - 1) // 2)
        kept = order[left_out : len(values) - left_out]
        share = rows[kept]
        return np.asarray((np.take_along_axis(values, kept, axis=0) * share).sum(axis=0) / share.sum(axis=0))

    return _combined(replies, middle)


def median(replies: Updates) -> Updates:
    """Of every weight the median over clients."""
    return _combined(replies, lambda values, rows: np.asarray(np.median(values, axis=0)))


def _combined(replies: Updates, middle: Callable[[Floats, Floats], Floats]) -> Updates:
    """One update for all clients with rows, each weight in the ``middle`` of theirs ``(C, …)``."""
    active = {name: reply for name, reply in replies.items() if reply.rows}
    if not active:
        return replies
    rows = np.array([reply.rows for reply in active.values()], np.float64)
    names = next(iter(active.values())).weights
    weights = {
        part: middle(np.stack([reply.weights[part] for reply in active.values()]).astype(np.float64), rows)
        for part in names
    }
    loss = float(np.median([reply.loss for reply in active.values()]))
    return {EVERYONE: Update({n: a.astype(np.float32) for n, a in weights.items()}, int(rows.sum()), loss)}
