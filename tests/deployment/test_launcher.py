"""What Flower's processes load: both sides of the app, and the app bundle that a run ships."""

import io
import zipfile

import pytest

pytest.importorskip("flwr")

from fedrouter.deployment import launcher
from fedrouter.deployment.runs.submission import LAUNCHER
from fedrouter.engines.flower.shipped_app import build_app
from fedrouter.errors import BadInput


def test_both_sides_of_the_app_can_be_made():
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    assert isinstance(launcher.client_app(), ClientApp)
    assert isinstance(launcher.server_app(), ServerApp)
    assert launcher.__name__ == LAUNCHER


def test_a_run_ships_imports_of_the_installed_package_and_no_other_code():
    with zipfile.ZipFile(io.BytesIO(build_app(LAUNCHER, server="server_app", client="client_app"))) as shipped:
        code = {name: shipped.read(name).decode() for name in shipped.namelist() if name.endswith(".py")}
    assert sorted(code) == ["fedrouter_run/__init__.py", "fedrouter_run/client.py", "fedrouter_run/server.py"]
    for side in ("client", "server"):
        lines = [line for line in code[f"fedrouter_run/{side}.py"].splitlines() if line and not line.startswith('"""')]
        assert lines == [f"from {LAUNCHER} import {side}_app", f"app = {side}_app()"]


def test_a_run_name_cannot_leave_the_folder_of_runs(tmp_path):
    from fedrouter.deployment.state.directories import create_coordinator

    directory = create_coordinator(tmp_path / "coordinator", ("localhost",))
    with pytest.raises(BadInput, match=r"run '\.\./up'"):
        launcher.run_job(None, "../up", directory.flower)
