"""HTTP to an OpenTelemetry collector: nothing that it sends back is read beyond its status."""

from __future__ import annotations

from typing import Any

import requests


class CollectorSession(requests.Session):
    """A session without proxies of the environment, as for upstreams.

    A body that never ends would fill the memory, and one that comes byte by byte would hold up all further exports:
    the time limit of `requests` counts anew with every byte.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def request(self, *args: Any, **more: Any) -> requests.Response:
        response = super().request(*args, **(more | {"stream": True}))
        response.close()
        response._content, response._content_consumed = b"", True
        return response
