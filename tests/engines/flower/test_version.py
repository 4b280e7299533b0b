"""Flower is imported in one place, and only the version that was tested is accepted."""

import tomllib
from pathlib import Path

import pytest

import fedrouter
from fedrouter.engines.flower import version
from fedrouter.engines.flower.control import ControlClient
from fedrouter.engines.flower.node_link import NOT_ACTIVATED
from fedrouter.engines.flower.processes import SuperLinkProcess
from fedrouter.errors import FedrouterError, MissingExtra

PACKAGE = Path(fedrouter.__file__).parent


def test_the_tested_version_is_the_one_that_is_required():
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    assert f"flwr=={version.TESTED}" in project["optional-dependencies"]["flower"]


def test_another_version_is_refused_in_one_line_that_names_both(monkeypatch, tmp_path):
    monkeypatch.setattr(version, "version", lambda name: "1.42.0")
    starts = (
        version.check_flower,
        lambda: SuperLinkProcess([], tmp_path, tmp_path / "log"),
        lambda: ControlClient("localhost:1", tmp_path).nodes(),
    )
    for start in starts:
        with pytest.raises(FedrouterError, match=r"^found Flower 1\.42\.0, .* tested with Flower 1\.41\.0: .*$"):
            start()


def test_without_flower_the_extra_is_named(monkeypatch):
    def absent(name):
        raise version.PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", absent)
    with pytest.raises(MissingExtra, match=r"fedrouter\[flower\]"):
        version.check_flower()


def test_flower_still_has_the_internals_that_are_used():
    """The code by which it does not activate a node, and the HTTP client that is replaced."""
    from flwr.supercore.error import ApiErrorCode
    from flwr.supernode.fleet_http_client import FleetHttpClient

    assert ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED == NOT_ACTIVATED
    client = FleetHttpClient("https://localhost:1", verify=False)
    assert client._client.is_closed is False
    client.close()
