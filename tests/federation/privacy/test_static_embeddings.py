"""The default encoder's embeddings under a client's privacy rules: a text of a rare shape must not show in any sum.

The last dimensions of such an embedding are statistics of the text, and some of them are zero for most texts: a sum
over all rows would show the one row that is different. Each claim stands beside the same question without minimum
sizes.
"""

import numpy as np
import pytest

from attacks.passive import VICTIM, observe, vectors_sent
from fedrouter.encoders.static import static_encoder
from fedrouter.evaluations import Evaluations
from fedrouter.federation.privacy.policy import CLEAR, OPEN

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


@pytest.mark.parametrize("name", RARE)
def test_a_few_texts_in_one_script_have_no_centroid_of_their_own(world, name):
    log, rare = log_of(world, RARE[name], 60)
    nearest = {}
    for kind, policy in (("open", OPEN), ("protected", CLEAR)):
        (centres,) = vectors_sent(observe("kmeans", {VICTIM: log}, policy), VICTIM, rare.shape[1])
        nearest[kind] = float((centres @ rare.T / np.linalg.norm(centres, axis=1, keepdims=True)).max())
    # Three texts of five in a centroid still turn it toward them; no encoder's embeddings are treated otherwise.
    assert nearest["protected"] < 0.8 < 0.85 < nearest["open"]
