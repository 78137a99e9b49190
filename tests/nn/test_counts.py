"""Counting against dictionaries, and what counting models say against B. Rohrer's tables."""

import math
from collections import Counter, defaultdict

import pytest
import torch

from glassformer import MODELS, GlassError
from glassformer.baselines.nb_svm import IncidenceMatrix, separate, sum_rows
from glassformer.baselines.phrase_table import DIAGONAL, ROUNDS, links_of, phrases_of, share
from glassformer.nn.counts import (
    CountModule,
    NGramCounts,
    NGramIndex,
    check_tables,
    int_parameter,
    is_increasing,
    previous_ids,
)

close = torch.testing.assert_close


def witten_bell(text, order, vocab):
    """The chance of a token after others, by dictionaries: the definition."""
    seen = defaultdict(Counter)
    for at in range(len(text)):
        for length in range(min(order, at) + 1):
            seen[tuple(text[at - length : at])][text[at]] += 1

    def chance(context, token):
        after = seen.get(tuple(context))
        shorter = chance(context[1:], token) if context else 1 / vocab
        if not after:
            return shorter
        return (after[token] + len(after) * shorter) / (after.total() + len(after))

    return chance


def test_counts_are_those_of_dictionaries():
    text = torch.randint(0, 7, (300,)).tolist()
    definition = witten_bell(text, 3, 7)
    ids = torch.tensor([text])
    counts = NGramCounts(7, 3)
    # the first token has no context: it is counted as one that nothing stands before
    columns = [torch.cat((torch.tensor([-1]), c[:-1])) for c in previous_ids(ids, 3)]
    counts.fit(columns, ids[0])
    asked = torch.randint(0, 7, (50, 4))
    asked[:5, 0] = asked[:3, 1] = -1  # shorter contexts
    given = [asked[:, 2], asked[:, 1], asked[:, 0]]
    probs = counts.probs(given)
    close(probs.sum(dim=1), torch.ones(50))
    for row, context in enumerate(asked[:, :3].tolist()):
        known = [id for id in context if id >= 0]
        wanted = torch.tensor([definition(known, token) for token in range(7)])
        close(probs[row], wanted, atol=1e-6, rtol=1e-5)
    answers = asked[:, 3]
    close(counts.target_probs(given, answers), probs.gather(1, answers[:, None])[:, 0])


def test_sequences_have_numbers_if_they_occur_often_enough():
    known = NGramIndex(10, 2)
    columns = [torch.tensor([1, 1, 2, 3]), torch.tensor([5, 5, 6, -1])]
    first, second = known.fit(columns, min_count=2)
    assert first.tolist() == [0, 0, -1, -1]
    assert second.tolist() == [0, 0, -1, -1]
    assert [n.tolist() for n in known.find([torch.tensor([1, 2, 1]), torch.tensor([5, 6, 9])])] == [
        [0, -1, 0],
        [0, -1, -1],
    ]


def test_tables_take_the_size_of_what_is_loaded():
    class Two(CountModule):
        def __init__(self):
            super().__init__()
            self.numbers = int_parameter()

    one, other = Two(), Two()
    one.numbers.data = torch.arange(5)
    other.load_state_dict(one.state_dict())
    assert other.numbers.tolist() == [0, 1, 2, 3, 4]


def test_keys_rise_or_are_refused():
    assert is_increasing(torch.tensor([0, 2, 3]))
    assert is_increasing(torch.tensor([], dtype=torch.int64))
    for wrong in ([0, 0, 1], [-1, 2], [[0, 1]]):
        assert not is_increasing(torch.tensor(wrong))
    check_tables(True, "all is well")
    with pytest.raises(GlassError, match="tables are damaged: keys"):
        check_tables(False, "keys are not in order")


# --- B. Rohrer's machine --------------------------------------------------------------------------

SENTENCES = (
    "check the program log and find out whether it ran please",
    "check the battery log and find out whether it ran down please",
)


def taught(**settings):
    words = sorted(set(" ".join(SENTENCES).split()))
    rows = [[words.index(word) for word in line.split()] for line in SENTENCES]
    rows[0].append(-1)
    model = MODELS["markov"](MODELS["markov"].Config(vocab=len(words), **settings))
    model.fit(torch.tensor(rows))
    return model, words


def votes(model, words, line):
    ids = torch.tensor([[words.index(word) for word in line.split()]])
    columns = [column[-1:] for column in previous_ids(ids, model.far)]
    given = model.votes(columns)[0]
    return float(given[words.index("down")]), float(given[words.index("please")])


def test_votes_are_those_of_the_seeds_table():
    """4 votes against 5 before the mask, 0 against 1 after it, and the other way round."""
    program, battery = (line.split(" ran")[0] + " ran" for line in SENTENCES)
    model, words = taught(skips=9)
    assert votes(model, words, program) == (4.0, 5.0)
    assert votes(model, words, battery) == (5.0, 4.0)
    model, words = taught(skips=9, masked=True)
    assert votes(model, words, program) == (0.0, 1.0)
    assert votes(model, words, battery) == (1.0, 0.0)


