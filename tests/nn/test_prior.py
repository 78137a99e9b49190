"""The count prior compared with its definition, and what a network with a prior must satisfy."""

import copy

import pytest
import torch

from cases import CASES, ids
from glassformer import MODELS, GlassError, Trace
from glassformer.models.network import PriorConfig
from glassformer.nn.count_prior import CountPrior
from glassformer.nn.counts import NGramCounts, previous_ids
from glassformer.nn.evidence import (
    MIN_COUNTS,
    Evidence,
    EvidenceTable,
    LengthTable,
    tabulate_lengths,
)

close = torch.testing.assert_close
VOCAB, ORDER, FOLDS = 7, 3, 4


@pytest.fixture
def text():
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 3, (400,), generator=generator) * 2


@pytest.fixture
def folds(text):
    return torch.arange(len(text)) * FOLDS // len(text)


def fit_counts(text, folds=None):
    counts = NGramCounts(VOCAB, ORDER)
    counts.fit(previous_ids(text[None, :-1], ORDER), text[1:], None if folds is None else folds[1:])
    return counts


def sum_evidence(evidence: Evidence, n):
    """The evidence of all lengths as a table n v."""
    total = evidence.unigrams[evidence.fold]
    assert len(total) == n
    for slot, token, value in zip(evidence.slot, evidence.token, evidence.value, strict=True):
        total[slot // (ORDER * len(MIN_COUNTS)), token] += value
    return total


def queries():
    columns = [torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(i)) for i in
               range(ORDER)]  # fmt: skip
    columns[2][:20] = columns[1][:10] = -1  # shorter contexts
    return columns


def test_the_sum_of_the_evidence_is_the_log_probability(text):
    counts = fit_counts(text)
    evidence = EvidenceTable(counts).find(queries())
    assert len(evidence.value) > 100
    close(sum_evidence(evidence, 60).log_softmax(dim=-1), counts.probs(queries()).log())


def test_counts_without_a_fold_equal_counts_of_the_other_folds(text, folds):
    counts, fold = fit_counts(text, folds), 2
    expected = NGramCounts(VOCAB, ORDER)
    is_used = folds[1:] != fold
    columns = [column[is_used] for column in previous_ids(text[None, :-1], ORDER)]
    expected.fit(columns, text[1:][is_used])
    without = torch.full((60,), fold)
    close(counts.probs(queries(), without), expected.probs(queries()))
    evidence = EvidenceTable(counts).find(queries(), without)
    close(sum_evidence(evidence, 60).log_softmax(dim=-1), expected.probs(queries()).log())
    support = EvidenceTable(expected).find(queries()).support
    close(evidence.support, support, atol=1e-3, rtol=0)


def test_the_last_fold_number_leaves_nothing_out(text, folds):
    table = EvidenceTable(fit_counts(text, folds))
    everything = table.find(queries())
    nothing_left_out = table.find(queries(), torch.full((60,), FOLDS))
    close(sum_evidence(everything, 60), sum_evidence(nothing_left_out, 60))
    close(everything.support, nothing_left_out.support)


def test_the_tables_have_every_follower_of_each_length(text, folds):
    counts = fit_counts(text, folds)
    tables = [*tabulate_lengths(counts, counts.unigram_probs().T)]
    assert len(tables) == ORDER
    for length, table in enumerate(tables, start=1):
        assert isinstance(table, LengthTable)
        assert torch.equal(table.token, counts.followers[length] % VOCAB)
        contexts = len(counts.contexts.keys[length - 1])
        assert table.size.shape == (contexts,)
        assert int(table.size.sum()) == len(table.token)
        assert table.value.shape == table.count_class.shape == (len(table.token), FOLDS + 1)
        assert table.support.shape == (contexts, FOLDS + 1, 2)


