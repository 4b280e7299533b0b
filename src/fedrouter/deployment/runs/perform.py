"""Perform a job on a federation of any engine: handshake, learn or extend a router, write the bundle, vote on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrouter.bundle import Bundle, Provenance, load, save
from fedrouter.deployment.runs.acceptance import ACCEPTED, CANDIDATE, REJECTED, record
from fedrouter.deployment.runs.handshake import Handshake, shake_hands
from fedrouter.deployment.runs.job import BUNDLE, RESULT, Job
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.errors import BadInput, BadMessage, FedrouterError
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.quorum import Quorum, QuorumLost, require_quorum
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.sums import Summed, rows_of_each
from fedrouter.federation.middleware.transcript import Recorded, Shown, Transcript
from fedrouter.federation.middleware.validation import Checked, Report
from fedrouter.federation.vote import BETTER, UNDECIDED, WORSE, ask_vote
from fedrouter.files import replace_file
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router

CHECKPOINT = "checkpoint"


@dataclass
class Tally(Middleware):
    """A federation that counts the rows behind the replies of each client, where no masks hide them.

    ``silent`` names the clients that did not answer all that was last asked of them.
    """

    federation: Federation
    rows: dict[str, int] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        answers = self.federation.ask_all(questions, to)
        missing = set()
        for question, replies in zip(questions, answers, strict=True):
            asked = next(names for names in (question.to, to, self.clients()) if names is not None)
            rows = rows_of_each(replies)
            if set(rows) <= set(asked):  # not the total of all, under masks
                missing |= set(asked) - set(rows)
            for name, count in rows.items():
                self.rows[name] = max(self.rows.get(name, 0), count)
        self.silent = frozenset(missing)
        return answers


def perform(
    job: Job,
    federation: Federation,
    folder: Path,
    log: ProgressLog,
    rejected: Report | None = None,
    sign: Callable[[bytes], bytes] | None = None,
    keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Perform the job, resuming an interrupted attempt; the result is also written to ``result.json``.

    ``rejected`` is called with every answer that was received and is not used; by default it is logged.
    ``sign`` signs what clients are shown of the run; ``keys`` are the public keys of all members.
    """
    rejected = rejected or log.dropped
    if (folder / RESULT).exists():
        return dict(json.loads((folder / RESULT).read_bytes()))
    transcript = Transcript(sign=sign)
    checked: Federation = Quorum(Checked(federation, rejected, log.withheld), job.quorum)
    kept = Checkpointed(protected(job, checked, transcript), folder / CHECKPOINT)
    base = load(job.base) if job.base else None
    with _handshake_forgotten_if_refused(folder):
        handshake = shake_hands(kept, rejected, base.encoder if base else None)
        everyone = tuple(handshake.federation.clients())
        # Who joins a router is alone asked for sums; the others vote on it.
        asked = tuple(job.clients) if job.operation == "add_clients" and job.clients else tuple(kept.clients())
        clients = tuple(name for name in everyone if name in asked)
        tally = Tally(handshake.federation)
        require_quorum(len(clients), len(asked), "clients can take part", job.quorum)
        require_crowd(job, clients)
        if job.operation == "remove_clients" and base:
            require_members(base, job.clients)
            _require_everyone(job, tally)
        pool = _pool(job, handshake, base, log)
        settings = _settings(job, base)
    log.write(
        "start",
        clients=list(clients),
        models=list(pool.names),
        encoder=handshake.encoder.name,
    )
    voters = tuple(name for name in everyone if name in clients or (base and name in base.clients))
    if job.operation != "remove_clients":
        transcript.begin(
            job.family,
            settings.to_json(),
            job.seed,
            job.models() if job.operation == "add_models" else pool,
            clients,
            keys,
            job.operation,
            base.router if base else None,
            [name for name in voters if name not in clients],
        )
    recorded = Recorded(tally, transcript)
    router = _learn(job, Subset(recorded, clients), pool, settings, base, log)
    rows = sum(tally.rows.values())
    if not (folder / BUNDLE).exists():  # it does if an earlier attempt was killed after saving it
        save(folder / BUNDLE, router, handshake.encoder, _provenance(job, clients, tally, settings, base))
    present = tuple(name for name in voters if name not in tally.silent)
    vote = _vote(job, Subset(recorded, present), router)
    log.write("vote", status=vote["status"], why=vote["why"])
    written = load(folder / BUNDLE)
    result = {
        "bundle": str(folder / BUNDLE),
        "digest": written.manifest["digest"],
        "version": written.version,
        "family": router.family,
        "models": list(router.pool.names),
        "encoder": handshake.encoder.name,
        "clients": list(written.clients.values()),
        "rows": rows,
        "vote": vote,
    }
    record(folder, vote["status"], vote["why"], vote["evidence"])
    replace_file(folder / RESULT, json.dumps(result, indent=2).encode() + b"\n")
    # The replies of the clients are no longer needed.
    shutil.rmtree(folder / CHECKPOINT)
    log.write("done", bundle=result["bundle"], digest=result["digest"])
    return result


