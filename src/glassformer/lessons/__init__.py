"""Worked examples from tutorials: Glassformer's layers compute the values, files hold the texts.

thrones: Khan's Transformer by hand (AI大模型世界, 2024). machines: Transformer 全细节详解, with two
words from J. Alammar's Illustrated Transformer. markov: B. Rohrer's Transformers from Scratch
(e2eml.school). ratings and attention: P. Bloem's Transformers from scratch (peterbloem.nl).
position and norm: Hung-yi Lee's lectures. tokens: our own.
"""

from glassformer.inspection.sheet import Step
from glassformer.lessons import (
    attention,
    attention_lookup,
    attention_speed,
    attention_text,
    machines,
    machines_decoder,
    machines_depth,
    machines_heads,
    markov,
    markov_network,
    markov_text,
    norm,
    position,
    position_text,
    ratings,
    thrones,
    thrones_decoder,
    thrones_input,
    thrones_remarks,
    thrones_text,
    tokens,
)
from glassformer.lessons.lesson import (
    Chapter,
    TextChapter,
    load_steps,
    load_text_steps,
    load_title,
)

LESSONS: dict[str, tuple[Chapter, ...]] = {  # the first chapter's file has the lesson's title
    "thrones": (thrones_input, thrones, thrones_decoder, thrones_remarks),
    "machines": (machines, machines_heads, machines_depth, machines_decoder),
    "markov": (markov, markov_network),
    "tokens": (tokens,),
    "ratings": (ratings,),
    "attention": (attention_lookup, attention, attention_speed),
    "position": (position,),
    "norm": (norm,),
}
TEXT_LESSONS: dict[str, TextChapter] = {  # the lessons that can also be computed for a user's text
    "thrones": thrones_text,
    "markov": markov_text,
    "tokens": tokens,
    "attention": attention_text,
    "position": position_text,
}


def load_lesson(name: str) -> list[Step]:
    """All steps of a lesson, in the current language."""
    return [step for chapter in LESSONS[name] for step in load_steps(chapter)]


def load_text_lesson(name: str, text: str) -> list[Step]:
    """The steps of a lesson in `TEXT_LESSONS` for a user's text, in the current language."""
    return load_text_steps(TEXT_LESSONS[name], text)


def lesson_title(name: str) -> str:
    return load_title(LESSONS[name][0])
