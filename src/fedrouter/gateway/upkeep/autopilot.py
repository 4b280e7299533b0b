"""Autopilot: learns from the gateway's own log, tries the result on old traffic, and swaps only if it is better.

Every attempt is a line of ``autopilot.jsonl`` in the folder of its bundles: what was compared, the interval, and why it
was swapped or not. The bundle that it replaces stays where it is, for `fedrouter bundle rollback`. An attempt that ends
with its process is completed by the next one, or undone: a file says what was about to happen.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

from fedrouter.bundle import load, save
from fedrouter.errors import FedrouterError
from fedrouter.files import locked, replace_file
from fedrouter.gateway.config import Config
from fedrouter.gateway.routing.bundles import Bundles, ServedBundle
from fedrouter.gateway.routing.default_tradeoff import DefaultTradeoff
from fedrouter.gateway.routing.served import PRIOR, pool_of
from fedrouter.gateway.upkeep.journal import append, entries
from fedrouter.gateway.upkeep.leadership import Leadership
from fedrouter.learning.from_log import learn_from_log, with_rows
from fedrouter.learning.traffic import scored_at
from fedrouter.learning.trial import LEAST_ROWS, Policy, run_trial
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store.engine import StoreFailed
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
CHECK = 2.0
"""Seconds between two checks whether enough requests were scored."""
CLIENT = "gateway"
"""The log's name among a router's clients."""
JOURNAL = "autopilot.jsonl"
BEGUN = "autopilot.begun.json"
"""The line of an attempt whose candidate is on its way into service."""
LOCK = ".autopilot.lock"
"""Held during an attempt, so that what another one has begun belongs to a process that has ended."""
AGAIN = 300.0
"""Seconds until it learns again after the store or the disk has failed."""


class Autopilot:
    """Learns whenever enough requests were scored; runs beside the gateway, its work in a thread."""

    def __init__(self, config: Config, store: Store, bundles: Bundles, default: DefaultTradeoff | None = None) -> None:
        self._config, self._store, self._bundles = config, store, bundles
        self._default = default or DefaultTradeoff(config.routing)
        self._folder = Path(config.learning.folder)
        self._resume()

    def _resume(self) -> None:
        """Go on after the last attempt, whichever process made it."""
        last = self._last(JOURNAL)
        self._until, self._at = _number(last.get("until"), 0.0), _number(last.get("at"), time.time())
        self._not_before = 0.0

    async def run(self, leadership: Leadership) -> None:
        """Learn whenever it is time to, while this process is the one that does."""
        while True:
            await asyncio.sleep(CHECK)
            if not leadership.leads:
                await leadership.acquired()
                await asyncio.to_thread(self._take_over)
            try:
                if await asyncio.to_thread(self._due):
                    outcome = await asyncio.to_thread(self.attempt)
                    done = "put the candidate into service" if outcome["swapped"] else "kept the present router"
                    LOG.info("autopilot: %s: %s", done, outcome["why"])
            except (FedrouterError, OSError) as error:  # the store or the disk
                LOG.error("autopilot: %s", error)

    def attempt(self, swap: bool = True) -> dict[str, Any]:
        """Learn once, try, and swap if it is better; what happened, as in the journal.

        Without ``swap`` the candidate is saved whatever the trial says, and left to a person to put into service.
        """
        self._at, before = time.time(), self._until
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder / LOCK):
                self._finish()
                try:
                    found = self._attempt(swap)
                except StoreFailed:
                    raise
                except FedrouterError as error:
                    found = self._line({"swapped": False, "why": str(error)})
                append(self._folder / JOURNAL, found)
                (self._folder / BEGUN).unlink(missing_ok=True)
        except (FedrouterError, OSError):  # nothing is wrong with what was learned: the same rows are tried again
            self._until, self._not_before = before, time.time() + AGAIN
            raise
        return found

    def _line(self, found: dict[str, Any]) -> dict[str, Any]:
        return {"at": self._at, "until": self._until, **found}

    def _take_over(self) -> None:
        """Go on where the process that led before has ended."""
        if self._folder.exists():
            try:
                with locked(self._folder / LOCK):
                    self._finish()
            except (FedrouterError, OSError) as error:  # the next attempt meets it again
                LOG.error("autopilot: %s", error)
        self._resume()

    def _finish(self) -> None:
        """Complete or undo an attempt whose process was killed: a bundle is recorded and in service, or it is removed.

        A candidate that has not come into service is learned again, from the same rows.
        """
        for scratch in self._folder.glob(".auto-*"):
            shutil.rmtree(scratch, ignore_errors=True)
        begun = self._last(BEGUN)
        if begun and self._last(JOURNAL).get("at") != begun["at"]:
            bundle = self._folder / Path(begun["bundle"]).name
            switch = self._store.switch_of(str(bundle.resolve()))
            if switch is not None:
                append(self._folder / JOURNAL, begun | {"digest": switch.digest, "swapped": True})
            else:
                shutil.rmtree(bundle, ignore_errors=True)
                LOG.warning("autopilot: a candidate was removed: its process ended before it put it into service")
        (self._folder / BEGUN).unlink(missing_ok=True)

    def _last(self, name: str) -> dict[str, Any]:
        """The last line of a file; nothing if there is none."""
        return next(reversed(entries(self._folder / name)), {})

    def _attempt(self, swap: bool) -> dict[str, Any]:
        serving = self._bundles.current
        assert serving is not None
        bundle = serving.bundle if isinstance(serving, ServedBundle) else None
        base = bundle.router if bundle is not None and isinstance(bundle.router, BayesRouter) else None
        learned_until = 0.0
        if bundle is not None and base is not None:
            learned_until = float(bundle.clients.get(CLIENT, {}).get("learnt_until", 0.0))
        records = [record for record in self._store.rows(scored_only=True) if scored_at(record) > learned_until]
        self._until = max(map(scored_at, records), default=self._until)
        trial = run_trial(
            records,
            pool_of(self._config.models),
            serving.encoder,
            Policy(serving.estimate_all, self._default.of(serving.points)),
            lambda rows: with_rows(base, rows),
            self._default.of,
            self._default.kept_quality or 0.0,
        )
        found = self._line({"swapped": False, "why": trial.why, "trial": trial.to_json()})
        if swap and not trial.better:
            return found
        learned = learn_from_log(self._store, CLIENT, serving.encoder, bundle)
        path = self._folder / f"auto-{int(self._at * 1000):x}"
        found |= {"bundle": str(path), "rows": learned.rows}
        replace_file(self._folder / BEGUN, json.dumps(found).encode())
        save(path, learned.router, serving.encoder, learned.provenance)
        digest = load(path).manifest["digest"]
        found["digest"] = digest
        if not swap:
            return found
        before = self._store.current()
        if before is not None and before.digest != serving.digest:
            return found | {"why": "another bundle was put into service meanwhile"}
        if before is None:
            self._store.set_current("", PRIOR)  # so that a rollback leads back to the guesses
        self._store.set_current(digest, str(path.resolve()))
        return found | {"swapped": True}

    def _due(self) -> bool:
        if time.time() < self._not_before:
            return False
        new, learning = self._store.scored_since(self._until), self._config.learning
        waited = 0 < learning.hours * 3600 <= time.time() - self._at
        return new >= (min(LEAST_ROWS, learning.every) if waited else learning.every)


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
