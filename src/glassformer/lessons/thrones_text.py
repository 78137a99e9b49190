"""A user's own sentence, in words of the corpus, through the Transformer of Khan's tutorial."""

import torch

from glassformer.core.errors import GlassError
from glassformer.lessons.lesson import Values
from glassformer.lessons.thrones import TAPS
from glassformer.lessons.thrones_network import (
    FEATURES,
    HEAD_FEATURES,
    START,
    VOCABULARY,
    TutorialTransformer,
    ids_of,
    to_matrix,
)
from glassformer.trace import Trace

MAX_WORDS = 24
PUNCTUATION = ".,;:!?"


@torch.no_grad()
def compute_values(text: str) -> Values:
    words = read_sentence(text)
    network = TutorialTransformer()
    ids = ids_of(words)
    with Trace(network.encoder) as trace:
        logits = network(ids, ids_of([START]))
    embedding = network.token(ids)
    x = network.embed(ids)
    return {
        "words": words,
        "features": FEATURES,
        "head_features": HEAD_FEATURES,
        "vocabulary": VOCABULARY,
        "ids": ids[None] + 1.0,
        "embedding": embedding,
        "position": x - embedding,
        "input": x,
        **{name: to_matrix(trace[tap]) for name, tap in TAPS.items()},
        "feedforward": to_matrix(trace["feedforward"]),
        "encoded": to_matrix(trace["feedforward_norm"]),
        "probs": logits.softmax(dim=-1),
        "predicted": VOCABULARY[int(logits[0].argmax())],
    }


def read_sentence(text: str) -> list[str]:
    """The words of a text as the vocabulary spells them."""
    spelling = {word.lower(): word for word in VOCABULARY}
    words = [word.strip(PUNCTUATION) for word in text.lower().split()]
    words = [word for word in words if word]
    if unknown := [word for word in words if word not in spelling]:
        allowed = ", ".join(VOCABULARY[:-2])
        raise GlassError(f"{unknown[0]!r} is not in the tutorial's vocabulary: use {allowed}")
    if not 2 <= len(words) <= MAX_WORDS:
        raise GlassError(f"the text has {len(words)} words: give 2 to {MAX_WORDS} words")
    return [spelling[word] for word in words]
