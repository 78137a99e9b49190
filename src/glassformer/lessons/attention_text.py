"""Attention on a user's own sentence, with random vectors for its words."""

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.lessons.attention import make_attention
from glassformer.lessons.lesson import Values
from glassformer.nn.attention import PlainAttention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.text.sentences import split_words
from glassformer.trace import Trace

DIM = 4
MAX_WORDS = 24


@torch.no_grad()
def compute_values(text: str) -> Values:
    words = read_sentence(text)
    x = embed_words(words)
    layout = SequenceLayout(len(words), len(words))
    one_head = make_attention(1)
    two_heads = make_attention(2)
    masked = make_attention(1)
    masked.mask = causal
    layers = {"plain": PlainAttention(), "one": one_head, "two": two_heads, "masked": masked}
    traces = {}
    for name, layer in layers.items():
        with Trace(layer) as traces[name]:
            layer(x[None], layout)
    return {
        "words": words,
        "x": x,
        "plain_scores": traces["plain"]["scores"][0, 0],
        "plain_pattern": traces["plain"]["pattern"][0, 0],
        "plain_output": layers["plain"](x[None], layout)[0],
        "w_q": one_head.query.weight.T,
        "w_k": one_head.key.weight.T,
        "w_v": one_head.value.weight.T,
        **{name: traces["one"][name][0, 0] for name in "qkv"},
        "scores": traces["one"]["scores"][0, 0],
        "pattern": traces["one"]["pattern"][0, 0],
        "output": traces["one"]["head_outputs"][0, 0],
        "masked_pattern": traces["masked"]["pattern"][0, 0],
        "pattern_1": traces["two"]["pattern"][0, 0],
        "pattern_2": traces["two"]["pattern"][0, 1],
    }


def read_sentence(text: str) -> list[str]:
    """The words of a sentence that is short enough for tables of word by word."""
    words = split_words(text)
    if not 2 <= len(words) <= MAX_WORDS:
        raise GlassError(f"the text has {len(words)} words: give 2 to {MAX_WORDS} words")
    return words


def embed_words(words: list[str]) -> Tensor:
    """A random vector with one decimal for each word; equal words have equal vectors (t d)."""
    distinct = list(dict.fromkeys(words))
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn(len(distinct), DIM, dtype=torch.float64, generator=random)
    return vectors.round(decimals=1)[[distinct.index(word) for word in words]]
