"""The shape of the package: which module may import which, what importing costs, and what each room keeps to itself."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import fedrouter

PACKAGE = Path(fedrouter.__file__).parent
PROJECT = Path(__file__).parents[1]
# From docs/architecture.md: a module imports only what stands above it, or beside it in its own folder.
LAYERS = (
    ("errors", "exact", "normal"),
    ("files", "registry"),
    ("pool",),
    ("data.prices",),
    ("prior",),
    ("evaluations",),
    ("estimates",),
    ("frontier",),
    ("baselines",),
    ("encoders",),
    ("evidence",),
    ("release",),
    ("routers",),
    ("federation",),
    ("engines",),
    ("growth", "personalization"),
    ("bundle",),
    ("data",),
    ("store",),
    ("learning",),
    ("deployment",),
    ("gateway",),
    ("experiments",),
    ("report",),
    ("cli",),
    ("testing",),
)
# The same inside packages. A name stands for a module or a folder; the longest that fits a module counts, so that
# "secagg" is the folder without "secagg.client".
ORDERS = {
    "cli": (
        ("output", "protocol_options"),
        ("data", "import_log", "reproduce", "router", "simulate"),
        ("gateway",),
        ("demo",),
        ("federation",),
        ("main",),
    ),
    "data": (
        ("partition", "pickles", "prices", "published"),
        ("checks", "download", "forms", "importers"),
        ("source",),
        ("routerbench", "sprout"),
        ("read",),
        ("batches", "overview", "simulator", "split"),
    ),
    "deployment": (
        ("address", "own_log", "tether"),
        ("credentials", "lock", "program"),
        ("invitation",),
        ("directories",),
        ("coordinator", "member", "runs"),
        ("home",),
    ),
    "encoders": (
        ("device", "shape", "weights", "window"),
        ("cells",),
        ("feature_map",),
        ("identity",),
        ("encoder", "location"),
        ("onnx", "sentence", "static"),
        ("registry",),
        ("cache",),
    ),
    "engines": (("flower", "local"),),
    "experiments": (
        ("choice", "claims", "paper_protocols", "protocol", "sheet"),
        ("experiment",),
        ("comparison",),
        ("theory",),
        ("figures",),
        ("registry",),
        ("runner",),
    ),
    "federation": (
        ("frame", "identity", "noise", "plausibility", "seeds"),
        ("message",),
        ("federation", "secagg", "verb"),
        ("families", "terms"),
        ("journal", "policy", "total"),
        ("coordinator", "member"),
        ("epoch",),
    ),
    "frontier": (("envelope", "operating_point"), ("curve", "outcomes"), ("logged",)),
    "gateway": (
        ("config", "http"),
        ("access", "config_file", "http_server", "litellm_config", "routing", "starter"),
        ("apis",),
        ("upstream",),
        ("observe", "routing.decision"),
        ("upkeep", "workers"),
        ("gateway",),
        ("pipeline",),
        ("routes",),
        ("page",),
        ("app", "demo"),
        ("server",),
    ),
    "learning": (
        ("online", "schema"),
        ("judges", "promise"),
        ("learner",),
        ("drift", "traffic"),
    ),
    "report": (
        ("page", "style"),
        ("plots", "sheets", "tables"),
        ("comparison", "reproduction"),
    ),
    "routers": (
        ("posterior",),
        ("base",),
        ("bayes", "kmeans", "mlp", "registry"),
        ("personal",),
    ),
    "store": (
        ("engine", "records", "tables"),
        ("accounting", "evidence", "keys"),
        ("shared",),
        ("store",),
        ("export", "outbox", "page"),
        ("writer",),
    ),
    "testing": (("samples",), ("engines", "families"), ("verbs",)),
}
NO_ROOM = {"attacks", "docs", "examples", "fixtures", "real"}
"""Folders of tests/ that belong to no folder of the package."""
MOST_FILES = 18
PRINTING = ("print", "sys.stdout.write", "typer.echo", "Console")
HEAVY = (
    "torch",
    "sklearn",
    "scipy",
    "pyarrow",
    "pandas",
    "matplotlib",
    "sentence_transformers",
    "flwr",
    "rich",
    "typer",
)


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its full name; a folder's ``__init__`` by the folder's."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(["fedrouter", *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(tree: ast.AST, deferred: bool = True) -> set[str]:
    """Full names of the modules that code imports, but for type checking; inside functions only if ``deferred``."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not deferred:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & modules().keys() or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        found |= imported(node, deferred)
    return found


