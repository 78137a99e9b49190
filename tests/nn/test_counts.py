"""N-gram counts compared with dictionaries, and the baselines with their definitions."""

import math
from collections import Counter, defaultdict

import pytest
import torch

from glassformer import MODELS, GlassError
from glassformer.baselines.phrase_table import extract_phrases
from glassformer.nn.counts import (
    Followers,
    IntTables,
    NGramCounts,
    NGramIndex,
    check_tables,
    is_increasing,
    previous_ids,
    unique,
)
from glassformer.nn.ngram_classifier import IncidenceMatrix, compress_rows, fit_svm, sum_rows

close = torch.testing.assert_close


def witten_bell(text, order, vocab):
    """The definition of Witten-Bell smoothing, with dictionaries: (context, token) -> prob."""
    counts = defaultdict(Counter)
    for i in range(len(text)):
        for length in range(min(order, i) + 1):
            counts[tuple(text[i - length : i])][text[i]] += 1

    def prob(context, token):
        followers = counts.get(tuple(context))
        shorter = prob(context[1:], token) if context else 1 / vocab
        if not followers:
            return shorter
        distinct = len(followers)
        return (followers[token] + distinct * shorter) / (followers.total() + distinct)

    return prob


def test_probs_equal_those_computed_with_dictionaries():
    text = torch.randint(0, 7, (300,)).tolist()
    reference = witten_bell(text, 3, 7)
    ids = torch.tensor([text])
    counts = NGramCounts(7, 3)
    # the first token is counted with the empty context only
    columns = [torch.cat((torch.tensor([-1]), c[:-1])) for c in previous_ids(ids, 3)]
    counts.fit(columns, ids[0])
    queries = torch.randint(0, 7, (50, 4))
    queries[:5, 0] = queries[:3, 1] = -1  # shorter contexts
    columns = [queries[:, 2], queries[:, 1], queries[:, 0]]
    probs = counts.probs(columns)
    close(probs.sum(dim=1), torch.ones(50))
    for row, context in enumerate(queries[:, :3].tolist()):
        context = [id for id in context if id >= 0]
        expected = torch.tensor([reference(context, token) for token in range(7)])
        close(probs[row], expected, atol=1e-6, rtol=1e-5)
    targets = queries[:, 3]
    close(counts.target_probs(columns, targets), probs.gather(1, targets[:, None])[:, 0])


def test_only_frequent_ngrams_are_indexed():
    index = NGramIndex(10, 2)
    columns = [torch.tensor([1, 1, 2, 3]), torch.tensor([5, 5, 6, -1])]
    first, second = index.fit(columns, min_count=2)
    assert first.tolist() == [0, 0, -1, -1]
    assert second.tolist() == [0, 0, -1, -1]
    assert [n.tolist() for n in index.find([torch.tensor([1, 2, 1]), torch.tensor([5, 6, 9])])] == [
        [0, -1, 0],
        [0, -1, -1],
    ]


def test_tables_are_resized_to_the_loaded_ones():
    saved, loaded = IntTables(2), IntTables(2)
    saved[1] = torch.arange(5)
    loaded.load_state_dict(saved.state_dict())
    assert [table.tolist() for table in loaded] == [[], [0, 1, 2, 3, 4]]
    assert not list(loaded.parameters())


def test_tables_are_saved_in_the_smallest_type_that_fits():
    tables = IntTables(3)
    tables[0], tables[1] = torch.tensor([0, 2**31 - 1]), torch.tensor([-(2**31) - 1])
    state = tables.state_dict()
    assert [state[str(i)].dtype for i in range(3)] == [torch.int32, torch.int64, torch.int64]
    loaded = IntTables(3)
    loaded.load_state_dict(state)
    assert all(table.dtype == torch.int64 for table in loaded)
    assert loaded[0].tolist() == [0, 2**31 - 1]


