"""The lexical prior compared with its definition, and what a translator with it must satisfy."""

import copy
import math

import pytest
import torch

from cases import CASES
from glassformer import MODELS, GlassError, Trace
from glassformer.models.encoder_decoder import LexicalPriorConfig
from glassformer.nn.lexical_prior import (
    ALIGNMENT_SMOOTHING,
    SMOOTHING,
    Candidates,
    LexicalPrior,
    end_texts,
    shift,
)
from glassformer.nn.word_alignment import DIAGONAL_STRENGTH, WordPairs, alignment_probs

close = torch.testing.assert_close
VOCAB, FOLDS = 20, 4
GAP = torch.tensor([-1])


def make_texts(count=40):
    """Sources of 3 to 6 ids; each id + 10 is its translation, and 9 ends a text."""
    generator = torch.Generator().manual_seed(5)
    sizes = torch.randint(3, 7, (count,), generator=generator).tolist()
    sources = [torch.randint(0, 9, (size,), generator=generator) for size in sizes]
    return sources, [torch.cat((source + 10, torch.tensor([9]))) for source in sources]


def join(texts):
    return torch.cat([part for text in texts for part in (text, GAP)][:-1])


def fit_prior(max_entries=3, count=40):
    torch.manual_seed(0)
    prior = LexicalPrior(8, VOCAB, VOCAB, max_entries)
    sources, targets = make_texts(count)
    prior.fit(join(sources), join(targets), torch.arange(count) % FOLDS)
    prior.set_gates(1.0)
    return prior


def call(prior, ids, source, *, features=None, encoded=None, folds=None):
    """The logits that a prior adds to those of an untrained network."""
    batch, length = ids.shape
    features = torch.zeros(batch, length, 8) if features is None else features
    keys = prior.encode_keys(torch.ones(batch, source.shape[1], 8) if encoded is None else encoded)
    zeros = torch.zeros(batch, length, VOCAB)
    return prior(zeros, features, keys, ids, torch.arange(length), source, folds)


def expected_logits(prior, ids, source, features, encoded):
    """The definition, for one pair: one loop for each sum."""
    source = [*source, VOCAB]  # the end
    s, ratio, entries = len(source), float(prior.length_ratio), []
    for word in source:
        row = zip(prior.entries[word].tolist(), prior.probs[word].tolist(), strict=True)
        entries.append({token: prob for token, prob in row if prob})
    keys = [*(prior.key.weight @ encoded.T).T, prior.end_key]
    translated, rows = [0.0] * s, []
    for t, token in enumerate(ids):
        past = [
            entries[j].get(token, 0.0)
            * math.exp(-DIAGONAL_STRENGTH * abs(j - (t * ratio - ratio)) / s)
            for j in range(s)
        ]
        past = [p / (sum(past) + ALIGNMENT_SMOOTHING) for p in past]
        translated = [min(a + b, 1.0) for a, b in zip(translated, past, strict=True)]
        query, scores = prior.query.weight @ features[t], []
        for j in range(s):
            moves = [past[j - n] if 0 <= j - n < s else 0.0 for n in (-1, 0, 1, 2)]
            if t == 0 and j == 0:
                moves[2] = 1.0
            inputs = torch.tensor([*moves, translated[j], abs(j - t * ratio) / s])
            scores.append(query @ keys[j] / 8 + inputs @ prior.feature_weights)
        scores.append(prior.unaligned(features[t])[0])
        alignment = torch.stack(scores).softmax(dim=0)[:-1]
        gates = prior.gate_out(torch.relu(prior.gate_in(features[t])))
        row = []
        for v in range(VOCAB):
            prob = sum(a * e.get(v, 0.0) for a, e in zip(alignment, entries, strict=True))
            unigram = prior.unigrams[v]
            row.append(gates[0] * unigram.log() + gates[1] * (1 + prob / unigram / SMOOTHING).log())
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize(("is_trained", "ratio"), [(False, 1.0), (True, 1.0), (True, 1.6)])
@torch.no_grad()
def test_the_logits_equal_the_definition(is_trained, ratio):
    prior = fit_prior()
    prior.length_ratio.fill_(ratio)
    if is_trained:
        for parameter in prior.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    ids, source = [9, 12, 13, 11, 14], [2, 3, 1, 2, 4, 8]
    features, encoded = torch.randn(5, 8), torch.randn(6, 8)
    given = {"features": features[None], "encoded": encoded[None]}
    logits = call(prior, torch.tensor([ids]), torch.tensor([source]), **given)[0]
    expected = expected_logits(prior, ids, source, features, encoded)
    close(logits, expected, atol=1e-4, rtol=1e-4)


def test_a_new_prior_translates_word_by_word_from_left_to_right():
    prior = fit_prior()
    source, ids = torch.tensor([[4, 2, 7, 5]]), torch.tensor([[9]])
    for _ in range(5):
        token = call(prior, ids, source)[:, -1].argmax(dim=-1)
        ids = torch.cat((ids, token[:, None]), dim=1)
    assert ids[0].tolist() == [9, 14, 12, 17, 15, 9]


