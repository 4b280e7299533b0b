"""The ask: what a human asked, out of what agents, tools and examples put around it."""

from __future__ import annotations

import time

import pytest

from fedrouter.gateway.routing.prompt import LONGEST_ASK, human_text, read_ask, strip_examples


def ask_of(*messages, **more):
    return read_ask({"messages": [{"role": role, "content": content} for role, content in messages], **more})


def test_the_last_human_message_is_the_ask():
    ask = ask_of(("system", "Be kind."), ("user", "first"), ("assistant", "answer"), ("user", "second"), ("tool", "42"))
    assert ask.text == "second"
    assert ask.continued


def test_a_message_without_a_human_s_words_is_passed_over():
    reminder = "<system-reminder>You have tools.</system-reminder>"
    parts = [{"type": "tool_result", "content": "42", "text": "not this"}, {"type": "image_url", "image_url": {}}]
    assert ask_of(("user", "why?"), ("assistant", "a"), ("user", parts), ("user", reminder)).text == "why?"


def test_text_parts_are_joined_and_the_rest_is_left_out():
    parts = [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "why?"},
    ]
    ask = ask_of(("user", parts))
    assert ask.text == "look:\nwhy?"
    assert ask.needs == {"vision"}


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("<task>\nFix the bug\n</task>\n<environment_details>\nfiles…\n</environment_details>", "Fix the bug"),
        ("<context>\nlong\n</context>\nWhat now?", "What now?"),
        ("<context>\na\n<document>\nb\n</document>\nc\n</context>\nWhat now?", "What now?"),
        ("<user_query>old</user_query>\n<user_query>new</user_query>", "new"),
        ("Why does <query>x</query> fail in my <context> tag?", "Why does <query>x</query> fail in my <context> tag?"),
        ("<context>\nnever closed, so it may be the ask", "<context>\nnever closed, so it may be the ask"),
        ("Is 1 < 2?", "Is 1 < 2?"),
    ],
)
def test_agents_tags_are_read_or_removed_and_a_question_about_markup_stays(text, ask):
    assert human_text(text) == ask


@pytest.mark.parametrize(
    ("text", "ask"),
    [
        ("Q: 1+1\nA: 2\nQ: 2+2\nA:", "2+2"),
        ("Give the capital.\n\nInput: France\nOutput: Paris\n\nInput: Peru\nOutput:", "Give the capital.\nPeru"),
        ("Question 1: a?\nAnswer 1: b\nQuestion 2: c?", "c?"),
        ("Q: one question only", "Q: one question only"),
        ("Q: a\nQ: b", "Q: a\nQ: b"),
        ("Fix this:\nUser: hi\nit prints\nUser: hi", "Fix this:\nUser: hi\nit prints\nUser: hi"),
    ],
)
def test_worked_examples_are_removed(text, ask):
    assert strip_examples(text) == ask


def test_what_answering_takes_is_read_from_the_whole_request():
    ask = ask_of(
        ("system", "x" * 400),
        ("user", "y" * 400),
        tools=[{"type": "function"}],
        response_format={"type": "json_schema"},
        max_tokens=7,
    )
    assert ask.needs == {"tools", "json"}
    assert 200 < ask.input_tokens < 250
    assert ask.most_output == 7


def test_turns_of_one_conversation_share_its_name_and_others_do_not():
    first = ask_of(("system", "s"), ("user", "hello"))
    later = ask_of(("system", "s"), ("user", "hello"), ("assistant", "hi"), ("user", "and now?"))
    assert first.conversation == later.conversation
    assert not first.continued
    assert ask_of(("system", "other"), ("user", "hello")).conversation != first.conversation


@pytest.mark.parametrize(
    "text",
    [
        "<task>" * 500_000,
        "<context>\n" * 300_000,
        "Q:\n" * 500_000,
        "Q" + " " * 2_000_000,
        "<" * 2_000_000,
        "a" * 20_000_000,
    ],
)
def test_no_text_takes_long(text):
    begun = time.perf_counter()
    assert len(human_text(text)) <= LONGEST_ASK
    assert time.perf_counter() - begun < 1.5


@pytest.mark.parametrize("content", [None, 3, {}, [], [None, 3, {"type": "text"}, {"type": "text", "text": 5}], [[]]])
def test_odd_contents_are_no_ask(content):
    assert ask_of(("user", content)).text == ""