def test_a_markov_chain_of_first_order_is_a_table_of_transitions():
    model, words = taught(order=1)
    logits = model(torch.tensor([[words.index("ran")]]))[0, 0]
    best = logits.topk(2)
    assert {words[i] for i in best.indices.tolist()} == {"down", "please"}
    assert float(best.values[1]) > float(logits.topk(3).values[2]) + 1


@pytest.mark.parametrize("settings", [{"order": 3}, {"skips": 3}, {"skips": 3, "masked": True}])
def test_the_likelihood_of_a_text_is_in_its_chances(settings):
    model = MODELS["markov"](MODELS["markov"].Config(vocab=9, **settings))
    model.fit(torch.randint(0, 9, (3, 200)))
    text = torch.randint(0, 9, (40,))
    wanted = model(text[None, :-1])[0].gather(1, text[1:, None])[:, 0].exp()
    close(model.target_probs(text), wanted)


def test_order_four_on_shakespeare(data):
    """The figure that a small Transformer must beat: nats a character on the last tenth."""
    text = (data / "tinyshakespeare" / "input.txt").read_text()
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    ids = torch.tensor([number[letter] for letter in text])
    cut = len(ids) * 9 // 10
    model = MODELS["markov"](MODELS["markov"].Config(vocab=len(letters), order=4))
    model.fit(ids[None, :cut])
    assert -float(model.target_probs(ids[cut:]).double().log().mean()) < 1.67


# --- labels, pairs, neighbours --------------------------------------------------------------------


def test_phrases_of_a_text_are_weighed_once_each():
    config = MODELS["nb_svm"].Config(vocab=9, classes=2, order=2, min_count=1)
    model = MODELS["nb_svm"](config)
    texts = [[1, 2, 1, 2], [3, 4, 3], [1, 2], [4, 3]]
    model.fit(torch.tensor([i for t in texts for i in (*t, -1)][:-1]), torch.tensor([0, 1, 0, 1]))
    once, twice = model(torch.tensor([[1, 2]])), model(torch.tensor([[1, 2, 1, 2]]))
    pairs = {phrase for i in range(3) for phrase in [tuple(texts[0][i : i + 2])]}
    assert pairs == {(1, 2), (2, 1)}
    numbers = [*model.phrases.find([torch.tensor([1]), torch.tensor([2])])]  # read backwards: 2 1
    assert int(numbers[1]) >= 0
    extra = model.weight[len(model.phrases.keys[0]) + int(numbers[1])]
    close(twice - once, extra[None])
    assert model(torch.tensor([[1, 2, 9 - 1]])).argmax() == 0
    assert model(torch.tensor([[4, 3]])).argmax() == 1


def test_the_gap_between_two_kinds_is_as_wide_as_its_definition():
    """Against plain gradient descent on the same sum, written with a full matrix."""
    held = torch.rand(30, 12) < 0.4
    ours = held[:, 0] ^ (torch.rand(30) < 0.1)
    text, phrase = held.nonzero(as_tuple=True)
    pair = torch.stack((ours, ~ours), dim=1)  # two classes at once, the second the first's mirror
    both, biases = separate(IncidenceMatrix(text, phrase, 30, 12), pair, 0.5)
    close(both[:, 0], -both[:, 1], atol=1e-4, rtol=1e-3)
    weight, bias = both[:, 0], biases[0]

    often = 1 + torch.stack([held[ours].sum(0), held[~ours].sum(0)])
    shares = (often / often.sum(dim=1, keepdim=True)).log()
    ratio, sign = shares[0] - shares[1], torch.where(ours, 1.0, -1.0)

    def total(w, b):
        inside = (1 - sign * (held.float() @ (w * ratio) + b)).clamp(min=0)
        return w.square().sum() / 2 + 0.5 * inside.square().sum()

    w, b = torch.zeros(12, requires_grad=True), torch.zeros((), requires_grad=True)
    slow = torch.optim.SGD([w, b], lr=0.02)
    for _ in range(4000):
        slow.zero_grad()
        total(w, b).backward()
        slow.step()
    found = torch.where(ratio == 0, 0, weight / torch.where(ratio == 0, 1, ratio))
    with torch.no_grad():
        assert float(total(found, bias)) == pytest.approx(float(total(w, b)), rel=1e-3)