@torch.no_grad()
def test_the_alignment_of_a_new_prior_depends_on_positions_only():
    """The first source token is next (3), the end is half a source away (-4 / 2), none is -1."""
    prior, source, ids = fit_prior(), torch.tensor([[4]]), torch.tensor([[0]])
    for _ in range(2):
        with Trace(prior, "alignment") as trace:
            call(prior, ids, source, features=torch.randn(1, 1, 8), encoded=torch.randn(1, 1, 8))
        expected = torch.tensor([3.0, -2.0, -1.0]).softmax(dim=0)[:2]
        close(trace["alignment"][0, 0], expected)


def test_the_entries_are_the_most_probable_translations():
    prior = fit_prior(max_entries=2)
    assert prior.entries[:9, 0].tolist() == list(range(10, 19))
    assert (prior.probs[:, 0] >= prior.probs[:, 1]).all()
    assert (prior.probs[9:VOCAB] == 0).all()  # not in any source
    assert prior.entries[VOCAB, 0] == 9  # the end
    close(prior.unigrams.sum(), torch.tensor(1.0))
    sources, targets = make_texts()
    ratio = sum(len(source) + 1 for source in sources) / sum(map(len, targets))
    assert float(prior.length_ratio) == pytest.approx(ratio)


def test_an_entry_is_its_share_of_the_alignments_of_its_source_token():
    prior, (sources, targets) = fit_prior(max_entries=VOCAB), make_texts()
    pairs = WordPairs.from_texts(end_texts(join(sources), VOCAB), join(targets))
    probs = alignment_probs(pairs)
    of_source = pairs.source_id == 3
    of_pair = of_source & (pairs.target_id == 13)
    assert of_pair.any()
    column = prior.entries[3].tolist().index(13)
    close(prior.probs[3, column], probs[of_pair].sum() / (probs[of_source].sum() + 1))


def test_a_fold_is_left_out_of_the_dictionary():
    """Counts of the other folds, with the alignments of all: the model itself is fitted once."""
    prior, (sources, targets), fold = fit_prior(max_entries=VOCAB), make_texts(), 2
    pairs = WordPairs.from_texts(end_texts(join(sources), VOCAB), join(targets))
    probs = alignment_probs(pairs) * (pairs.text % FOLDS != fold)
    source = torch.tensor([[3, 5]])
    found = prior.find_candidates(source, torch.tensor([fold]))
    for j, word in enumerate((3, 5)):
        of_source = pairs.source_id == word
        of_pair = of_source & (pairs.target_id == word + 10)
        position = found.tokens[0].tolist().index(word + 10)
        expected = probs[of_pair].sum() / (probs[of_source].sum() + 1)
        close(found.probs[0, j, position], expected)
        assert found.probs[0, j, position] != prior.find_candidates(source).probs[0, j, position]


def test_the_docstring_example_of_candidates():
    prior = LexicalPrior(8, VOCAB, VOCAB, 2)
    prior.entries[5], prior.probs[5] = torch.tensor([8, 9]).int(), torch.tensor([0.7, 0.2])
    prior.entries[6], prior.probs[6] = torch.tensor([9, 0]).int(), torch.tensor([0.6, 0.0])
    found = prior.find_candidates(torch.tensor([[5, 6]]))
    probs = {int(token): found.probs[0, :, i].tolist() for i, token in enumerate(found.tokens[0])}
    assert probs.pop(0) == [0.0, 0.0]
    assert probs == {8: pytest.approx([0.7, 0.0]), 9: pytest.approx([0.2, 0.6])}


def test_training_without_the_entries_of_the_folds_is_an_error():
    prior, ids = LexicalPrior(8, VOCAB, VOCAB, 2), torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match="folds are missing"):
        call(prior, ids, ids, folds=torch.tensor([0]))


def test_closed_gates_add_nothing():
    prior = fit_prior()
    prior.set_gates(0.0)
    assert not call(prior, torch.tensor([[9, 12]]), torch.tensor([[2, 3]])).any()


def test_the_parts_are_tapped():
    network = CASES["speedrun_translator with a prior"].network
    source = torch.tensor([[10, 20, 30]])
    names = [
        f"prior.{name}"
        for name in ("alignment", "lexical_gates", "lexical_logits", "network_logits")
    ]
    with Trace(network, *names) as trace:
        logits = network(torch.tensor([[1, 10, 20]]), source)
    close(trace["prior.lexical_logits"] + trace["prior.network_logits"], logits)
    alignment = trace["prior.alignment"]
    assert alignment.shape == (1, 3, 4)
    assert ((alignment.sum(dim=2) > 0) & (alignment.sum(dim=2) < 1)).all()


def test_loading_the_same_dictionary_keeps_the_folds_and_another_drops_them():
    prior = fit_prior()
    prior.load_state_dict(copy.deepcopy(prior.state_dict()))
    assert prior.find_probs(torch.tensor([[1]]), torch.tensor([0])).shape == (1, 1, 3)
    prior.load_state_dict(fit_prior(count=30).state_dict())
    with pytest.raises(ValueError, match="folds are missing"):
        prior.find_probs(torch.tensor([[1]]), torch.tensor([0]))


