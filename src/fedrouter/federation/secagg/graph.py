"""The graph of masks: how many peers each client picks, and the bounds that this number keeps.

Every client picks its peers itself, at random, after the list of clients and their keys is fixed (Bell et al., 2020,
for a malicious server). It masks its vector with everyone that it picked or that picked it, and the clients that it
picked hold the shares of its secrets. So neither the coordinator nor other clients influence whom a client relies on,
and a client's work grows with the logarithm of their number. Up to :data:`COMPLETE` clients pick everyone.

Two bounds determine the number of peers ``k`` among ``n`` clients. More than two thirds of a client's ``k + 1`` holders
(it is one of them) must be in the total and confirm it before the client's own mask comes off.

- **Secrecy.** Except with a probability below 2^-40, no set of a quarter of the clients or less is cut off from the
  others, so that nobody's sums can be read in a smaller total, even if a fifth of the clients collude with the
  coordinator and it chooses who counts as dropped out after the graph is known. A set ``S`` is cut off if each member's
  holders in the total are in ``S`` or collude: if at least ``t - 1`` of its ``k`` picks fall in a set of
  ``|S| - 1 + n / 5``. The picks are independent, so the bound is a sum over sizes of (number of sets) times (a
  hypergeometric tail) to the power of the size.
- **Dropouts.** Except with a probability below 2^-20, a tenth of the clients, independent of the graph, may drop out
  between masking and unmasking without any client losing so many holders that the total cannot be unmasked.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, fsum, lgamma, log

COMPLETE = 16
"""Up to this many clients everyone is everyone's peer."""
COLLUDING, DROPPED, CUT = 5, 10, 4
"""One in so many clients colludes, drops out, is at most in a set that is cut off."""
SECRECY, RECOVERY = 2.0**-40, 2.0**-20
"""Bounds on the probability that a small set can be cut off, and that dropouts make a total unreadable."""


def threshold(holders: int) -> int:
    """How many of this many clients are more than two thirds of them.

    >>> [threshold(size) for size in (3, 4, 6, 85)]
    [3, 3, 5, 57]
    """
    return 2 * holders // 3 + 1


@lru_cache(maxsize=64)
def peers(clients: int) -> int:
    """How many peers a client picks: the fewest that keep both bounds.

    >>> [peers(size) for size in (3, 16, 100, 1000)]
    [2, 15, 33, 84]
    """
    if clients <= COMPLETE:
        return clients - 1
    for picked in range(2, clients - 1):
        single = log(clients) + _tail(clients - 1, clients // COLLUDING, picked, threshold(picked + 1) - 1)
        # The first two terms are quick to compute and rule out almost every number.
        if single <= log(SECRECY) and lost(clients, picked) <= RECOVERY and cut_off(clients, picked) <= SECRECY:
            return picked
    return clients - 1


def is_complete(clients: int) -> bool:
    """Whether so few take part that everyone shares a mask with everyone."""
    return peers(clients) == clients - 1


def cut_off(clients: int, picked: int) -> float:
    """Bound on the probability that some set of a quarter of the clients or less is cut off from the others."""
    terms = []
    for size in range(1, clients // CUT + 1):
        close = min(clients - 1, clients // COLLUDING + size - 1)
        term = _choices(clients, size) + size * _tail(clients - 1, close, picked, threshold(picked + 1) - 1)
        terms.append(exp(min(term, 0.0)))
    return fsum(terms)


def lost(clients: int, picked: int) -> float:
    """Bound on the probability that a tenth of the clients dropping out makes some client's mask irrecoverable."""
    gone = -(-clients // DROPPED)
    return min(1.0, clients * exp(_tail(clients - 1, gone, picked, picked + 1 - threshold(picked + 1))))


def pick_holders(own: str, names: Sequence[str]) -> list[str]:
    """The clients that will hold the shares of ``own``'s secrets: random ones among ``names``, and itself; sorted."""
    others = sorted(name for name in names if name != own)
    return sorted([own, *secrets.SystemRandom().sample(others, peers(len(names)))])


def neighbors(own: str, picked: Iterable[str], picked_by: Iterable[str], company: Iterable[str]) -> list[str]:
    """The clients of ``company`` with which ``own`` shares a mask: those it picked, and those that picked it."""
    return sorted(({*picked, *picked_by} - {own}) & set(company))


def edges(holders: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Everyone's neighbors, from everyone's holders."""
    found: dict[str, set[str]] = {name: set() for name in holders}
    for name, picked in holders.items():
        for peer in picked:
            if peer != name and peer in found:
                found[name].add(peer)
                found[peer].add(name)
    return found


def _choices(among: int, chosen: int) -> float:
    """Logarithm of the binomial coefficient."""
    return lgamma(among + 1) - lgamma(chosen + 1) - lgamma(among - chosen + 1)


def _tail(among: int, marked: int, drawn: int, least: int) -> float:
    """Logarithm of the probability that at least ``least`` of ``drawn`` without replacement are ``marked``."""
    if least <= max(0, drawn - (among - marked)):
        return 0.0
    terms = [
        _choices(marked, hit) + _choices(among - marked, drawn - hit) - _choices(among, drawn)
        for hit in range(least, min(marked, drawn) + 1)
    ]
    if not terms:
        return -1e6  # impossible
    most = max(terms)
    return most + log(fsum(exp(term - most) for term in terms))
