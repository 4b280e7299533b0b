"""Secure aggregation: the coordinator gets the total, bit for bit, and nobody's own sums, whoever drops out."""

import json
from dataclasses import replace
from functools import partial, reduce
from operator import add

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import ClusterRequest, StatisticsRequest
from fedrouter.federation.families.mlp import CostsRequest, MLPSettings, TrainRequest, ask_costs
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Question
from fedrouter.federation.privacy.journal import Journal
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import OPEN, PrivacyPolicy
from fedrouter.federation.secagg.byte_arrays import BOTH
from fedrouter.federation.secagg.crypto import (
    new_key,
    pair_mask,
    question_digests,
    self_mask,
    sum_digest,
    transcript,
)
from fedrouter.federation.secagg.graph import peers
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.secret_sharing import combine
from fedrouter.federation.secagg.server import Secure
from fedrouter.federation.secagg.server_session import TooFewLeft
from fedrouter.federation.secagg.session import OPEN_SESSION
from fedrouter.federation.verbs.agree import AgreeRequest
from fedrouter.federation.verbs.deliver import DeliverRequest
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.keys import KeysRequest
from fedrouter.federation.verbs.masked import MaskedRequest, MaskedVector
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.shares import SharesRequest
from fedrouter.federation.verbs.unmask import UnmaskRequest
from fedrouter.federation.verbs.verb import SecureSum
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale, initial_weights
from fedrouter.testing.engines import content

POOL = ModelPool(["model-0", "model-1", "model-2"])
CENTRES = drawn_evaluations(queries=4, seed=99).embeddings
STATISTICS = StatisticsRequest(CENTRES, POOL.names)
SCALE = CostScale(np.full(3, 50), np.array([1e-5, 1e-4, 1e-3]), np.full(3, 1e-5))
TOTALS = CostsRequest(POOL.names)
NAMES = [f"client-{seed}" for seed in range(6)]
THRESHOLD = 5  # of six, more than two thirds
EXACT = PrivacyPolicy(minimum_sizes=None, noise=None, secure_only=False)
Recoverable = partial(Secure, joint=False)
"""Without joint sums, which ``test_joint_sums.py`` is about: every sum is one that clients may drop out of."""
STEPS = ("keys", "shares", "deliver", "masked", "unmask")
SMALL = {"mlp": {"rounds": 2, "hidden": (16,), "participation": 0.7}}


def clients(privacy=OPEN):
    return [
        Client(name, drawn_evaluations(queries=60 + 9 * seed, seed=seed), privacy) for seed, name in enumerate(NAMES)
    ]


def table(replies):
    return content(reduce(add, replies.values()))


class Wire(LocalFederation):
    """Drops the replies of the ``lost`` at one step, and keeps everything that crosses."""

    def __init__(self, clients, step=None, lost=()):
        super().__init__(clients)
        self.step, self.lost, self.asked, self.sent = step, lost, {}, {}

    def ask(self, verb, payload, to=None):
        self.asked[verb] = payload
        replies = {
            name: r for name, r in super().ask(verb, payload, to).items() if verb != self.step or name not in self.lost
        }
        self.sent[verb] = replies
        return replies


class Present(LocalFederation):
    """Clients that raise an error count as lost, as on a network."""

    def ask(self, verb, payload, to=None):
        found = {}
        for name in self.clients() if to is None else to:
            try:
                found |= super().ask(verb, payload, [name])
            except (BadMessage, Refused):
                continue
        return found


# --- The total ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_learns_the_same_router_from_totals_as_from_replies(name):
    family = FAMILIES[name]
    settings = family.settings(**SMALL.get(name, {}))
    plain = family.learn(LocalFederation(clients(EXACT)), POOL, settings)
    secure = family.learn(Secure(LocalFederation(clients(EXACT))), POOL, settings)
    ours, theirs = secure.arrays(), plain.arrays()
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        if name in SMALL:  # weights are rounded once, to a finer grid than float32's
            np.testing.assert_allclose(array, theirs[key], rtol=1e-5, atol=1e-7)
        else:
            assert array.tobytes() == theirs[key].tobytes()


