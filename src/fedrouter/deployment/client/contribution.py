"""What a client's own rows change in the router, and what the others' rows give it, on its own log.

A router of sums is everybody's sums added up, and a client knows its own: it subtracts them, here, and asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.bundle import load
from fedrouter.deployment.client.local_client import client_of, evaluations_of
from fedrouter.deployment.client.own_sums import without_own
from fedrouter.deployment.state.delivered import current
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.errors import BadInput
from fedrouter.federation.gain import TRADEOFFS, Gain, gain

CONFIDENCE = 1.96
"""Standard errors on either side of a mean: a 95% interval."""


@dataclass(frozen=True)
class Contribution:
    """What changes on a client's own log, and the bundle that it was compared with.

    Parameters
    ----------
    gave : by the client's own rows: the router with them instead of without
    got : by the others' rows: the router without the client's own instead of its own best single model. It has not
        seen the log on which it is compared
    whole : the same as ``got`` over the logs of all members, from their total in the vote; None if the bundle came
        without it
    """

    bundle: Path
    queries: int
    gave: Sequence[Mapping[str, Any]]
    got: Sequence[Mapping[str, Any]]
    whole: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        own = {"bundle": str(self.bundle), "queries": self.queries, "gave": list(self.gave), "got": list(self.got)}
        return {**own, "whole": self.whole}


def contribution(directory: ClientDirectory, bundle: Path | None = None) -> Contribution:
    """Compare the router of a bundle, by default the one delivered last, with itself without this client's sums."""
    entry = current(directory)
    if bundle is None and entry is None:
        raise BadInput(
            f"{directory.path}: no bundle was delivered yet; `fedrouter federation pull` fetches the one that was "
            "accepted last, --bundle names another"
        )
    path = bundle or Path((entry or {})["bundle"])
    saved, config = load(path), directory.config()
    if config.name not in saved.clients:
        raise BadInput(f"{path}: {config.name} is not a client of this router, which has {', '.join(saved.clients)}")
    without = without_own(directory, client_of, saved.router)
    rows = evaluations_of(config)[0].over(saved.router.pool)
    gave, got = gain(rows, saved.router, without), gain(rows, without, None)
    if gave is None or got is None:
        raise BadInput(f"{config.name}: its log knows too few models to compare routers on it")
    whole = _whole(entry) if entry and path == Path(entry["bundle"]) else None
    return Contribution(path, len(gave), _changes(gave), _changes(got), whole)


def _whole(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the coordinator said of the whole when it delivered the bundle; None if it is not in that form."""
    names = ("tradeoff", "accuracy", "accuracy_error", "cost", "cost_error")
    try:
        given = entry["from_others"]
        changes = [{name: float(one[name]) for name in names} for one in given["changes"]]
        return {"queries": int(given["queries"]), "changes": changes}
    except (KeyError, TypeError, ValueError):
        return None


def _changes(found: Gain) -> list[dict[str, Any]]:
    """Mean change of accuracy and dollars a query at each λ, each with half of its 95% interval."""
    size = len(found)
    return [
        {
            "tradeoff": tradeoff,
            **{name: float(values[:, place].mean()) for name, values in parts.items()},
            **{
                f"{name}_error": float(CONFIDENCE * values[:, place].std() / np.sqrt(size))
                for name, values in parts.items()
            },
        }
        for parts in [{"accuracy": found.accuracy, "cost": found.cost}]
        for place, tradeoff in enumerate(TRADEOFFS)
    ]
