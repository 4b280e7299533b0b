"""Wrong sign-ins at the page: a few a minute from each address."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from fedrouter.gateway.http import HttpError

PER_MINUTE = 20
MAX_ADDRESSES = 4096


class SignIns:
    """How many sign-ins each address may still try; right ones do not count.

    One that is under way counts as wrong, so that an address cannot hold many connections whose bodies never come.
    """

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @contextmanager
    def attempt(self, address: str) -> Iterator[None]:
        """One sign-in, wrong if the block raises; :class:`HttpError` 429 if its address has tried too many."""
        network = network_of(address)
        left = self._now(network)
        if left < 1:
            wait = b"%d" % (1 + (1 - left) * 60 / PER_MINUTE)
            raise HttpError(
                429,
                f"Too many wrong sign-ins from this address: at most {PER_MINUTE} a minute.",
                "too_many_sign_ins",
                "rate_limit_error",
                headers=[(b"retry-after", wait)],
            )
        self._put(network, left - 1)
        yield
        self._put(network, min(PER_MINUTE, self._now(network) + 1))

    def _now(self, network: str) -> float:
        left, at = self._left.get(network, (float(PER_MINUTE), 0.0))
        return min(PER_MINUTE, left + (time.monotonic() - at) * PER_MINUTE / 60)

    def _put(self, network: str, left: float) -> None:
        self._left[network] = (left, time.monotonic())
        self._left.move_to_end(network)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)


def network_of(address: str) -> str:
    """What counts as one address: of IPv6 the first half, because one customer has all of the other.

    A socket for both has addresses of IPv4 within one such half (``::ffff:192.0.2.1``): each counts as its own.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket
        return address
    if found.version == 6:
        found = found.ipv4_mapped or found
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
