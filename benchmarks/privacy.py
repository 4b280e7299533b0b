"""What an attacker learns from a client's messages, with and without each protection.

Writes docs/results/privacy.md. Run with `.venv/bin/python benchmarks/privacy.py`. The attacks are those of
``tests/attacks``, on real embeddings. Rates on earlier code, with the commit, are in ``privacy_before.json``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from fedrouter.federation.families.auto import AutoSettings

from attacks.forged import FORGED
from attacks.hostile import CRAFTED, STOPPED, UnderMasks
from attacks.passive import (
    MEMBERSHIP,
    SIZES,
    VICTIM,
    match,
    membership,
    observe,
    one_model_each,
    separation,
    vectors_sent,
    within,
)
from fedrouter.data.read import read
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import CLEAR, OPEN

PROJECT = Path(__file__).parents[1]
BEFORE = json.loads((PROJECT / "benchmarks" / "privacy_before.json").read_text())["rates"]
"""Rates of the same attacks on earlier code."""
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
FLOORS = CLEAR
SMALL = {
    "mlp": MLPSettings(rounds=3, hidden=(32,), participation=1.0),
    "auto": AutoSettings(candidates=("query_blind", "linear")),
}
"""Settings with which the attacked clients learn, where the defaults take long."""
WATCHED = (100, 1000)
"""Queries of the client whose members are looked for."""
STRANGERS = 600
TIMES = (1.1, 2, 3, 5, 7)


def company(log: Evaluations, rows: int) -> tuple[dict[str, Evaluations], Evaluations]:
    """A victim, nine others with 300 queries each, and strangers' queries."""
    order = np.random.default_rng(0).permutation(log.queries)
    logs = {VICTIM: one_model_each(log, order[:rows], 0)}
    rest = order[rows:]
    logs |= {f"other-{place}": one_model_each(log, rest[300 * place :][:300], place) for place in range(9)}
    return logs, one_model_each(log, rest[-STRANGERS:], 0)


def nearest(log: Evaluations) -> list[str]:
    lines = []
    for family in (name for name in FAMILIES if name != "auto"):  # which sends what its parts send
        for rows in SIZES if family == "kmeans" else (30, 300, 3000):
            logs, _ = company(log, rows)
            cells = [family, f"{rows:,}"]
            for privacy in (OPEN, FLOORS):
                heard = observe(family, logs, privacy, SMALL.get(family))
                found = match(vectors_sent(heard, VICTIM, log.dimension), logs[VICTIM].embeddings)
                shares = [part / max(found.sent, 1) for part in (found.equal, found.close, found.nearest)]
                cells += [f"{found.sent:,}", *(f"{share:.0%}" if found.sent else "" for share in shares)]
            lines.append(f"| {' | '.join(cells)} |")
            say(lines[-1])
    return lines


def members(log: Evaluations) -> list[str]:
    found: dict[tuple[str, int], list[str]] = {}
    for rows in WATCHED:
        logs, strangers = company(log, rows)
        for privacy, secure in ((OPEN, False), (FLOORS, False), (FLOORS, True)):
            for family in dict.fromkeys(family for family, _ in MEMBERSHIP.values()):
                heard = observe(family, logs, privacy, SMALL.get(family), secure)
                for name in (name for name, (sender, _) in MEMBERSHIP.items() if sender == family):
                    area, advantage = membership(name, heard, logs[VICTIM], strangers)
                    found.setdefault((name, rows), []).append(f"{area:.2f} ({advantage:.2f})")
                    say(f"{name} {rows} {found[name, rows]}")
    order = sorted(found, key=lambda key: (list(MEMBERSHIP).index(key[0]), key[1]))
    return [f"| {name} | {rows:,} | {' | '.join(found[name, rows])} |" for name, rows in order]


def span(log: Evaluations) -> list[str]:
    """The area of the test for members on products of leading directions, by how many queries stand behind them."""
    points = log.embeddings.astype(np.float64)
    leading = np.linalg.eigh(points.T @ points)[1][:, ::-1]
    draw = np.random.default_rng(0)
    lines = []
    for width in (7, 17, 65, log.dimension):
        features = points if width == log.dimension else np.c_[np.ones(len(points)), points @ leading[:, : width - 1]]
        cells = []
        for times in TIMES:
            rows = round(times * width)
            members, others = [], []
            for _ in range(1 if width == log.dimension else 30):
                order = draw.permutation(len(features))
                own, rest = features[order[:rows]], features[order[-rows:]]
                products = (own.T @ own)[np.triu_indices(width)]
                members.append(within(products, own[:1000]))
                others.append(within(products, rest[:1000]))
            cells.append(f"{separation(np.concatenate(members), np.concatenate(others))[0]:.2f}")
        lines.append(f"| {width} | {' | '.join(cells)} |")
        say(lines[-1])
    return lines


