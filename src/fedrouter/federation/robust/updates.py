"""Robust averages of trained weights: clipped updates, capped rows, trimmed means and medians."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.routers.mlp import Weights

Updates = Mapping[str, Any]
"""Replies by client name; each is a dataclass with ``weights``, the number of ``rows`` behind them, and a ``loss``."""
EVERYONE = "everyone"
"""The name of a reply that stands for all clients."""


def clipped(sent: Weights, replies: Updates, longest: float) -> Updates:
    """Clip updates, as differences from the weights ``sent``, to ``longest`` times the length of the median update.

    The median is over clients that have rows.
    """
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
    """Cap the weight of each update at ``most_rows`` times the rows of the median client that has rows."""
    rows = [reply.rows for reply in replies.values() if reply.rows]
    most = max(1, int(most_rows * np.median(rows))) if rows else 0
    return {name: reply if reply.rows <= most else replace(reply, rows=most) for name, reply in replies.items()}


def trimmed_mean(replies: Updates, trim: float) -> Updates:
    """The trimmed mean of every weight over clients; at least one client is left out at either end."""

    def middle(values: Floats, rows: Floats) -> Floats:
        order = np.argsort(values, axis=0, kind="stable")
        left_out = min(max(1, round(trim * len(values))), (len(values) - 1) // 2)
        kept = order[left_out : len(values) - left_out]
        share = rows[kept]
        return np.asarray((np.take_along_axis(values, kept, axis=0) * share).sum(axis=0) / share.sum(axis=0))

    return _combined(replies, middle)


def median(replies: Updates) -> Updates:
    """The median of every weight over clients."""
    return _combined(replies, lambda values, rows: np.asarray(np.median(values, axis=0)))


def _combined(replies: Updates, middle: Callable[[Floats, Floats], Floats]) -> Updates:
    """One update for all clients with rows; ``middle`` combines their values ``(C, …)`` of each weight."""
    active = {name: reply for name, reply in replies.items() if reply.rows}
    if not active:
        return replies
    rows = np.array([reply.rows for reply in active.values()], np.float64)
    first = next(iter(active.values()))
    weights = {
        part: middle(np.stack([reply.weights[part] for reply in active.values()]).astype(np.float64), rows)
        for part in first.weights
    }
    loss = float(np.median([reply.loss for reply in active.values()]))
    narrow = {name: array.astype(np.float32) for name, array in weights.items()}
    return {EVERYONE: replace(first, weights=narrow, rows=int(rows.sum()), loss=loss)}
