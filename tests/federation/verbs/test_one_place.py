"""A verb stands in one place: no module outside verbs/ keeps a table of verbs or of their messages."""

import ast
from pathlib import Path

import fedrouter
from fedrouter.federation.verbs.registry import OWN, VERBS

PACKAGE = Path(fedrouter.__file__).parent
NAMES = set(VERBS)
TYPES = {kind.__name__ for verb in VERBS.values() for kind in (verb.request, verb.reply)}
# Engines are checked with requests of some verbs.
EXEMPT = (PACKAGE / "federation" / "verbs", PACKAGE / "testing")


def entries(node: ast.AST) -> list[ast.AST]:
    """What a literal container or a match statement chooses between."""
    match node:
        case ast.Dict():
            return [key for key in node.keys if key]
        case ast.Set() | ast.Tuple() | ast.List():
            return list(node.elts)
        case ast.Match():
            return [part for case in node.cases for part in ast.walk(case.pattern)]
    return []


def verbs_in(node: ast.AST) -> set[str]:
    found = set()
    for entry in entries(node):
        value = entry.value if isinstance(entry, ast.MatchValue) else entry
        if isinstance(value, ast.Constant) and value.value in NAMES:
            found.add(value.value)
        if isinstance(entry, ast.MatchClass):
            value = entry.cls
        if isinstance(value, ast.Name) and value.id in TYPES:
            found.add(value.id)
    return found


def branches_in(node: ast.AST) -> set[str]:
    """Verbs that one chain of if and elif compares with."""
    found: set[str] = set()
    while isinstance(node, ast.If):
        for part in ast.walk(node.test):
            if isinstance(part, ast.Compare):
                sides = [part.left, *part.comparators]
                found |= {side.value for side in sides if isinstance(side, ast.Constant) and side.value in NAMES}
        node = node.orelse[0] if len(node.orelse) == 1 else ast.Pass()
    return found


def tables(source: str) -> list[set[str]]:
    found = [verbs_in(node) | branches_in(node) for node in ast.walk(ast.parse(source))]
    return [names for names in found if len(names) > 1]


def test_no_table_of_verbs_is_left_elsewhere():
    left = {}
    for path in PACKAGE.rglob("*.py"):
        if not any(folder in path.parents for folder in EXEMPT):
            found = tables(path.read_text())
            if found:
                left[str(path.relative_to(PACKAGE))] = found
    assert not left


def test_the_scan_finds_tables():
    for table in (
        'X = {"train": 1, "vote": 2}',
        'X = ("hello", "cluster")',
        'x in {"keys", "shares", "other"}',
        'match verb:\n    case "train" | "vote":\n        pass',
        "match reply:\n    case Centroids():\n        pass\n    case Update():\n        pass",
        'if verb == "train":\n    pass\nelif verb == "vote":\n    pass',
    ):
        assert tables(table), table
    assert not tables('federation.ask("train", request); federation.ask("vote", other)')


def test_every_verb_is_a_file_of_its_own_name():
    folder = PACKAGE / "federation" / "verbs"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "verb", "registry"}
    assert files == set(OWN) == {VERBS[name].name for name in OWN}
