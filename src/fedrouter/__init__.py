"""Federated learning of LLM routers: one router learned from many private evaluation logs.

The names that most users need, each loaded on first use; importing the package itself is fast.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle, load, save
    from fedrouter.calibration import calibrate
    from fedrouter.data.partition import partition
    from fedrouter.data.read import read
    from fedrouter.engines.local import LocalFederation
    from fedrouter.estimates import Estimates
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.client import Client
    from fedrouter.federation.families.registry import FAMILIES
    from fedrouter.frontier import Frontier, sweep
    from fedrouter.personalization import personalize
    from fedrouter.pool import Model, ModelPool

__version__ = version("fedrouter")

_MODULES = {
    "Bundle": "bundle",
    "Client": "federation.client",
    "Estimates": "estimates",
    "Evaluations": "evaluations",
    "FAMILIES": "federation.families.registry",
    "Frontier": "frontier",
    "LocalFederation": "engines.local",
    "Model": "pool",
    "ModelPool": "pool",
    "calibrate": "calibration",
    "load": "bundle",
    "partition": "data.partition",
    "personalize": "personalization",
    "read": "data.read",
    "save": "bundle",
    "sweep": "frontier",
}

__all__ = [
    "FAMILIES",
    "Bundle",
    "Client",
    "Estimates",
    "Evaluations",
    "Frontier",
    "LocalFederation",
    "Model",
    "ModelPool",
    "calibrate",
    "load",
    "partition",
    "personalize",
    "read",
    "save",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedrouter' has no attribute {name!r}")
    return getattr(import_module(f"fedrouter.{_MODULES[name]}"), name)