@contextmanager
def _handshake_forgotten_if_refused(folder: Path) -> Iterator[None]:
    """Keep no handshake on account of which a run is refused: once a client is mended, the same run asks anew."""
    try:
        yield
    except (BadInput, QuorumLost):
        shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        raise


def protected(job: Job, validated: Federation, transcript: Transcript) -> Federation:
    """Combine replies as the job says. Clients are shown what was asked and answered only where it is totals."""
    if job.operation == "remove_clients":
        return validated  # what is subtracted must be what was added, of each client, unchanged
    if job.secure is not None:
        from fedrouter.federation.secagg.server import Secure

        return Shown(Secure(validated, job.secure), transcript)
    return Summed(validated)


def require_crowd(job: Job, clients: Sequence[str]) -> None:
    """Refuse secure sums of so few clients that a total would show a client's own sums."""
    if job.secure is None:
        return
    from fedrouter.federation.secagg.client import LEAST_CLIENTS

    if len(clients) < LEAST_CLIENTS:
        raise BadInput(
            f"{', '.join(clients)}: secure sums need at least {LEAST_CLIENTS} clients; with --plain the coordinator "
            "sees each client's own sums"
        )


def _require_everyone(job: Job, federation: Federation) -> None:
    """Refuse to remove only some of the clients that leave: the bundle would name the others as gone as well."""
    missing = sorted(set(job.clients) - set(federation.clients()))
    if missing:
        raise BadInput(f"{', '.join(missing)}: did not answer, and only a client itself can be asked for its sums")


def _pool(job: Job, handshake: Handshake, base: Bundle | None, log: ProgressLog) -> ModelPool:
    """The models to learn, in order."""
    if job.operation in ("add_clients", "remove_clients") and base:
        return base.router.pool
    if job.pool:
        models = job.models()
        unknown = [name for name in models.names if name not in handshake.models]
        if unknown:
            raise BadInput(f"{', '.join(unknown)}: no client has enough evaluations of it")
        return models
    if not handshake.models:
        raise BadInput("no client has enough evaluations of any model")
    shared = handshake.shared_models()
    alone = {model: clients[0] for model, clients in handshake.models.items() if model not in shared}
    if alone:
        log.write("left out", models=alone)
    if not shared:
        raise BadInput("no model has enough evaluations of two clients; name the models to learn with --models")
    return ModelPool(shared)


def _settings(job: Job, base: Bundle | None) -> Any:
    if base is not None and base.router.family != job.family:
        raise BadInput(f"{base.path}: a {base.router.family} router, the job is for {job.family}")
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in job.settings.items()}
    kind = family(job.family).settings
    return kind.from_json(base.settings_for(job.family), **given) if base else kind.from_json(given)


