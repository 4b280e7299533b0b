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


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name))) >= 4
