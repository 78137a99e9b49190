"""Common bugs of public code: each is introduced here, and a law or a test must detect it."""

import math

import pytest
import torch
import torch.nn.functional as F

from cases import subject
from formats.test_gpt2 import test_random_models_match_transformers as gpt2_parity
from glassformer.laws import BrokenLawError, Law
from glassformer.laws.causality import check_future_is_hidden
from glassformer.laws.gradients import check_one_batch_can_be_learned
from glassformer.laws.order import check_permuted_input_gives_permuted_output
from glassformer.laws.padding import (
    check_padding_changes_nothing,
    check_source_padding_changes_nothing,
)
from glassformer.nn import attention, layout, masks
from glassformer.nn.attention import Attention
from glassformer.nn.masks import causal
from nn.test_attention import test_attend_matches_its_definition as attend_definition
from nn.test_positions import test_sinusoids_match_the_paper as sinusoid_definition


def assert_detects(check, *args):
    with pytest.raises(BrokenLawError if isinstance(check, Law) else AssertionError):
        check(*args)


def replace_attend(monkeypatch, attend):
    """Use another `attend` in every attention layer."""
    monkeypatch.setattr(attention, "attend", attend)


def test_scores_scaled_by_the_wrong_factor_are_detected(monkeypatch):
    def wrong(q, k, v, mask, layout, *, bias, dropout, score):
        return attention.attend_reference(q / q.shape[1] ** 0.5, k, v, mask, layout, bias=bias)

    replace_attend(monkeypatch, wrong)
    assert_detects(gpt2_parity, 0)


def test_masking_scores_with_zero_is_detected(monkeypatch):
    def wrong(q, k, v, mask, layout, *, bias, dropout, score):
        scores = (q @ k.mT / math.sqrt(q.shape[3])).masked_fill(~layout.mask_matrix(mask), 0.0)
        return scores.softmax(dim=-1) @ v

    replace_attend(monkeypatch, wrong)
    assert_detects(check_future_is_hidden, subject("gpt2"))


def test_a_transposed_mask_is_detected(monkeypatch):
    allow = causal.allow
    monkeypatch.setitem(causal.__dict__, "allow", lambda i, j: allow(j, i))
    monkeypatch.setattr(layout, "causal", None)  # no shortcuts for causal masks
    monkeypatch.setattr(attention, "causal", None)
    assert_detects(check_future_is_hidden, subject("gpt2"))
    assert_detects(attend_definition, causal)


def test_sinusoids_with_the_feature_index_instead_of_the_pair_are_detected(monkeypatch):
    def wrong(positions, dim):
        i = torch.arange(dim)
        angles = positions[..., None] / 10_000 ** (2 * i / dim)
        return torch.where(i % 2 == 0, angles.sin(), angles.cos())

    monkeypatch.setattr("nn.test_positions.sinusoid", wrong)
    assert_detects(sinusoid_definition)


def test_heads_split_without_a_transpose_are_detected(monkeypatch):
    def wrong(self, x):
        return x.reshape(x.shape[0], -1, x.shape[1], self.head_dim)

    monkeypatch.setattr(Attention, "split_heads", wrong)
    assert_detects(check_future_is_hidden, subject("generator"))
    assert_detects(check_permuted_input_gives_permuted_output, subject("bert"))


def test_a_softmax_before_the_loss_is_detected(monkeypatch):
    def wrong(logits, targets):
        return F.nll_loss(logits.softmax(dim=-1).log_softmax(dim=-1), targets)

    monkeypatch.setattr(F, "cross_entropy", wrong)
    assert_detects(check_one_batch_can_be_learned, subject("gpt2"))


def test_attending_to_padding_of_the_source_is_detected(monkeypatch):
    forward = Attention.forward

    def wrong(self, x, layout, *, source=None, layer_cache=None):
        if source is not None:
            layout = type(layout)(layout.queries, layout.keys)
        return forward(self, x, layout, source=source, layer_cache=layer_cache)

    monkeypatch.setattr(Attention, "forward", wrong)
    assert_detects(check_source_padding_changes_nothing, subject("translator"))


def test_pooling_padding_is_detected(monkeypatch):
    monkeypatch.setattr("glassformer.models.classifier.mean_pool", lambda x, keep: x.mean(dim=1))
    assert_detects(check_padding_changes_nothing, subject("classifier"))


def test_without_the_bugs_nothing_is_detected():
    check_future_is_hidden(subject("gpt2"))
    check_future_is_hidden(subject("generator"))
    check_permuted_input_gives_permuted_output(subject("bert"))
    check_one_batch_can_be_learned(subject("gpt2"))
    check_source_padding_changes_nothing(subject("translator"))
    check_padding_changes_nothing(subject("classifier"))
    attend_definition(masks.causal)
    sinusoid_definition()
    gpt2_parity(0)
