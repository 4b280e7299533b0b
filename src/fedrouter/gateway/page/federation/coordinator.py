"""What a coordinator's state directory says: members and rounds, votes, budgets, coverage. It never knows rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrouter.bundle import load
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.acceptance import acceptance_of
from fedrouter.deployment.runs.history import past_runs
from fedrouter.deployment.runs.job import BUNDLE, RESULT
from fedrouter.deployment.runs.progress import Tail
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.errors import FedrouterError

RUNS, ROUNDS = 20, 60
"""Latest runs, and rounds of a run, that are shown."""
ANSWERED, LATE, REFUSED, ABSENT = "answered", "late", "refused", ""


def coordinator_view(directory: CoordinatorDirectory) -> dict[str, Any]:
    """Members, the latest runs round by round, and which regions and models the newest router has rows of."""
    members = sorted(directory.config().roster)
    runs = [_run(directory.runs / run.name, run.to_json(), members) for run in past_runs(directory)[-RUNS:]]
    return {
        "kind": "coordinator",
        "members": [_member(name, runs) for name in members],
        "runs": runs[::-1],
        "coverage": _coverage(directory),
    }


def _member(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What a member took part in, over the runs that are shown; its rows only where sums were not secret."""
    cells = [cell for run in runs for cell in [run["grid"].get(name, [])]]
    flat = [each for row in cells for each in row]
    left = [run["budgets"][name] for run in runs if name in run["budgets"]]
    return {
        "name": name,
        "runs": sum(any(each["state"] == ANSWERED for each in row) for row in cells),
        "answered": sum(each["state"] == ANSWERED for each in flat),
        "late": sum(each["state"] == LATE for each in flat),
        "refused": sum(each["state"] == REFUSED for each in flat),
        "bytes": sum(each["bytes"] or 0 for each in flat),
        "answers_left": left[-1] if left else None,
        "rows": next((run["rows"][name] for run in reversed(runs) if run["rows"].get(name)), None),
    }


def _run(folder: Path, about: dict[str, Any], members: list[str]) -> dict[str, Any]:
    lines = Tail(folder).lines()
    rounds, grid, start = _grid(lines, members)
    verdict = acceptance_of(folder)
    return {
        **about,
        "rounds": rounds,
        "grid": grid,
        "secure": jobs.read(folder).secure is not None,
        "budgets": start.get("answers", {}),
        "rows": _rows(folder),
        "vote": None if verdict is None else {"status": verdict.status, "why": verdict.why, **_voted(verdict.evidence)},
    }


def _grid(lines: list[Mapping[str, Any]], members: list[str]) -> tuple[list[str], dict[str, list[Any]], Any]:
    """For every exchange the verbs asked, and for every member what became of it."""
    rounds: list[str] = []
    grid: dict[str, list[Any]] = {name: [] for name in members}
    late: set[str] = set()
    refused: dict[str, str] = {}
    start: Mapping[str, Any] = {}
    for line in lines:
        event = line.get("event")
        if event == "start":
            start = line
        elif event == "late":
            late |= set(line["clients"])
        elif event == "dropped":
            refused[line["client"]] = str(line["reason"])
            if rounds and line["client"] in grid and not grid[line["client"]][-1]["bytes"]:
                grid[line["client"]][-1] |= {"state": REFUSED, "why": str(line["reason"])}
        elif event == "exchange":
            rounds.append(", ".join(line["verbs"]))
            asked, silent, sizes = line.get("clients"), set(line.get("silent", ())), line.get("bytes", {})
            for name in members:
                there = name in asked if asked is not None else line["answered"] == line["asked"]
                state = ABSENT if not there else REFUSED if name in silent else LATE if name in late else ANSWERED
                grid[name].append({"state": state, "bytes": sizes.get(name), "why": refused.get(name, "")})
            late, refused = set(), {}
    return rounds[-ROUNDS:], {name: row[-ROUNDS:] for name, row in grid.items()}, start


def _rows(folder: Path) -> dict[str, int]:
    try:
        clients = json.loads((folder / RESULT).read_bytes()).get("clients", [])
    except (OSError, ValueError):
        return {}
    return {each["name"]: int(each["rows"]) for each in clients if isinstance(each, dict) and each.get("rows")}


def _voted(evidence: Mapping[str, Any]) -> dict[str, Any]:
    names = ("queries", "utility", "objected", "from_others")
    return {name: evidence.get(name) for name in names}


def _coverage(directory: CoordinatorDirectory) -> dict[str, Any] | None:
    """Rows of all members together by region and model, of the newest router that counts them."""
    for run in reversed(past_runs(directory)):
        try:
            router = load(directory.runs / run.name / BUNDLE).router
        except FedrouterError:
            continue
        cells = router.cells()
        if cells is not None:
            return {"run": run.name, "models": list(router.pool.names), "rows": cells.count.tolist()}
    return None
