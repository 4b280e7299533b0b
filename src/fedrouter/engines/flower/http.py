"""Flower's HTTP clients as both sides of a run use them: kept connections, limited responses, and errors to act on."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedrouter.errors import BadMessage, FedrouterError

if TYPE_CHECKING:
    import httpx
    from flwr.supercore.protobuf.client import ProtobufClient

Client = TypeVar("Client", bound="ProtobufClient")
Answer = TypeVar("Answer")

MOST_BYTES = 512 * 2**20
"""Largest size of any message, whatever the request."""
TIMEOUT = 30.0
"""Seconds that a connection or a part of a response may take."""
KEEP_ALIVE = 120.0
"""Seconds that an idle connection is kept: a new one costs two round trips."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds before a request is tried again: doubled from the first to the longest, less a random part."""
_most_bytes: ContextVar[int] = ContextVar("most_bytes", default=MOST_BYTES)


class Disconnected(FedrouterError):
    """The SuperLink did not answer, though it was asked again for a while."""


class Rejected(FedrouterError):
    """The SuperLink refused a request; ``status`` is HTTP's, ``code`` Flower's (0 if it gave none)."""

    def __init__(self, status: int, code: int) -> None:
        super().__init__(f"the SuperLink refused a request ({status}, code {code})")
        self.status, self.code = status, code


def open_client(
    kind: type[Client], address: str, authority: Path, interceptors: Sequence[Any], proxies: bool = True
) -> Client:
    """One of Flower's HTTP clients, for a server with a certificate of this authority.

    Flower's own connections are dropped after five idle seconds, follow redirects and read whatever is sent, with no
    option to change that; so its HTTP client is replaced by one that does not.
    """
    import httpx

    context = ssl.create_default_context(cafile=str(authority))
    client = kind(f"https://{address}", interceptors=interceptors, verify=context)
    client.close()
    client._client = httpx.Client(
        verify=context,
        timeout=TIMEOUT,
        limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [check_size]},
        trust_env=proxies,
    )
    return client


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Refuse responses to requests made inside that have more bytes, before they are read."""
    token = _most_bytes.set(size)
    try:
        yield
    finally:
        _most_bytes.reset(token)


def check_size(response: httpx.Response) -> None:
    """Called when the headers of a response have come, and before its body is read."""
    length = response.headers.get("content-length", "")
    if response.is_success and ("content-encoding" in response.headers or not length.isdecimal()):
        raise BadMessage("message: of unknown size")
    if length.isdecimal() and int(length) > _most_bytes.get():
        raise BadMessage("message: larger than its request allows")


@dataclass(frozen=True)
class Caller:
    """Makes requests, and makes them again while the SuperLink does not answer.

    Parameters
    ----------
    patience : seconds without an answer after which Disconnected is raised
    wait : waits for so many seconds; True to give up at once
    on_change : called with False when an answer is missing, and with True when the next one comes
    """

    patience: float
    wait: Callable[[float], bool]
    on_change: Callable[[bool], None]

    def __call__(self, function: Callable[[Any], Answer], request: Any) -> Answer:
        import httpx

        lost: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                answer = function(request)
            except httpx.HTTPStatusError as error:
                if error.response.status_code < 500:
                    raise _rejected(error.response) from None
            except httpx.TransportError:
                pass
            except ValueError:
                raise BadMessage("message: cannot be read") from None
            else:
                if lost is not None:
                    self.on_change(True)
                return answer
            if lost is None:
                lost = time.monotonic()
                self.on_change(False)
            if time.monotonic() - lost >= self.patience or self.wait(random.uniform(0.5, 1) * pause):
                raise Disconnected("the coordinator does not answer")
            pause = min(2 * pause, LONGEST_PAUSE)


def _rejected(response: httpx.Response) -> Rejected:
    from flwr.supercore.error import FlowerError

    error = FlowerError.from_json(response.text)
    return Rejected(response.status_code, int(error.code) if error else 0)