def test_everything_but_centroids_and_names_is_a_sum():
    secure = {"keys", "shares", "deliver", "masked", "agree", "unmask", "excluded", "follow"}
    sums = {name for name, verb in VERBS.items() if isinstance(verb.secure_sum, SecureSum)}
    assert set(VERBS) - sums - secure == {"hello", "cluster"}


def train_request(federation):
    scale, dimension = ask_costs(federation, POOL)
    settings = MLPSettings()
    return TrainRequest(
        POOL.names,
        initial_weights(dimension, (16,), len(POOL), 0),
        scale,
        1,
        settings.batch_size,
        settings.learning_rate,
        settings.weight_decay,
        settings.clip_norm,
        settings.dropout,
        seed=1,
    )


def test_clients_without_rows_leave_the_weights_as_they_are():
    request = train_request(LocalFederation(clients()))
    empty = drawn_evaluations(queries=4).take(np.zeros(0, np.int64))
    (total,) = Secure(LocalFederation(Client(name, empty, OPEN) for name in NAMES)).ask("train", request).values()
    assert not total.rows.any()
    assert not total.weights.any()


def test_every_message_may_be_answered_by_a_client_that_knows_only_its_journal(tmp_path):
    class Reborn(LocalFederation):
        def ask(self, verb, payload, to=None):
            journals = [Journal(tmp_path / name) for name in NAMES]
            self._clients = {
                name: Client(name, drawn_evaluations(queries=60 + 9 * seed, seed=seed), OPEN, journals[seed])
                for seed, name in enumerate(NAMES)
            }
            replies = super().ask(verb, payload, to)
            for journal in journals:
                journal.close()
            return replies

    secure = Recoverable(Reborn(clients())).ask("statistics", STATISTICS)
    assert table(secure) == table(LocalFederation(clients()).ask("statistics", STATISTICS))
    journal = Journal(tmp_path / NAMES[0])
    assert [entry.verb for entry in journal.entries()] == list(STEPS)
    journal.close()


# --- Dropouts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", ["client-0", "client-3", "client-5"])
def test_who_drops_out_is_missing_from_the_total_and_nothing_else_is(step, lost):
    secure = Recoverable(Wire(clients(), step, [lost]))
    total = secure.ask("statistics", STATISTICS)
    # Whoever is lost after its vector arrived is part of the total.
    left = [name for name in NAMES if name != lost or step in ("deliver", "unmask")]
    assert secure.answered == tuple(left)
    assert table(total) == table(LocalFederation(clients()).ask("statistics", STATISTICS, to=left))


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "unmask"])
def test_below_the_threshold_the_question_ends_with_an_error_that_says_where(step):
    secure = Recoverable(Wire(clients(), step, NAMES[:2]))
    with pytest.raises(TooFewLeft, match=rf"4 .* were left at the step '{step}'.* needs 5"):
        secure.ask("statistics", STATISTICS)


def test_clients_lost_at_different_steps_add_up():
    class Unlucky(Wire):
        def ask(self, verb, payload, to=None):
            lost = {"keys": "client-9", "shares": "client-8", "masked": "client-7", "unmask": "client-6"}
            return {n: r for n, r in super().ask(verb, payload, to).items() if n != lost.get(verb)}

    many = [Client(f"client-{s}", drawn_evaluations(seed=s), OPEN) for s in range(13)]
    secure = Recoverable(Unlucky(many))
    total = secure.ask("statistics", STATISTICS)
    left = [client.name for client in many if client.name not in ("client-7", "client-8", "client-9")]
    assert table(total) == table(LocalFederation(many).ask("statistics", STATISTICS, to=left))


def test_a_vector_of_another_length_counts_as_lost():
    class Shortened(Wire):
        def ask(self, verb, payload, to=None):
            replies = dict(super().ask(verb, payload, to))
            if verb == "masked":
                vector, (length,) = replies["client-2"].vector, replies["client-2"].lengths
                replies["client-2"] = MaskedVector(vector[:-1], np.array([length - 1]))
            return replies

    secure = Recoverable(Shortened(clients()))
    total = secure.ask("statistics", STATISTICS)
    assert "client-2" not in secure.answered
    left = [name for name in NAMES if name != "client-2"]
    assert table(total) == table(LocalFederation(clients()).ask("statistics", STATISTICS, to=left))


