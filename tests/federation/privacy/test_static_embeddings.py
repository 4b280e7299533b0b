"""The default encoder's embeddings under a client's privacy rules: a text of a rare shape must not show in any sum.

The last dimensions of such an embedding are statistics of the text, and some of them are zero for most texts: a sum
over all rows would show the one row that is different. Each claim stands beside the same question without minimum
sizes.
"""

import numpy as np
import pytest

from attacks.passive import VICTIM, observe, vectors_sent
from fedrouter.encoders.shape import STATISTICS
from fedrouter.encoders.static import static_encoder
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.privacy.leverage import differ_together
from fedrouter.federation.privacy.policy import CLEAR, OPEN
from fedrouter.federation.verbs.second_moment import SecondMomentRequest
from fedrouter.routers.linear import symmetric

NAMES = [statistic.name for statistic in STATISTICS]
RARE = {
    "Chinese, Japanese, Korean": [
        "请用简单的语言解释什么是量子纠缠，并举一个例子。",
        "请解释什么是量子力学，并举两个简单的例子。",
        "什么是量子计算？请用简单的语言说明。",
    ],
    "other alphabets": [
        "Объясните простыми словами, что такое квантовая запутанность.",
        "Объясните, что такое квантовая механика, и приведите примеры.",
        "Что такое квантовый компьютер? Объясните простыми словами.",
    ],
}
ORDINARY = 3_500
"""Enough that second moments of 275 dimensions are sent at all."""


def log_of(world, texts, ordinary):
    """A client's log, one model a query: ordinary prompts, and after them texts of a shape that no other has."""
    some = world.evaluations.of_queries(np.arange(ordinary))
    rare = static_encoder().encode(texts)
    model = np.random.default_rng(0).integers(len(some.pool), size=ordinary + len(texts))
    log = Evaluations(
        some.pool,
        np.concatenate([some.embeddings, rare]),
        np.arange(len(model)),
        np.array(some.pool.names, object)[model],
        np.linspace(0, 1, len(model)),
        np.linspace(0.001, 0.002, len(model)),
    )
    return log, rare


@pytest.mark.parametrize("hidden", [False, True], ids=["in the clear", "under masks"])
@pytest.mark.parametrize("name", RARE)
def test_a_sum_of_products_leaves_out_the_one_text_in_its_script(world, name, hidden):
    """Without the rule, one row of the sum is a multiple of that text's embedding, also if all clients are added."""
    log, rare = log_of(world, RARE[name][:1], ORDINARY)
    place = rare.shape[1] - len(STATISTICS) + NAMES.index(name)
    assert not log.embeddings[:-1, place].any()  # no other text has any
    found = {}
    for kind, policy in (("open", OPEN), ("protected", CLEAR)):
        reply = Client(VICTIM, log, policy).answer("second_moment", SecondMomentRequest(), hidden=hidden)
        found[kind] = (reply.count, symmetric(reply.total.totals())[place])
    assert found["open"][0] == ORDINARY + 1
    assert found["open"][1] / np.linalg.norm(found["open"][1]) == pytest.approx(rare[0], abs=1e-4)
    assert found["protected"][0] == ORDINARY
    assert not found["protected"][1].any()


def test_texts_that_differ_together_stay(world):
    """Five texts in one script are enough; fewer are left out, and a faint trace in other texts does not hide them."""
    texts = [f"{text} {number}" for text in RARE["other alphabets"] for number in (1, 2)]
    for number, kept in ((4, 0), (5, 5), (6, 6)):
        log, _ = log_of(world, texts[:number], 60)
        reply = Client(VICTIM, log, CLEAR).answer("second_moment", SecondMomentRequest(), hidden=True)
        assert reply.count == 60 + kept
    faint = [f"Tell me about the history of the city and its river, number {number}, µ." for number in range(8)]
    faint = [text.replace("µ", "я") for text in faint]
    log, _ = log_of(world, [*faint, *texts[:2]], 60)
    place = log.embeddings.shape[1] - len(STATISTICS) + NAMES.index("other alphabets")
    reply = Client(VICTIM, log, CLEAR).answer("second_moment", SecondMomentRequest(), hidden=True)
    assert 0 < log.embeddings[60:68, place].max() < log.embeddings[68:, place].min() / 4
    assert reply.count == 68


def test_neural_embeddings_lose_no_row():
    points = np.random.default_rng(0).normal(size=(12, 64))
    assert len(differ_together(points, np.arange(12), 5)) == 12


@pytest.mark.parametrize("name", RARE)
def test_a_few_texts_in_one_script_have_no_centroid_of_their_own(world, name):
    log, rare = log_of(world, RARE[name], 60)
    nearest = {}
    for kind, policy in (("open", OPEN), ("protected", CLEAR)):
        (centres,) = vectors_sent(observe("kmeans", {VICTIM: log}, policy), VICTIM, rare.shape[1])
        nearest[kind] = float((centres @ rare.T / np.linalg.norm(centres, axis=1, keepdims=True)).max())
    # Three texts of five in a centroid still turn it toward them; no encoder's embeddings are treated otherwise.
    assert nearest["protected"] < 0.8 < 0.85 < nearest["open"]
