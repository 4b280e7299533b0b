"""The package's shape: what may import what, and what importing it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import fedrouter

PACKAGE = Path(fedrouter.__file__).parent
# From docs/architecture.md: a module imports only what stands above it, or beside it in its own folder.
LAYERS = (
    ("errors", "exact"),
    ("files", "registry"),
    ("pool",),
    ("evaluations",),
    ("estimates",),
    ("frontier",),
    ("baselines", "calibration", "pooling"),
    ("routers",),
    ("regret",),
    ("federation",),
    ("engines",),
    ("personalization",),
    ("coverage",),
    ("encoders",),
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


def layer(module: str) -> int:
    part = module.split(".")[1]
    return next(place for place, names in enumerate(LAYERS) if part in names)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("fedrouter.")}


def test_a_module_imports_only_what_stands_above_it():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(["fedrouter", *path.relative_to(PACKAGE).with_suffix("").parts])
        if module == "fedrouter.__init__":
            continue
        for name in imports(path):
            own_folder = name.split(".")[1] == module.split(".")[1]
            if layer(name) > layer(module) or (layer(name) == layer(module) and not own_folder):
                wrong.append(f"{module} imports {name}")
    assert not wrong


def test_every_name_of_the_facade_is_there():
    for name in fedrouter.__all__:
        assert getattr(fedrouter, name) is not None


def test_importing_the_package_imports_nothing_heavy():
    program = f"import sys, fedrouter; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_says_why_it_exists():
    silent = [path.name for path in PACKAGE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent
