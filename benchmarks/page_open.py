"""What an open page costs: CPU a request, and requests a second, with and without one that listens and reloads.

The page is a client that does what a browser with the overview open does: it holds the stream of live events and asks
for the overview every three seconds, which is as often as the page does while requests pass. Short rounds alternate,
and each pair of neighbors is compared: what other programs do to the machine changes more slowly than that. CPU a
request is what counts; the number of requests a second also depends on who else wants the cores.
Run with `python benchmarks/page_open.py`; it takes four minutes.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from math import comb
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

from gateway import Running, fedrouter, measure, started, traffic

PAIRS, SECONDS, CONCURRENCY = 14, 6.0, 32
EVERY = 3.0
CONFIDENCE = 0.95
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
        for number in range(2 * PAIRS):
            opened = (number % 2 == 1) == (number // 2 % 2 == 0)  # off on, on off, so that a trend favors neither
            with ExitStack() as here:
                found = here.enter_context(page(server)) if opened else {}
                before = cpu_seconds(server)
                rate = measure((server, "auto"), TEXTS, "cached", CONCURRENCY, SECONDS).rate
                rates[opened].append(rate)
                costs[opened].append((cpu_seconds(server) - before) / (rate * SECONDS))
            seen = {name: seen[name] + found.get(name, 0) for name in seen}
    microseconds = {opened: 1e6 * median(found) for opened, found in costs.items()}
    print(f"CPU of the gateway a request, in µs: closed {microseconds[False]:,.0f}, open {microseconds[True]:,.0f}")
    tell("CPU a request", costs)
    print(f"requests a second: closed {median(rates[False]):,.0f}, open {median(rates[True]):,.0f}")
    tell("requests a second", rates)
    print(f"{seen['events']} events and {seen['overview']} overviews; load average {os.getloadavg()[0]:.1f}")


def tell(what: str, found: dict[bool, list[float]]) -> None:
    """Print by how much an open page changes something: every pair, and the median with its interval."""
    more = sorted(on / off - 1 for on, off in zip(found[True], found[False], strict=True))
    rank = interval_rank(len(more))
    print(f"{what}, open over closed, by pair: {', '.join(f'{each:+.1%}' for each in more)}")
    print(f"  median {median(more):+.1%}, {CONFIDENCE:.0%} interval {more[rank]:+.1%} to {more[-1 - rank]:+.1%}")


def interval_rank(count: int) -> int:
    """How many values on either side are outside an interval for the median, whatever their distribution."""
    below, rank = 1 / 2**count, 0
    while rank + 1 < count / 2:
        below += comb(count, rank + 1) / 2**count
        if 2 * below > 1 - CONFIDENCE:
            break
        rank += 1
    return rank


if __name__ == "__main__":
    main()