def test_a_total_that_no_evaluations_have_is_refused():
    class Poisoned(Wire):
        def ask(self, verb, payload, to=None):
            replies = dict(super().ask(verb, payload, to))
            if verb == "masked":
                replies["client-2"] = replace(replies["client-2"], vector=replies["client-2"].vector[::-1].copy())
            return replies

    with pytest.raises(BadMessage):
        Recoverable(Poisoned(clients())).ask("statistics", STATISTICS)


@pytest.mark.parametrize("kind", ["seeds", "keys"])
def test_a_wrong_share_is_noticed(kind):
    class Lying(Wire):
        def ask(self, verb, payload, to=None):
            replies = dict(super().ask(verb, payload, to))
            if verb == "unmask":
                shares = {
                    name: share ^ np.r_[np.zeros(4, np.uint8), np.ones(len(share) - 4, np.uint8)]
                    for name, share in getattr(replies["client-1"], kind).items()
                }
                replies["client-1"] = replace(replies["client-1"], **{kind: shares})
            return replies

    with pytest.raises(BadMessage, match=r"do not combine"):
        Recoverable(Lying(clients(), "masked", ["client-0"])).ask("statistics", STATISTICS)


def test_too_few_clients_for_a_total_are_not_asked():
    with pytest.raises(BadInput, match=r"at least 3 clients, 2 would be asked"):
        Recoverable(LocalFederation(clients())).ask("statistics", STATISTICS, to=NAMES[:2])


def test_a_threshold_that_clients_would_refuse_is_refused_at_once():
    with pytest.raises(BadInput, match=r"from 2/3 to below 1"):
        Recoverable(LocalFederation(clients()), 0.5)


# --- Sessions -------------------------------------------------------------------------------------------------------


class Counting(Present):
    """Lists the verbs of each exchange."""

    def __init__(self, clients):
        super().__init__(clients)
        self.exchanges = []

    def ask_all(self, questions, to=None):
        self.exchanges.append(sorted({question.verb for question in questions}))
        return super().ask_all(questions, to)


def test_setting_up_travels_with_questions_that_need_no_masks():
    """`hello` and `cluster` come first in every run; then a sum costs two exchanges, however many questions it has."""
    federation = Counting(clients())
    secure = Recoverable(federation)
    secure.ask("hello", HelloRequest())
    secure.ask("cluster", ClusterRequest(2, 1, 5, seed=0))
    sums = [Question("statistics", STATISTICS), Question("costs", CostsRequest(POOL.names))]
    for _ in range(2):
        secure.ask_all(sums)
    assert federation.exchanges == [
        ["hello", "keys"],
        ["cluster", "shares"],
        *(["deliver", "masked"], ["unmask"]),
        *(["masked"], ["unmask"]),
    ]


def test_questions_of_one_exchange_have_the_totals_that_they_have_alone():
    questions = [
        Question("statistics", STATISTICS),
        Question("hello", HelloRequest()),
        Question("costs", TOTALS),
        Question("costs", CostsRequest(POOL.names)),
    ]
    together = Recoverable(LocalFederation(clients())).ask_all(questions)
    assert list(together[1]) == NAMES
    for question, replies in zip(questions, together, strict=True):
        alone = Recoverable(LocalFederation(clients())).ask(question.verb, question.request)
        assert [content(reply) for reply in replies.values()] == [content(reply) for reply in alone.values()]


def test_a_session_that_is_used_up_is_followed_by_a_new_one():
    federation = Counting(clients())
    secure = Recoverable(federation, prepared=2)
    totals = [table(secure.ask("statistics", STATISTICS)) for _ in range(5)]
    assert all(total == totals[0] for total in totals)
    assert [verbs for verbs in federation.exchanges if verbs == ["keys"]] == [["keys"]] * 3


