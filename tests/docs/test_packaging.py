"""What is shipped fits together: wheel, container image, compose file, CI workflow and make targets."""

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from importlib.metadata import files as files_of
from importlib.metadata import requires, version
from pathlib import Path

import click
import pytest
import typer
import yaml
from jsonschema_rs import validator_for
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.blocks import PROJECT
from fedrouter.cli.main import app
from fedrouter.engines.flower.programs import supernode_command
from fedrouter.gateway.config_file import read_config

PROJECT_TABLE = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built as `make wheel` does it, but with the setuptools that is installed."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    shutil.copytree(
        PROJECT / "src" / "fedrouter", source / "src" / "fedrouter", ignore=shutil.ignore_patterns("__pycache__")
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        "dist",
        ".",
    ]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next((source / "dist").glob("*.whl"))


def test_the_wheel_has_every_file_of_the_package(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = [path for path in (PROJECT / "src" / "fedrouter").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path.relative_to(PROJECT / "src").as_posix() for path in files} <= packed
    assert f"fedrouter-{PROJECT_TABLE['version']}.dist-info/licenses/LICENSE" in packed


@pytest.mark.slow
def test_the_demo_runs_from_the_installed_wheel(wheel, tmp_path):
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r}); import fedrouter; "
        f"assert {str(target)!r} in fedrouter.__file__; from fedrouter.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "--out", "demo"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "report.html").exists()


def packages_of(extra: str) -> set[str]:
    """Names of the packages that ``pip install fedrouter[extra]`` brings here, this one included."""
    extras = PROJECT_TABLE["optional-dependencies"]
    open_, found = [*PROJECT_TABLE["dependencies"], *extras[extra]], {"fedrouter"}
    while open_:
        requirement = Requirement(open_.pop())
        name = canonicalize_name(requirement.name)
        if name == "fedrouter":
            open_ += [one for wanted in requirement.extras for one in extras[wanted]]
        elif name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            open_ += requires(name) or []
    return found


def test_serving_brings_the_default_encoder_without_heavy_packages():
    found = packages_of("serve")
    assert {"numpy", "granian"} <= found
    assert not found & {"torch", "scipy", "scikit-learn", "pyarrow", "tokenizers", "wordllama"}
    assert len(found) <= 45
    files = [path.locate() for name in found - {"fedrouter"} for path in files_of(name) or []]
    own = [path for path in (PROJECT / "src" / "fedrouter").rglob("*") if path.is_file()]
    sizes = [Path(path).stat().st_size for path in [*files, *own] if Path(path).suffix != ".pyc"]
    assert sum(sizes) < 250e6


def test_make_targets_that_other_files_use_exist():
    for name in (
        "Dockerfile",
        ".github/workflows/ci.yml",
        "README.md",
        "CONTRIBUTING.md",
        ".ci/run",
    ):
        used = re.findall(r"(?:^|[ `])make ([a-z-]+)(?=[ `\n])", (PROJECT / name).read_text(), re.MULTILINE)
        assert used, name
        assert set(used) <= TARGETS, f"{name}: {set(used) - TARGETS}"


