"""A judge of your own: it scores answers that got no feedback, so that the router can learn from them.

A judge returns a score in [0, 1] or abstains. A panel asks its judges in order and takes the first score. Judges that
call a language model declare the most they can cost, and the panel limits dollars per day and calls per minute.

    python examples/own_judge.py
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Mapping
from typing import Any

from fedrouter.learning.judges import ABSTAIN, ExactMatch, FreeJudge, Panel, Verdict


class PythonParses(FreeJudge):
    """Scores answers that contain Python code: 1 if all of it parses, 0 if not. Abstains where there is no code."""

    name = "python_parses"

    async def judge(self, body: Mapping[str, Any], answer: str) -> Verdict:
        programs = re.findall(r"```python\n(.*?)```", answer, re.DOTALL)
        if not programs:
            return ABSTAIN
        try:
            for program in programs:
                ast.parse(program)
        except SyntaxError:
            return Verdict(0.0)
        return Verdict(1.0)


def asked(question: str, **options: Any) -> dict[str, Any]:
    """A chat-completion request; `fedrouter.expected` is the right answer, where it is known."""
    return {"model": "auto", "messages": [{"role": "user", "content": question}], "fedrouter": options}


ANSWERS = [
    (asked("Write a function that adds two numbers."), "```python\ndef add(a, b):\n    return a + b\n```"),
    (asked("Write a function that subtracts."), "```python\ndef subtract(a, b)\n    return a - b\n```"),
    (asked("What is the capital of France?", expected="Paris"), "paris"),
    (asked("How are you?"), "I am fine."),
]


async def main() -> None:
    panel = Panel([PythonParses(), ExactMatch()], daily=1.0)
    for body, answer in ANSWERS:
        found = await panel.score(body, answer)
        question = body["messages"][0]["content"]
        print(f"{question:<42} {'no score' if found is None else f'{found.score} by {found.by}'}")
    # To log a score, send it as feedback: POST /v1/feedback.


if __name__ == "__main__":
    asyncio.run(main())
