"""What looks wrong in evaluations: said before anything is learned from them."""

from __future__ import annotations

import numpy as np

from fedrouter.evaluations import Evaluations

LEAST_ROWS = 50


def warnings_of(rows: Evaluations) -> list[str]:
    """Sentences for the owner of a log; none if nothing looks wrong."""
    count = np.bincount(rows.model, minlength=len(rows.pool))
    few = [f"{name} ({count[index]})" for index, name in enumerate(rows.pool.names) if 0 < count[index] < LEAST_ROWS]
    found = []
    if (count > 0).sum() == 1:
        found.append("one model only: there is nothing to choose between")
    if few:
        found.append(f"fewer than {LEAST_ROWS} rows of {', '.join(few)}")
    return found
