"""Every example in a docstring runs."""

import doctest
import importlib
import importlib.util
import pkgutil

import pytest

import fedrouter

ON_A_GPU = {"fedrouter.engines.batched.fused", "fedrouter.engines.batched.triton_kernels"}
"""Modules that need Triton, which comes with torch for a GPU."""
MODULES = [
    module.name
    for module in pkgutil.walk_packages(fedrouter.__path__, "fedrouter.")
    if module.name not in ON_A_GPU or importlib.util.find_spec("triton")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name))) >= 4