def test_some_of_the_clients_can_be_asked_within_one_session():
    """As in a round of training, in which only some take part; the others hold their shares."""
    federation = Counting(clients())
    secure = Recoverable(federation)
    for some in (NAMES, NAMES[:3], NAMES[2:], NAMES[1:4]):
        total = secure.ask("statistics", STATISTICS, to=some)
        assert secure.answered == tuple(some)
        assert table(total) == table(LocalFederation(clients()).ask("statistics", STATISTICS, to=some))
    assert federation.exchanges.count(["keys"]) == 1


def test_clients_that_the_session_does_not_know_get_a_new_one():
    federation = Counting(clients())
    secure = Recoverable(federation)
    secure.ask("statistics", STATISTICS, to=NAMES[:4])
    total = secure.ask("statistics", STATISTICS)
    assert table(total) == table(LocalFederation(clients()).ask("statistics", STATISTICS))
    assert federation.exchanges.count(["keys"]) == 2


def test_a_client_learns_with_whom_and_what_it_is_about_to_be_summed():
    """Before its vector leaves, and again before masks come off: by then some may have dropped out."""
    told = []
    group = clients()
    for client in group:
        client._cohorts.admit = lambda digests, names, last: told.append((tuple(digests), tuple(names), last))
    request = TOTALS
    Recoverable(Wire(group, "masked", ["client-5"])).ask("costs", request)
    digests = tuple(question_digests([("costs", request.pack())]))
    assert told == [(digests, tuple(NAMES), False)] * 6 + [(digests, tuple(NAMES[:5]), True)] * 5


# --- A sparse graph -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    """Enough clients that nobody is everybody's neighbor."""
    return [Client(f"client-{seed:02}", drawn_evaluations(queries=8, seed=seed), OPEN) for seed in range(24)]


@pytest.mark.parametrize("step", ["none", "keys", "shares", "deliver", "masked", "unmask"])
def test_on_a_sparse_graph_who_drops_out_is_missing_from_the_total_and_nothing_else_is(crowd, step):
    lost = ("client-03", "client-20")
    wire = Wire(crowd, step, lost)
    secure = Recoverable(wire)
    total = secure.ask("statistics", STATISTICS)
    assert all(len(reply.holders) == peers(24 - (step == "keys") * 2) + 1 for reply in wire.sent["shares"].values())
    names = [client.name for client in crowd]
    left = [name for name in names if name not in lost or step in ("none", "deliver", "unmask")]
    assert secure.answered == tuple(left)
    assert table(total) == table(LocalFederation(crowd).ask("statistics", STATISTICS, to=left))


def test_on_a_sparse_graph_a_client_refuses_a_company_with_few_of_its_holders(crowd):
    group = crowd
    keys = {client.name: client.answer("keys", KeysRequest("session", 1)) for client in group}
    request = SharesRequest("session", *parts_of(keys))
    sealed = {client.name: client.answer("shares", request) for client in group}
    names = sorted(sealed)
    holders = [names[place] for place in sealed["client-00"].holders]
    mine = {
        sender: reply.sealed[list(reply.holders).index(0)] for sender, reply in sealed.items() if 0 in reply.holders
    }
    group[0].answer("deliver", DeliverRequest("session", mine))
    company = [name for name in names if name == "client-00" or name not in holders[1:6]]
    with pytest.raises(Refused, match=r"of the holders of its shares are left, the threshold is"):
        group[0].answer("masked", masked_request(company=company))


# --- What the coordinator sees --------------------------------------------------------------------------------------


def seen(wire):
    Recoverable(wire).ask("statistics", STATISTICS)
    return {name: reply.vector for name, reply in wire.sent["masked"].items()}


def own_vectors():
    replies = LocalFederation(clients()).ask("statistics", STATISTICS)
    return {name: VERBS["statistics"].secure_sum.flatten(STATISTICS, reply, 6) for name, reply in replies.items()}


