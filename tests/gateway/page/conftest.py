"""A gateway with two keys, and a real browser to look at it."""

from dataclasses import dataclass, field

import pytest

from fedrouter.gateway.config import LearningConfig
from gateway.page.browser import MISSING, find_browser
from gateway.page.visitor import Visitor
from gateway.page.windows import Windows
from gateway.running import PATIENT, Running, config_for


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

    @property
    def key(self) -> str:
        return self.gateway.key

    def visitor(self, key: str | None = None) -> Visitor:
        """A signed-in client of the page's API, without a browser; the administrator's unless told otherwise."""
        self.visitors.append(Visitor(self.url, key or self.key))
        return self.visitors[-1]

    def close(self) -> None:
        for visitor in self.visitors:
            visitor.http.close()


def page_config(folder, bundle, upstream):
    """A gateway that keeps prompts and learns, and has every decision's embedding, however slow the machine."""
    config = config_for(folder, bundle, upstream.url, keep_prompts=True, timing=PATIENT)
    return config.replace(
        routing=config.routing.replace(encoder_timeout=60),
        learning=LearningConfig(),
    )


@pytest.fixture(scope="module")
def site(start, bundle, upstream, tmp_path_factory):
    running = start(page_config(tmp_path_factory.mktemp("page"), bundle, upstream))
    found = Site(running, *running.store.create_key("plain"))
    yield found
    found.close()


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


@pytest.fixture(scope="module")
def windows(chromium, site):
    found = Windows(chromium, site.url)
    yield found
    found.close()


@pytest.fixture
def page(windows):
    """A new browser in which nobody is signed in."""
    with windows.new() as found:
        yield found


@pytest.fixture
def admin(windows, site):
    """A window of a browser that is signed in with the administrator's key; nothing is open in it yet."""
    with windows.of(site.key) as found:
        yield found