def _learn(
    job: Job, federation: Federation, pool: ModelPool, settings: Any, base: Bundle | None, log: ProgressLog
) -> Router:
    kind = family(job.family)
    if base is None:
        return kind.learn(federation, pool, settings, job.seed, log.step)
    if job.operation == "remove_clients":
        return remove_clients(base, federation)[0]
    there = [name for name in federation.clients() if name in base.clients]
    if job.operation == "add_models":
        strangers = [name for name in federation.clients() if name not in base.clients]
        if strangers:
            raise BadInput(f"{', '.join(strangers)}: not among the router's clients; let them join first")
        return kind.add_models(base.router, federation, pool, settings, job.seed, log.step)
    if there:
        raise BadInput(f"{', '.join(there)}: already a client of this router; its evaluations would count twice")
    return kind.add_clients(base.router, federation, settings, job.seed, log.step)


def require_members(base: Bundle, names: tuple[str, ...]) -> None:
    """Raise BadInput unless all of these contributed to the router, and others did, too."""
    strangers = [name for name in names if name not in base.clients]
    if strangers:
        raise BadInput(f"{', '.join(strangers)}: not a client of this router, which has {', '.join(base.clients)}")
    if len(set(names)) == len(base.clients):
        raise BadInput(f"{', '.join(names)}: all clients of this router; nothing would be left of it")


def remove_clients(base: Bundle, federation: Federation) -> tuple[Router, Mapping[str, int]]:
    """The router without the clients of this federation, and the number of rows subtracted of each.

    Clients send what their privacy settings let them send, so a log alone does not tell what is in the router. The
    client itself, with its journal, gives the same answer to the same question as long as its evaluations are the same.
    Refused unless every one sends the sums of exactly the rows that it contributed, as far as the bundle records them:
    under secure sums it does not, and then only sums that are larger than what is there are noticed.
    """
    names = tuple(federation.clients())
    require_members(base, names)
    tally = Tally(federation)
    router = family(base.router.family).removal()(base.router, tally)
    for name in names:
        sent, contributed = tally.rows.get(name, 0), int(base.clients[name]["rows"])
        if not sent:
            raise BadInput(
                f"{name}: sends nothing to subtract; its privacy settings withhold the sums outside of secure sums, or "
                "it did not answer"
            )
        if contributed and sent != contributed:
            raise BadInput(
                f"{name}: expected the sums of the {contributed:,} evaluations it contributed, got those of {sent:,}; "
                "its log has changed since, so learn the router again without it"
            )
    return router, {name: tally.rows[name] for name in names}


def _vote(job: Job, federation: Federation, router: Router) -> dict[str, Any]:
    """What the members say to the new router; a vote that fails leaves it a candidate, and the operator decides."""
    verdicts = {BETTER: ACCEPTED, WORSE: REJECTED, UNDECIDED: CANDIDATE}
    found, why = None, "no vote: what a client takes with it when it leaves is not up to the others"
    if job.operation != "remove_clients":
        try:
            found, why = ask_vote(federation, router), "no vote: no client answered"
        except _failures(job) as error:
            why = f"no vote: {error}"
    if found is None:
        return {"status": CANDIDATE, "why": why, "evidence": {}}
    return {"status": verdicts[found.outcome], "why": found.why, "evidence": found.to_json()}


def _failures(job: Job) -> tuple[type[FedrouterError], ...]:
    """What a vote can fail with; a lost connection is not among it, since the run is resumed after that."""
    if job.secure is None:
        return BadInput, BadMessage, QuorumLost
    from fedrouter.federation.secagg.server_session import TooFewLeft

    return BadInput, BadMessage, QuorumLost, TooFewLeft


def _provenance(job: Job, clients: Sequence[str], tally: Tally, settings: Any, base: Bundle | None) -> Provenance:
    """The clients and their row counts. The data itself has no name or digest here: it never left the clients."""
    # Secure aggregation shows only the total.
    rows = {name: tally.rows[name] for name in clients if tally.rows.get(name)}
    if job.secure is not None:
        rows = dict.fromkeys(clients, 0)
    if base is None:
        return Provenance.of_run("federation", "", job.seed, rows, settings)
    if job.operation == "add_models":
        return base.with_models(job.models(), rows, job.seed)
    if job.operation == "remove_clients":
        return base.without_clients(clients)
    return base.with_clients(rows, job.seed)