def test_masked_vectors_look_uniform():
    """Of each byte value there are as many as of any other, although most of what is hidden is zeros."""
    request = replace(STATISTICS, centres=drawn_evaluations(queries=200, seed=5).embeddings)
    wire = Wire(clients())
    Recoverable(wire).ask("statistics", request)
    for reply in wire.sent["masked"].values():
        counts = np.bincount(reply.vector.view(np.uint8), minlength=256)
        expected = counts.sum() / 256
        statistic = ((counts - expected) ** 2 / expected).sum()
        assert abs(statistic - 255) < 6 * np.sqrt(2 * 255)


def test_no_strict_subset_of_vectors_adds_up_to_anything_plain_and_sessions_differ():
    wire, plain = Wire(clients()), own_vectors()
    masked, again = seen(wire), seen(wire)
    assert not any((masked[name] == again[name]).any() for name in NAMES)
    for chosen in (*([name] for name in NAMES), *(NAMES[:size] for size in range(2, 6))):
        hidden, true = (sum(vectors[name] for name in chosen) for vectors in (masked, plain))
        assert not (hidden == true).any()


def test_taking_off_what_was_revealed_unmasks_the_total_alone():
    """With all seeds known, as after the last step, one vector is still under the masks of its pairs."""
    wire, plain = Wire(clients()), own_vectors()
    masked = seen(wire)
    told = wire.asked["shares"]
    context = transcript(told.session, told.sealing, told.masking, told.joint)
    asked = sum_digest(wire.asked["masked"].index, NAMES, question_digests([("statistics", STATISTICS.pack())]))
    revealed = list(wire.sent["unmask"].values())
    bare = {}
    for name in NAMES:
        seed = combine([reply.seeds[name].tobytes() for reply in revealed[:THRESHOLD]])
        bare[name] = masked[name] - self_mask(seed, context, asked, len(masked[name]))
        assert not (bare[name] == plain[name]).any()
    assert np.array_equal(sum(bare.values()), sum(plain.values()))


def test_clients_asked_different_questions_do_not_add_up():
    """Or a coordinator could ask all but one about nothing, and read that one's sums in the total."""

    class Twisted(LocalFederation):
        def ask(self, verb, payload, to=None):
            if verb != "masked":
                return super().ask(verb, payload, to)
            elsewhere = replace(STATISTICS, models=("other-0", "other-1", "other-2"))
            question = ("statistics", elsewhere.pack())
            other = MaskedRequest.of(payload.session, payload.index, payload.company, [question])
            others = [name for name in to if name != "client-0"]
            return {**super().ask(verb, payload, ["client-0"]), **super().ask(verb, other, others)}

    with pytest.raises(BadMessage):
        Recoverable(Twisted(clients())).ask("statistics", STATISTICS)


def test_masks_of_a_pair_cancel_and_depend_on_the_whole_secret():
    length = 1000
    secret, same_fold = bytes(32), b"\1\0\0\0" * 2 + bytes(24)
    ours = pair_mask("a", "b", secret, b"ground", b"asked", length)
    assert not (ours + pair_mask("b", "a", secret, b"ground", b"asked", length)).any()
    # A generator that folds its seed to 32 bits could not tell these two secrets apart.
    fold = [np.bitwise_xor.reduce(np.frombuffer(each, "<u4")) for each in (secret, same_fold)]
    assert fold[0] == fold[1]
    for other in (
        pair_mask("a", "b", same_fold, b"ground", b"asked", length),
        pair_mask("a", "b", secret, b"another", b"asked", length),
        pair_mask("a", "b", secret, b"ground", b"other", length),
        pair_mask("a", "c", secret, b"ground", b"asked", length),
    ):
        assert not (ours == other).any()


# --- What a client refuses ------------------------------------------------------------------------------------------


def begun(group=None, sums=2):
    """A group that has made its keys, and what it is to be asked next."""
    group = group or clients()
    keys = {client.name: client.answer("keys", KeysRequest("session", sums, joint=True)) for client in group}
    return group, SharesRequest("session", *parts_of(keys))


def parts_of(keys):
    return [
        {name: getattr(r, part) for name, r in keys.items()} for part in ("sealing", "masking", "joint", "signature")
    ]


