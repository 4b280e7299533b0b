"""Scores of decisions: which of several counts, and a history of all of them."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, insert, select, update

from fedrouter.errors import BadInput
from fedrouter.store.engine import appending
from fedrouter.store.records import Feedback, Scored
from fedrouter.store.tables import DECISIONS, FEEDBACK

JUDGE = "judge"
"""Sources whose name begins with this are judges; any other source's score replaces theirs."""

_d, _f = DECISIONS.c, FEEDBACK.c
# Built once: building a statement takes longer than running it.
STANDING = select(_d.key, _d.score, _d.scored_by, _d.scored_at).where(_d.id == bindparam("decision")).with_for_update()
SENT = (
    select(_f.score, _f.at)
    .where(_f.decision == bindparam("decision"), _f.by == bindparam("source"))
    .order_by(_f.at.desc(), _f.place.desc())
)
KEEP = insert(FEEDBACK)
STAND = (
    update(DECISIONS)
    .where(_d.id == bindparam("decision"))
    .values(score=bindparam("new_score"), scored_by=bindparam("new_source"), scored_at=bindparam("new_time"))
)


def check(score: float, by: str) -> None:
    """Refuse a score outside [0, 1] or without a source."""
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise BadInput("feedback, field 'score': expected a number in [0, 1]")
    if not by:
        raise BadInput("feedback, field 'by': expected the name of the source")


def put_score(
    connection: Connection, decision: str, score: float, by: str, at: float, key: str | None = None
) -> Scored:
    """Store a score; sending it again changes nothing.

    A source's later score replaces its earlier one; a judge's never replaces another source's. A score that arrives
    late, with an `at` before that of the current score, is only added to the history. With a `key`, decisions of
    other keys are unknown.
    """
    appending(connection)
    row = connection.execute(STANDING, {"decision": decision}).one_or_none()
    if row is None or key not in (None, row.key):
        return "unknown"
    sent = connection.execute(SENT, {"decision": decision, "source": by}).all()
    if sent and (sent[0].score == score or any(old.score == score and old.at == at for old in sent)):
        return "same"
    stood = row.scored_by is None or _replaces(by, at, row.scored_by, row.scored_at)
    kept = {"decision": decision, "score": score, "by": by, "at": at, "stood": stood, "before": row.score}
    connection.execute(KEEP, kept)
    if not stood:
        return "stored"
    connection.execute(STAND, {"decision": decision, "new_score": score, "new_source": by, "new_time": at})
    return "stored" if row.scored_by is None else "replaced"


def history(connection: Connection, decision: str) -> list[Feedback]:
    """Every score that was sent for a decision, oldest first."""
    wanted = select(_f.decision, _f.score, _f.by, _f.at).where(_f.decision == decision).order_by(_f.at, _f.place)
    return [Feedback(*row) for row in connection.execute(wanted)]


def _replaces(by: str, at: float, current_source: str, current_time: float) -> bool:
    judged = current_source.startswith(JUDGE)
    return judged if judged != by.startswith(JUDGE) else at >= current_time