def test_unique_returns_sorted_keys_their_indices_and_counts():
    keys, inverse, counts = unique(torch.tensor([7, 3, 7, 7, 5]))
    assert keys.tolist() == [3, 5, 7]
    assert inverse.tolist() == [2, 0, 2, 2, 1]
    assert counts.tolist() == [1, 1, 3]


def test_followers_of_contexts_are_listed_with_their_counts():
    text = torch.tensor([[0, 1, 0, 1, 0, 2]])
    counts = NGramCounts(3, 1)
    counts.fit(previous_ids(text[:, :-1], 1), text[0, 1:])
    (found,) = counts.list_followers([torch.tensor([0, 2, 1])])
    assert isinstance(found, Followers)
    rows = zip(found.row.tolist(), found.token.tolist(), found.count.tolist(), strict=True)
    assert list(rows) == [(0, 1, 2), (0, 2, 1), (2, 0, 2)]
    assert found.total.tolist() == [3, 0, 2]
    assert found.distinct.tolist() == [2, 0, 1]
    assert found.denominator.tolist() == [5, 1, 3]
    assert found.backoff.tolist() == pytest.approx([2 / 5, 1, 1 / 3])


def test_past_ids_continue_the_columns_to_the_left():
    ids, past = torch.tensor([[5, 6, 7]]), torch.tensor([[3, 4]])
    assert [c.tolist() for c in previous_ids(ids, 3, past)] == [[5, 6, 7], [4, 5, 6], [3, 4, 5]]
    assert [c.tolist() for c in previous_ids(ids, 4, past)][3] == [-1, 3, 4]
    assert [c.tolist() for c in previous_ids(ids, 1, past)] == [[5, 6, 7]]


def test_keys_that_do_not_increase_are_rejected():
    assert is_increasing(torch.tensor([0, 2, 3]))
    assert is_increasing(torch.tensor([], dtype=torch.int64))
    for wrong in ([0, 0, 1], [-1, 2], [[0, 1]]):
        assert not is_increasing(torch.tensor(wrong))
    check_tables(True, "no problem")
    with pytest.raises(GlassError, match="tables are corrupted: keys"):
        check_tables(False, "keys are not sorted")


# --- Markov chains, with B. Rohrer's example ------------------------------------------------------

SENTENCES = (
    "check the program log and find out whether it ran please",
    "check the battery log and find out whether it ran down please",
)


def fitted_model(**settings):
    words = sorted(set(" ".join(SENTENCES).split()))
    rows = [[words.index(word) for word in line.split()] for line in SENTENCES]
    rows[0].append(-1)
    model = MODELS["markov"](MODELS["markov"].Config(vocab=len(words), **settings))
    model.fit(torch.tensor(rows))
    return model, words


def votes_for_down_and_please(model, words, line):
    ids = torch.tensor([[words.index(word) for word in line.split()]])
    columns = [column[-1:] for column in previous_ids(ids, model.context_length)]
    votes = model.votes(columns)[0]
    return float(votes[words.index("down")]), float(votes[words.index("please")])


def test_votes_equal_those_of_the_published_example():
    """4 to 5 without the mask and 0 to 1 with it; for the battery the other way around."""
    program, battery = (line.split(" ran")[0] + " ran" for line in SENTENCES)
    model, words = fitted_model(skips=9)
    assert votes_for_down_and_please(model, words, program) == (4.0, 5.0)
    assert votes_for_down_and_please(model, words, battery) == (5.0, 4.0)
    model, words = fitted_model(skips=9, masked=True)
    assert votes_for_down_and_please(model, words, program) == (0.0, 1.0)
    assert votes_for_down_and_please(model, words, battery) == (1.0, 0.0)


def test_a_first_order_markov_chain_predicts_the_followers_of_the_last_word():
    model, words = fitted_model(order=1)
    logits = model(torch.tensor([[words.index("ran")]]))[0, 0]
    best = logits.topk(2)
    assert {words[i] for i in best.indices.tolist()} == {"down", "please"}
    assert float(best.values[1]) > float(logits.topk(3).values[2]) + 1


