"""Summarization prompts: passages built sentence by sentence, with wishes about length, reader and focus."""

import random

from .passages import PASSAGES, SLOTS
from .wording import Prompt, fill, graded, level

REQUESTS = graded("""
    0.0: Summarize this text in one sentence:; What is this text about?; Give me the gist of this:;
        Too long for me. What does it say?
    0.02: Summarize the passage in two sentences.; Give this a title and a one-line summary.
    0.02: Shorten this for me, please:; What are the main points of this passage?
    0.12: Summarize this as {three} bullet points, most important first.; Summarize in at most {25-40} words.
    0.12: Summarize this for a ten-year-old.; Write a summary for someone who {reader}.
    0.24: Summarize in exactly {15-24} words.; Summarize without using any number that is not in the text, in
        {three} bullets.
    0.24: Summarize what is known, and list separately what the text leaves open.; Write a headline and a
        lead of one sentence.
    0.38: Write two summaries, one for supporters and one for critics, using only facts from the text.
    0.38: Summarize in {three} sentences and mark for each whether it is fact, estimate or opinion, with the
        words that show it.
    0.5: Compress this to a single sentence of at most {14-20} words that keeps every number and every named
        place.
    0.5: Summarize it twice, from the view of two readers who disagree, and then state what both would accept
        as true.
""")
REQUEST_SLOTS = SLOTS | {
    "three": [(word, 0.0) for word in ("two", "three", "four", "five")],
    "reader": graded("""
        0.0: has no time; missed the meeting; is new to the subject; only wants the figures; must decide
            tomorrow
        0.04: distrusts the author; speaks English as a second language; will quote it in a report; knows the
            field well
    """),
}


def summarization(rng: random.Random) -> Prompt:
    """The passage keeps its first sentence and a random, ordered part of the rest."""
    first, *rest = rng.choice(PASSAGES)
    length = rng.randint(2, len(rest))
    kept = [sentence for _, sentence in sorted(rng.sample(list(enumerate(rest)), length))]
    passage, _ = fill(rng, " ".join([first, *kept]), SLOTS)
    wording, base = rng.choice(REQUESTS)
    request, extra = fill(rng, wording, REQUEST_SLOTS)
    comes_last = rng.random() < 0.3 and not request.endswith(":")
    text = f"{passage}\n\n{request}" if comes_last else f"{request}\n\n{passage}"
    return text, level(base + extra + 0.08 * (length - 2) + 0.04)
