"""What the page shows: hostile text stays text, a keyboard reaches everything, and axe finds nothing serious."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.page.conftest import Site
from gateway.running import SQL, config_for

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
HOSTILE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "<script>window.hacked=1</script>"
VIEWS = ("overview", "frontier", "playground", "decisions", "learning", "drift", "federation", "keys")


@pytest.fixture(scope="module")
def site(start, bundle, upstream, tmp_path_factory):
    """A gateway with a model, a prompt, a task and a key whose names are HTML."""
    folder = tmp_path_factory.mktemp("hostile")
    config = config_for(folder, bundle, upstream.url, keep_prompts=True)
    # Each routed decision has its embedding, however slow the machine.
    patient = config.routing.replace(encoder_timeout=60)
    config = config.replace(models=(*config.models, config.models[0].replace(name=HOSTILE)), routing=patient)
    running = start(config.replace(learning=config.learning.replace(folder=str(folder / "bundles"))))
    for text in (SQL, SCRIPT):
        answer = running.chat(text, model=HOSTILE, fedrouter={"task": HOSTILE})
        running.store.score(answer.headers["x-fedrouter-decision-id"], 1.0, f"feedback:{HOSTILE}")
    for _ in range(3):
        running.chat(SQL)
    return Site(running, *running.store.create_key(HOSTILE))


def show(page, site, view: str) -> None:
    """Open a view and wait until it has loaded."""
    page.goto(f"{site.url}/#/{view}")
    page.get_by_role("heading", level=1).wait_for()
    for waiting in page.get_by_text("Loading …").all():
        waiting.wait_for(state="detached")


def test_hostile_text_is_shown_as_text(admin, site):
    for view in VIEWS:
        show(admin, site, view)
        assert admin.evaluate("window.hacked") is None
    admin.goto(f"{site.url}/#/decisions")
    admin.get_by_text(SCRIPT).first.click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_text(SCRIPT).wait_for()
    dialog.get_by_text(HOSTILE).first.wait_for()
    admin.goto(f"{site.url}/#/keys")
    admin.get_by_text(HOSTILE).first.wait_for()
    assert admin.evaluate("window.hacked") is None
    assert admin.evaluate("document.querySelectorAll('main img, main script').length") == 0


@pytest.mark.parametrize("page", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True)
def test_axe_finds_nothing_serious(admin, site):
    serious = {}
    for view in VIEWS:
        show(admin, site, view)
        if view == "decisions":
            admin.get_by_text(SQL).first.click()  # a routed one: what asked for a model by name may lack an embedding
            admin.get_by_role("dialog").get_by_role("heading", name="Replay").wait_for()
        admin.evaluate(AXE)
        found = admin.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        for each in found:
            if each["impact"] in ("serious", "critical"):
                serious[view, each["id"]] = [node["html"][:120] for node in each["nodes"]]
    assert not serious


def test_everything_can_be_done_with_a_keyboard(page, site):
    page.goto(site.url)
    page.get_by_label("API key").wait_for()
    page.keyboard.type(site.gateway.key)  # the field has the focus
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Overview").wait_for()
    tab_to(page, "Decisions")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Decisions").wait_for()
    page.locator("table button").first.wait_for()
    while not page.evaluate("document.activeElement.closest('td')"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_text("Chosen", exact=True).wait_for()
    tab_to(page, "Partly")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Partly", pressed=True).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.goto(f"{site.url}/#/frontier")
    dial = page.get_by_role("slider", name="Dial")
    dial.wait_for()
    before = float(dial.input_value())
    dial.focus()
    page.keyboard.press("ArrowLeft")
    assert float(dial.input_value()) == pytest.approx(before - 0.1)


def tab_to(page, text: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == text:
            return
    raise AssertionError(f"{text!r} cannot be reached with the Tab key")


def test_the_page_cannot_be_framed(page, site):
    page.goto(f"{site.url}/page/icon.svg")
    blocked = page.evaluate(
        """async (url) => {
            const frame = document.createElementNS("http://www.w3.org/1999/xhtml", "iframe");
            frame.src = url;
            document.documentElement.append(frame);
            await new Promise((done) => { frame.onload = frame.onerror = done; setTimeout(done, 3000); });
            try { return !frame.contentDocument?.getElementById("app"); } catch { return true; }
        }""",
        site.url,
    )
    assert blocked
    page.wrong.clear()  # the browser says in the console that it refused
