"""Links between README.md, the pages in docs/ and other files of the project lead somewhere."""

import re
import runpy

import pytest
import yaml

from docs.blocks import PAGES, PROJECT

LINK = re.compile(r"\]\((?P<target>[^)#\s]*)(?:#(?P<anchor>[^)]*))?\)")
SITE = runpy.run_path(str(PROJECT / "scripts" / "docs_site.py"))
COPIED = SITE["COPIED"]
"""Files outside docs/ that are pages of the site."""
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


def in_menu(entry: object) -> set[str]:
    """The pages that the menu of the documentation site names, below one of its entries."""
    if isinstance(entry, str):
        return {entry}
    return set().union(*(in_menu(one) for one in (entry.values() if isinstance(entry, dict) else entry)))


def test_every_page_is_in_the_menu_of_the_site():
    menu = yaml.load((PROJECT / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"]
    pages = {page.relative_to(PROJECT / "docs").as_posix() for page in (PROJECT / "docs").rglob("*.md")}
    assert in_menu(menu) == pages | set(COPIED.values()) | SITE["GENERATED"].keys()


@pytest.mark.parametrize("page", sorted((PROJECT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_pages_link_to_pages_of_the_site_only(page):
    for link in LINK.finditer(page.read_text()):
        target = (page.parent / link["target"]).resolve()
        if link["target"] and "://" not in link["target"] and not target.is_relative_to(PROJECT / "docs"):
            assert target.relative_to(PROJECT).as_posix() in COPIED, (
                f"{page.name}: name {link['target']}, do not link it"
            )


def test_the_reference_of_messages_has_what_the_gateway_says():
    page = SITE["message_reference"]()
    assert "| `request_timeout` | 408 | The body did not arrive in time. |" in page
    assert "| `model_not_allowed` | 403 | model: …. |" in page
    assert page.count("\n| `") >= 25
