"""From counting to attention, after B. Rohrer: his three corpora, with his numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.word_counts import SHOW_ME, count_words
from glassformer.models.markov import Config, Markov
from glassformer.nn.counts import before
from glassformer.words import say

BATTERY = {
    "check whether the battery ran down please": 2,
    "check whether the program ran please": 3,
}
PROGRAM = "check the program log and find out whether it ran"
LOG = [f"{PROGRAM} please", f"{PROGRAM.replace('program', 'battery')} down please"]


def walk() -> list[Step]:
    return [*first_order(), *second_order(), *skips(), *as_attention()]


def first_order() -> list[Step]:
    words, counts = count_words(SHOW_ME, 1)
    one_hot = torch.eye(len(words))
    chances = counts.shares([torch.arange(len(words))])
    my = one_hot[words.index("my")][None]
    return [
        Step(
            say("One-hot"),
            "x · y = Σ x_i y_i",
            say("Each of N words is a row of N numbers: a one at its own place."),
            (Table(say("words"), one_hot, words, words, "given", 0),
             Table(say("products of words"), one_hot @ one_hot.T, words, words, places=0)),
            say("A word times itself is 1 (the tutorial says: unchanged), and times another 0."),
        ),
        Step(
            say("Transition matrix"),
            say("T[i, j] = count(i j) / count(i)"),
            say("What share of all that followed a word (row) each word (column) has."),
            (Table("T", chances, words, words),),
        ),
        Step(
            say("Look-up by product"),
            "x T",
            say("A one-hot row times a matrix picks one of its rows: what follows “my”."),
            (Table("x", my, (), words, places=0), Table("x T", my @ chances, (), words)),
        ),
    ]  # fmt: skip


def second_order() -> list[Step]:
    lines = [line for line, often in BATTERY.items() for _ in range(often)]
    words, counts = count_words(lines, 1)
    pairs, longer = count_words(lines, 2)
    ran, names = words.index("ran"), ("down", "please")
    columns = [words.index(name) for name in names]
    one = counts.shares([torch.tensor([ran])])[:, columns]
    noun = torch.tensor([pairs.index("battery"), pairs.index("program")])
    two = longer.shares([torch.tensor([ran, ran]), noun])[:, columns]
    return [
        Step(
            say("Second order"),
            "T[(i, j), k]",
            say("Of one word before, “ran” leaves the next open; two words before settle it. "
                "There are N² rows for that."),
            (Table(say("after one word"), one, ["ran"], names),
             Table(say("after two words"), two, ["battery ran", "program ran"], names)),
        )
    ]  # fmt: skip


def skips() -> list[Step]:
    words = sorted({word for line in LOG for word in line.split()})
    asked = [words.index(word) for word in PROGRAM.split()]
    texts = torch.tensor([
        ids + [-1] * (12 - len(ids))
        for ids in ([words.index(w) for w in line.split()] for line in LOG)
    ])  # fmt: skip
    names, far = ("down", "please"), len(asked) - 1
    columns = [words.index(name) for name in names]
    pair_rows = [f"{word}, ran" for word in PROGRAM.split()[:-1]]
    tables, totals = [], []
    for masked in (False, True):
        model = Markov(Config(vocab=len(words), skips=far, masked=masked))
        model.learn(texts)
        row = before(torch.tensor([asked]), far + 1)
        last, *earlier = [column[-1:] for column in row]
        shares = torch.cat([model.counts.shares([last, one]) for one in reversed(earlier)])
        if masked:
            shares = shares * (shares > 0.5).any(dim=1, keepdim=True)
        tables.append(shares[:, columns])
        totals.append(model.votes([last, *earlier])[:, columns])
    return [
        Step(
            say("Second order with skips"),
            say("votes = Σ T[(i, ran), k] over all i before"),
            say("Every pair of “ran” and a word before it votes for the next: {text} …",
                text=PROGRAM),
            (Table(say("the vote of each pair"), tables[0], pair_rows, names),
             Table(say("all votes"), totals[0], (), names)),
            say("Most pairs know nothing and say a half: the votes are close."),
        ),
        Step(
            say("Mask"),
            "T[(i, ran), k] m_i",
            say("Pairs that are sure of nothing are silenced. Which words matter is attention."),
            (Table(say("the vote of each pair"), tables[1], pair_rows, names),
             Table(say("all votes"), totals[1], (), names)),
        ),
    ]  # fmt: skip


def as_attention() -> list[Step]:
    words = ["battery", "program", "log", "ran"]
    query = torch.tensor([[0.0, 0, 0, 1]])
    masks = torch.zeros(4, 4)
    masks[3, :2] = 1  # after “ran” look for the battery and the program
    seen = torch.tensor([[1.0, 0, 1, 1]])
    looked = seen * (query @ masks) + query
    features = ["battery, ran", "program, ran", "program, log"]
    weights = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]])
    summed = looked @ weights - 1
    after = torch.tensor([[1.0, 0], [0, 1], [0, 0]])
    return [
        Step(
            say("Attention as look-up"),
            "Q Kᵀ",
            say("The word now is the question; a matrix says what it looks for."),
            (Table("Q", query, ["ran"], words, "given", 0), Table("Kᵀ", masks, words, words,
             "given", 0), Table("Q Kᵀ", query @ masks, ["ran"], words, places=0),
             Table(say("the words before, seen through it"), looked, (), words, places=0)),
        ),
        Step(
            say("Pairs as features"),
            "max(0, x W − 1)",
            say("A feature is 1 when both of its words are there: their sum less 1; below 0 is 0."),
            (Table("W", weights, words, features, "given", 0),
             Table("x W − 1", summed, (), features, places=0),
             Table(say("after ReLU"), relu(summed), (), features, places=0)),
        ),
        Step(
            say("What follows"),
            "max(0, x W − 1) W₂",
            say("And a second matrix says what each pair is followed by."),
            (Table("W₂", after, features, ("down", "please"), "given", 0),
             Table(say("the next word"), relu(summed) @ after, (), ("down", "please"), places=0)),
        ),
    ]  # fmt: skip


def relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)
