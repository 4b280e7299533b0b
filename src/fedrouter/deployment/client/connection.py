"""Check from a client's machine whether the coordinator can be reached, and explain why not."""

from __future__ import annotations

import http.client
import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from fedrouter.deployment.state.config import split_address

TIMEOUT = 10.0
MOST_AHEAD, MOST_BEHIND = 4.0, 240.0
"""Seconds that this machine's clock may be ahead of the coordinator's, or behind it.

The coordinator refuses what was signed more than 5 s ahead or 5 min ago, as it refuses a key that is not enrolled.
"""


def connection_error(coordinator: str, authority: Path) -> str | None:
    """Why there is no usable connection to the coordinator, in words, or None if there is one."""
    host, port = split_address(coordinator)
    connection = http.client.HTTPSConnection(
        host, port, timeout=TIMEOUT, context=ssl.create_default_context(cafile=str(authority))
    )
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
    except ssl.SSLCertVerificationError as error:
        return f"{coordinator} is not the coordinator of this federation ({error.verify_message})"
    except ssl.SSLError:
        return f"{coordinator} does not speak TLS"
    except (OSError, http.client.HTTPException) as error:
        return f"{coordinator} cannot be reached ({type(error).__name__})"
    finally:
        connection.close()
    return _clock_skew(answer.getheader("date"))


def _clock_skew(date: str | None) -> str | None:
    if date is None:
        return None
    ahead = time.time() - parsedate_to_datetime(date).timestamp()
    if -MOST_BEHIND <= ahead <= MOST_AHEAD:
        return None
    where = "ahead of" if ahead > 0 else "behind"
    return f"this machine's clock is {abs(ahead):.0f} s {where} the coordinator's, which refuses its signatures"
