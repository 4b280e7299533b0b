"""docs/messages.md is what the verbs' records say."""

import importlib.util
from pathlib import Path

from fedrouter.federation.verbs.registry import OWN, VERBS

PROJECT = Path(__file__).parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("make_messages_doc", PROJECT / "scripts" / "make_messages_doc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    module = generator()
    assert module.TARGET.read_text() == module.page(), "run scripts/make_messages_doc.py"


def test_the_page_names_every_verb_and_every_field():
    page = generator().page()
    for verb in (VERBS[name] for name in OWN):
        section = page.split(f"\n## {verb.name}\n")[1].split("\n## ")[0]
        for kind in (verb.request, verb.reply):
            assert f"`{kind.__name__}`" in section
            assert all(f"| `{name}` |" in section for name in kind.__dataclass_fields__)
        assert "None" not in section
        assert ": ." not in section
