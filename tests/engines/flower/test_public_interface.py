"""Only Flower's public interface is used, and only in one room."""

import ast
from pathlib import Path

import pytest

import fedrouter

PACKAGE = Path(fedrouter.__file__).parent
PROJECT = Path(__file__).parents[3]
ROOM = PACKAGE / "engines" / "flower"
PUBLIC = {"flwr.app", "flwr.serverapp", "flwr.clientapp"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_flower_is_imported_by_its_public_names_in_one_room():
    found = {
        (path, name)
        for folder in (PACKAGE, PROJECT / "tests", PROJECT / "benchmarks")
        for path in folder.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] in ("flwr", "flower")
    }
    assert {name for _, name in found} <= PUBLIC
    assert all(path.is_relative_to(ROOM) for path, _ in found if path.is_relative_to(PACKAGE))


def test_no_private_name_of_flower_is_spelled_anywhere_in_the_room():
    for path in ROOM.glob("*.py"):
        text = path.read_text()
        for hint in ("flwr.common", "flwr.supercore", "flwr.superlink", "flwr.proto", "import_module", "__import__"):
            assert hint not in text, path


def test_the_relay_that_is_shipped_needs_nothing_but_flower():
    names = {name.split(".")[0] for name in imported(ROOM / "client_relay.py")}
    assert names == {"flwr", "pathlib", "socket"}


def test_the_app_is_the_relay_as_it_stands(tmp_path):
    pytest.importorskip("flwr")
    from fedrouter.engines.flower.programs import PACKAGE as NAME
    from fedrouter.engines.flower.programs import prepare

    prepare(tmp_path, 9092)
    assert (tmp_path / "app" / NAME / "client_relay.py").read_bytes() == (ROOM / "client_relay.py").read_bytes()
    assert {path.name for path in (tmp_path / "app" / NAME).iterdir()} == {
        "__init__.py",
        "client_relay.py",
        "server_app.py",
    }
