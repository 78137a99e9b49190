"""Worked examples from tutorials: Glassformer's layers compute the values, files hold the texts.

thrones: Khan's Transformer by hand (AI大模型世界, 2024). markov: B. Rohrer's Transformers from
Scratch (e2eml.school). ratings and attention: P. Bloem's Transformers from scratch
(peterbloem.nl). position and norm: Hung-yi Lee's lectures. errata and code: what five tutorials
get wrong, these four and Transformer: every detail explained (Transfomer 全细节详解).
"""

from glassformer.inspection.sheet import Step
from glassformer.lessons import (
    attention,
    code,
    errata_bloem,
    errata_detail,
    errata_khan,
    errata_lee,
    errata_missing,
    errata_rohrer,
    markov,
    norm,
    position,
    ratings,
    thrones,
    thrones_decoder,
    thrones_remarks,
)
from glassformer.lessons.lesson import Chapter, load_steps, load_title

LESSONS: dict[str, tuple[Chapter, ...]] = {  # the first chapter's file has the lesson's title
    "thrones": (thrones, thrones_decoder, thrones_remarks),
    "markov": (markov,),
    "ratings": (ratings,),
    "attention": (attention,),
    "position": (position,),
    "norm": (norm,),
    "code": (code,),
    "errata": (
        errata_rohrer,
        errata_bloem,
        errata_khan,
        errata_lee,
        errata_detail,
        errata_missing,
    ),
}


def load_lesson(name: str) -> list[Step]:
    """All steps of a lesson, in the current language."""
    return [step for chapter in LESSONS[name] for step in load_steps(chapter)]


def lesson_title(name: str) -> str:
    return load_title(LESSONS[name][0])