@cache
def imports(module: str, deferred: bool = True) -> frozenset[str]:
    """The package's own modules that a module imports."""
    found = imported(parsed(modules()[module]), deferred)
    return frozenset((found & modules().keys()) - {module})


def place(name: str, order) -> tuple[int, str] | None:
    """The level of a module in an order, and the entry that it belongs to."""
    fitting = [
        (len(entry), level, entry)
        for level, entries in enumerate(order)
        for entry in entries
        if f"{name}.".startswith(f"{entry}.")
    ]
    return max(fitting)[1:] if fitting else None


def out_of_order(prefix: str, order) -> list[str]:
    """Imports between modules below ``prefix`` that do not go up in an order, and modules that are not in it."""
    wrong = []
    for module in modules():
        if not module.startswith(prefix):
            continue
        own = place(module.removeprefix(prefix), order)
        if own is None:
            wrong.append(f"{module} is in no level")
            continue
        for name in imports(module):
            if not name.startswith(prefix):
                continue
            other = place(name.removeprefix(prefix), order)
            if other is None or other[0] > own[0] or (other[0] == own[0] and other[1] != own[1]):
                wrong.append(f"{module} imports {name}")
    return wrong


def test_a_module_imports_only_what_stands_above_it():
    assert not out_of_order("fedrouter.", LAYERS)


@pytest.mark.parametrize("package", sorted(ORDERS))
def test_inside_a_package_a_module_imports_only_what_stands_above_it(package):
    assert not out_of_order(f"fedrouter.{package}.", ORDERS[package])


def test_every_package_has_an_order():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ORDERS)


def test_no_modules_import_each_other_in_a_circle():
    left = {module: imports(module) for module in modules()}
    while free := {module for module, needed in left.items() if not needed & left.keys()}:
        left = {module: needed for module, needed in left.items() if module not in free}
    assert not left


def test_nothing_imports_a_private_name_of_another_module():
    wrong = []
    folders = (PACKAGE, PROJECT / "benchmarks", PROJECT / "scripts", PROJECT / "examples", PROJECT / "tests")
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        tree = parsed(path)
        ours = set()  # names that stand for modules of the package
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedrouter"):
                names = [alias.name for alias in node.names]
                wrong += [f"{path.name}: {name}" for name in (*node.module.split("."), *names) if private(name)]
                ours |= {a.asname or a.name for a in node.names if f"{node.module}.{a.name}" in modules()}
        wrong += [
            f"{path.name}: {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and private(node.attr)
            if isinstance(node.value, ast.Name) and node.value.id in ours
        ]
    assert not wrong


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def test_only_the_command_line_prints():
    printing = {
        module
        for module, path in modules().items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING
    }
    assert not {module for module in printing if not module.startswith("fedrouter.cli.")}


def test_only_one_room_imports_flower():
    importing = {
        module
        for module, path in modules().items()
        if any(name.split(".")[0] == "flwr" for name in imported(parsed(path)))
    }
    assert not {module for module in importing if not module.startswith("fedrouter.engines.flower.")}


def test_only_the_member_opens_its_journal():
    """What leaves a member leaves in `Member.answer`, beside its journal; nothing else writes there."""
    reading = {module for module in modules() if "fedrouter.federation.journal" in imports(module)}
    assert reading == {"fedrouter.federation.member"}


def test_no_folder_has_too_many_files():
    folders = {path.parent for path in modules().values()}
    crowded = {folder.name for folder in folders if len(list(folder.glob("*.py"))) > MOST_FILES}
    assert not crowded


def test_tests_mirror_the_package():
    folders = {path.parent.relative_to(PROJECT / "tests") for path in (PROJECT / "tests").rglob("*.py")}
    stray = [folder for folder in folders if folder.parts and folder.parts[0] not in NO_ROOM]
    assert not [str(folder) for folder in stray if not (PACKAGE / folder).is_dir()]


def test_every_name_of_the_facade_is_there():
    for name in fedrouter.__all__:
        assert getattr(fedrouter, name) is not None


def test_importing_the_package_imports_nothing_heavy():
    program = f"import sys, fedrouter; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_says_why_it_exists():
    silent = [path.name for path in PACKAGE.rglob("*.py") if not ast.get_docstring(parsed(path))]
    assert not silent
