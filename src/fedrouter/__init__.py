"""Federated learning of LLM routers: one router learned from many private evaluation logs.

The names that most users need, each loaded on first use; importing the package itself is fast.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrouter.bundle import Bundle, load, save
    from fedrouter.data.partition import partition
    from fedrouter.data.read import read
    from fedrouter.engines.local import LocalFederation
    from fedrouter.estimates import Estimates
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.families.registry import FAMILIES
    from fedrouter.frontier import Frontier, sweep, verdict_of
    from fedrouter.pool import Model, ModelPool

__version__ = version("fedrouter")

_MODULES = {
    "Bundle": "bundle",
    "Estimates": "estimates",
    "Evaluations": "evaluations",
    "FAMILIES": "federation.families.registry",
    "Frontier": "frontier",
    "LocalFederation": "engines.local",
    "Model": "pool",
    "ModelPool": "pool",
    "load": "bundle",
    "partition": "data.partition",
    "read": "data.read",
    "save": "bundle",
    "sweep": "frontier",
    "verdict_of": "frontier",
}

__all__ = [
    "FAMILIES",
    "Bundle",
    "Estimates",
    "Evaluations",
    "Frontier",
    "LocalFederation",
    "Model",
    "ModelPool",
    "load",
    "partition",
    "read",
    "save",
    "sweep",
    "verdict_of",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedrouter' has no attribute {name!r}")
    return getattr(import_module(f"fedrouter.{_MODULES[name]}"), name)
