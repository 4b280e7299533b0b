"""The registry of router families: a name, and how it is learnt. Everything that lists families reads this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from fedrouter.errors import BadInput
from fedrouter.federation import auto, kmeans, linear, mf, mlp, query_blind
from fedrouter.federation.federation import Callback, Federation, ignore
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.blend import BlendRouter
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.routers.linear import KernelRouter, LinearRouter
from fedrouter.routers.mf import MFRouter
from fedrouter.routers.mlp import MLPRouter
from fedrouter.routers.query_blind import QueryBlindRouter


class Settings(Protocol):
    """A family's settings: a frozen dataclass; its defaults are the paper's, but for additions that it names."""

    def alone(self) -> Self:
        """The same settings for one owner of all the data: client-local and centralized baselines."""
        ...


class Learn(Protocol):
    """A family's server side: learn a router from a federation."""

    def __call__(
        self,
        federation: Federation,
        pool: ModelPool,
        settings: Any,
        seed: int = 0,
        callback: Callback = ignore,
    ) -> Router: ...


@dataclass(frozen=True)
class Family:
    """One family: its router, its settings, and its federated learning."""

    name: str
    router: type[Router]
    settings: type[Settings]
    learn: Learn


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("kmeans", KMeansRouter, kmeans.KMeansSettings, kmeans.learn),
        Family("mlp", MLPRouter, mlp.MLPSettings, mlp.learn),
        Family("linear", LinearRouter, linear.LinearSettings, linear.learn),
        Family("kernel", KernelRouter, linear.KernelSettings, linear.learn_kernel),
        Family("mf", MFRouter, mf.MFSettings, mf.learn),
        Family("query_blind", QueryBlindRouter, query_blind.QueryBlindSettings, query_blind.learn),
        Family("auto", BlendRouter, auto.AutoSettings, auto.learn),
    )
}


def family(name: str) -> Family:
    try:
        return FAMILIES[name]
    except KeyError:
        raise BadInput(f"router {name!r}: expected one of {', '.join(FAMILIES)}") from None
