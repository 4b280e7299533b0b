"""docs/security.md says what leaves a client: all of it, by the names the code has."""

import re
from pathlib import Path

from fedrouter.federation.verbs.registry import VERBS

PROJECT = Path(__file__).parents[3]
PAGE = (PROJECT / "docs" / "security.md").read_text()


def test_the_page_lists_every_verb_with_its_reply_and_no_other():
    section = PAGE.split("## What leaves a client")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE)
    assert told == [(name, verb.reply.__name__) for name, verb in VERBS.items()]


def test_the_pages_say_what_several_honest_runs_reveal():
    told = PAGE.split("## What repeated runs reveal")[1].split("\n## ")[0]
    for attack in ("281 of 281", "abc, abd, acd and bcd", "5 of 5", "exact embeddings"):
        assert attack in told
    assert "two-cohort attack on a client's Gram matrix, fail" not in PAGE
