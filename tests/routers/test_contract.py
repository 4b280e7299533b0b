"""Every registered family keeps the contract of families, and breaking it is noticed."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from conftest import family_params
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.routers.registry import ROUTERS
from fedrouter.testing.families import (
    FAMILY_CHECKS,
    check_another_seed_matters_if_the_record_says_so,
    check_family,
    check_settings_survive_json,
    check_the_registry_has_it,
)


@pytest.mark.parametrize("check", FAMILY_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", family_params())
def test_contract(name, check):
    check(FAMILIES[name])


def test_the_registries_of_families_and_of_routers_agree():
    assert set(ROUTERS) == {*FAMILIES, "personal"}
    for name, family in FAMILIES.items():
        assert family.name == name
        assert ROUTERS[name] is family.router


def test_an_unknown_family_is_refused_with_those_there_are():
    for registry in (FAMILIES, ROUTERS):
        with pytest.raises(BadInput, match=r"'oracle': expected one of bayes, kmeans, mlp.*package is not installed"):
            registry.find("oracle")


def test_every_field_of_a_record_is_required():
    with pytest.raises(TypeError, match="missing 12 required positional arguments"):
        type(FAMILIES["kmeans"])("kmeans")


def test_a_record_and_its_router_must_agree_on_the_name():
    with pytest.raises(BadInput, match="expected the same name"):
        replace(FAMILIES["kmeans"], name="other")


@dataclass(frozen=True, eq=False)
class StrangeRouter(KMeansRouter):
    family: ClassVar[str] = "strange"


def test_the_suite_notices_what_is_wrong():
    kmeans = FAMILIES["kmeans"]
    with pytest.raises(KeyError):
        check_the_registry_has_it(replace(kmeans, name="strange", router=StrangeRouter))
    with pytest.raises(AssertionError):
        check_another_seed_matters_if_the_record_says_so(replace(kmeans, random=False))
    others = {check.__name__ for check in FAMILY_CHECKS} - {check_settings_survive_json.__name__}
    check_family(kmeans, skip=others)