@pytest.mark.parametrize("settings", [{"order": 3}, {"skips": 3}, {"skips": 3, "masked": True}])
def test_target_probs_equal_the_probabilities_of_all_tokens_at_the_targets(settings):
    model = MODELS["markov"](MODELS["markov"].Config(vocab=9, **settings))
    model.fit(torch.randint(0, 9, (3, 200)))
    text = torch.randint(0, 9, (40,))
    expected = model(text[None, :-1])[0].gather(1, text[1:, None])[:, 0].exp()
    close(model.target_probs(text), expected)


def test_fourth_order_markov_chain_on_shakespeare(data):
    """The loss that a small Transformer must beat: nats per character on the last tenth."""
    text = (data / "tinyshakespeare" / "input.txt").read_text()
    characters = sorted(set(text))
    ids_of = {character: i for i, character in enumerate(characters)}
    ids = torch.tensor([ids_of[character] for character in text])
    split = len(ids) * 9 // 10
    model = MODELS["markov"](MODELS["markov"].Config(vocab=len(characters), order=4))
    model.fit(ids[None, :split])
    assert -float(model.target_probs(ids[split:]).double().log().mean()) < 1.67


# --- NB-SVM, phrase table, neighbors --------------------------------------------------------------


def test_each_ngram_of_a_text_counts_once():
    config = MODELS["nb_svm"].Config(vocab=9, classes=2, order=2, min_count=1)
    model = MODELS["nb_svm"](config)
    texts = [[1, 2, 1, 2], [3, 4, 3], [1, 2], [4, 3]]
    model.fit(torch.tensor([i for t in texts for i in (*t, -1)][:-1]), torch.tensor([0, 1, 0, 1]))
    once, twice = model(torch.tensor([[1, 2]])), model(torch.tensor([[1, 2, 1, 2]]))
    pairs = {ngram for i in range(3) for ngram in [tuple(texts[0][i : i + 2])]}
    assert pairs == {(1, 2), (2, 1)}
    indexes = [*model.svm.ngrams.find([torch.tensor([1]), torch.tensor([2])])]  # latest first: 2 1
    assert int(indexes[1]) >= 0
    extra_weight = model.svm.weight[len(model.svm.ngrams.keys[0]) + int(indexes[1])]
    close(twice - once, extra_weight[None])
    assert model(torch.tensor([[1, 2, 9 - 1]])).argmax() == 0
    assert model(torch.tensor([[4, 3]])).argmax() == 1


def test_rows_of_a_sparse_matrix_are_compressed():
    rows, columns = torch.tensor([2, 0, 2, 0]), torch.tensor([5, 1, 3, 4])
    found, starts = compress_rows(rows, columns, 4)
    assert found.tolist() == [1, 4, 5, 3]  # in row 0, then in row 2, each in their order
    assert starts.tolist() == [0, 2, 2, 4]
    values = torch.arange(12.0).reshape(6, 2)
    expected = [values[1] + values[4], 0 * values[0], values[5] + values[3], 0 * values[0]]
    close(sum_rows(found, starts, values), torch.stack(expected))


def test_the_svm_loss_is_as_low_as_with_gradient_descent():
    """Compared with plain gradient descent on the same loss, written with a dense matrix."""
    matrix = torch.rand(30, 12) < 0.4
    in_class = matrix[:, 0] ^ (torch.rand(30) < 0.1)
    text, ngram = matrix.nonzero(as_tuple=True)
    classes = torch.stack((in_class, ~in_class), dim=1)  # the second mirrors the first
    weights, biases = fit_svm(IncidenceMatrix(text, ngram, 30, 12), classes, 0.5)
    close(weights[:, 0], -weights[:, 1], atol=1e-4, rtol=1e-3)
    weight, bias = weights[:, 0], biases[0]

    counts = 1 + torch.stack([matrix[in_class].sum(0), matrix[~in_class].sum(0)])
    log_fractions = (counts / counts.sum(dim=1, keepdim=True)).log()
    ratio, sign = log_fractions[0] - log_fractions[1], torch.where(in_class, 1.0, -1.0)

    def loss(w, b):
        hinge = (1 - sign * (matrix.float() @ (w * ratio) + b)).clamp(min=0)
        return w.square().sum() / 2 + 0.5 * hinge.square().sum()

    w, b = torch.zeros(12, requires_grad=True), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=0.02)
    for _ in range(4000):
        optimizer.zero_grad()
        loss(w, b).backward()
        optimizer.step()
    unscaled = torch.where(ratio == 0, 0, weight / torch.where(ratio == 0, 1, ratio))
    with torch.no_grad():
        assert float(loss(unscaled, bias)) == pytest.approx(float(loss(w, b)), rel=1e-3)


