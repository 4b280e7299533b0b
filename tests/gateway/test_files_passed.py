"""How many files a reader opens to follow a request: those whose code one request runs in a gateway that learns."""

import sys
import threading
import time
from pathlib import Path

import httpx2 as httpx
import pytest

import fedrouter
from fedrouter.gateway.config import ExploreConfig, LearningConfig
from gateway.running import config_for, eventually, served

PACKAGE = str(Path(fedrouter.__file__).parent)
CHAT, LEARNING = 25, 19
"""Most files that a chat request passes, and that a score passes more until the router has changed; in these seconds
other work looks at the store, too."""
TIMES = 8


class Trace:
    """Notes the files of the package whose code runs, on any thread that began after it was installed."""

    def __init__(self) -> None:
        self.files: set[str] | None = None

    def __call__(self, frame, event, _) -> None:
        if event == "call" and self.files is not None and frame.f_code.co_filename.startswith(PACKAGE):
            self.files.add(frame.f_code.co_filename.removeprefix(PACKAGE))

    def of(self, call) -> set[str]:
        self.files = set()
        try:
            call()
        finally:
            found, self.files = self.files, None
        return found


@pytest.fixture
def trace():
    found, before = Trace(), threading.getprofile()
    threading.setprofile(found)
    yield found
    threading.setprofile(before)


@pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer is at work")
def test_a_request_passes_few_files_and_a_score_few_more_until_the_router_has_changed(
    trace, bundle, upstream, tmp_path
):
    config = config_for(tmp_path, bundle, upstream.url, learning=LearningConfig())
    config = config.replace(routing=config.routing.replace(bundle=None, explore=ExploreConfig()))
    with (
        served(config) as (url, key, _),
        httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}) as http,
    ):

        def chat(text, **more):
            body = {"model": "auto", "messages": [{"role": "user", "content": text}], **more}
            answer = http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            return answer

        def version(answer):
            return int(answer.headers["x-fedrouter-bundle-version"])

        def score(answer):
            body = {"decision_id": answer.headers["x-fedrouter-decision-id"], "score": 1.0}
            assert http.post("/v1/feedback", json=body).status_code == 200

        first = chat("What is seven times six?")
        score(first)  # from now on prompts are encoded
        assert eventually(lambda: version(chat("And eight times six?")) > version(first), 60)
        passed = {}
        for streamed in (False, True):
            # What runs beside requests does not run beside each of them.
            each = [
                trace.of(lambda n=n, s=streamed: chat(f"What is {n} times six, {s}?", stream=s)) for n in range(TIMES)
            ]
            passed[streamed] = set.intersection(*each)
            assert len(passed[streamed]) <= CHAT, sorted(passed[streamed])
        assert {"/gateway/pipeline.py", "/encoders/static.py", "/store/writer.py"} <= passed[False]

        def learned(text):
            before = version(chat(text))
            score(chat(text))
            end = time.monotonic() + 60
            while time.monotonic() < end and version(chat("And ten times seven?")) == before:
                time.sleep(0.2)

        rounds = [trace.of(lambda n=n: learned(f"What is {n} times nine?")) for n in range(3)]
        more = set.intersection(*rounds) - passed[False] - passed[True]
        assert {"/gateway/routes/feedback.py", "/learning/learner.py"} <= more
        assert len(more) <= LEARNING, sorted(more)
