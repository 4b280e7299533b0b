"""Debugging prompts: broken code, tracebacks and symptoms, mostly Python, from typos to race conditions."""

import random
import re

from .broken_snippets import BROKEN_ELSEWHERE, BROKEN_PYTHON, DISTRACTIONS
from .wording import Graded, Prompt, filled, graded, level, listed

SYMPTOMS = graded("""
    0.12: My {app} prints nothing when I start it, and there is no error message. What should I check first?
    0.18: After I renamed a folder, my {app} fails with ModuleNotFoundError. How do I fix the imports?
    0.2: A unit test of my {app} passes alone but fails when the whole suite runs. How do I find the cause?
    0.4: My {app} works on my laptop but fails {where}. What are likely causes, and how do I narrow them down?
    0.5: The memory of my {service} grows by about {20-400} MB an hour until it is killed. How do I find the
        leak?
    0.5: Since the last release my {app} is {3-12} times slower, but only {where}. How do I bisect and
        profile this?
    0.72: My {service} deadlocks about once a week {where}, never under the debugger. Plan an investigation
        that
        does not stop it.
    0.75: Two replicas of my {service} disagree on a total by one cent every few days. How would you trace
        where
        they diverge?
    0.82: A crash in my {app} disappears as soon as I add logging, and the core dump shows a corrupted stack.
        What next?
    0.9: Under load {where}, one in {20-90} thousand requests to my {service} returns another user's data.
        How
        do I debug this?
""")
SLOTS: dict[str, Graded] = {
    "app": graded("""
        0.0: Flask app; command-line tool; data pipeline; chat bot; scraper; desktop program; REST service;
            backup script
        0.0: game server; image converter; nightly report job; inventory service; message consumer
    """),
    "service": graded("""
        0.0: REST service; chat bot; game server; inventory service; booking site; Flask app; message broker
        0.0: payment API; photo store; voting system
    """),
    "where": graded("""
        0.0: inside Docker; on Windows; in the CI pipeline; behind a proxy; on the production server
        0.04: with more than one worker; when the clock changes in autumn; after a failover; on ARM machines
    """),
}
REQUESTS = graded("""
    0.0: Why does this fail?; What is wrong with this code?; Please fix this:; I get this and do not see why.
        Can you help?
    0.03: Find the bug and explain it to a beginner:; My code does not do what I expect. Where is the mistake?
    0.08: Find the bug, fix it and add a test that would have caught it:; Name every problem you see in this
        code:
    0.14: Find the bug, explain how tests could have missed it, and suggest a design in which it cannot occur:
""")
ITEM_NAMES = listed("""
    order; user; ticket; reading; parcel; score; plant; song; photo; invoice; recipe; sensor; bike
    lesson; room; vote
""")
VALUE_NAMES = listed("price; weight; count; age; size; level; rating; balance; speed; height; points; distance; stock")


def named(rng: random.Random, code: str) -> str:
    item = rng.choice(ITEM_NAMES)
    code = code.replace("ITEMS", f"{item}s").replace("class ITEM:", f"class {item.title()}:").replace("ITEM", item)
    code = re.sub(r"\bN\b", str(rng.randint(4, 60)), code)
    return code.replace("VALUE", rng.choice(VALUE_NAMES))


def broken_code(rng: random.Random) -> Prompt:
    in_python = rng.random() < 0.8
    code, difficulty = rng.choice(BROKEN_PYTHON if in_python else BROKEN_ELSEWHERE)
    request, extra = rng.choice(REQUESTS)
    if in_python and code.count("\n") < 5 and rng.random() < 0.5:
        before, distraction = rng.choice(DISTRACTIONS)
        code, extra = f"{before}\n\n{code}", extra + distraction
    return f"{request}\n\n{named(rng, code)}", level(difficulty + extra)


def debugging(rng: random.Random) -> Prompt:
    return filled(rng, SYMPTOMS, SLOTS) if rng.random() < 0.25 else broken_code(rng)
