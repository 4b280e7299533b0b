"""The demo's page is alive from the start; README's picture is made here (`make screenshot`)."""

import os
import threading

import pytest

from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.demo import open_demo, placeholder
from fedrouter.gateway.page.demo_traffic import APPS, REQUESTS
from fedrouter.gateway.server import serve
from gateway.page.conftest import Site
from gateway.running import Running

PICTURE = "FEDROUTER_SCREENSHOT"
"""The environment variable that names the file of the picture."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder, told, ended, found, servers = tmp_path_factory.mktemp("demo"), threading.Event(), threading.Event(), {}, []
    server = ServerConfig(port=0)

    def ready(url, key):
        found.update(url=url, key=key)
        told.set()

    def run():
        serve(placeholder(server), ready, lambda: open_demo(folder, server, traffic=True), servers.append)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert told.wait(300)  # it learns from a week
    yield Site(Running(found["url"], found["key"], None, None), "", "")
    servers[0].stop()
    assert ended.wait(60)


@pytest.fixture
def page(windows, site):
    with windows.new(site.key, viewport={"width": 1280, "height": 620}) as found:
        yield found


def test_the_demo_opens_with_a_week_of_traffic(page, tmp_path):
    page.goto("/")
    page.get_by_role("button", name="7 days").click()
    page.wait_for_function(
        """(least) => [...document.querySelectorAll(".tile .note")].some((note) => {
            const found = note.textContent.match(/on ([\\d,]+) routed requests/);
            return found && Number(found[1].replaceAll(",", "")) >= least;
        })""",
        arg=0.9 * REQUESTS,  # the period begins with a whole bucket
    )
    page.get_by_text("of the cost at").wait_for()  # measured: nothing on the overview is empty
    page.get_by_role("img", name="Quality kept over time").wait_for()
    assert page.get_by_text("Target", exact=True).count() == page.get_by_text("Kept", exact=True).count() == 1
    target = os.environ.get(PICTURE) or str(tmp_path / "page.png")
    page.screenshot(path=target)
    assert os.path.getsize(target) > 20_000
    page.get_by_role("link", name="Frontier").click()
    page.get_by_text("What the router expects of the latest 500 requests").wait_for()
    page.locator("canvas").wait_for()
    page.get_by_role("link", name="Keys and models").click()
    for app in APPS.values():
        page.get_by_role("row").filter(has_text=app["name"]).get_by_text("active").wait_for()
    page.get_by_role("link", name="Decisions").click()
    page.get_by_role("cell", name="tutor", exact=True).first.wait_for()