def parcels(sealed):
    """What each client is to keep, by its name, where everyone holds everyone's shares."""
    return {
        name: DeliverRequest("session", {sender: reply.sealed[place] for sender, reply in sealed.items()})
        for place, name in enumerate(sorted(sealed))
    }


def prepared(group=None, sums=2):
    """A group that is ready for sums."""
    group, request = begun(group, sums)
    sealed = {client.name: client.answer("shares", request) for client in group}
    for client in group:
        client.answer("deliver", parcels(sealed)[client.name])
    return group


def masked_request(index=0, company=NAMES, request=STATISTICS):
    return MaskedRequest.of("session", index, tuple(company), [("statistics", request.pack())])


def unmask_request(survivors=NAMES, index=0, company=NAMES, **signatures):
    return UnmaskRequest("session", index, tuple(company), tuple(survivors), **signatures)


def ready(group=None):
    """A group that has sent its masked vectors."""
    group = prepared(group)
    for client in group:
        client.answer("masked", masked_request())
    return group


def test_a_masked_vector_is_sent_once():
    group = prepared()
    group[0].answer("masked", masked_request())
    with pytest.raises(Refused, match=r"this sum was asked for before"):
        group[0].answer("masked", masked_request())


def test_nothing_is_sent_again_after_a_step_that_failed():
    group = prepared()
    with pytest.raises(BadMessage, match=r"'cluster' does not ask for sums"):
        group[0].answer("masked", replace(masked_request(), verbs=("cluster",)))
    with pytest.raises(Refused, match=r"no sum is open at this step"):
        group[0].answer("unmask", unmask_request())


def test_after_a_question_that_a_client_refuses_it_takes_part_in_the_next_sum():
    group = prepared()
    for client in group:
        with pytest.raises(BadMessage, match=r"does not ask for sums"):
            client.answer("masked", replace(masked_request(), verbs=("cluster",)))
        assert client.answer("masked", masked_request(index=1)).vector.any()


@pytest.mark.parametrize("index", [2, 3])
def test_a_sum_that_was_not_prepared_is_refused(index):
    with pytest.raises(Refused, match=r"was not prepared"):
        prepared()[0].answer("masked", masked_request(index=index))


def test_a_sum_that_was_skipped_cannot_be_asked_for_or_revealed_later():
    group = prepared()
    group[0].answer("masked", masked_request(index=1))
    with pytest.raises(Refused, match=r"another sum is open"):
        group[0].answer("unmask", unmask_request(index=0))
    group = prepared()
    group[0].answer("masked", masked_request(index=1))
    with pytest.raises(Refused, match=r"this sum was asked for before"):
        group[0].answer("masked", masked_request(index=0))


def test_of_each_peer_one_secret_of_a_sum_is_revealed_and_never_the_other():
    group = ready()
    reply = group[0].answer("unmask", unmask_request(NAMES[:5]))
    assert (sorted(reply.seeds), sorted(reply.keys)) == (NAMES[:5], NAMES[5:])
    with pytest.raises(Refused, match=r"no sum is open"):
        group[0].answer("unmask", unmask_request())


@pytest.mark.parametrize(
    ("survivors", "why"),
    [
        (NAMES[:4], r"4 clients are left, the threshold is 5"),
        (NAMES[1:], r"not among those that began"),
        ([*NAMES[:5], "stranger"], r"not among those that began"),
    ],
)
def test_nothing_is_revealed_for_too_few_survivors_or_others(survivors, why):
    with pytest.raises(Refused, match=why):
        ready()[0].answer("unmask", unmask_request(survivors))


def test_nothing_is_revealed_for_another_company_than_was_asked():
    with pytest.raises(Refused, match=r"another sum is open"):
        ready()[0].answer("unmask", unmask_request(NAMES[:5], company=NAMES[:5]))


def test_two_clients_are_no_crowd():
    group, request = begun(clients()[:2])
    with pytest.raises(Refused, match=r"2 clients take part: expected at least 3"):
        group[0].answer("shares", request)
    with pytest.raises(Refused, match=r"2 clients take part: expected at least 3"):
        prepared()[0].answer("masked", masked_request(company=NAMES[:2]))


