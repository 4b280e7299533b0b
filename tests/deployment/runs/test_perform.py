"""A job on a federation: which clients take part, what is learned and written, and that it resumes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cli import command
from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.acceptance import acceptance_of, decide
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog, Tail
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.quorum import QuorumLost
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.rederivation import Rederivation
from fedrouter.store.store import Store

VOTE = [["masked"]]
KMEANS = Job(family="kmeans", settings={"k_local": 4, "k_global": 5})


def client(name, seed=0, encoder="one", models=3, queries=120, **shape):
    return Client(name, drawn_evaluations(queries=queries, seed=seed, models=models, **shape), encoder=encoder)


def federation(*more, names="abc", queries=120):
    return LocalFederation([*(client(name, ord(name), queries=queries) for name in names), *more])


class Heard(Federation):
    """Lists the verbs that were asked, all and by exchange; nobody answers the ``silent`` one."""

    def __init__(self, federation, silent=None):
        self.federation, self.silent, self.asked, self.exchanges = federation, silent, [], []

    def clients(self):
        return self.federation.clients()

    def ask(self, verb, payload, to=None):
        self.asked.append(verb)
        return {} if verb == self.silent else self.federation.ask(verb, payload, to)

    def ask_all(self, questions, to=None):
        self.exchanges.append(list(dict.fromkeys(question.verb for question in questions)))
        return super().ask_all(questions, to)


def done(job, clients, folder):
    folder.mkdir(parents=True, exist_ok=True)
    return perform(job, clients, folder, ProgressLog(folder))


def test_a_router_is_learned_for_all_models_with_evaluations_and_names_its_clients(tmp_path):
    more = [client("d", 9, models=4), client("e", 8, models=4)]
    result = done(KMEANS, federation(*more), tmp_path)
    saved = load(tmp_path / "bundle")
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert result["models"] == list(saved.router.pool.names) == ["model-0", "model-1", "model-2", "model-3"]
    assert saved.encoder.name == result["encoder"] == "one"
    assert list(saved.clients) == ["a", "b", "c", "d", "e"]
    counted = sum(entry["rows"] for entry in saved.clients.values())
    assert counted == saved.router.sums.count.sum() > 0
    assert [line["event"] for line in Tail(tmp_path).lines()] == ["start", "step", "step", "vote", "done"]


def test_a_model_that_one_client_alone_names_enters_the_pool_only_if_the_operator_names_it(tmp_path):
    liar = client("d", 9, models=4)
    assert "model-3" not in done(KMEANS, federation(liar), tmp_path / "default")["models"]
    left_out = [line["models"] for line in Tail(tmp_path / "default").lines() if line["event"] == "left out"]
    assert left_out == [{"model-3": "d"}]
    named = replace(KMEANS, pool=tuple({"name": f"model-{index}"} for index in range(4)))
    assert "model-3" in done(named, federation(liar), tmp_path / "named")["models"]
    alone = LocalFederation([liar])  # who is alone in a federation is the operator
    assert "model-3" in done(KMEANS, alone, tmp_path / "alone")["models"]


def test_below_the_quorum_no_router_is_made_even_if_those_that_are_left_all_answer(tmp_path):
    others = [client("y", 7, encoder="two"), client("z", 8, encoder="two")]
    with pytest.raises(QuorumLost, match="3 of 5 clients can take part, the quorum is 4"):
        done(replace(KMEANS, quorum=4), federation(*others), tmp_path)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("secure", [None, 2 / 3])
def test_a_run_that_was_refused_after_its_handshake_asks_anew_when_it_is_repeated(tmp_path, secure):
    job = replace(KMEANS, secure=secure, quorum=3)
    with pytest.raises((BadInput, QuorumLost), match="clients can take part, the quorum is 3"):
        done(job, federation(client("c", 99, encoder="two"), names="ab"), tmp_path)
    assert list(load(done(job, federation(), tmp_path)["bundle"]).clients) == ["a", "b", "c"]


def test_the_same_job_makes_the_same_bytes(tmp_path):
    for attempt in ("one", "two"):
        done(KMEANS, federation(), tmp_path / attempt)
    for name in ("bundle.json", "router.safetensors"):
        assert (tmp_path / "one/bundle" / name).read_bytes() == (tmp_path / "two/bundle" / name).read_bytes()


def test_a_pool_that_is_named_is_learned_in_its_order_and_a_model_nobody_knows_is_refused(tmp_path):
    named = replace(KMEANS, pool=({"name": "model-2"}, {"name": "model-0", "input_price": 2.0}))
    assert done(named, federation(), tmp_path / "one")["models"] == ["model-2", "model-0"]
    assert load(tmp_path / "one/bundle").router.pool.models[1].input_price == 2.0
    with pytest.raises(BadInput, match="unheard-of: no client has enough"):
        done(replace(KMEANS, pool=({"name": "unheard-of"},)), federation(), tmp_path / "two")


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (client("z", encoder="another"), "not one of width 8"),
        (client("z", dimension=9), "not one of width 8"),
    ],
)
def test_a_client_with_another_encoder_is_left_out_with_the_reason(odd, reason, tmp_path):
    done(KMEANS, federation(odd), tmp_path / "with")
    done(KMEANS, federation(), tmp_path / "without")
    dropped = [line for line in Tail(tmp_path / "with").lines() if line["event"] == "dropped"]
    assert [(line["client"], line["verb"]) for line in dropped] == [("z", "hello")]
    assert reason in dropped[0]["reason"]
    arrays = [(tmp_path / place / "bundle/router.safetensors").read_bytes() for place in ("with", "without")]
    assert arrays[0] == arrays[1]


def test_a_client_that_calls_itself_by_anothers_name_takes_no_part(tmp_path):
    class Impostor(Client):
        def answer(self, verb, request, hidden=False):
            reply = super().answer(verb, request, hidden)
            return replace(reply, name="a") if verb == "hello" else reply

    done(KMEANS, federation(Impostor("z", drawn_evaluations(queries=120), encoder="one")), tmp_path)
    assert list(load(tmp_path / "bundle").clients) == ["a", "b", "c"]
    assert "another name" in (tmp_path / "progress.jsonl").read_text()


def test_clients_that_do_not_agree_on_an_encoder_are_an_error(tmp_path):
    with pytest.raises(BadInput, match="do not agree on an encoder"):
        done(KMEANS, LocalFederation([client("a"), client("b", encoder="two")]), tmp_path)


@pytest.mark.parametrize(("family", "exchanges"), [("kmeans", 4), ("bayes", 3)])
def test_a_run_takes_few_exchanges_the_handshake_and_the_vote_included(family, exchanges, tmp_path):
    counted = Heard(federation())
    done(Job(family=family), counted, tmp_path)
    assert len(counted.exchanges) == exchanges


@pytest.mark.parametrize("family", ["kmeans", "mlp"])
def test_models_are_added_and_clients_join_as_a_new_version(family, tmp_path):
    small = {
        "kmeans": KMEANS.settings,
        "mlp": {"rounds": 1, "hidden": [4], "head_epochs": 1},
    }[family]
    first = Job(family=family, settings=small, pool=({"name": "model-0"}, {"name": "model-1"}))
    done(first, federation(queries=400), tmp_path / "first")
    add = Job(
        "add_models", family, settings={"rounds": 1}, pool=({"name": "model-2"},), base=str(tmp_path / "first/bundle")
    )
    assert done(add, federation(queries=400), tmp_path / "added")["models"] == ["model-0", "model-1", "model-2"]
    join = Job("add_clients", family, settings={"rounds": 1}, base=str(tmp_path / "added/bundle"))
    result = done(join, LocalFederation([client("z", 9, queries=400)]), tmp_path / "joined")
    assert result["version"] == 3
    joined = load(tmp_path / "joined/bundle")
    assert joined.clients["z"]["joined"] == 3
    assert list(joined.clients) == ["a", "b", "c", "z"]
    with pytest.raises(BadInput, match="already a client"):
        done(join, federation(names="a"), tmp_path / "twice")
    with pytest.raises(BadInput, match="let them join first"):
        done(add, federation(client("y")), tmp_path / "stranger")
    with pytest.raises(BadInput, match="the job is for"):
        done(replace(join, family="bayes"), LocalFederation([client("z", 9)]), tmp_path / "other")


def test_a_job_that_lost_its_quorum_continues_where_it_was(tmp_path):
    with pytest.raises(QuorumLost):
        done(KMEANS, Heard(federation(), "statistics"), tmp_path)
    resumed = Heard(federation())
    done(KMEANS, resumed, tmp_path)
    assert resumed.asked == ["statistics", "vote"]
    events = [line["event"] for line in Tail(tmp_path).lines()]
    assert events == ["start", "step", "start", "step", "vote", "done"]
    assert not (tmp_path / "checkpoint").exists()


def test_a_job_that_is_done_asks_nobody(tmp_path):
    result = done(KMEANS, federation(), tmp_path)
    again = Heard(federation())
    assert done(KMEANS, again, tmp_path) == result
    assert again.asked == []


def test_a_kill_between_the_bundle_and_the_result_is_made_good(tmp_path):
    result = done(KMEANS, federation(), tmp_path)
    (tmp_path / "result.json").unlink()
    assert done(KMEANS, federation(), tmp_path) == result


def test_a_bad_reply_is_dropped_with_a_reason_and_the_rest_continues(tmp_path):
    class Boastful(Client):
        def answer(self, verb, request, hidden=False):
            reply = super().answer(verb, request, hidden)
            return replace(reply, count=reply.count * 10**9) if verb == "statistics" else reply

    done(KMEANS, federation(Boastful("z", drawn_evaluations(queries=120), encoder="one")), tmp_path)
    dropped = [line for line in Tail(tmp_path).lines() if line["event"] == "dropped"]
    assert [(line["client"], line["verb"]) for line in dropped] == [("z", "statistics")]
    assert list(load(tmp_path / "bundle").clients) == ["a", "b", "c"]


def test_under_secure_aggregation_the_router_is_the_same_and_nobodys_rows_are_known(tmp_path):
    plain = done(KMEANS, federation(), tmp_path / "plain")
    hidden = done(replace(KMEANS, secure=2 / 3), federation(), tmp_path / "hidden")
    arrays = [(tmp_path / place / "bundle/router.safetensors").read_bytes() for place in ("plain", "hidden")]
    assert arrays[0] == arrays[1]
    assert [entry["name"] for entry in hidden["clients"]] == [entry["name"] for entry in plain["clients"]]
    assert {entry["rows"] for entry in hidden["clients"]} == {0}


def test_secure_sums_of_two_clients_are_refused_before_anything_is_asked_in_the_clear(tmp_path):
    wire = Heard(federation(names="ab"))
    with pytest.raises(BadInput, match="a, b: secure sums need at least 3 clients; with --plain the coordinator sees"):
        done(replace(KMEANS, secure=2 / 3), wire, tmp_path / "two")
    assert wire.asked == ["hello"]
    assert not (tmp_path / "two" / "bundle").exists()


@pytest.mark.parametrize(
    ("family", "exchanges"),
    [
        ("kmeans", [["hello", "keys"], ["cluster", "shares"], ["deliver", "masked"], *VOTE]),
        ("bayes", [["hello", "keys"], ["shares"], ["deliver", "masked"], ["unmask"], *VOTE]),
    ],
)
def test_a_run_with_secure_sums_takes_few_exchanges(tmp_path, family, exchanges):
    """What is shown of the run (`follow`) travels along."""
    wire = Heard(LocalFederation(client(name) for name in "abcd"))
    done(Job(family=family, secure=2 / 3), wire, tmp_path)
    assert [[verb for verb in verbs if verb != "follow"] for verbs in wire.exchanges] == exchanges


class Died(Exception):
    """The coordinator was killed."""


class Dies(LocalFederation):
    """The coordinator is killed at one step: before it asks, or after the clients have answered."""

    def __init__(self, clients, step, answered):
        super().__init__(clients)
        self.step, self.answered = step, answered

    def ask(self, verb, payload, to=None):
        if verb != self.step:
            return super().ask(verb, payload, to)
        if self.answered:
            super().ask(verb, payload, to)
        raise Died


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("step", ["keys", "shares", "deliver", "masked", "unmask"])
def test_a_coordinator_killed_at_any_step_of_secure_sums_resumes_to_the_same_router(tmp_path, step, answered):
    job = replace(KMEANS, secure=2 / 3)
    if step == "unmask":  # a sum that is not joint
        job = replace(job, family="mlp", settings={"rounds": 1, "hidden": [4]})
    done(job, federation(), tmp_path / "undisturbed")
    clients = list(federation()._clients.values())
    with pytest.raises(Died):
        done(job, Dies(clients, step, answered), tmp_path / "killed")
    done(job, LocalFederation(clients), tmp_path / "killed")
    arrays = [(tmp_path / run / "bundle/router.safetensors").read_bytes() for run in ("undisturbed", "killed")]
    assert arrays[0] == arrays[1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"operation": "forget"}, "expected learn"),
        ({"base": "x"}, "without a bundle"),
        ({"operation": "add_clients"}, "with a bundle"),
        ({"operation": "add_models", "base": "x"}, "new models"),
        ({"quorum": 0}, "quorum"),
        ({"timeout": 0.0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"family": "oracle"}, "expected one of"),
        ({"pool": ({"nome": "x"},)}, "pool entry"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused(change, reason):
    with pytest.raises(BadInput, match=reason):
        replace(KMEANS, **change)


def test_a_job_is_kept_as_it_was_and_another_under_its_name_is_refused(tmp_path):
    job = replace(KMEANS, pool=({"name": "model-1"},), clients=("a",), settings={"k_local": 3})
    jobs.write(job, tmp_path / "run")
    jobs.write(job, tmp_path / "run")
    assert jobs.read(tmp_path / "run") == job
    assert (tmp_path / "run/job.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadInput, match="other settings"):
        jobs.write(replace(job, seed=1), tmp_path / "run")
    (tmp_path / "run/job.json").write_text('{"verb": "learn"}')
    with pytest.raises(BadInput, match="not in the format"):
        jobs.read(tmp_path / "run")


def test_a_line_that_is_still_being_written_is_left_for_the_next_read(tmp_path):
    log, tail = ProgressLog(tmp_path), Tail(tmp_path)
    assert tail.lines() == []
    log.write("start")
    with (tmp_path / "progress.jsonl").open("a") as file:
        file.write('{"event": "st')
        file.flush()
        assert [line["event"] for line in tail.lines()] == ["start"]
        file.write('ep"}\n')
    assert [line["event"] for line in tail.lines()] == ["step"]
    assert Tail(tmp_path, from_end=True).lines() == []


def test_a_line_that_a_kill_cut_short_is_dropped_and_a_follower_is_not_confused(tmp_path):
    ProgressLog(tmp_path).write("start")
    with (tmp_path / "progress.jsonl").open("a") as file:
        file.write('{"event": "st')
    tail = Tail(tmp_path, from_end=True)
    ProgressLog(tmp_path).write("done")
    assert [line["event"] for line in tail.lines()] == ["done"]
    assert [line["event"] for line in Tail(tmp_path).lines()] == ["start", "done"]


def rows_heard(tmp_path, logs, queries, kept=True, job=KMEANS):
    """Rows behind each of several runs while the logs grow, and the centres of each."""
    memories = {name: ShortMemory() for name in logs}
    heard, centres = [], []
    for place, count in enumerate(queries):
        own = {name: log.of_queries(np.arange(count)) for name, log in logs.items()}
        clients = [
            Client(name, rows, memory=memories[name], encoder="one", rederivation=Rederivation(name))
            for name, rows in own.items()
        ]
        folder = tmp_path / str(place)
        folder.mkdir(parents=True)
        again = replace(job, new_centres=not kept, seed=0 if kept else place)
        result = perform(again, LocalFederation(clients), folder, ProgressLog(folder), centroids=tmp_path / "centroids")
        heard.append(result["rows"])
        centres.append(load(folder / "bundle").router.centres)
    return heard, centres


@pytest.mark.parametrize("secure", [None, 2 / 3])
def test_learning_again_keeps_the_rows_because_centres_are_kept(tmp_path, secure):
    logs = {name: drawn_evaluations(queries=300, seed=ord(name)) for name in "abcd"}
    job = replace(KMEANS, secure=secure)
    # Once around other centres each time: differences that are too small are withheld.
    fewer, _ = rows_heard(tmp_path / "new", logs, (200, 200, 200), kept=False, job=job)
    assert fewer[0] > fewer[1] > fewer[2]
    # Around the same ones nothing is lost, and what is new is heard as well.
    more, centres = rows_heard(tmp_path / "kept", logs, (200, 230, 260), job=job)
    assert more == [4 * 200, 4 * 230, 4 * 260]
    assert all((again == centres[0]).all() for again in centres)
    lines = [Tail(tmp_path / "kept" / str(place)).lines() for place in range(3)]
    reused = [[line["clients"] for line in run if line["event"] == "centroids kept"] for run in lines]
    assert reused == [[], [["a", "b", "c", "d"]], [["a", "b", "c", "d"]]]


def test_the_verdict_of_the_vote_is_recorded_with_the_run(tmp_path):
    result = done(KMEANS, federation(), tmp_path)
    found = acceptance_of(tmp_path)
    vote = result["vote"]
    assert (found.status, found.why, found.evidence) == (vote["status"], vote["why"], vote["evidence"])
    assert vote["evidence"]["queries"] > 0


def test_without_a_vote_the_bundle_stays_a_candidate(tmp_path):
    result = done(KMEANS, Heard(federation(), "vote"), tmp_path)
    assert result["vote"]["status"] == acceptance_of(tmp_path).status == "candidate"
    assert result["vote"]["why"].startswith("no vote: ")
    assert load(tmp_path / "bundle").router.family == "kmeans"


def test_a_rejected_bundle_is_put_into_service_by_force_only(tmp_path):
    done(KMEANS, federation(), tmp_path / "run")
    Store.open(f"sqlite:///{tmp_path}/store.db").close()
    use = ("bundle", "use", tmp_path / "run/bundle", "--store", f"sqlite:///{tmp_path}/store.db")
    decide(tmp_path / "run", "rejected", "worse off")
    refused = command.run(*use)
    assert refused.returncode != 0
    assert "rejected (worse off)" in " ".join(refused.stderr.split())
    assert command.run(*use, "--force").returncode == 0
    decide(tmp_path / "run", "accepted", "")
    assert command.run(*use).returncode == 0