@pytest.mark.parametrize(
    ("name", "value"),
    [("entries", VOCAB), ("entries", -1), ("probs", 1.5), ("unigrams", 0.0), ("length_ratio", 0.0)],
)
def test_a_damaged_dictionary_is_rejected(name, value):
    prior = fit_prior()
    prior.check()
    getattr(prior, name).view(-1)[0] = value
    with pytest.raises(GlassError, match="corrupted"):
        prior.check()


def test_a_fine_tuned_prior_starts_with_the_trained_parameters_or_closed_gates():
    base, new = fit_prior(), fit_prior(count=30)
    with torch.no_grad():
        base.query.weight.add_(1.0)
    entries = new.entries.clone()
    new.start_from(base)
    close(new.query.weight, base.query.weight)
    assert torch.equal(new.entries, entries)
    new.start_from(None)
    assert new.gate_out.bias.tolist() == [0.0, 0.0]


def test_source_and_target_may_have_different_vocabularies():
    config = MODELS["translator"].Config(vocab=12, source_vocab=VOCAB, dim=8, depth=1, heads=2)
    network = MODELS["translator"](config).eval()
    prior = network.attach_prior(LexicalPriorConfig(max_entries=3))
    source, target = torch.tensor([15, 16, -1, 17, 15]), torch.tensor([5, 6, 2, -1, 7, 5, 2])
    prior.fit(source, target, torch.tensor([0, 1]))
    assert 5 in prior.entries[15, :2].tolist()
    assert network(torch.tensor([[1, 5]]), torch.tensor([[15, 17]])).shape == (1, 2, 12)


def test_the_features_follow_the_last_translated_token():
    """Source tokens 0 to 3 translate to 10 to 13; the target so far is <start> 10 11."""
    prior, source = LexicalPrior(8, VOCAB, VOCAB, 1), torch.tensor([[0, 1, 2, 3]])
    candidates = Candidates(torch.tensor([[10, 11, 12, 13]]), torch.eye(4)[None])
    ids = torch.tensor([[9, 10, 11]])
    features = prior.alignment_features(ids, torch.arange(3), source, candidates)[0]
    back, stay, forward, skip, translated, distance = features.round(decimals=2).unbind(dim=2)
    assert forward.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert stay.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert back.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]
    assert skip.tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert translated.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    assert distance[2].tolist() == [0.5, 0.25, 0, 0.25]


def test_the_entries_of_the_folds_move_with_the_network():
    prior = fit_prior().to("meta")
    assert prior._fold_probs.device == prior.probs.device == torch.device("meta")
    assert "_fold_probs" not in prior.state_dict()


def test_half_precision_does_not_overflow():
    prior = fit_prior()
    prior.unigrams.fill_(2e-6)
    ids, source = torch.tensor([[9, 12]]), torch.tensor([[2, 3]])
    expected, half = call(prior, ids, source), prior.half()
    keys = half.encode_keys(torch.ones(1, 2, 8, dtype=torch.half))
    zeros = torch.zeros(1, 2, VOCAB, dtype=torch.half)
    features = torch.zeros(1, 2, 8, dtype=torch.half)
    logits = half(zeros, features, keys, ids, torch.arange(2), source)
    close(logits.float(), expected, atol=0.1, rtol=0.02)


def test_an_empty_source_gives_finite_gradients():
    prior = fit_prior()
    source = torch.tensor([[2, 3], [-1, -1]])
    call(prior, torch.tensor([[9, 12], [9, 12]]), source).sum().backward()
    assert prior.feature_weights.grad.isfinite().all()


def test_a_rounding_error_does_not_drop_the_folds():
    prior = fit_prior()
    state = copy.deepcopy(prior.state_dict())
    state["probs"] = torch.nextafter(state["probs"], torch.ones(()))
    prior.load_state_dict(state)
    assert prior.find_probs(torch.tensor([[1]]), torch.tensor([0])).shape == (1, 1, 3)


def test_every_text_gets_an_end():
    texts = torch.tensor([4, 5, -1, -1, 6])
    assert end_texts(texts, 9).tolist() == [4, 5, 9, -1, 9, -1, 6, 9]


def test_the_end_comes_after_the_last_token_of_each_source():
    prior = LexicalPrior(8, VOCAB, VOCAB, 2)
    with torch.no_grad():
        prior.end_key.fill_(7.0)
    source = torch.tensor([[3, 4, -1], [3, 4, 5], [-1, 3, 4]])
    ids, keys = prior.append_end(source, torch.ones(3, 3, 64))
    assert ids.tolist() == [[3, 4, VOCAB, -1], [3, 4, 5, VOCAB], [-1, 3, 4, VOCAB]]
    assert keys[..., 0].tolist() == [[1, 1, 7, 0], [1, 1, 1, 7], [1, 1, 1, 7]]


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_shift_moves_and_fills(size):
    x = torch.arange(1.0, size + 1)
    for count in (-1, 0, 1, 2):
        expected = [x[i - count] if 0 <= i - count < size else 0.0 for i in range(size)]
        close(shift(x, count), torch.tensor([float(value) for value in expected]))
