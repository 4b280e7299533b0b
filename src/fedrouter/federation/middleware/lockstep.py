"""Algorithms that run in lockstep: what several of them ask at the same time travels in one exchange.

An algorithm is an ordinary function that asks a federation and waits for the replies. Each runs in a thread of its own
until it asks something; when all have asked or ended, their questions are sent together. Only one thread runs at a
time, in a fixed order, so that a run is as reproducible as one algorithm after another, and the federation itself is
used by the caller's thread alone.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from fedrouter.federation.federation import Federation, Middleware, Question

Result = TypeVar("Result")


def in_lockstep(federation: Federation, algorithms: Sequence[Callable[[Federation], Result]]) -> list[Result]:
    """The results of the algorithms, in order. An error in one of them, or of the federation, ends all of them."""
    seats = [_Seat(federation, algorithm) for algorithm in algorithms]
    try:
        states = [seat.resume(None) for seat in seats]
        while waiting := [index for index, state in enumerate(states) if isinstance(state, _Asked)]:
            answers = _exchange(federation, {index: states[index] for index in waiting})
            for index in waiting:
                states[index] = seats[index].resume(answers[index])
        return [state.result for state in states if isinstance(state, _Ended)]
    finally:
        for seat in seats:
            seat.close()


def _exchange(federation: Federation, asked: Mapping[int, Any]) -> dict[int, list[Mapping[str, Any]]]:
    """The replies to what each algorithm asked; one exchange for all that ask the same clients."""
    groups: dict[tuple[str, ...] | None, list[int]] = {}
    for index, each in asked.items():
        groups.setdefault(None if each.to is None else tuple(sorted(each.to)), []).append(index)
    found: dict[int, list[Mapping[str, Any]]] = {}
    for to, members in groups.items():
        replies = iter(federation.ask_all([one for index in members for one in asked[index].questions], to))
        found |= {index: [next(replies) for _ in asked[index].questions] for index in members}
    return found


@dataclass(frozen=True)
class _Asked:
    questions: Sequence[Question[Any]]
    to: Sequence[str] | None


@dataclass(frozen=True)
class _Ended(Generic[Result]):
    result: Result


@dataclass(frozen=True)
class _Failed:
    error: BaseException


class _Closed(BaseException):
    """Raised inside an algorithm that is not continued; not an Exception, so that none is caught by mistake."""


class _Seat(Middleware, Generic[Result]):
    """The federation as one of the algorithms sees it, and the thread that this algorithm runs in."""

    def __init__(self, federation: Federation, algorithm: Callable[[Federation], Result]) -> None:
        self._federation = federation
        self._algorithm = algorithm
        self._answers: SimpleQueue[list[Mapping[str, Any]] | _Closed | None] = SimpleQueue()
        self._states: SimpleQueue[_Asked | _Ended[Result] | _Failed] = SimpleQueue()
        # With the caller's context, in which numpy keeps how it treats floating point errors.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        self._states.put(_Asked(questions, to))
        answers = self._answers.get()
        if isinstance(answers, _Closed):
            raise answers
        assert answers is not None
        return answers

    def resume(self, answers: list[Mapping[str, Any]] | None) -> _Asked | _Ended[Result]:
        """Let the algorithm run, from its start or with these answers, until it asks again or ends."""
        if not self._thread.ident:
            self._thread.start()
        else:
            self._answers.put(answers)
        state = self._states.get()
        if isinstance(state, _Failed):
            raise state.error
        return state

    def close(self) -> None:
        """End the algorithm if it is still waiting for answers."""
        if self._thread.is_alive():
            self._answers.put(_Closed())
            self._thread.join()

    def _run(self) -> None:
        try:
            self._states.put(_Ended(self._algorithm(self)))
        except BaseException as error:
            self._states.put(_Failed(error))
