"""The gateway: its components, created from a config, and their shutdown."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedrouter.encoders import STATIC, EncoderIdentity
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.encoders.registry import open_encoder
from fedrouter.errors import FedrouterError
from fedrouter.gateway.access import IN_PROGRESS, Authenticator, Budgets, InProgress, RateLimiter, SignIns
from fedrouter.gateway.config import Config, RetentionConfig
from fedrouter.gateway.http import Interruptions
from fedrouter.gateway.observe.drift_watch import DriftWatch
from fedrouter.gateway.observe.errors import described
from fedrouter.gateway.observe.judging import JudgeQueue
from fedrouter.gateway.observe.metrics import Gauge, Metrics
from fedrouter.gateway.observe.telemetry import Telemetry
from fedrouter.gateway.observe.usage_reports import UsageReports
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.gateway.routing.decision import Decider, StickySessions
from fedrouter.gateway.routing.embedding import Embedder, Encode, EncoderFailed, opened_on_use
from fedrouter.gateway.routing.served import ServedVersion, guesses_of, pool_of
from fedrouter.gateway.upkeep import Leadership, Learning, QualityHistory, Retention
from fedrouter.gateway.upstream.upstreams import Upstreams
from fedrouter.learning.learner import Learner, first_version, recent_queries
from fedrouter.learning.online import OnlineRouter
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store.engine import StoreFailed
from fedrouter.store.outbox import OUTBOX_LIMIT, Outbox
from fedrouter.store.store import Store
from fedrouter.store.writer import OutboxWriter

LOG = logging.getLogger("fedrouter.gateway")
WARM_UP = "What is the capital of France?"
IDLE_CHECK = 0.1
"""Seconds between two looks whether a gateway that was replaced still has requests."""
AT_ONCE = 4_096
"""Characters of a prompt that `static` encodes in less than a millisecond, so that no other thread is needed."""
CHANGES = 2
"""Changes by administrators that are made at one time."""
PAUSE = 5.0
"""Seconds until work beside requests that failed begins again."""
Changed = TypeVar("Changed")
Work = Callable[[], Coroutine[Any, Any, None]]
"""Work beside requests that never ends."""
EncoderOf = Callable[[EncoderIdentity], Encode]


@dataclass(eq=False)
class Gateway:
    """The components that handle a request, and the tasks that run beside it."""

    config: Config
    store: Store
    writer: OutboxWriter
    bundles: Bundles
    embedder: Embedder
    decider: Decider
    upstreams: Upstreams
    authenticator: Authenticator
    rate_limiter: RateLimiter
    in_progress: InProgress
    budgets: Budgets
    metrics: Metrics
    usage_reports: UsageReports
    judge_queue: JudgeQueue | None
    leadership: Leadership
    telemetry: Telemetry | None
    drift: DriftWatch
    interruptions: Interruptions = field(default_factory=Interruptions)
    sign_ins: SignIns = field(default_factory=SignIns)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    upkeep: list[asyncio.Task[None]] = field(default_factory=list)
    """Tasks that one process of all on the store runs: learning and retention."""
    serving: int = 0
    """Requests in progress."""
    _changes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CHANGES))
    warm: bool = False
    warming: asyncio.Task[None] | None = None

    async def warm_up(self) -> None:
        """Load the encoder by using it once; until then the default model serves."""
        try:
            await self.embedder.first(WARM_UP)
        except EncoderFailed:
            raise FedrouterError("the encoder cannot be used; the log says why") from None
        self.run(lambda: self.bundles.follow(self.store))
        self.warm = True

    def run(self, *works: Work) -> None:
        """Run work beside requests, until the gateway is closed."""
        self.tasks += [asyncio.create_task(lasting(work)) for work in works]

    def run_upkeep(self, work: Work) -> None:
        """Run work that one process of all on the store does."""
        self.upkeep.append(asyncio.create_task(lasting(work)))

    async def administer(self, change: Callable[[], Changed]) -> Changed:
        """Make an administrator's change of the store, few at a time.

        While the store is locked each waits for seconds, on threads that requests need, too.
        """
        async with self._changes:
            if self.writer.degraded:
                raise StoreFailed(f"store: {self.store.where}: rows wait for it, so nothing else is changed")
            return await asyncio.to_thread(change)

    async def until_warm(self) -> None:
        """Wait for :meth:`warm_up`; :class:`FedrouterError` if it failed."""
        assert self.warming is not None
        await asyncio.shield(self.warming)

    async def close_when_idle(self) -> None:
        """Close once no request is in progress: another gateway gets the new ones, and the upkeep at once."""
        await self._end_upkeep()
        while self.serving and not self.interruptions.stopping:
            await asyncio.sleep(IDLE_CHECK)
        await self.close()

    async def close(self) -> None:
        """End requests and tasks, write what waits for the log, and close connections and store."""
        self.interruptions.stop()
        await self._end_upkeep()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.writer.close()
        await self.budgets.close()
        if self.telemetry is not None:
            await asyncio.to_thread(self.telemetry.close)
        await self.upstreams.close()
        self.embedder.close()
        self.store.close()

    def gauges(self) -> Iterator[Gauge]:
        """Name, help, labels and value of every gauge, as of now."""
        about = "1 while the circuit breaker of a model keeps requests away from it."
        for model, breaker in self.upstreams.breakers.items():
            yield "fedrouter_resting", about, (("model", model),), not breaker.available
        serving, refused = self.bundles.current, bool(self.bundles.refused)
        if serving is not None:
            labels = (("digest", serving.digest), ("family", serving.family), ("version", str(serving.version)))
            yield "fedrouter_bundle_info", "The bundle in service.", labels, 1
        yield "fedrouter_bundle_refused", "1 while the store names a bundle that was refused.", (), refused
        yield "fedrouter_log_waiting", "Records and scores that wait to be written to the log.", (), self.writer.waiting
        about = "Records and scores in the outbox, which wait for the store to come back."
        yield "fedrouter_log_deferred", about, (), self.writer.deferred
        yield "fedrouter_encoder_waiting", "Prompts that wait for the encoder.", (), self.embedder.waiting
        about = "US dollars left of a key's daily budget, as far as this gateway knows; of keys in use today."
        for key, left in self.budgets.left():
            yield "fedrouter_budget_left_usd", about, (("key", key),), left
        yield "fedrouter_in_progress", "Requests that are routed or answered now.", (), len(self.interruptions)
        yield "fedrouter_tasks", "Tasks of the event loop.", (), len(asyncio.all_tasks())
        yield "fedrouter_sessions", "Conversations that have a model.", (), len(self.decider.sticky)
        latest = self.bundles.latest
        if latest is not None and latest.kept is not None:
            about = "Share of the best model's quality that was kept, measured, with a 95% interval; and the target."
            ends = {"kept": latest.kept.value, "low": latest.kept.low, "high": latest.kept.high}
            for which, value in (ends | ({"target": latest.target} if latest.target is not None else {})).items():
                yield "fedrouter_quality", about, (("what", which),), value
        about = "By how much a model that got worse scores less than was expected."
        for cell in self.drift.found.alarms if self.drift.found else ():
            yield "fedrouter_drift", about, (("model", cell.model),), cell.expected - cell.score
        about = "Prompts since the start, by where their embedding came from or why there is none."
        for outcome in ("hits", "misses", "late", "left", "failed"):
            yield "fedrouter_encoder_asks", about, (("outcome", outcome),), getattr(self.embedder, outcome)

    async def _end_upkeep(self) -> None:
        for task in self.upkeep:
            task.cancel()
        await asyncio.gather(*self.upkeep, return_exceptions=True)
        await self.leadership.close()


async def open_gateway(
    config: Config,
    encoder_of: EncoderOf | None = None,
    before: Gateway | None = None,
    workers: int = 1,
) -> Gateway:
    """Create a gateway on the running event loop; its encoder is still being loaded when this returns.

    It serves the bundle that the store names, and swaps when that changes; what it learns if the store names none.
    ``encoder_of`` replaces the encoder that the config and the bundle name. What is counted and remembered by the
    gateway ``before``, which this one replaces in the same process, goes on: conversations and metrics. ``workers``
    processes serve together: each has its part of what judges may cost.
    """
    async with AsyncExitStack() as opened:  # closed again if the rest fails: a config that is wrong leaves nothing open
        gateway = await _open_gateway(config, encoder_of, before, workers, opened)
        opened.pop_all()
    return gateway


async def _open_gateway(
    config: Config,
    encoder_of: EncoderOf | None,
    before: Gateway | None,
    workers: int,
    opened: AsyncExitStack,
) -> Gateway:
    store = await asyncio.to_thread(Store.open, config.store)
    opened.callback(store.close)
    bundles = Bundles(config.models, cached_queries=config.routing.cached_prompts)
    bundles.typical = partial(recent_queries, store)
    base = None
    if config.routing.bundle is not None:
        base = await asyncio.to_thread(bundles.prepare, config.routing.bundle)
    router = None if base is None else base.router
    bundles.learns = config.learning.enabled and (router is None or isinstance(router, BayesRouter))
    identity = base.encoder if base is not None else await asyncio.to_thread(lambda: open_encoder().identity())
    bundles.encoder = identity
    online = None
    if bundles.learns or base is None:
        online = OnlineRouter(
            pool_of(config.models),
            map_of_width(identity.dimension),
            guesses_of(config.models),
            router if isinstance(router, BayesRouter) else None,
        )
        first = await asyncio.to_thread(first_version, online, identity, config.routing.explore.share)
        bundles.begin(ServedVersion(first, config.models, config.routing.cached_prompts))
    elif base is not None:
        bundles.begin(base)
    await asyncio.to_thread(bundles.look, store)

    def loaded(found: EncoderIdentity) -> None:
        if found.weights is not None:  # bundles that come later must be made for just these
            bundles.encoder = found

    encode = encoder_of(identity) if encoder_of else opened_on_use(config.routing.encoder, identity, loaded)
    at_once = AT_ONCE if encoder_of is None and identity.name == STATIC else 0
    embedder = Embedder(encode, config.routing.encoder_timeout, config.routing.cached_prompts, at_once)
    opened.callback(embedder.close)
    upstreams = Upstreams(config, lambda model, why: metrics.count("fedrouter_upstream_failures_total", model=model))
    opened.push_async_callback(upstreams.close)
    shares = workers > 1 or store.path is None or config.routing.session_budget is not None
    sticky = StickySessions(shared=shares)
    in_progress = InProgress(IN_PROGRESS, before.in_progress if before else None)
    if before is not None:
        sticky = before.decider.sticky
    await sticky.share(store)
    writer = OutboxWriter(store, await asyncio.to_thread(_outbox, config, store))
    opened.push_async_callback(writer.close)
    budgets = Budgets(store, lambda: writer.degraded)
    metrics = Metrics() if before is None else before.metrics
    decider = Decider(config, bundles, embedder, sticky)
    gateway = Gateway(
        config,
        store,
        writer,
        bundles,
        embedder,
        decider,
        upstreams,
        Authenticator(store, config.server.auth),
        RateLimiter(config.server.rate_per_minute, store, lambda: writer.degraded),
        in_progress,
        budgets,
        metrics,
        UsageReports(store),
        JudgeQueue.of(config, upstreams, writer, workers),
        Leadership(store),
        Telemetry.of(config.otlp_endpoint),
        DriftWatch(store),
    )
    opened.pop_all()
    opened.push_async_callback(gateway.close)
    gateway.run(budgets.renew, writer.run, gateway.drift.run, metrics.run)
    await decider.default.read(store)
    gateway.run(lambda: decider.default.follow(store))
    gateway.run_upkeep(gateway.leadership.run)
    if bundles.learns and online is not None:
        learner = Learner(store, online, identity, config.routing.explore.share, config.learning.half_life)
        learning = Learning(learner, decider.default, config.learning.webhook)
        gateway.run_upkeep(lambda: learning.run(gateway.leadership))
        history = QualityHistory(store)
        gateway.run_upkeep(lambda: history.run(gateway.leadership, lambda: bundles.latest))
    if config.retention != RetentionConfig():
        retention = Retention(config, store, lambda what, n: metrics.count("fedrouter_removed_total", n, what=what))
        gateway.run_upkeep(lambda: retention.run(gateway.leadership))
    gateway.warming = asyncio.create_task(gateway.warm_up())
    gateway.tasks.append(gateway.warming)
    if gateway.judge_queue is not None:
        gateway.run(gateway.judge_queue.run)
    return gateway


def _outbox(config: Config, store: Store) -> Outbox:
    """The outbox that all gateways on this machine have for the store."""
    name = f"fedrouter-{hashlib.sha256(store.where.encode()).hexdigest()[:12]}"
    return Outbox(store.path or Path(config.outbox) / name, OUTBOX_LIMIT)


async def lasting(work: Work) -> None:
    """Run work until it ends or is cancelled; if it fails, it begins again after a pause."""
    while True:
        try:
            await work()
            return
        except Exception as error:
            LOG.error("%s; it begins again in %g s", described(error), PAUSE)
        await asyncio.sleep(PAUSE)
