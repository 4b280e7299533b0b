"""Windows of a real browser in which nothing may go wrong unseen: console errors and requests to other hosts."""

from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from gateway.page.visitor import MARK

PATIENCE = 60_000
"""Milliseconds for which a test waits for what must come: a slow machine is no error."""
WIDE = {"width": 1280, "height": 900}
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()


class Windows:
    """Windows on one site; what went wrong in them fails the test that used them."""

    def __init__(self, chromium, url: str) -> None:
        self._chromium, self.url = chromium, url
        self._contexts = {}
        self.wrong: list[str] = []
        self.expected: list[str] = []
        """Parts of messages that this test means to cause: browsers report every failed request."""

    def context(self, **options):
        """A browser of its own, with cookies of its own."""
        found = self._chromium.new_context(base_url=self.url, **{"viewport": WIDE} | options)
        found.set_default_timeout(PATIENCE)
        wrong, hosts = self.wrong, (urlsplit(self.url).netloc, "")
        found.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        found.on("weberror", lambda error: wrong.append(str(error.error)))
        found.on("request", lambda sent: wrong.append(sent.url) if urlsplit(sent.url).netloc not in hosts else None)
        return found

    @contextmanager
    def new(self, key: str | None = None, **options):
        """A window; signed in with a key if one is given, without filling in the form."""
        context = self.context(**options)
        if key is not None:
            self._sign_in(context, key)
        yield context.new_page()
        context.close()
        self._check()

    @contextmanager
    def of(self, key: str):
        """A window of the one browser that is signed in with this key: files are in its cache."""
        if key not in self._contexts:
            self._contexts[key] = self.context()
            self._sign_in(self._contexts[key], key)
        page = self._contexts[key].new_page()
        yield page
        page.close()
        self._check()

    def close(self) -> None:
        for context in self._contexts.values():
            context.close()

    def _sign_in(self, context, key: str) -> None:
        assert context.request.post("/page/api/session", data={"key": key}, headers=MARK).ok

    def _check(self) -> None:
        wrong = [said for said in self.wrong if not any(part in said for part in self.expected)]
        self.wrong.clear()
        self.expected.clear()
        assert not wrong, wrong


def sign_in(page, key: str) -> None:
    """Fill in the form."""
    page.goto("/")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def serious(page, *rules: str) -> dict[str, list[str]]:
    """What axe finds on a page that is serious or worse, by rule; all rules unless some are named."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    found = page.evaluate("(options) => axe.run(options)", options)["violations"]
    return {
        each["id"]: [node["html"][:120] for node in each["nodes"]]
        for each in found
        if each["impact"] in ("serious", "critical")
    }