def test_the_kind_of_a_term_is_its_length_and_how_often_the_token_was_seen():
    text = torch.tensor([1, 2, 1, 2, 1, 2, 1, 2, 1, 3, 1, 3, 1, 4])  # after 1: 2 x 4, 3 x 2, 4 x 1
    table = EvidenceTable(fit_counts(text))
    evidence = table.find([torch.tensor([1]), torch.tensor([-1]), torch.tensor([-1])])
    assert dict(zip(evidence.token.tolist(), evidence.slot.tolist(), strict=True)) == {
        2: 2, 3: 1, 4: 0
    }  # fmt: skip
    longer = table.find([torch.tensor([1]), torch.tensor([2]), torch.tensor([-1])])
    assert {int(s) // len(MIN_COUNTS) for s in longer.slot} == {0, 1}


def test_a_text_of_one_token_and_unseen_contexts_have_finite_evidence():
    text = torch.full((50,), 5)
    counts = fit_counts(text, torch.arange(50) * FOLDS // 50)
    for without in (None, torch.zeros(60, dtype=torch.long)):
        total = sum_evidence(EvidenceTable(counts).find(queries(), without), 60)
        assert total.isfinite().all()
        close(total.softmax(dim=-1), counts.probs(queries(), without))


def make_network(text, folds, **settings):
    torch.manual_seed(0)
    model = MODELS["speedrun"]
    network = model(model.Config(vocab=VOCAB, dim=16, depth=2, heads=2, context=16, **settings))
    prior = network.attach_prior(PriorConfig(ORDER))
    prior.fit(text, folds)
    return network.eval(), prior


@pytest.mark.parametrize("order", [0, 1, ORDER])
def test_an_untrained_network_with_open_gates_predicts_what_the_counts_predict(text, folds, order):
    network, prior = make_network(text, folds)
    prior.open_gates(order)
    windows = text[:32].reshape(2, 16)
    past = torch.tensor([[-1, -1], text[14:16].tolist()])
    log_probs = network(windows, past_ids=past).log_softmax(dim=-1)
    *_, expected = zip(
        range(order + 1),
        (p.clone() for p in prior.counts.probs_by_length(previous_ids(windows, ORDER, past))),
        strict=False,
    )
    close(log_probs.flatten(0, 1), expected[1].log(), atol=1e-5, rtol=0)


def test_past_ids_are_the_context_of_the_first_tokens(text, folds):
    network, prior = make_network(text, folds)
    prior.open_gates(ORDER)
    whole = network(text[None, :16])[:, 8:]
    tail = network(text[None, 8:16], past_ids=text[None, 8 - ORDER + 1 : 8])
    close(tail, whole, atol=1e-5, rtol=0)  # the untrained network itself adds nothing
    assert (network(text[None, 8:16]) - whole).abs().max() > 0.01


def test_closed_gates_leave_the_network_as_it_is(text, folds):
    network, prior = make_network(text, folds)
    torch.nn.init.normal_(network.head.weight)
    prior.close_gates()
    with Trace(network, "prior.network_logits") as trace:
        output = network(text[None, :16])
    close(output, trace["prior.network_logits"])
    network.remove_prior()
    close(output, network(text[None, :16]))


def test_the_order_that_predicts_held_out_folds_best_is_chosen():
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(0, 3, (3000,), generator=generator)
    text[2:] = torch.where(torch.rand(2998, generator=generator) < 0.9, -1, text[2:])
    for i in range(2, 3000):  # mostly, the sum of the last two tokens
        text[i] = (text[i - 1] + 2 * text[i - 2]) % 5 if text[i] < 0 else text[i]
    folds = torch.arange(3000) * FOLDS // 3000
    assert CountPrior(8, VOCAB, 4).fit(text, folds) == 2


def test_copies_of_a_network_share_the_tables_of_its_prior(text, folds):
    network, prior = make_network(text, folds)
    copied = copy.deepcopy(network)
    assert copied.prior.table is prior.table
    assert copied.prior.counts.followers[2] is prior.counts.followers[2]
    assert copied.prior.gate_in.weight is not prior.gate_in.weight
    assert prior.table.to(torch.device("cpu")) is prior.table
    copied.prior.fit(text[:200], folds[:200])
    assert copied.prior.table is not prior.table


def test_the_values_of_a_prior_add_up_to_the_output():
    case = CASES["gpt2 with a prior"]
    with Trace(case.network, "prior.*", "output") as trace:
        output = case(ids())
    close(trace["prior.network_logits"] + trace["prior.count_logits"], output)
    assert trace["prior.gates"].shape == (3, 12, 1 + 3 * len(MIN_COUNTS))
    assert trace["prior.count_logits"].abs().max() > 0.1


def test_corrupted_counts_are_rejected(text, folds):
    _, prior = make_network(text, folds)
    prior.check()
    prior.counts.followers[2] = prior.counts.followers[2] + VOCAB * 1000
    with pytest.raises(GlassError, match="a key is too large"):
        prior.check()
    with pytest.raises(GlassError, match="they are empty"):
        CountPrior(8, VOCAB, ORDER).check()
