"""Totals: what they say beyond a member's own numbers, what everybody makes of them alike, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from federation.federations import POOL, Federation, rows_of
from fedrouter.evidence import Evidence
from fedrouter.federation.total import Total, impossible, saved, sum_of
from fedrouter.pool import ModelPool
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter


@pytest.fixture
def members(tmp_path):
    made = Federation(tmp_path / "f", 4, queries=300, epsilon=0.0)
    yield made
    made.close()


def test_own_rows_do_not_count_twice(members):
    """What the member sent is subtracted exactly from the totals, so that its held-out rows are nowhere in them."""
    members.run(epsilon=0.0)
    assert (members.members["m0"].others().vector() == members.exact(["m1", "m2", "m3"])).all()


def test_what_a_member_sent_to_a_total_without_it_is_not_subtracted(members):
    members.run(lambda at, name: (at, name) == ("masked", "m0"), epsilon=0.0)
    assert len(members.members["m0"].journal.releases()) == 1
    assert (members.members["m0"].others().vector() == members.exact(["m1", "m2", "m3"])).all()


def federated(totals):
    found = sum_of(totals)
    return BayesRouter.of(Evidence.none(found.pool, found.features), found)


def test_everybody_makes_the_same_federated_router_from_the_totals(members):
    members.run(epsilon=0.0)
    first, second = (federated(saved(members.folder / name / "totals")) for name in ("m0", "m3"))
    assert first.digests() == second.digests()
    queries = members.rows["m0"].embeddings
    assert first.estimate(queries).accuracy == pytest.approx(second.estimate(queries).accuracy, abs=1e-6)


def test_a_model_that_fewer_than_three_declare_is_not_trusted(members):
    members.write_roster(members.names)
    declared = dict.fromkeys(POOL.names[:2], 4) | {POOL.names[2]: 2}
    total = members.run(epsilon=0.0)
    terms = replace(total.terms, models=declared).sign(members.signing)
    few = replace(total, signed_terms=terms)
    assert list(few.trusted.told) == [True, True, False]
    assert not federated([few]).rows_by_model()[2]


@pytest.mark.parametrize("change", ["counts", "products", "second", "negative"])
def test_totals_that_no_logs_have_are_refused(members, change):
    total = members.run(epsilon=0.0)
    assert total.fault() is None
    found = total.release
    altered = {
        "counts": replace(found, first=found.first * 100),
        "products": replace(found, products=found.products + 2**30),
        "second": replace(found, second=found.second * 100),
        "negative": replace(found, first=-found.first),
    }[change]
    assert impossible(altered, total.rows, 4)
    assert sum_of([replace(total, vector=altered.vector())]) is None


def test_old_totals_leave_the_window(members):
    for round_ in range(3):
        members.rows = dict(zip(members.names, _fresh(round_), strict=True))
        members.run(epsilon=0.0)
    totals = saved(members.folder / "m0" / "totals")
    assert (sum_of(totals, 1).vector() == totals[-1].vector).all()
    assert (sum_of(totals, 12).vector() == sum(each.vector for each in totals)).all()


def _fresh(number):
    return [rows_of(100 * number + index, 20) for index in range(4)]


def test_totals_of_other_models_add_up(members):
    total = members.run(epsilon=0.0)
    assert isinstance(total, Total)
    more = Release.none(ModelPool([*POOL.names, "new"]), total.release.features)
    both = total.release.over(more.pool) + more
    assert both.pool.names[-1] == "new"
    assert np.array_equal(both.second, total.release.second)
