"""Requests that no good client sends: sound ones, then bent in their values, their bytes, their headers and framing.

Each is drawn from one seed; in tests/, `python -m gateway.mutations SEED` prints the one that a failing test named.
"""

import random
import sys

from gateway.bent_framing import AROUND
from gateway.bent_values import BYTES, VALUES, written
from gateway.case import CHAT, FEEDBACK, ROUTE, Case, conversation, other_request, score

OTHERS = 2_000_000
"""From this seed on, cases are requests to the other APIs, the administration and the page."""


def case(seed: int) -> Case:
    """The case of a seed: a sound request, bent in one to three ways."""
    draw = random.Random(seed)
    if seed >= OTHERS:
        method, path, tree = other_request(draw)
        found = Case(seed, path, b"", method)
    else:
        path = draw.choice((CHAT, CHAT, CHAT, ROUTE, FEEDBACK))
        tree = score(draw) if path == FEEDBACK else conversation(draw)
        found = Case(seed, path, b"")
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        bend = draw.choice(VALUES)
        found.ways.append(bend.__name__)
        tree = bend(draw, tree)
    found.body = written(tree)
    if draw.random() < 0.3:
        by_bytes = draw.choice(BYTES)
        found.ways.append(by_bytes.__name__)
        found.body = by_bytes(draw, found.body)
    if draw.random() < 0.4:
        around = draw.choice(AROUND)
        found.ways.append(around.__name__)
        around(draw, found)
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(case(int(sys.argv[1])).raw("KEY"))