def test_incidence_products_equal_dense_matrix_products():
    dense = torch.rand(9, 5) < 0.4
    dense[3], dense[:, 2] = False, False  # a text without n-grams, an n-gram in no text
    matrix = IncidenceMatrix(*dense.nonzero(as_tuple=True), 9, 5)
    weights, scores = torch.randn(5, 3), torch.randn(9, 3)
    close(matrix.times(weights), dense.float() @ weights)
    close(matrix.transposed_times(scores), dense.float().T @ scores)
    empty = torch.zeros(0, dtype=torch.long)
    assert sum_rows(empty, torch.zeros(4, dtype=torch.long), weights).tolist() == [[0.0] * 3] * 4


def test_phrases_contain_all_words_that_are_aligned_with_them():
    # "a b" is translated as "B A x": the words swap positions, and x is not aligned
    phrases = set(extract_phrases([1, 2], [12, 11, 13], [(0, 1), (1, 0)], 4, 7))
    assert phrases == {
        ((1,), (11,)),
        ((1,), (11, 13)),
        ((2,), (12,)),
        ((1, 2), (12, 11)),
        ((1, 2), (12, 11, 13)),
    }


def test_the_longest_known_phrase_is_translated_as_a_unit():
    config = MODELS["phrase_table"].Config(vocab=30, eos=0)
    model = MODELS["phrase_table"](config)
    source = [[1, 2]] * 3 + [[1, 3]] * 3 + [[2, 3]] * 3
    target = [[12, 11]] * 3 + [[11, 13]] * 3 + [[22, 13]] * 3
    flat = [torch.tensor([i for t in x for i in (*t, -1)][:-1]) for x in (source, target)]
    model.fit(*flat)
    translations = model.translate(torch.tensor([[1, 2, 1, 3], [3, 1, 2, 9]]))
    assert translations[0].tolist() == [12, 11, 11, 13, 0]
    assert translations[1].tolist()[:3] == [13, 12, 11]


def test_a_word_without_a_translation_is_copied_if_the_target_language_has_it():
    model = MODELS["phrase_table"](MODELS["phrase_table"].Config(vocab=30, eos=0))
    model.fit(torch.tensor([1, -1, 1, -1, 1]), torch.tensor([11, -1, 11, -1, 11, 7]))
    assert model.translate(torch.tensor([[7, 1, 9]]))[0].tolist() == [7, 11, 0]


def test_a_masked_token_is_predicted_from_its_neighbors():
    model = MODELS["neighbors"](MODELS["neighbors"].Config(vocab=9))
    model.fit(torch.tensor([[1, 2, 3, 1, 4, 5, 1, 2, 3]]))
    assert model(torch.tensor([[1, 8, 3]]))[0, 1].argmax() == 2
    assert model(torch.tensor([[1, 8, 5]]))[0, 1].argmax() == 4
    masked = torch.tensor([[False, True, False]])
    text, target = torch.tensor([[1, 8, 3]]), torch.tensor([2])
    prob = model.target_probs(text, masked, target)
    close(prob.log(), model.masked_logits(text, masked).tokens[0, target])
    assert math.isfinite(float(prob.log()))