def hostile() -> list[str]:
    """Rates of each active attack by what the client requires; under secure sums, by whatever run is shown to it."""
    lines = []
    for name, attack in {**STOPPED, **CRAFTED, **FORGED}.items():
        rates = [attack(OPEN), attack(FLOORS)]
        runs = ("",) if name in FORGED else ("", "kmeans", "linear")  # forged ones show a run of their own
        rates.append(max((attack(UnderMasks(shown=shown)) for shown in runs), key=lambda rate: rate[1]))
        opened, plain, masked = (f"{won} of {tries}" for tries, won in rates)
        before = BEFORE.get(name, {})
        cells = (opened, before.get("plain", ""), plain, before.get("default", ""), masked)
        lines.append(f"| {name} | {' | '.join(cells)} |")
        say(lines[-1])
    return lines


def say(text: str) -> None:
    print(f"{time.perf_counter():6.0f} s  {text}", file=sys.stderr, flush=True)


def main() -> None:
    log = read(DATA / "mmlu_pro.parquet").evaluations
    page = f"""# What a client's messages reveal

    .venv/bin/python benchmarks/privacy.py

The attacks are those of `tests/attacks`; [security.md](../security.md) explains them. Minimum group sizes are the
defaults: 5 queries behind a centroid, 5 behind a sum and behind the difference of two sums, and no query with more than
a fifth of the say in a sum of products.

## Is anything that is sent an embedding?

Real embeddings (mmlu_pro, width {log.dimension}). Every vector of that width that a client sends, or that follows
from their sums (means, leading directions, changes of weights), is compared with the client's own embeddings. "Equal"
is the same vector; "close" has a cosine above 0.99 to one; "nearest" is closer to one embedding than that embedding's
nearest neighbor is, which can also happen to a mean of several neighbors.

| family | queries | sent, open | equal | close | nearest | sent, minimum sizes | equal | close | nearest |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(nearest(log))}

## Membership inference

The attacker holds a candidate evaluation (query, model, accuracy, cost) and decides from the messages whether it is
one of the client's. Members against {STRANGERS} others of the same kind, mmlu_pro, ten clients: area under the ROC
curve (0.5 is guessing), in parentheses the largest true-positive rate minus false-positive rate. Under secure
aggregation the coordinator sees totals over all ten clients, and centroids in the clear.

| from | queries | open | minimum sizes | minimum sizes, secure aggregation |
|---|---|---|---|---|
{chr(10).join(members(log))}

For products of features this depends on the number of queries per feature. Area, by features and queries per feature,
for random queries of mmlu_pro.

| features | {" | ".join(f"{times:g}" for times in TIMES)} |
|---|{"---|" * len(TIMES)}
{chr(10).join(span(log))}

## A malicious coordinator

Each attack aims at one row's accuracy and cost, or one embedding, exactly. *Plain*: minimum group sizes and the rule on
the say. *Default*: under secure sums, with every other client in league with the coordinator, so that the total gives
the client's own sums away and only its checks of the question are left; the best rate over no run shown, and an honest
K-Means or linear run shown before. The last {len(FORGED)} attacks forge what they show of the run
(`tests/attacks/forged.py`). *Before*: rates kept in `benchmarks/privacy_before.json`, on code without checks of the
question (96a36d1), and for forged runs on code without pinned keys and without a limit on the say in scores under
masks (c69bd75^); empty where it was not measured.

| attack | open | plain, before | plain | default, before | default |
|---|---|---|---|---|---|
{chr(10).join(hostile())}

Besides these, the same question for a client's Gram matrix to two cohorts that differ in that client: without
`cohort_gap` the difference is its matrix; with it, the other clients refuse
(`tests/federation/privacy/test_cohorts.py`).

## Several runs of an honest coordinator

All of the above is about one run, or one question asked twice. At the defaults, with members and coordinator honest:

| runs | what comes out |
|---|---|
| two `auto` runs, one client offline in the second | 281 of 281 of that client's single accuracies |
| four runs in the cohorts abc, abd, acd, bcd | the Gram matrix of each client, 5 of 5 |
| centroids of a log before and after five new queries | exact embeddings |

[Why](../security.md#what-repeated-runs-reveal). What protection costs in accuracy is in [quality.md](quality.md).
"""
    target = PROJECT / "docs" / "results" / "privacy.md"
    comment = target.read_text().partition(COMMENT)[2] if target.exists() else ""
    target.write_text(page + COMMENT + comment)


COMMENT = "\n## Conclusions\n"
"""The text below it is written by hand and kept."""

if __name__ == "__main__":
    main()
