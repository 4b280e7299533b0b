"""Every kind of router that can be saved and loaded, by the name its bundle has."""

from __future__ import annotations

from collections.abc import Mapping

from fedrouter.routers.base import Router
from fedrouter.routers.personal import HALVES, PersonalRouter

ROUTERS: Mapping[str, type[Router]] = {**HALVES, PersonalRouter.family: PersonalRouter}
