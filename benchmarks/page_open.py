"""What an open page costs: CPU a request, and requests a second, with and without one that listens and reloads.

The page is a client that does what a browser with the overview open does: it holds the stream of live events and asks
for the overview every three seconds, which is as often as the page does while requests pass. Rounds alternate.
Run with `python benchmarks/page_open.py`; it prints a table.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

from gateway import Running, fedrouter, measure, started, traffic

ROUNDS, SECONDS, CONCURRENCY = 6, 8.0, 32
EVERY = 3.0
TEXTS = [f"Write a SQL query that counts orders of customer {number}." for number in range(200)]


@contextmanager
def page(server: Running):
    """A signed-in page, for as long as the block runs; counts the events and overviews that arrived."""
    mark = {"x-page-request": "1", "content-type": "application/json"}
    signed = urlopen(Request(f"{server.url}/page/api/session", json.dumps({"key": server.key}).encode(), mark))
    cookie = {**mark, "cookie": signed.headers["set-cookie"].split(";")[0]}
    stop, seen = threading.Event(), {"overview": 0, "events": 0}

    def reload() -> None:
        while not stop.is_set():
            urlopen(Request(f"{server.url}/page/api/overview?hours=24", headers=cookie)).read()
            seen["overview"] += 1
            stop.wait(EVERY)

    def listen() -> None:
        stream = urlopen(Request(f"{server.url}/page/api/events", headers=cookie), timeout=5)
        with stream, suppress(TimeoutError):  # nothing more happens once the round is over
            while not stop.is_set():
                seen["events"] += stream.readline().startswith(b"data:")

    threads = [threading.Thread(target=each, daemon=True) for each in (reload, listen)]
    for each in threads:
        each.start()
    yield seen
    stop.set()
    for each in threads:
        each.join(15)


def cpu_seconds(server: Running) -> float:
    """CPU time of the gateway so far; other programs on the machine do not change it much, unlike its throughput."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    seen = {"overview": 0, "events": 0}
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        upstream = held.enter_context(started("upstream", traffic("upstream"), folder))
        assert upstream.stdout
        port = json.loads(upstream.stdout.readline())["port"]
        server = held.enter_context(fedrouter(folder / "fedrouter", f"http://127.0.0.1:{port}"))
        measure((server, "auto"), TEXTS, "cached", CONCURRENCY, SECONDS)  # warm
        for number in range(2 * ROUNDS):
            opened = (number % 2 == 1) == (number // 2 % 2 == 0)  # off on, on off, so that a trend favors neither
            with ExitStack() as here:
                found = here.enter_context(page(server)) if opened else {}
                before = cpu_seconds(server)
                rate = measure((server, "auto"), TEXTS, "cached", CONCURRENCY, SECONDS).rate
                rates[opened].append(rate)
                costs[opened].append((cpu_seconds(server) - before) / (rate * SECONDS))
            seen = {name: seen[name] + found.get(name, 0) for name in seen}
    microseconds = {opened: 1e6 * median(found) for opened, found in costs.items()}
    more = [on / off - 1 for on, off in zip(costs[True], costs[False], strict=True)]
    print(f"CPU of the gateway a request, in µs: closed {microseconds[False]:,.0f}, open {microseconds[True]:,.0f}")
    print(f"more CPU a request, by round: {', '.join(f'{each:+.1%}' for each in more)}; median {median(more):+.1%}")
    ratios = [on / off for on, off in zip(rates[True], rates[False], strict=True)]
    print(f"closed: {median(rates[False]):,.0f} requests a second; open: {median(rates[True]):,.0f}")
    print(f"open over closed, by round: {', '.join(f'{ratio:.3f}' for ratio in ratios)}; median {median(ratios):.3f}")
    print(f"{seen['events']} events and {seen['overview']} overviews; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