def test_the_image_gets_every_file_that_installing_needs():
    kept = [line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src"):
        assert (PROJECT / name).exists()
        assert any(fnmatch(name, pattern) for pattern in kept), name


def test_extras_of_the_image_exist():
    used = re.search(r"^ARG EXTRAS=(.*)$", (PROJECT / "Dockerfile").read_text(), re.MULTILINE)[1]
    default = re.search(r"^EXTRAS \?= (.*)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)[1]
    assert used == default
    assert set(used.split(",")) <= set(PROJECT_TABLE["optional-dependencies"])


def test_the_compose_file_names_files_and_commands_that_exist():
    compose = yaml.safe_load((PROJECT / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"gateway", "postgres", "coordinator", "proxy", "member", "supernode"}
    assert services["gateway"]["image"] == f"fedrouter:{PROJECT_TABLE['version']}"
    assert services["gateway"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for name in ("coordinator", "member"):
        for line in services[name]["entrypoint"][-1].splitlines():
            assert_known_command(line[line.index("fedrouter ") :].split(" && ")[0])
    volumes = [entry for service in services.values() for entry in service.get("volumes", ())]
    sources = [entry["source"] if isinstance(entry, dict) else entry.split(":")[0] for entry in volumes]
    mounted = {source for source in sources if source.startswith("./")}
    assert mounted == {"./deploy/gateway.yaml", "./deploy/nginx.conf"}
    assert all((PROJECT / source).is_file() for source in mounted)
    assert {source for source in sources if source[0] not in ".$"} == set(compose["volumes"])


def test_a_supernode_reaches_a_member_by_the_folder_that_it_fills():
    compose = yaml.safe_load((PROJECT / "compose.yaml").read_text())["services"]["supernode"]
    unit = (PROJECT / "deploy/systemd/fedrouter-supernode.service").read_text()
    member = yaml.safe_load_all((PROJECT / "deploy/kubernetes/member.yaml").read_text())
    pod = next(each for each in member if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    container = next(each for each in pod["containers"] if each["name"] == "supernode")
    words = supernode_command("router.example.org:9092", Path("/r/ca.pem"), Path("/r/node.key"), Path("/r"), 1)[1:-1]
    for given, folder in (
        (compose["command"], "/relay"),
        (container["args"], "/relay"),
        (unit.split(), "/run/fedrouter"),
    ):
        found = {
            word.replace("\\", "")
            .replace(folder, "/r")
            .replace("${COORDINATOR:-localhost:9092}", words[0].split("=")[1])
            for word in given
            if word.startswith("--")
        }
        assert found == set(words)
    assert compose["image"] == container["image"] == f"flwr/supernode:{version('flwr')}"


def faults(schema, document):
    return [
        f"{'/'.join(map(str, each.instance_path))}: {each.message}"
        for each in validator_for(schema).iter_errors(document)
    ]


def test_the_compose_file_is_valid_under_the_compose_specification():
    schema = json.loads((PROJECT / "tests/fixtures/compose-spec.json").read_text())
    compose = yaml.safe_load((PROJECT / "compose.yaml").read_text())
    assert not faults(schema, compose)
    compose["services"]["supernode"]["imag"] = "flwr/supernode"
    assert faults(schema, compose)


@pytest.mark.parametrize("path", sorted((PROJECT / "deploy/kubernetes").iterdir()), ids=lambda path: path.name)
def test_manifests_are_valid_under_the_schema_of_kubernetes(path):
    schema = json.loads((PROJECT / "tests/fixtures/kubernetes.json").read_text())
    objects = list(yaml.safe_load_all(path.read_text()))
    for each in objects:
        group = "apps.v1" if each["apiVersion"] == "apps/v1" else "core.v1"
        found = {**schema, "$ref": f"#/definitions/io.k8s.api.{group}.{each['kind']}"}
        assert {"apiVersion", "kind", "metadata"} <= each.keys()
        assert not faults(found, each)
        assert faults(found, {**each, "specification": {}})
    deployment = next(each for each in objects if each["kind"] == "Deployment")["spec"]
    pod = deployment["template"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert deployment["strategy"] == {"type": "Recreate"}  # a journal has one process
    assert pod["securityContext"]["runAsNonRoot"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        for line in container.get("args", [""])[0].splitlines():
            if "fedrouter federation" in line:
                assert_known_command(line[line.index("fedrouter ") :].split(" && ")[0])
    seen = {c["name"]: {m["name"] for m in c["volumeMounts"]} for c in pod["containers"]}
    if "supernode" in seen:
        assert seen["supernode"] == {"relay"}
        users = [container["securityContext"]["runAsUser"] for container in pod["containers"]]
        assert len(set(users)) == len(users)


def assert_known_command(line):
    """Fail unless every word and option of a `fedrouter` command exists."""
    program, *words = line.split()
    assert program.endswith("fedrouter")
    command = typer.main.get_command(app)
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize("path", sorted((PROJECT / "deploy/systemd").iterdir()), ids=lambda path: path.name)
def test_units_start_commands_that_exist_as_a_user_of_their_own(path):
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(path)
    if path.suffix == ".timer":
        assert unit["Timer"]["OnCalendar"]
        assert (path.with_suffix(".service")).exists()
        return
    service = unit["Service"]
    if "flower-supernode" not in service["ExecStart"]:
        assert_known_command(service["ExecStart"])
    assert service["User"].startswith("fedrouter-")
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    for other in unit["Unit"].get("Requisite", "").split():
        assert (path.parent / other).exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(tmp_path):
    for path in (PROJECT / "deploy/systemd").iterdir():
        text = re.sub(r"/opt/fedrouter/bin/[a-z-]+", "/bin/true", path.read_text())  # what is not installed here
        (tmp_path / path.name).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_dashboard_asks_for_metrics_that_exist_by_labels_that_they_have():
    dashboard = json.loads((PROJECT / "deploy/grafana/gateway.json").read_text())
    table = re.findall(
        r"^\| (`fedrouter_.*?) \| (.*?) \|", (PROJECT / "docs/reference/gateway.md").read_text(), re.MULTILINE
    )
    documented = {
        name: set(re.findall(r"`(\w+)`", labels)) | {"le"}
        for names, labels in table
        for name in re.findall(r"`(fedrouter_\w+)`", names)
    }
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) >= 16
    for expression in asked:
        wanted = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
        for name in re.findall(r"fedrouter_\w+", expression):
            assert wanted <= documented[name.removesuffix("_bucket")], expression


def test_the_gateway_of_the_compose_file_has_a_valid_config():
    config = read_config(PROJECT / "deploy" / "gateway.yaml")
    assert config.store == "postgresql://fedrouter@postgres/fedrouter"


def test_ci_runs_the_tests_on_every_supported_python():
    workflow = yaml.safe_load((PROJECT / ".github/workflows/ci.yml").read_text())
    supported = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT_TABLE["classifiers"]), re.MULTILINE)
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == supported
    assert {"run": "make test"} in workflow["jobs"]["test"]["steps"]
