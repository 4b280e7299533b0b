"""docs/messages.md is what the verbs' records say."""

import importlib.util
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("make_messages_doc", PROJECT / "scripts" / "make_messages_doc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    module = generator()
    assert module.TARGET.read_text() == module.page(), "run scripts/make_messages_doc.py"
