"""Code that a coordinator ships tries to read a log and keys: it can as the same user, and cannot as another."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import fedrouter
from deployment.real_federation import RealFederation, descendants, kill_all, write_logs
from fedrouter.deployment.address import free_port
from fedrouter.engines.flower.programs import PACKAGE, Flwr, environment, read_nodes, supernode_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="starts a program as another user, which needs root"),
]
SYSTEM = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
SERVER = """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()

@app.main()
def main(grid: Grid, context: Context) -> None:
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(1)
    ask = RecordDict({"fedrouter": ConfigRecord({"content": b"read"})})
    (reply,) = grid.send_and_receive([Message(ask, nodes[0], "query")])
    out = Path(str(context.run_config["directory"])) / "loot.json"
    out.with_suffix(".part").write_bytes(reply.content["fedrouter"]["content"] if reply.has_content() else b"{}")
    out.with_suffix(".part").rename(out)
"""
CLIENT = """
import json, os
from pathlib import Path
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.query()
def steal(message: Message, context: Context) -> Message:
    relay, found = Path(str(context.node_config["relay"])), {"user": os.geteuid()}
    places = [TARGETS]
    for place in places:
        try:
            found[place] = len(Path(place).read_bytes())
        except OSError as error:
            found[place] = error.strerror
    found["relay"] = sorted(path.name for path in relay.iterdir())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"federation\\0join" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found["memory"] = len(Path(f"/proc/{pid}/environ").read_bytes())
        except OSError as error:
            found["memory"] = error.strerror
    content = json.dumps(found).encode()
    return Message(RecordDict({"fedrouter": ConfigRecord({"content": content})}), reply_to=message)
"""


def python_path():
    """Where this Python finds packages, those that a ``.pth`` file names included."""
    return [Path(each) for each in sys.path if "site-packages" in each] + [Path(fedrouter.__file__).parents[1]]


@pytest.fixture
def open_path():
    """A folder that every user may enter; any pytest that starts takes such rights from the folder of `tmp_path`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def shared_python(open_path):
    """Flower's programs, under a Python that every user of this machine can run."""
    if SYSTEM is None:
        pytest.skip("no Python of the system of this version, which another user could run")
    folder = open_path / "python"
    folder.mkdir()
    found = python_path()
    for name in ("flower-supernode", "flower-superexec", "flwr-clientapp"):
        text = Path(sys.executable).with_name(name).read_text().split("\n", 1)[1]
        paths = f"import sys\nsys.path[1:1] = {[str(each) for each in found]!r}\n"
        (folder / name).write_text(f"#!{SYSTEM} -E\n{paths}{text}")
        (folder / name).chmod(0o755)
    done = subprocess.run([folder / "flower-supernode", "--version"], user="nobody", capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"another user cannot read the installed packages: {done.stderr[-200:]}")
    return folder


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_shipped_code_reads_what_its_user_may_read(open_path, shared_python, user):
    folder = open_path / "f"
    folder.mkdir()
    relay = open_path / "relay"
    relay.mkdir(mode=0o750)
    shutil.chown(relay, group=pwd.getpwnam(user).pw_gid)
    relay.chmod(0o2750)
    write_logs(folder)
    (folder / "bank.csv").chmod(0o600)
    with RealFederation(folder, names=("bank",)) as federation:
        federation.form("--relay", relay)
        member = folder / "bank"
        secrets = [member / name for name in ("identity.key", "journal.db", "member.json", "policy.yaml")]
        secrets.append(folder / "bank.csv")
        home = open_path / "home"
        home.mkdir()
        shutil.chown(home, user)
        words = supernode_command(
            str(federation.member("bank").config["address"]), relay / "ca.pem", relay / "node.key", relay, free_port()
        )
        # A stock SuperNode ends if it comes before its key is admitted; a service manager starts it again.
        federation.until(lambda: read_nodes(federation.coordinator.path), "the node is admitted")
        with (folder / "supernode.log").open("w") as log:
            node = subprocess.Popen(
                [shared_python / "flower-supernode", *words[1:]],
                env=environment(home) | {"PATH": f"{shared_python}:/usr/bin:/bin", "HOME": str(home)},
                user=user,
                group=pwd.getpwnam(user).pw_gid,
                extra_groups=[],
                cwd=home,
                stdout=log,
                stderr=log,
            )
        try:
            app = federation.coordinator.path / "app" / PACKAGE
            (app / "server_app.py").write_text(SERVER)
            (app / "client_relay.py").write_text(CLIENT.replace("[TARGETS]", repr([str(path) for path in secrets])))
            Flwr(federation.coordinator.path).run()
            loot = federation.coordinator.path / "loot.json"
            federation.until(loot.exists, "the shipped app has replied", 300)
            found = json.loads(loot.read_text())
        finally:
            kill_all(descendants(node.pid))
            node.wait()
    assert found.pop("user") == pwd.getpwnam(user).pw_uid
    assert found.pop("relay") == ["ca.pem", "node.key", "socket", "token"]
    if user == "root":
        assert all(isinstance(each, int) for each in found.values()), found
    else:
        assert set(found) == {*map(str, secrets), "memory"}
        assert set(found.values()) == {"Permission denied"}


def test_a_member_starts_its_supernode_as_another_user(open_path, shared_python):
    folder = open_path / "g"
    folder.mkdir()
    write_logs(folder)
    words = [SYSTEM, "-c", "from fedrouter.cli.main import main; main()"]
    found = os.pathsep.join(map(str, python_path()))
    environment = {"PATH": f"{shared_python}:/usr/bin:/bin", "PYTHONPATH": found}
    with RealFederation(folder, members=(words, environment)) as federation:
        federation.form("--supernode-user", "nobody")
        last, _ = federation.epoch()
        assert (last["event"], len(last["survivors"])) == ("done", 3)
        (pid,) = federation.started_by("bank", "flower-supernode")[:1]
        assert os.stat(f"/proc/{pid}").st_uid == pwd.getpwnam("nobody").pw_uid
        assert os.stat(f"/proc/{federation.processes['bank'].pid}").st_uid == 0
        for path in (folder / "bank").iterdir():
            public = path.name in ("ca.pem", "policy.yaml", "request", "totals", "supernode", "bundle", "bundles")
            assert public or not path.stat().st_mode & 0o077, path