@pytest.mark.parametrize("company", [NAMES[1:], [*NAMES[:3], "stranger"]])
def test_a_company_without_the_client_or_with_a_stranger_gets_no_vector(company):
    with pytest.raises(Refused, match=r"not among those that began"):
        prepared()[0].answer("masked", masked_request(company=company))


def test_keys_are_fresh_for_each_session():
    client = clients()[0]
    first, second = (client.answer("keys", KeysRequest(session, 2)) for session in ("one", "two"))
    assert first.sealing.tobytes() != second.sealing.tobytes()
    masking = [key.tobytes() for reply in (first, second) for key in reply.masking]
    assert len(set(masking)) == 4


def test_a_new_session_ends_the_one_before():
    group = ready()
    group[0].answer("keys", KeysRequest("another", 1))
    with pytest.raises(Refused, match=r"no session is open"):
        group[0].answer("unmask", unmask_request())


def test_a_client_whose_own_keys_were_exchanged_refuses():
    group, request = begun()
    stranger = np.frombuffer(new_key()[1] * 2, np.uint8).reshape(2, -1)
    with pytest.raises(Refused, match=r"its own keys are not among"):
        group[0].answer("shares", replace(request, masking={**request.masking, "client-0": stranger}))


def test_one_key_for_two_clients_is_refused():
    group, request = begun()
    twice = {**request.masking, "client-1": request.masking["client-2"]}
    with pytest.raises(Refused, match=r"a key is there twice"):
        group[0].answer("shares", replace(request, masking=twice))


def test_shares_of_clients_that_were_told_other_keys_cannot_be_opened():
    """So a coordinator cannot put its own keys in place of one client's for some of the others only."""
    group, request = begun()
    foreign = np.frombuffer(new_key()[1] + new_key()[1], np.uint8).reshape(2, -1)
    forged = replace(request, masking={**request.masking, "client-5": foreign})
    sealed = {client.name: client.answer("shares", request) for client in group[1:]}
    sealed["client-0"] = group[0].answer("shares", forged)
    with pytest.raises(BadMessage, match=r"not sealed for this client in this session"):
        group[0].answer("deliver", parcels(sealed)["client-0"])


def test_secrets_are_forgotten_as_soon_as_they_have_served():
    """What the journal held before a step, and no longer holds after it, cannot be found on the disk later."""
    group, request = begun()
    memory = group[0]._memory = ShortMemory()
    keys = group[0].answer("keys", KeysRequest("session", 2, joint=True))
    request = replace(
        request,
        sealing={**request.sealing, "client-0": keys.sealing},
        masking={**request.masking, "client-0": keys.masking},
        joint={**request.joint, "client-0": keys.joint},
    )
    sealed = {client.name: client.answer("shares", request) for client in group}
    known = json.loads(memory.recall(OPEN_SESSION)["session"].tobytes())
    for client in group:
        client.answer("deliver", parcels(sealed)[client.name])

    def remembered():
        return memory.recall(OPEN_SESSION)["session"].tobytes().decode()

    shares = json.loads(remembered())["held"]["client-1"]
    first, second = shares[: 2 * BOTH], shares[2 * BOTH :]
    assert known["sealing"] not in remembered()
    group[0].answer("masked", masked_request())
    for secret in ("masking", "joint", "seeds"):
        assert known[secret][0] not in remembered()
        assert known[secret][1] in remembered()
    assert first in remembered()
    group[0].answer("unmask", unmask_request())
    assert first not in remembered()
    assert second in remembered()


@pytest.mark.parametrize("verb", ["statistics", "costs"])
def test_a_client_may_insist_on_secure_aggregation(verb):
    insisting = PrivacyPolicy(minimum_sizes=None, secure_only=True)
    request = {"statistics": STATISTICS, "costs": CostsRequest(POOL.names)}[verb]
    with pytest.raises(Refused, match=rf"{verb}: .* under secure aggregation only"):
        LocalFederation(clients(insisting)).ask(verb, request)
    assert Recoverable(LocalFederation(clients(insisting))).ask(verb, request)


