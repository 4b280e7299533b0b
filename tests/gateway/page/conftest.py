"""A gateway with two keys, and a real browser that fails a test on any console error or request to another host."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from gateway.page.browser import MISSING, find_browser
from gateway.page.visitor import Visitor
from gateway.running import Running, config_for


def pytest_collection_modifyitems(items):
    """Tests in a browser are slow ones: `make test-browser` and `make test-all` run them."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@dataclass
class Site:
    """A gateway whose first key is the administrator's, and a plain key beside it."""

    gateway: Running
    plain_id: str
    plain: str
    visitors: list[Visitor] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.gateway.url

    def visitor(self, key: str | None = None) -> Visitor:
        """A signed-in client of the page's API, without a browser; the administrator's unless told otherwise."""
        self.visitors.append(Visitor(self.url, key or self.gateway.key))
        return self.visitors[-1]


@pytest.fixture(scope="module")
def site(start, bundle, upstream, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    config = config_for(folder, bundle, upstream.url, keep_prompts=True)
    # Each routed decision has its embedding, however slow the machine.
    patient = config.routing.replace(encoder_timeout=60)
    learning = config.learning.replace(folder=str(folder / "bundles"))
    running = start(config.replace(routing=patient, learning=learning))
    found = Site(running, *running.store.create_key("plain"))
    yield found
    for visitor in found.visitors:
        visitor.http.close()


@pytest.fixture(scope="module")  # its event loop must not outlive the module: other tests run loops of their own
def chromium():
    path = find_browser()
    if path is None:
        pytest.skip(MISSING)
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, site, request):
    """A new browser window; what went wrong in it fails the test."""
    options = getattr(request, "param", {})
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
    found = context.new_page()
    found.set_default_timeout(60_000)
    wrong, host = [], urlsplit(site.url).netloc
    found.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("request", lambda sent: wrong.append(sent.url) if urlsplit(sent.url).netloc not in (host, "") else None)
    found.wrong = wrong
    yield found
    context.close()
    assert not wrong


@pytest.fixture
def admin(page, site):
    """The page, signed in with the administrator's key."""
    sign_in(page, site.url, site.gateway.key)
    return page


def sign_in(page, url: str, key: str) -> None:
    page.goto(url)
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()
