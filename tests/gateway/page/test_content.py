"""What the page shows: hostile text stays text, a keyboard reaches everything, and axe finds nothing serious."""

import threading
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedrouter.gateway.observe import drift_watch
from gateway.page.conftest import Site, page_config
from gateway.page.windows import serious
from gateway.running import SQL, eventually
from learning.logs import fallen

HOSTILE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "<script>window.hacked=1</script>"
VIEWS = ("overview", "frontier", "playground", "decisions", "learning", "keys")
PHONE = {"width": 375, "height": 740}


@pytest.fixture(scope="module")
def site(start, bundle, upstream, tmp_path_factory):
    """A gateway with a model, a prompt, a task and a key whose names are HTML; a model got worse."""
    config = page_config(tmp_path_factory.mktemp("hostile"), bundle, upstream)
    running = start(config.replace(models=(*config.models, config.models[0].replace(name=HOSTILE))))
    running.store.append([replace(row, served=HOSTILE, chosen=HOSTILE) for row in fallen()])
    for text in (SQL, SCRIPT):
        answer = running.chat(text, model=HOSTILE, fedrouter={"task": HOSTILE})
        running.store.score(answer.headers["x-fedrouter-decision-id"], 1.0, f"feedback:{HOSTILE}")
    for _ in range(3):
        running.chat(SQL)
    found = Site(running, *running.store.create_key(HOSTILE))
    yield found
    found.close()


@pytest.fixture(scope="module")
def alarm(site):
    visitor = site.visitor()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift_watch, "FRESH", 0.0)
        return eventually(lambda: alarms_of(visitor), 60)[0]


def alarms_of(visitor):
    return [cell for cell in visitor.get("drift").json()["cells"] or () if cell["alarm"]]


def show(page, view: str) -> None:
    """Open a view and wait until it has loaded."""
    page.goto(f"/#/{view}")
    page.locator(f"nav a[href='#/{view}'][aria-current]").wait_for()
    page.get_by_role("heading", level=1).wait_for()
    page.get_by_text("Loading …").first.wait_for(state="detached")


@pytest.fixture(scope="module")
def walk(windows, site, alarm):
    """Every view, opened once: whether hostile text was run in it, and what axe finds by day and by night."""
    found = {}
    with windows.of(site.key) as page:
        for view in VIEWS:
            show(page, view)
            if view == "decisions":
                page.get_by_text(SQL).first.click()
                page.get_by_role("dialog").get_by_role("heading", name="Ranking").wait_for()
            hacked = page.evaluate("'hacked' in window || document.querySelectorAll('main img, main script').length")
            day = serious(page)
            page.emulate_media(color_scheme="dark")
            found[view] = hacked, day, serious(page, "color-contrast")
            page.emulate_media(color_scheme="light")
    return found


def test_axe_finds_nothing_serious_by_day_and_by_night(walk):
    assert {view: found for view, (_, *found) in walk.items() if any(found)} == {}


def test_hostile_text_is_shown_as_text(walk, admin):
    assert not [view for view, (hacked, *_) in walk.items() if hacked]
    show(admin, "decisions")
    admin.get_by_text(SCRIPT).first.click()
    dialog = admin.get_by_role("dialog")
    dialog.get_by_text(SCRIPT).wait_for()
    dialog.get_by_text(HOSTILE).first.wait_for()
    for view in ("learning", "keys"):
        show(admin, view)
        admin.get_by_text(HOSTILE).filter(visible=True).first.wait_for()
    assert not admin.evaluate("'hacked' in window || document.querySelectorAll('main img, main script').length")


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Auckland"])
def test_an_alarm_names_model_and_day_in_every_time_zone(windows, site, alarm, zone):
    began = datetime.fromtimestamp(alarm["since"], UTC)
    title = f"{alarm['model']} got worse since {began:%A, %B} {began.day}"
    with windows.new(site.key, timezone_id=zone) as page:
        show(page, "overview")
        page.get_by_text(title).wait_for()
        show(page, "learning")
        page.get_by_text(title).wait_for()
        page.get_by_text("got worse", exact=True).wait_for()


def test_nothing_is_wider_than_a_phone(windows, site, alarm):
    with windows.new(site.key, viewport=PHONE) as page:
        for view in VIEWS:
            show(page, view)
            # A chart has its width once it was drawn.
            page.wait_for_function("(width) => document.documentElement.scrollWidth <= width", arg=PHONE["width"])


def test_everything_can_be_done_with_a_keyboard(page, site):
    page.goto("/")
    page.locator("input:focus").wait_for()
    page.keyboard.type(site.key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Overview").wait_for()
    tab_to(page, "document.activeElement.innerText === 'Decisions'")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Decisions").wait_for()
    page.locator("table button").first.wait_for()
    tab_to(page, "document.activeElement.closest('td')")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_text("Chosen", exact=True).wait_for()
    tab_to(page, "document.activeElement.innerText === 'Partly'")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Partly", pressed=True).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    show(page, "frontier")
    dial = page.get_by_role("slider", name="Dial")
    before = float(dial.input_value())
    dial.focus()
    page.keyboard.press("ArrowLeft")
    assert float(dial.input_value()) == pytest.approx(before - 0.1)


def tab_to(page, found: str) -> None:
    """Press Tab until the focus is where it should be."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"Boolean({found})"):
            return
    raise AssertionError(f"the Tab key does not reach: {found}")


@pytest.fixture
def elsewhere(site, tmp_path):
    """The address of another site, whose page frames ours."""
    (tmp_path / "index.html").write_text(f'<link rel="icon" href="data:,"><iframe src="{site.url}"></iframe>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_another_site_cannot_frame_the_page(page, windows, elsewhere):
    windows.expected += [elsewhere, "frame-ancestors"]  # the browser says that it refused
    page.goto(elsewhere)
    assert [frame.url for frame in page.frames] == [elsewhere, "chrome-error://chromewebdata/"]
