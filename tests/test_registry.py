"""Registries: records of this package and of others, from real entry points in real folders."""

import pytest

from fedrouter.errors import BadInput
from fedrouter.registry import Registry

GROUP = "fedrouter.tested"
BUILT_IN = {"own": "fedrouter.errors:BadInput"}


def install(folder, name, entries, code=""):
    """A package as pip leaves it: a module, and the metadata with its entry points."""
    (folder / f"{name}.py").write_text(code)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{entry}\n" for entry in entries))


def accept(name, found):
    if not isinstance(found, int):
        raise TypeError("expected a number")
    return found


def registry():
    return Registry("thing", GROUP, BUILT_IN, accept)


def test_records_of_other_packages_come_after_those_of_this_one(tmp_path, monkeypatch):
    entries = ["second = other_things:SECOND", "first = other_things:FIRST"]
    install(tmp_path, "other_things", entries, "FIRST, SECOND = 1, 2")
    monkeypatch.syspath_prepend(tmp_path)
    found = registry()
    assert list(found) == ["own", "first", "second"]
    assert (len(found), found["second"], found["own"]) == (3, 2, BadInput)
    assert "second" in found
    assert "third" not in found


def test_listing_names_imports_nothing(tmp_path, monkeypatch):
    install(tmp_path, "failing_things", ["broken = failing_things:X"], "raise RuntimeError('was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert list(registry()) == ["own", "broken"]


def test_a_record_that_cannot_be_used_is_refused_when_it_is_looked_up(tmp_path, monkeypatch):
    entries = ["broken = bad_things:MISSING", "text = bad_things:TEXT"]
    install(tmp_path, "bad_things", entries, "TEXT = 'no number'")
    monkeypatch.syspath_prepend(tmp_path)
    found = registry()
    assert found["own"] is BadInput
    with pytest.raises(BadInput, match=r"thing 'broken' of bad_things:MISSING: cannot be used"):
        found["broken"]
    with pytest.raises(BadInput, match=r"thing 'text' of bad_things:TEXT: cannot be used \(expected a number\)"):
        found.find("text")


def test_a_name_of_this_package_cannot_be_taken(tmp_path, monkeypatch, caplog):
    install(tmp_path, "greedy_things", ["own = greedy_things:OWN"], "OWN = 1")
    monkeypatch.syspath_prepend(tmp_path)
    found = registry()
    assert list(found) == ["own"]
    assert found["own"] is BadInput
    assert "'own' of greedy_things:OWN is ignored: the name is taken" in caplog.text


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(BadInput, match=r"thing 'other': expected one of own; .*that package is not installed here"):
        registry().find("other")
    with pytest.raises(KeyError):
        registry()["other"]
