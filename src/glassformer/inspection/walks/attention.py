"""Attention from nothing, after P. Bloem: from a mixture of like words to many heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.walks.printed import matrix
from glassformer.nn.attention import Attention, PlainAttention, scaled_dot
from glassformer.nn.span import Span
from glassformer.trace import Trace
from glassformer.core.i18n import say

FILMS = matrix("0.9 0.1 0.3\n-0.8 0.9 -0.2\n0.4 -0.6 0.9")  # hand-made, as all features here
PEOPLE = matrix("1 -0.5 0.4\n-0.7 1 0.1")
WORDS = "mary gave roses to susan".split()
X = matrix("1 0 0 0.2\n0 1 0 0.1\n0 0 1 0.3\n0.1 0.1 0.1 0\n0.9 0.1 0 0.5")
WIDE = 256  # and 4 heads: the tutorial's own sizes


@torch.no_grad()
def walk() -> list[Step]:
    return [films(), *plain(), *with_weights(), sizes()]


def films() -> Step:
    names = [say("film {number}", number=i + 1) for i in range(3)]
    people = [say("person {number}", number=i + 1) for i in range(2)]
    tastes = [say("romance"), say("action"), say("comedy")]
    return Step(
        say("Why products: films and people"),
        say("score = u · f"),
        say("What a film has and what a person likes, feature by feature: like signs add up."),
        (
            Table(say("films, by hand"), FILMS, names, tastes, "given", 1),
            Table(say("people, by hand"), PEOPLE, people, tastes, "given", 1),
            Table(say("scores"), PEOPLE @ FILMS.T, people, names, places=2),
        ),
    )


def plain() -> list[Step]:
    layer = PlainAttention()
    with Trace(layer) as trace:
        mixed = layer(X[None], Span(len(X), len(X)))[0]
    turned = layer(X.flip(0)[None], Span(len(X), len(X)))[0].flip(0)
    return [
        Step(
            say("Attention without parameters"),
            "Y = softmax(X Xᵀ) X",
            say("Every word becomes a mixture of all words, itself too, by how alike they are."),
            (
                Table("X", X, WORDS, (), "given", 1),
                Table("X Xᵀ", trace["scores"][0, 0], WORDS, WORDS),
                Table(say("pattern"), trace["pattern"][0, 0], WORDS, WORDS),
                Table("Y", mixed, WORDS),
            ),
            say("Weights come from what the words are, not from where they stand; nothing is "
                "saved by it, for every word looks at every word."),
        ),
        Step(
            say("A set, not a sequence"),
            say("attend(reversed X) = reversed attend(X)"),
            say("With the words in reverse order each says the same."),
            (Table(say("largest difference"), largest(turned - mixed), places=12),),
        ),
    ]  # fmt: skip


def largest(difference: Tensor) -> Tensor:
    return difference.abs().max()[None, None]


def heads_of(count: int) -> Attention:
    layer, random = Attention(4, count, bias=False, out_bias=False).double(), torch.Generator()
    random.manual_seed(1)
    for weights in layer.parameters():
        drawn = torch.randn(weights.shape, dtype=torch.float64, generator=random)
        weights.copy_(drawn.round(decimals=1))
    return layer


def with_weights() -> list[Step]:
    one, two = heads_of(1), heads_of(2)
    with Trace(one) as trace:
        one(X[None], Span(len(X), len(X)))
    with Trace(two) as more:
        two(X[None], Span(len(X), len(X)))
    q, k = trace["q"], trace["k"]
    undivided = (scaled_dot(q, k) * 2).softmax(dim=-1)
    products = (q @ k.mT)[0, 0]
    own_best = (products.argmax(dim=1) == torch.arange(len(WORDS))).tolist()
    return [
        Step(
            say("Queries, keys and values"),
            "q = x W_q,  k = x W_k,  v = x W_v",
            say("Three matrices give a word three roles: to ask, to be found, to be read."),
            (
                *(
                    Table(name, layer.weight.T, (), (), "given", 1)
                    for name, layer in (("W_q", one.query), ("W_k", one.key), ("W_v", one.value))
                ),
                Table("Q", q[0, 0], WORDS), Table("K", k[0, 0], WORDS),
                Table("V", trace["v"][0, 0], WORDS),
            ),
        ),
        Step(
            say("Scaling"),
            "softmax(Q Kᵀ / √k)",
            say("Products grow with the root of the number of features; dividing by it keeps "
                "shares from being all or nothing."),
            (
                Table(say("undivided"), undivided[0, 0], WORDS, WORDS),
                Table(say("divided by √4"), trace["pattern"][0, 0], WORDS, WORDS),
                Table(say("deviation of a product of k random features, 10,000 of each"),
                      growth(), [say("measured"), "√k"], ["k=4", "k=16", "k=64", "k=256"]),
            ),
            say("What grows is the deviation, not the mean, which stays 0."),
        ),
        Step(
            say("Whom a word finds"),
            "Q Kᵀ",
            say("Here {words} find another word before themselves: asking and being found are "
                "different matrices.",
                words=", ".join(w for w, own in zip(WORDS, own_best, strict=True) if not own)),
            (Table("Q Kᵀ", products, WORDS, WORDS),),
            say("One tutorial says that a query meets its own key best; nothing makes it so."),
        ),
        Step(
            say("Heads"),
            "concat(head_1 … head_h) W_o",
            say("Two heads of half the width can read differently, as “gave” needs a giver and a "
                "receiver; these weights are random. Each divides by √(k/h)."),
            (
                Table("W_o", two.out.weight.T, (), (), "given", 1),
                Table(say("pattern of head 1"), more["pattern"][0, 0], WORDS, WORDS),
                Table(say("pattern of head 2"), more["pattern"][0, 1], WORDS, WORDS),
                Table(say("both, projected"), more["output"][0], WORDS),
            ),
            say("The tutorial's code divides by √k for any number of heads."),
        ),
    ]  # fmt: skip


def growth() -> Tensor:
    random, sizes = torch.Generator().manual_seed(0), (4, 16, 64, 256)
    drawn = [torch.randn(2, 10_000, k, generator=random).prod(0).sum(1).std() for k in sizes]
    return torch.stack((torch.stack(drawn), torch.tensor([math.sqrt(k) for k in sizes])))


def sizes() -> Step:
    counted = []
    for heads in (1, 4):
        layer = Attention(WIDE, heads, bias=False, out_bias=False)
        inside = sum(part.weight.numel() for part in (layer.query, layer.key, layer.value))
        counted.append([inside, layer.out.weight.numel()])
    return Step(
        say("How many parameters"),
        say("3 h k (k/h) = 3 k²,  and k² to bring the heads together"),
        say("Counted in layers {wide} wide: many heads cost no more than one.", wide=WIDE),
        (
            Table(
                say("parameters"), torch.tensor(counted, dtype=torch.float64),
                [say("one head"), say("four heads")], ["q, k, v", "W_o"], places=0,
            ),
        ),
        say("The tutorial prints 3hk^(k/h), where a superscript slipped."),
    )  # fmt: skip
