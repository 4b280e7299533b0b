"""Noisy answers that are released again: an identical question gets the identical answer, and costs nothing more.

Which answer is released depends on the question and the clock alone, never on whether the rows have changed: an answer
that differs from the one before would tell that they have. After a day the question counts as new and is charged, so
that later runs learn from later rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fedrouter.federation.message import Message, packed_digest
from fedrouter.federation.privacy.memory import Memory

KEPT = "noisy answer/"
LIFETIME = 24 * 3600.0
"""Seconds for which an answer is released again."""
TIME, SCALARS = "time", "scalars"
"""Names beside which a reply's arrays are kept, each with a prefix of its own."""


def released_again(
    memory: Memory,
    verb: str,
    request: Message,
    reply: type[Message],
    make: Callable[[], Message],
    now: Callable[[], float] = time.time,
) -> Message:
    """The answer given to this question before, if that was within a day; else the one that is made now, and kept."""
    key = f"{KEPT}{packed_digest(request.pack(), verb).hex()}"
    kept = memory.recall(key)
    if kept is not None and 0 <= now() - float(kept[TIME]) < LIFETIME:
        arrays = {name.removeprefix("array/"): array for name, array in kept.items() if name.startswith("array/")}
        return reply.unpack((arrays, kept[SCALARS].tobytes().decode()))
    made = make()
    arrays, scalars = made.pack()
    remembered: dict[str, Any] = {f"array/{name}": array for name, array in arrays.items()}
    remembered[TIME] = np.array(now())
    remembered[SCALARS] = np.frombuffer(scalars.encode(), np.uint8)
    memory.remember(key, remembered)
    return made
