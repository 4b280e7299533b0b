"""Which browser drives the page's tests: the system's Chromium, or Playwright's own; run as a script it says so."""

import os
import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "no Chromium found (apt-get install chromium, or playwright install chromium): the page's browser tests are skipped"
)


def find_browser() -> str | None:
    """The path of a Chromium; None if there is none."""
    found = os.environ.get("FEDROUTER_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    own = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache" / "ms-playwright"))
    return next((str(path) for path in sorted(own.glob("chromium-*/chrome-linux*/chrome"), reverse=True)), None)


if __name__ == "__main__":
    browser = find_browser()
    print(f"the page's browser tests run in {browser}" if browser else MISSING)
