"""A run's progress as it is printed: every exchange, every step, and how long the rest takes."""

from fedrouter.cli import output
from fedrouter.cli.federation.progress import ShownProgress
from fedrouter.cli.output import Voice


def shown(lines, usual=None, capsys=None):
    clock = iter(range(0, 1000, 10))
    progress = ShownProgress(Voice(False), usual, lambda: next(clock))
    for line in lines:
        progress.show(line)
    return capsys.readouterr().out.splitlines()


def exchange(number, *verbs):
    return {"event": "exchange", "number": number, "verbs": verbs, "asked": 4, "answered": 3, "seconds": 0.94}


def step(number, of):
    return {"event": "step", "stage": "cluster", "step": number, "steps": of, "answered": ["a"], "missing": {},
            "metrics": {}}  # fmt: skip


def test_the_rest_is_estimated_from_the_last_run_of_the_same_kind(capsys):
    first, second, third = shown([exchange(1, "hello"), exchange(2, "cluster", "moments"), exchange(3, "x")], 3, capsys)
    assert first == "exchange 1 of about 3   hello: 3 of 4 answered in 0.9 s, about 21 s left"
    assert second.startswith("exchange 2 of about 3   cluster, moments:")
    assert second.endswith("about 11 s left")
    assert third.startswith("exchange 3 of about 3")


def test_without_an_earlier_run_it_is_estimated_from_the_steps(capsys):
    lines = shown([exchange(1, "cluster"), step(1, 4), exchange(2, "statistics")], None, capsys)
    assert lines[0] == "exchange 1   cluster: 3 of 4 answered in 0.9 s"
    assert lines[1] == "cluster 1/4   a answered"
    assert lines[2].endswith("about 51 s left")


def test_the_estimate_runs_out_between_steps_and_ends_with_the_usual_exchanges(capsys):
    lines = shown([step(1, 3), exchange(1, "x"), exchange(2, "y"), exchange(3, "z")], None, capsys)
    assert [line.partition(", about ")[2] for line in lines[1:]] == ["11 s left", "", ""]
    late = shown([exchange(1, "x"), exchange(2, "y"), exchange(3, "z")], 2, capsys)
    assert [line.partition(", about ")[2] for line in late] == ["11 s left", "", ""]


def test_an_exchange_that_takes_long_says_for_whom(capsys):
    [line] = shown([{"event": "late", "clients": ["beta"], "seconds": 289.5}], None, capsys)
    assert line == "Still waiting for beta, 5 min more at most"


def test_waiting_for_clients_is_said_at_once(capsys):
    [line] = shown([{"event": "waiting", "clients": ["beta", "gamma"], "seconds": 30}], None, capsys)
    assert line == "Waiting up to 30 s for beta, gamma to connect"


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(output, "LINE_EVERY", 0.0)
    with output.bars() as drawn:
        drawn.move("learning [kmeans]", 1, 4)
        drawn.move("learning [kmeans]", 4, 4)
    assert capsys.readouterr().err == "learning [kmeans]: 25%\nlearning [kmeans]: 100%\n"
