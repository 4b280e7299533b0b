"""The prompt: what a person asked, without what agents, tools and few-shot examples put around it."""

import time

import pytest

from fedrouter.gateway.routing.request import MAX_PROMPT, human_text, read_prompt, strip_examples


def prompt_of(*messages, **more):
    return read_prompt({"messages": [{"role": role, "content": content} for role, content in messages], **more})


def test_the_last_human_message_is_the_prompt():
    prompt = prompt_of(
        ("system", "Be kind."), ("user", "first"), ("assistant", "answer"), ("user", "second"), ("tool", "42")
    )
    assert prompt.text == "second"
    assert prompt.continued


def test_a_message_without_a_human_s_words_is_passed_over():
    reminder = "<system-reminder>You have tools.</system-reminder>"
    parts = [{"type": "tool_result", "content": "42", "text": "not this"}, {"type": "image_url", "image_url": {}}]
    assert prompt_of(("user", "why?"), ("assistant", "a"), ("user", parts), ("user", reminder)).text == "why?"


def test_text_parts_are_joined_and_the_rest_is_left_out():
    parts = [
        {"type": "text", "text": "look:"},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "text", "text": "why?"},
    ]
    prompt = prompt_of(("user", parts))
    assert prompt.text == "look:\nwhy?"
    assert prompt.needs == {"vision"}


@pytest.mark.parametrize("kind", ["file", "input_file", "document"])
def test_a_file_needs_a_model_that_reads_files(kind):
    parts = [{"type": kind, kind: {"file_data": "data:application/pdf;base64,AAAA"}}, {"type": "text", "text": "why?"}]
    prompt = prompt_of(("user", parts))
    assert (prompt.text, prompt.needs) == ("why?", {"files"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<task>\nFix the bug\n</task>\n<environment_details>\nfiles…\n</environment_details>", "Fix the bug"),
        ("<context>\nlong\n</context>\nWhat now?", "What now?"),
        ("<context>\na\n<document>\nb\n</document>\nc\n</context>\nWhat now?", "What now?"),
        ("<user_query>old</user_query>\n<user_query>new</user_query>", "new"),
        ("Why does <query>x</query> fail in my <context> tag?", "Why does <query>x</query> fail in my <context> tag?"),
        ("<context>\nnever closed, so it may be the prompt", "<context>\nnever closed, so it may be the prompt"),
        ("Is 1 < 2?", "Is 1 < 2?"),
    ],
)
def test_agents_tags_are_read_or_removed_and_a_question_about_markup_stays(text, expected):
    assert human_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Q: 1+1\nA: 2\nQ: 2+2\nA:", "2+2"),
        ("Give the capital.\n\nInput: France\nOutput: Paris\n\nInput: Peru\nOutput:", "Give the capital.\nPeru"),
        ("Question 1: a?\nAnswer 1: b\nQuestion 2: c?", "c?"),
        ("Q: one question only", "Q: one question only"),
        ("Q: a\nQ: b", "Q: a\nQ: b"),
        ("Fix this:\nUser: hi\nit prints\nUser: hi", "Fix this:\nUser: hi\nit prints\nUser: hi"),
    ],
)
def test_few_shot_examples_are_removed(text, expected):
    assert strip_examples(text) == expected


def test_what_answering_takes_is_read_from_the_whole_request():
    prompt = prompt_of(
        ("system", "x" * 400),
        ("user", "y" * 400),
        tools=[{"type": "function"}],
        response_format={"type": "json_schema"},
        max_tokens=7,
    )
    assert prompt.needs == {"tools", "json"}
    assert 200 < prompt.input_tokens < 250
    assert prompt.max_output == 7


def test_turns_of_one_conversation_share_its_name_and_others_do_not():
    first = prompt_of(("system", "s"), ("user", "hello"))
    later = prompt_of(("system", "s"), ("user", "hello"), ("assistant", "hi"), ("user", "and now?"))
    assert first.conversation == later.conversation
    assert not first.continued
    assert prompt_of(("system", "other"), ("user", "hello")).conversation != first.conversation


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
    begun = time.thread_time()  # not wall-clock time, which depends on what else the machine does
    assert len(human_text(text)) <= MAX_PROMPT
    assert time.thread_time() - begun < 1.5


@pytest.mark.parametrize("content", [None, 3, {}, [], [None, 3, {"type": "text"}, {"type": "text", "text": 5}], [[]]])
def test_odd_contents_are_no_prompt(content):
    assert prompt_of(("user", content)).text == ""
