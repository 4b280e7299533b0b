"""Every registered family keeps the contract of families."""

from dataclasses import replace

import pytest

from conftest import family_params
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.routers.registry import ROUTERS
from fedrouter.testing.families import (
    FAMILY_CHECKS,
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