# --- Long-term keys -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def credentials():
    """Private key files and public lines by client, as a client's folder holds them."""
    keys = {name: ec.generate_private_key(ec.SECP384R1()) for name in [*NAMES, "impostor"]}
    private = {n: k.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()) for n, k in keys.items()}
    public = {n: k.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() for n, k in keys.items()}
    return private, public


def known_clients(credentials, **exchanged):
    """Clients that know each other's keys; ``exchanged`` sign with another's key."""
    private, public = credentials
    roster = {name: public[name] for name in NAMES}
    return [
        Client(
            name,
            drawn_evaluations(queries=60 + 9 * seed, seed=seed),
            OPEN,
            identity=Identity.read(private[exchanged.get(name.replace("-", "_"), name)], roster),
        )
        for seed, name in enumerate(NAMES)
    ]


@pytest.mark.parametrize("step", ["none", "keys", "shares", "masked", "agree", "unmask"])
def test_clients_that_know_each_other_make_the_same_total(credentials, step):
    wire = Wire(known_clients(credentials), step, ["client-4"])
    secure = Recoverable(wire)
    total = secure.ask("statistics", STATISTICS)
    assert "agree" in wire.sent
    assert table(total) == table(LocalFederation(clients()).ask("statistics", STATISTICS, to=secure.answered))


def test_keys_signed_by_an_impostor_are_refused(credentials):
    with pytest.raises(Refused, match=r"the keys of 'client-3' are not signed by a client of that name"):
        Recoverable(LocalFederation(known_clients(credentials, client_3="impostor"))).ask("statistics", STATISTICS)


def test_a_peer_that_is_not_on_the_roster_is_refused(credentials):
    group = [*known_clients(credentials), Client("client-6", drawn_evaluations(), OPEN)]
    with pytest.raises(Refused, match=r"the keys of 'client-6' are not signed"):
        Recoverable(LocalFederation(group)).ask("statistics", STATISTICS)


def test_a_signature_of_another_session_is_worth_nothing(credentials):
    group = known_clients(credentials)
    old = group[1].answer("keys", KeysRequest("yesterday", 1))
    keys = {client.name: client.answer("keys", KeysRequest("session", 1)) for client in group} | {"client-1": old}
    with pytest.raises(Refused, match=r"the keys of 'client-1' are not signed"):
        group[0].answer("shares", SharesRequest("session", *parts_of(keys)))


def test_nothing_is_revealed_where_clients_were_told_different_survivors(credentials):
    class TwoFaced(LocalFederation):
        def ask(self, verb, payload, to=None):
            if verb != "agree":
                return super().ask(verb, payload, to)
            other = replace(payload, survivors=tuple(NAMES[1:]))
            return {**super().ask(verb, payload, NAMES[:3]), **super().ask(verb, other, NAMES[3:])}

    with pytest.raises(Refused, match=r"too few have signed"):
        Recoverable(TwoFaced(known_clients(credentials))).ask("statistics", STATISTICS)


def test_a_client_with_a_roster_reveals_nothing_without_the_agreement(credentials):
    with pytest.raises(Refused, match=r"no session is open at this step"):
        ready(known_clients(credentials))[0].answer("unmask", unmask_request())
    group = ready(known_clients(credentials))
    asked = AgreeRequest("session", 0, tuple(NAMES), tuple(NAMES))
    signed = {client.name: client.answer("agree", asked).signature for client in group}
    few = {name: signed[name] for name in NAMES[:4]}
    one_for_all = dict.fromkeys(NAMES, signed["client-0"])
    for client, signatures in zip(group, ({}, few, one_for_all), strict=False):
        with pytest.raises(Refused, match=r"too few have signed"):
            client.answer("unmask", unmask_request(signatures=signatures))
    assert group[5].answer("unmask", unmask_request(signatures=signed)).seeds


def test_a_key_that_is_none_is_refused_by_name(credentials):
    private, _ = credentials
    with pytest.raises(BadInput, match=r"client key: expected a private key"):
        Identity.read(b"rubbish", {})
    with pytest.raises(BadInput, match=r"roster, client 'client-1'"):
        Identity.read(private["client-0"], {"client-1": "rubbish"})
