"""Deployments of one model: requests go to the one with the fewest in progress; one that is busy or fails rests."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fedrouter.gateway.apis.api import Api
from fedrouter.gateway.apis.registry import APIS
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.upstream.http_client import Target


class Deployment:
    """One place where a model is called; ``model`` has its address and its name there."""

    def __init__(self, model: Upstream) -> None:
        self.model = model
        self.in_progress = 0
        self._last = self._resting_until = 0.0
        apis = [APIS[name] for name in model.params.api]
        self.targets = {api.name: Target(_address(model, api), _headers(model, api)) for api in apis}

    @property
    def resting(self) -> bool:
        return time.monotonic() < self._resting_until

    @property
    def load(self) -> tuple[float, int, float]:
        """What to compare deployments by: rest that is left, requests in progress, and the time of the last one."""
        return max(0.0, self._resting_until - time.monotonic()), self.in_progress, self._last

    def rest(self, seconds: float) -> None:
        """Send nothing here for some seconds, while another deployment can be called."""
        self._resting_until = time.monotonic() + seconds

    def begin(self) -> None:
        self.in_progress += 1
        self._last = time.monotonic()

    def end(self) -> None:
        self.in_progress -= 1


class Deployments:
    """All deployments of a model."""

    def __init__(self, model: Upstream) -> None:
        self._all = [Deployment(model.replace(params=params)) for params in (model.params, *model.deployments)]

    def __len__(self) -> int:
        return len(self._all)

    def pick(self, api: Api) -> Deployment:
        """The deployment for the next request: one that does not rest, with the fewest requests in progress."""
        return min(self._speaking(api), key=lambda deployment: deployment.load)

    def any_ready(self, api: Api) -> bool:
        """Whether one of them does not rest."""
        return any(not deployment.resting for deployment in self._speaking(api))

    def _speaking(self, api: Api) -> Sequence[Deployment]:
        return [deployment for deployment in self._all if api.name in deployment.model.params.api]


def _address(model: Upstream, api: Api) -> str:
    return f"{model.params.api_base}{api.path}"


def _headers(model: Upstream, api: Api) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "fedrouter"}
    headers |= {name: default for name, default in api.passed_headers.items() if default is not None}
    key, header = model.params.api_key, api.key_header
    if key is not None:
        headers[header] = f"Bearer {key}" if header == "authorization" else key
    return headers
