"""Whether a query was in a member's log: the best attack on everything that leaves the real member, run to its end.

The attacker is the coordinator and all other members: it knows every other query and all other noise, so that
it is left with the member's own noisy vector, the member's declared number and the keys. The query is as telling as a
query can be. It combines both numbers by their likelihood ratio, which no other test beats.
"""

import numpy as np
import pytest
from scipy.stats import rankdata

from federation.federations import DIMENSION, ENCODER, POOL, Federation, rows_of
from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.evaluations import Evaluations
from fedrouter.federation.epoch import TooFewLeft
from fedrouter.federation.frame import Frame
from fedrouter.federation.noise import COUNT_EPSILON, ROUNDED, Noise
from fedrouter.federation.secagg.participant import Announcement, Participant
from fedrouter.federation.terms import Party, Terms
from fedrouter.release import SENSITIVITY, Release

TRIALS = 100


def telling(number):
    """A query along one feature, right and expensive: it moves the vector about as far as a query can."""
    embedding = np.zeros((1, DIMENSION), np.float32)
    embedding[0, 0], embedding[0, 1] = 1e3, number / 10  # each another one: a query leaves once
    return Evaluations(POOL, embedding, [0], [0], [1.0], [1e3], text=(f"telling {number}",))


def area(inside, outside):
    """Area under the ROC curve of scores."""
    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    return (ranks.sum() - len(inside) * (len(inside) + 1) / 2) / (len(inside) * len(outside))


def count_likelihood(declared, rows):
    """Log-likelihood ratio of a declared number for one query more."""
    noise = np.arange(-400, 401)
    weight = np.exp(-COUNT_EPSILON * np.abs(noise))

    def chance(size):
        shown = np.maximum(0, size + noise) // ROUNDED * ROUNDED
        return weight[shown == declared].sum()

    return np.log(chance(rows + 1) / chance(rows))


class Attackers:
    """The coordinator and all other members, who act as one, in memory: they hear what the real member m0 sends."""

    def __init__(self, federation, epsilon):
        self.federation, self.epsilon = federation, epsilon
        self.members = {name: Party(key.public) for name, key in federation.keys.items()}
        self.epoch, self.previous = 0, b""

    def hear(self, rows):
        """An epoch of these rows until m0 has sent its vector; that vector without masks, and the declared number."""
        federation, self.epoch = self.federation, self.epoch + 1
        federation.rows["m0"] = rows
        models = dict.fromkeys(POOL.names, 3)
        terms = Terms("test", self.epoch, self.previous, self.members, models, ENCODER, DIMENSION, epsilon=self.epsilon)
        self.previous, signed = terms.digest, terms.sign(federation.signing)
        chain = [{"content": signed.content, "signature": signed.signature}]
        others = {
            name: Participant(name, key, terms.digest, terms.keys)
            for name, key in federation.keys.items()
            if name != "m0"
        }
        announced = {name: other.announce(0, 1) for name, other in others.items()}
        announced["m0"] = Announcement.unpack(self.ask("keys", terms=chain).blob("announcement"))
        sealed = {name: other.share(announced) for name, other in others.items()}
        self.ask("shares", announced={name: each.pack() for name, each in announced.items()})
        self.ask("masked", sealed={name: each["m0"] for name, each in sealed.items()}, question=b"")
        return federation.members["m0"].journal.releases()[-1].sent, announced["m0"].rows

    def ask(self, exchange, **fields):
        reply = Frame.unpack(
            self.federation.members["m0"].answer(Frame(exchange, {"epoch": self.epoch, **fields}).pack())
        )
        assert reply.kind == exchange, reply.fields
        return reply


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_an_attacker_who_knows_everything_else_gains_no_more_than_is_claimed(tmp_path, epsilon):
    federation = Federation(tmp_path / "f", 3, trust=False)
    attackers = Attackers(federation, epsilon)
    features, noise, scores = map_of_width(DIMENSION), Noise(epsilon), {True: [], False: []}
    for trial in range(2 * TRIALS):
        base, query = rows_of(1_000 + trial, ROUNDED - 1), telling(trial)
        there = trial % 2 == 0
        sent, declared = attackers.hear(Evaluations.concatenate([base, query]) if there else base)
        moved = Release.of(query, features).vector() / UNIT
        assert np.linalg.norm(moved) > 0.95 * SENSITIVITY
        left = (sent - Release.of(base, features).vector()) / UNIT
        vector = (left @ moved - moved @ moved / 2) / noise.sigma**2
        scores[there].append(vector + count_likelihood(declared, base.queries))
    federation.close()
    found = area(scores[True], scores[False])
    error = 0.5 / np.sqrt(TRIALS)
    assert found <= noise.auc + 3 * error
    assert found >= noise.auc - 4 * error  # the attack is as strong as it can be
    for threshold in np.concatenate([scores[True], scores[False]]):
        true, false = (np.mean(np.array(scores[there]) >= threshold) for there in (True, False))
        slack = 3 * np.sqrt(0.25 / TRIALS)
        assert true <= np.exp(epsilon) * (false + slack) + noise.delta + slack


def test_two_epochs_with_a_member_missing_in_one_show_nothing_of_it(tmp_path):
    """The difference of two totals was a member's exact sums once; now no query is in both."""
    federation = Federation(tmp_path / "f", 4, epsilon=0.0)
    first = federation.run(epsilon=0.0)
    second = federation.run(lambda at, name: name == "m3" and at == "masked", epsilon=0.0)
    own = Release.of(federation.rows["m3"], map_of_width(DIMENSION)).vector()
    assert not second.vector.any()
    assert not (first.vector - second.vector == own).all()
    federation.close()


def test_a_failed_epoch_asked_again_sends_the_same_and_nothing_else(tmp_path):
    federation = Federation(tmp_path / "f", 4)
    with pytest.raises(TooFewLeft):
        federation.run(lambda at, name: at == "agree")
    before = {name: member.journal.releases()[0].sent for name, member in federation.members.items()}
    # Its coordinator tries the same epoch with fewer, then a new one under new terms.
    federation.run()
    federation.run()
    for name, member in federation.members.items():
        releases = member.journal.releases()
        assert (releases[0].sent == before[name]).all()
        assert releases[1].queries == 0
    federation.close()