def test_sums_over_an_incidence_are_products_with_its_matrix():
    held = torch.rand(9, 5) < 0.4
    held[3], held[:, 2] = False, False  # a text without phrases, a phrase in no text
    holds = IncidenceMatrix(*held.nonzero(as_tuple=True), 9, 5)
    weights, scores = torch.randn(5, 3), torch.randn(9, 3)
    close(holds.times(weights), held.float() @ weights)
    close(holds.transposed_times(scores), held.float().T @ scores)
    nothing = torch.zeros(0, dtype=torch.long)
    assert sum_rows(nothing, torch.zeros(4, dtype=torch.long), weights).tolist() == [[0.0] * 3] * 4


def test_words_that_occur_together_are_linked():
    source = [[1, 2], [2, 3], [3, 1], [1, 3]]
    target = [[id + 4 for id in line] for line in source]
    flat = [torch.tensor([i for t in x for i in (*t, -1)][:-1]) for x in (source, target)]
    assert links_of(*flat, 9) == [[(0, 0), (1, 1)]] * 4


def test_shares_are_those_of_ibms_first_model_by_dictionaries():
    """What share of each word of a text each word of the other explains, after rounds of EM."""
    texts = [([1, 2, 1], [5, 6]), ([2, 3], [6, 7, 5]), ([3, 1], [7, 5])]
    chance, vocab = defaultdict(lambda: 1.0), 9
    for _ in range(ROUNDS):
        counts, totals, parts = defaultdict(float), defaultdict(float), []
        for source, target in texts:
            for i, s in enumerate(source):
                for j, t in enumerate(target):
                    near = lambda i: math.exp(
                        -DIAGONAL * abs((i + 0.5) / len(source) - (j + 0.5) / len(target))  # noqa: B023
                    )
                    whole = sum(chance[other, t] * near(k) for k, other in enumerate(source))
                    parts.append(chance[s, t] * near(i) / whole)
                    counts[s, t] += parts[-1]
                    totals[s] += parts[-1]
        chance = {pair: count / totals[pair[0]] for pair, count in counts.items()}
    given, wanted, pairs, near = [], [], [], []
    at_s = at_t = 0
    for source, target in texts:
        for i, s in enumerate(source):
            for j, t in enumerate(target):
                given.append(at_s + i)
                wanted.append(at_t + j)
                pairs.append(s * vocab + t)
                far = abs((i + 0.5) / len(source) - (j + 0.5) / len(target))
                near.append(math.exp(-DIAGONAL * far))
        at_s, at_t = at_s + len(source), at_t + len(target)
    tensors = (torch.tensor(x) for x in (given, wanted, pairs, near))
    close(share(*tensors, vocab), torch.tensor(parts), atol=1e-5, rtol=1e-4)


def test_phrases_are_what_links_hold_together():
    # "a b" became "B A x": the words change places, and x has no link
    found = set(phrases_of([1, 2], [12, 11, 13], [(0, 1), (1, 0)], 4, 7))
    assert found == {
        ((1,), (11,)),
        ((1,), (11, 13)),
        ((2,), (12,)),
        ((1, 2), (12, 11)),
        ((1, 2), (12, 11, 13)),
    }


def test_the_longest_known_phrase_is_translated_as_one():
    config = MODELS["phrase_table"].Config(vocab=30, eos=0)
    model = MODELS["phrase_table"](config)
    source = [[1, 2]] * 3 + [[1, 3]] * 3 + [[2, 3]] * 3
    target = [[12, 11]] * 3 + [[11, 13]] * 3 + [[22, 13]] * 3
    flat = [torch.tensor([i for t in x for i in (*t, -1)][:-1]) for x in (source, target)]
    model.fit(*flat)
    said = model.translate(torch.tensor([[1, 2, 1, 3], [3, 1, 2, 9]]))
    assert said[0].tolist() == [12, 11, 11, 13, 0]
    assert said[1].tolist()[:3] == [13, 12, 11]


def test_a_word_without_a_translation_stays_if_the_other_language_has_it():
    model = MODELS["phrase_table"](MODELS["phrase_table"].Config(vocab=30, eos=0))
    model.fit(torch.tensor([1, -1, 1, -1, 1]), torch.tensor([11, -1, 11, -1, 11, 7]))
    assert model.translate(torch.tensor([[7, 1, 9]]))[0].tolist() == [7, 11, 0]


def test_neighbours_tell_what_stands_between_them():
    model = MODELS["neighbors"](MODELS["neighbors"].Config(vocab=9))
    model.fit(torch.tensor([[1, 2, 3, 1, 4, 5, 1, 2, 3]]))
    assert model(torch.tensor([[1, 8, 3]]))[0, 1].argmax() == 2
    assert model(torch.tensor([[1, 8, 5]]))[0, 1].argmax() == 4
    wanted = torch.tensor([[False, True, False]])
    text, answer = torch.tensor([[1, 8, 3]]), torch.tensor([2])
    chance = model.target_probs(text, wanted, answer)
    close(chance.log(), model.masked_logits(text, wanted).tokens[0, answer])
    assert math.isfinite(float(chance.log()))
