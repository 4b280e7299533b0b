"""`fedrouter usage`: cost of requests, savings, the quality that was kept, and models that got worse."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fedrouter.cli.gateway.stores import DEFAULT, Since, StoreUrl, dollars, moment, open_store, plain, shown_day
from fedrouter.cli.output import Json, Voice


class By(StrEnum):
    """How usage is grouped."""

    day = "day"
    key = "key"
    model = "model"


def usage(
    by: Annotated[By, typer.Option("--by", help="Group by day (UTC), API key or model.")] = By.day,
    since: Since = None,
    store: StoreUrl = DEFAULT,
    as_json: Json = False,
) -> None:
    """Show cost, savings against the baseline model, the quality that was kept, and models that got worse."""
    from fedrouter.learning.drift import watch
    from fedrouter.learning.learner import Version
    from fedrouter.store import evidence

    voice = Voice(as_json)
    with open_store(store) as log:
        rows = log.usage(by.value, moment(since, "--since") or 0.0)
        names = {key.id: key.name for key in log.all_keys()}
        with log.reading() as connection:
            found = evidence.latest(connection)
        drift = watch(log)
    kept = None if found is None else Version.unpack(*found).kept
    table = [
        [
            plain(f"{row.group} ({names[row.group]})" if by is By.key and row.group in names else row.group),
            f"{row.requests:,}",
            f"{row.errors:,}",
            f"{row.input_tokens:,}",
            f"{row.output_tokens:,}",
            dollars(row.cost),
            dollars(row.saved),
            f"{row.saved / row.baseline_cost:.0%}" if row.baseline_cost else "-",
            "-" if row.mean_score is None else f"{row.mean_score:.2f}",
        ]
        for row in rows
    ]
    voice.table(
        [by.value, "requests", "errors", "tokens in", "out", "cost $", "saved $", "saved", "score"],
        table,
        wrapped=(by.value,),
    )
    total = {
        "requests": sum(row.requests for row in rows),
        "cost": sum(row.cost for row in rows),
        "baseline_cost": sum(row.baseline_cost for row in rows),
        "saved": sum(row.saved for row in rows),
    }
    if rows:
        requests = "1 request" if total["requests"] == 1 else f"{total['requests']:,} requests"
        voice.say(f"\n{requests}, ${dollars(total['cost'])}, saved ${dollars(total['saved'])}")
    else:
        voice.say("No requests yet.")
    if kept is not None:
        voice.say(
            f"{kept.value:.0%} of the quality of {kept.best} for {kept.cost:.0%} of its cost "
            f"({kept.low:.0%} to {kept.high:.0%}, {kept.answers:,} scored answers)"
        )
    for cell in () if drift is None else drift.alarms:
        voice.warn(
            f"{plain(cell.model)} got worse since {shown_day(cell.since)}: {cell.expected:.2f} was expected, "
            f"{cell.score:.2f} was seen ({cell.answers:,} scored answers)"
        )
    document = {"by": by.value, "rows": [row.to_json() for row in rows], "total": total}
    learned = {"quality": None if kept is None else kept.to_json(), "drift": None if drift is None else drift.to_json()}
    voice.result(document | learned)
