"""Flower is imported in one place, and only the version that was tested is accepted."""

import ast
import tomllib
from pathlib import Path

import pytest

import fedrouter
from fedrouter.engines.flower import version
from fedrouter.engines.flower.control import ControlClient
from fedrouter.engines.flower.log_lines import Event, parse
from fedrouter.engines.flower.processes import FlowerProcess
from fedrouter.errors import FedrouterError, MissingExtra

PACKAGE = Path(fedrouter.__file__).parent
ALLOWED = {"deployment/launcher.py"}


def imports_flower(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name.partition(".")[0] == "flwr" for name in names):
            return True
    return False


def test_only_the_flower_engine_and_the_launcher_import_flower():
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if imports_flower(path)}
    assert {name for name in found if not name.startswith("engines/flower/")} <= ALLOWED
    assert "engines/flower/engine.py" in found


def test_flowers_internals_are_touched_in_one_line():
    """The one hook that is replaced; an assignment to anything else of Flower's would be found here."""
    patched = []
    for path in (PACKAGE / "engines/flower").glob("*.py"):
        tree = ast.parse(path.read_text())
        flower = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flwr")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                patched += [
                    f"{path.name}: {ast.unparse(target)}"
                    for target in node.targets
                    if isinstance(target, ast.Attribute) and ast.unparse(target).split(".")[0] in flower
                ]
    assert patched == ["process_entry.py: extensions.get_middleware"]


def test_the_tested_version_is_the_one_that_is_required():
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    assert f"flwr=={version.TESTED}" in project["optional-dependencies"]["flower"]


def test_another_version_is_refused_in_one_line_that_names_both(monkeypatch, tmp_path):
    monkeypatch.setattr(version, "version", lambda name: "1.42.0")
    starts = (
        version.check_flower,
        lambda: FlowerProcess("superlink", [], tmp_path, tmp_path / "log"),
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


@pytest.mark.parametrize(
    ("line", "event", "verb"),
    [
        ("INFO : SuperNode ID: 1234", Event.CONNECTED, ""),
        ("INFO : Receiving: query.cost_scale message (ID: 12)", Event.REQUESTED, "cost_scale"),
        ("ERROR : refused [code: 2004]", Event.KEY_REFUSED, ""),
        ("WARNING : Connection attempt failed, retrying in 2.00 seconds", Event.DISCONNECTED, ""),
        ("INFO : Connection successful after 3.00 seconds and 2 tries.", Event.RECONNECTED, ""),
    ],
)
def test_a_log_line_of_a_supernode_is_understood(line, event, verb):
    found = parse(line)
    assert (found.event, found.verb) == (event, verb)


def test_any_other_log_line_means_nothing():
    assert parse("INFO : Starting Flower SuperNode") is None


def test_flower_still_writes_the_lines_that_are_parsed():
    """The texts, with Flower's own formatting, are in its source; the error code is in its list of codes."""
    import flwr

    source = Path(flwr.__file__).parent
    supernode = (source / "supernode/start_client_internal.py").read_text()
    retry = (source / "supercore/retry/http_retry.py").read_text()
    assert Event.CONNECTED.value in supernode
    assert '"Receiving: %s message (ID: %s)"' in supernode
    assert Event.DISCONNECTED.value in retry
    assert Event.RECONNECTED.value in retry
    assert "FLEET_NODE_ACTIVATION_FAILED = 2004" in (source / "supercore/error/base.py").read_text()
