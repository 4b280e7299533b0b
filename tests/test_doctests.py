"""Every example in a docstring runs."""

import doctest
import importlib
import pkgutil

import pytest

import fedrouter

MODULES = [module.name for module in pkgutil.walk_packages(fedrouter.__path__, "fedrouter.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
