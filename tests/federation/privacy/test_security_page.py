"""docs/security.md says what leaves a client: all of it, by the names the code has."""

import re
from pathlib import Path

from fedrouter.engines.flower.access_filter import CLIENT_PATHS
from fedrouter.federation.verbs.registry import VERBS

PROJECT = Path(__file__).parents[3]
PAGE = (PROJECT / "docs" / "security.md").read_text()


def test_the_page_lists_every_verb_with_its_reply_and_no_other():
    section = PAGE.split("## What leaves a client")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE)
    assert told == [(name, verb.reply.__name__) for name, verb in VERBS.items()]


def test_the_proxy_of_the_page_passes_what_the_gate_passes_and_nothing_else():
    passed = re.search(r"location ~ \^/v1/fleet/\(([a-z|-]+)\)\$", PAGE).group(1).split("|")
    assert {f"/v1/fleet/{name}" for name in passed} == CLIENT_PATHS


def test_the_pages_say_what_several_honest_runs_reveal():
    told = PAGE.split("## What repeated runs reveal")[1].split("\n## ")[0]
    for attack in ("281 of 281", "abc, abd, acd and bcd", "5 of 5", "exact embeddings"):
        assert attack in told
    for page in ("README.md", "docs/federation.md"):
        text = (PROJECT / page).read_text()
        assert "security.md#what-repeated-runs-reveal" in text
        assert "no two replies that differ by fewer" not in text
    assert "two-cohort attack on a client's Gram matrix, fail" not in PAGE
