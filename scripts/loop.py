"""The whole loop in one script: gateways, traffic with feedback, export, federated learning, a new router in service.

Three organizations, each with its own queries, run one gateway each over simulated models on localhost. They begin with
a router that knows the models' averages and ignores the query. Then, in each round: their traffic is routed, explored
and scored; each exports its log; the three learn one router together, and no query leaves its organization; the router
goes into service while the gateways run; and the same held-out queries, which are never learned from, measure it.

Run it as `python scripts/loop.py`; it takes two or three minutes on two cores. It writes out/loop/loop.html and exits
with status 1 unless accuracy has risen and cost has fallen significantly. docs/loop.md explains the results.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.markup import escape

from fedrouter.bundle import Bundle, Provenance, load, save
from fedrouter.cli.output import Bars, Voice, bars
from fedrouter.cli.simulate import prepare_folder
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.privacy.policy import MinimumGroupSizes, PrivacyPolicy
from fedrouter.gateway.upstream.simulated import Cast, SimulatedServer
from loop_parts.gateways import Gateway, command, start, stop_all
from loop_parts.measured import Difference, Pass, accuracy, cost, not_better
from loop_parts.organizations import World, make_world
from loop_parts.picture import PER, write_page
from loop_parts.traffic import keep_sending, send

PRIVACY = PrivacyPolicy(MinimumGroupSizes(cell=2))
"""No centroid of fewer than 5 queries and no sum over a single query leaves. The default minimum of 5 for sums makes
cells coarser with logs this small; docs/loop.md shows what that costs."""
DELAY = 0.005
"""Response time of a simulated model, in seconds."""


def main(
    out: Annotated[Path, typer.Option(help="Folder for bundles, logs, exports and the page.")] = Path("out/loop"),
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")] = 3,
    requests: Annotated[int, typer.Option(min=1, help="Requests of each organization in a round.")] = 200,
    held_out: Annotated[int, typer.Option(min=2, help="Held-out queries of each organization.")] = 200,
    router: Annotated[str, typer.Option(help="The router family to learn.")] = "kmeans",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the queries' assignment and of learning.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run left in --out.")] = False,
) -> None:
    """Run the loop and report whether the router improved."""
    family(router)
    prepare_folder(out, overwrite)
    world = make_world(rounds, requests, held_out, seed)
    with bars() as shown:
        wrong = asyncio.run(Loop(world, out.resolve(), router, seed, Voice(False), shown).run(rounds))
    sys.exit(1 if wrong else 0)


class Loop:
    """The steps of the loop, and their measurements."""

    def __init__(self, world: World, out: Path, router: str, seed: int, voice: Voice, shown: Bars) -> None:
        self._world, self._out, self._family, self._seed = world, out, router, seed
        self._voice, self._shown = voice, shown
        self._passes: list[Pass] = []
        self._measured: list[Pass] = []

    async def run(self, rounds: int) -> str | None:
        """Run all rounds; returns what has not improved, or None."""
        begun = time.perf_counter()
        bundle = self._first_bundle()
        upstreams = SimulatedServer(Cast(), DELAY)
        await upstreams.start()
        gateways: list[Gateway] = []
        try:
            self._step("Three gateways start", "with a router that knows the models' averages and ignores the query")
            starting = [
                start(one.name, self._out / one.name, upstreams.url, bundle.path) for one in self._world.organizations
            ]
            for gateway in await asyncio.gather(*starting, return_exceptions=True):
                if isinstance(gateway, BaseException):
                    raise gateway
                gateways.append(gateway)
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as http:
                await self._measure(http, gateways, bundle)
                for turn in range(rounds):
                    bundle = await self._round(http, gateways, bundle, turn)
        finally:
            await stop_all(gateways)
            await upstreams.stop()
        return self._conclude(time.perf_counter() - begun)

    def _first_bundle(self) -> Bundle:
        """A query-blind router from a trial of every model on a few queries of each organization."""
        rows = {one.name: one.trial for one in self._world.organizations}
        return self._learn(rows, "query_blind", None, "a trial of every model")

    async def _round(self, http: aiohttp.ClientSession, gateways: list[Gateway], old: Bundle, turn: int) -> Bundle:
        self._step(
            f"Round {turn + 1}: traffic with feedback", "every answer is scored; some requests explore another model"
        )
        since = datetime.now(UTC).isoformat()
        prompts = [one.traffic[turn] for one in self._world.organizations]
        found = await self._send(http, gateways, prompts, old, f"traffic {turn + 1}")
        self._say(f"{len(found.all)} requests, {found.explored:.0%} of them to another model than the best estimate")

        self._step("Each organization exports its own log", "fedrouter log export")
        for gateway in gateways:
            folder = gateway.folder / "exports"
            folder.mkdir(exist_ok=True)
            done = await command(
                *("log", "export", "--store", gateway.store, "--since", since),
                *("--out", str(folder / f"round-{turn + 1}.parquet")),
            )
            self._say(f"{gateway.name}: {done['rows']} evaluations")

        self._step(
            "The three learn one router together", "no query and no embedding of a single query leaves its organization"
        )
        learned_from = {
            one.name: Evaluations.concatenate([one.trial, self._exported(gateway)])
            for one, gateway in zip(self._world.organizations, gateways, strict=True)
        }
        began = time.perf_counter()
        new = await asyncio.to_thread(self._learn, learned_from, self._family, old, "trial and exported logs")
        rows = sum(map(len, learned_from.values()))
        self._say(f"version {new.version}, {new.router.family}, from {rows} evaluations", began)

        self._step("The new router goes into service while the gateways run", "fedrouter bundle use")
        await self._switch(http, gateways, new, prompts)
        await self._measure(http, gateways, new)
        return new

    def _exported(self, gateway: Gateway) -> Evaluations:
        """All evaluations that an organization has exported so far; an error if a held-out query is among them."""
        rows = read(gateway.folder / "exports", pool=self._world.pool).evaluations
        learned = {vector.tobytes() for vector in rows.embeddings.astype("<f4")}
        if any(record.embedding in learned for record in self._measured[0].records[gateway.name]):
            raise FedrouterError(f"{gateway.name}: a held-out query is in what is learned from")
        return rows

    def _learn(self, rows: dict[str, Evaluations], name: str, parent: Bundle | None, data: str) -> Bundle:
        kind, federation = family(name), LocalFederation(Client(who, part, PRIVACY) for who, part in rows.items())
        settings = kind.settings()
        router = kind.learn(federation, self._world.pool, settings, self._seed)
        version = parent.version + 1 if parent else 1
        counts = {who: len(part) for who, part in rows.items()}
        learned = Provenance.of_run(data, self._world.dataset.digest, self._seed, counts, settings, simulated=True)
        provenance = replace(learned, version=version, parent=parent.manifest["digest"] if parent else None)
        return load(save(self._out / "bundles" / f"v{version}", router, self._world.encoder, provenance))

    async def _switch(
        self, http: aiohttp.ClientSession, gateways: list[Gateway], bundle: Bundle, prompts: Sequence[Sequence[str]]
    ) -> None:
        """Switch every gateway to a bundle while requests continue; a request that fails ends the run."""
        switched = asyncio.Event()
        continuing = [
            asyncio.create_task(keep_sending(http, gateway, some, switched))
            for gateway, some in zip(gateways, prompts, strict=True)
        ]
        waits = await asyncio.gather(*(gateway.use(http, bundle) for gateway in gateways))
        switched.set()
        asked = sum(await asyncio.gather(*continuing))
        self._say(f"{max(waits):.1f} s after the command at most; {asked} requests in the meantime, none failed")

    async def _measure(self, http: aiohttp.ClientSession, gateways: list[Gateway], bundle: Bundle) -> None:
        self._step("Held-out queries", f"the same every time; router version {bundle.version}")
        prompts = [one.held_out for one in self._world.organizations]
        self._measured.append(await self._send(http, gateways, prompts, bundle, f"held-out, v{bundle.version}"))
        self._voice.table(*self._table())

    async def _send(
        self,
        http: aiohttp.ClientSession,
        gateways: list[Gateway],
        prompts: Sequence[Sequence[str]],
        bundle: Bundle,
        title: str,
    ) -> Pass:
        done, total = 0, sum(map(len, prompts))

        def one_done() -> None:
            nonlocal done
            done += 1
            self._shown.move(title, done, total)

        found = await asyncio.gather(
            *(send(http, gateway, some, one_done) for gateway, some in zip(gateways, prompts, strict=True))
        )
        names = [gateway.name for gateway in gateways]
        records = dict(zip(names, found, strict=True))
        self._passes.append(Pass(title, bundle.version, bundle.router.family, records))
        return self._passes[-1]

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """One row per version of the router: overall, then accuracy and dollars of each organization."""
        header = ["router", "accuracy", f"$/{PER:,}", "explored", *self._measured[0].records]
        rows = [
            [
                f"v{one.version} {one.family}",
                f"{one.accuracy.mean():.3f}",
                f"{PER * one.cost.mean():.2f}",
                f"{one.explored:.0%}",
                *(f"{accuracy(part).mean():.3f} {PER * cost(part).mean():.2f}" for part in one.records.values()),
            ]
            for one in self._measured
        ]
        return header, rows

    def _conclude(self, seconds: float) -> str | None:
        before, after = self._measured[0], self._measured[-1]
        gain = Difference.between(before.accuracy, after.accuracy)
        spent = Difference.between(before.cost, after.cost)
        share = spent.mean / before.cost.mean()
        wrong = not_better(before, after)
        verdict = (
            f"On {len(before.all)} held-out queries accuracy changed by {gain.mean:+.3f} ± {gain.half:.3f} and dollars "
            f"per {PER:,} requests by {PER * spent.mean:+.2f} ± {PER * spent.half:.2f} ({share:+.0%})."
        )
        page = write_page(self._out, self._passes, self._measured, *self._table(), verdict)
        document: dict[str, Any] = {
            "passes": [one.to_json() for one in self._passes],
            "accuracy": asdict(gain),
            "cost": asdict(spent),
            "improved": wrong is None,
            "seconds": seconds,
        }
        (self._out / "loop.json").write_text(json.dumps(document, indent=2) + "\n")
        self._voice.say(f"\n[bold]{verdict}[/] 95% intervals; {seconds:.0f} s.")
        if wrong:
            self._voice.say(f"[bold red]No significant improvement:[/] {wrong}.")
        self._voice.next(f"open {page}", f"fedrouter usage --store sqlite:///{self._out}/client-1/log.db --by model")
        return wrong

    def _step(self, title: str, how: str) -> None:
        self._voice.say(f"\n[bold]{title}[/]  [dim]{escape(how)}[/]")

    def _say(self, text: str, began: float | None = None) -> None:
        took = "" if began is None else f" in {time.perf_counter() - began:.1f} s"
        self._voice.say(f"  {text}{took}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except FedrouterError as error:
        sys.exit(f"error: {error}")
