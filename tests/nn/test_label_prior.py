"""The n-gram classifier that is added to the logits of a text classifier."""

import pytest
import torch
import torch.nn.functional as F

from cases import CASES, ids
from glassformer import MODELS
from glassformer.models.network import PriorConfig
from glassformer.nn.label_prior import LabelPrior, fit_mixture
from glassformer.nn.layout import mark_padding
from glassformer.nn.ngram_classifier import NGramClassifier
from glassformer.nn.prior import Prior, describe_ngrams

close = torch.testing.assert_close


def make_prior(classes=3):
    return LabelPrior(NGramClassifier(50, classes))


def sample_logits(texts=200, classes=3, seed=0):
    """Logits of two models with independent errors, the second more reliable, and the targets."""
    torch.manual_seed(seed)
    targets = torch.arange(texts) % classes
    right = F.one_hot(targets, classes).float()
    noise = torch.randn(2, texts, classes)
    return right + noise[0], right + 0.5 * noise[1], targets


def mixed_loss(weights, parts, targets):
    return F.cross_entropy(sum(w * part for w, part in zip(weights, parts, strict=True)), targets)


def test_padding_is_marked_with_minus_one():
    text = torch.tensor([[3, 4, 5]])
    assert mark_padding(text, None) is text
    keep = torch.tensor([[1, 1, 0]])
    assert mark_padding(text, keep).tolist() == mark_padding(text, keep.bool()).tolist()
    assert mark_padding(text, keep).tolist() == [[3, 4, -1]]


def test_every_prior_says_what_it_stores():
    labels, counts, dictionary = (
        CASES[f"{name} with a prior"].network.prior
        for name in ("text_cnn", "speedrun", "speedrun_translator")
    )
    assert all(isinstance(prior, Prior) for prior in (labels, counts, dictionary))
    assert labels.describe() == describe_ngrams(labels.classifier.size, 3)
    size = sum(map(len, counts.counts.followers))
    assert size > 20
    assert counts.describe() == describe_ngrams(size, 4) == f"{size} n-grams of up to 4 tokens"
    assert dictionary.describe().startswith(str(int((dictionary.probs > 0).sum())))
    assert [prior.is_cross_fitted for prior in (labels, counts, dictionary)] == [False, True, True]


def test_a_new_prior_is_the_ngram_classifier_alone():
    network, ngrams = torch.randn(4, 3), torch.randn(4, 3)
    close(make_prior()(network, ngrams), ngrams)


def test_the_fitted_weights_minimize_the_loss():
    network, ngrams, targets = sample_logits(texts=20_000)  # so that the penalty is negligible
    prior = make_prior()
    prior.fit_weights(network, ngrams, targets)
    assert prior.weights[1] > prior.weights[0] > 0.1  # the second model is more reliable
    found = mixed_loss(prior.weights, (network, ngrams), targets)
    for change in ((0.2, 0.0), (-0.2, 0.0), (0.0, 0.2), (0.0, -0.2)):
        changed = prior.weights + torch.tensor(change)
        assert mixed_loss(changed, (network, ngrams), targets) > found
    assert found < mixed_loss((0.0, 1.0), (network, ngrams), targets)


def test_a_model_that_is_worse_than_nothing_gets_no_weight():
    network, ngrams, targets = sample_logits()
    prior, zero, one = make_prior(), torch.zeros(1).double(), torch.ones(1).double()
    prior.fit_weights(-network, ngrams, targets)
    alone = fit_mixture(ngrams[None].double(), targets, one)
    close(prior.weights.double(), torch.cat((zero, alone)))
    prior.fit_weights(network, -ngrams, targets)
    alone = fit_mixture(network[None].double(), targets, zero)
    close(prior.weights.double(), torch.cat((alone, zero)))
    prior.fit_weights(-network, -ngrams, targets)
    assert prior.weights.tolist() == [0, 1]  # the n-gram classifier alone


def test_the_weights_of_the_classes_count_in_the_mixture():
    network, ngrams, targets = sample_logits(texts=20_000)
    network = network + torch.tensor([2.0, 0.0, 0.0])  # leans to the first class
    classes = torch.tensor([5.0, 0.5, 0.1])
    prior = make_prior()
    prior.fit_weights(network, ngrams, targets, classes)

    def weighted_loss(weights):
        mixture = weights[0] * network + weights[1] * ngrams
        nats = F.cross_entropy(mixture, targets, reduction="none")
        return float((classes[targets] * nats).double().sum())

    assert (prior.weights > 0).all()
    best = weighted_loss(prior.weights)
    for change in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.05), (0.0, -0.05)):
        assert weighted_loss(prior.weights + torch.tensor(change)) > best
    prior.fit_weights(-network, ngrams, targets, classes)
    alone = fit_mixture(ngrams[None].double(), targets, torch.ones(1).double(), classes)
    close(prior.weights.double(), torch.cat((torch.zeros(1).double(), alone)))
    unweighted = fit_mixture(ngrams[None].double(), targets, torch.ones(1).double())
    assert float((alone - unweighted).abs()) > 1e-3


def test_weights_stay_finite_when_the_texts_can_be_separated():
    targets = torch.tensor([0, 1])
    right = F.one_hot(targets, 2).float()
    prior = make_prior(2)
    prior.fit_weights(torch.zeros(2, 2), right, targets)
    assert prior.weights[0] == 0
    assert 1 < prior.weights[1] < 3


def test_the_prior_is_used_only_in_eval_mode():
    network = CASES["text_cnn with a prior"].network
    text = ids(3)
    prior = network.prior
    logits, ngram_logits = network.component_logits(text)
    expected = prior.weights[0] * logits + prior.weights[1] * ngram_logits
    close(network(text), expected)
    assert not torch.equal(network(text), logits)
    network.word_dropout.p = network.dropout.p = 0.0
    network.train()
    close(network(text), logits)
    network.eval()


def test_the_prior_reads_what_was_truncated():
    network = CASES["text_cnn with a prior"].network
    whole = torch.tensor([[10, 20, 30, 40, 10, 20]])
    part = whole[:, :3]
    padded = torch.cat((whole, torch.tensor([[-1, -1]])), dim=1)
    found = network(part, untruncated_ids=padded)
    logits, ngram_logits = network.component_logits(part)[0], network.component_logits(whole)[1]
    close(found, network.prior(logits, ngram_logits))


def test_the_listed_ngrams_sum_to_the_logits():
    classifier = CASES["text_cnn with a prior"].network.prior.classifier
    text = torch.tensor([10, 20, 10, 20, 40, 45])
    ngrams = classifier.list_ngrams(text)
    assert (10,) in ngrams
    assert (10, 20) in ngrams
    assert (45,) not in ngrams  # not in the texts that it was fitted to
    close(classifier.bias + sum(ngrams.values()), classifier(text[None])[0])


def test_removing_a_prior_restores_the_network():
    model_class = MODELS["text_cnn"]
    network = model_class(model_class.Config(vocab=50, dim=8)).eval()
    before = (network.traits, network.forward_inputs)
    network.attach_prior(PriorConfig(2))
    assert network.forward_inputs == ("ids", "keep", "untruncated_ids")
    with torch.no_grad():
        assert not network(ids(2)).any()  # nothing is fitted or trained yet
    network.remove_prior()
    assert (network.traits, network.forward_inputs) == before
    with pytest.raises(ValueError, match="has no prior"):
        network.component_logits(ids(2))
