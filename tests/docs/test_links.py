"""Links between README.md, the pages in docs/ and other files of the project lead somewhere."""

from __future__ import annotations

import re

import pytest

from docs.blocks import PAGES, PROJECT

LINK = re.compile(r"\]\((?P<target>[^)#\s]*)(?:#(?P<anchor>[^)]*))?\)")
FILES = [*PAGES, PROJECT / "CHANGELOG.md", PROJECT / "examples" / "README.md"]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the documentation site make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain).strip()))
    return found


@pytest.mark.parametrize("page", FILES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.finditer(text):
        target, anchor = link["target"], link["anchor"]
        if "://" in target or "reference" in page.parts:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {target} does not exist"
        if anchor and path.suffix == ".md" and "reference" not in path.parts:
            assert anchor in anchors(path.read_text()), f"{page.name}: {target} has no heading #{anchor}"
