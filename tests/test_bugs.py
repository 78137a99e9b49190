"""The bugs that recur in public code: each is built here, and a named law or test finds it."""

import math

import pytest
import torch
import torch.nn.functional as F

from cases import subject
from formats.test_gpt2 import test_twenty_random_models_agree as gpt2_parity
from glassformer.laws import BrokenLawError, Law
from glassformer.laws.causality import check_future_is_hidden
from glassformer.laws.gradients import check_one_batch_can_be_learned
from glassformer.laws.order import check_permuted_text_gives_permuted_output
from glassformer.laws.padding import (
    check_padding_changes_nothing,
    check_padding_of_the_source_changes_nothing,
)
from glassformer.nn import attention, layout, masks
from glassformer.nn.attention import Attention
from glassformer.nn.masks import causal
from nn.test_attention import test_attend_matches_its_definition as attend_definition
from nn.test_positions import test_sinusoids_are_those_of_the_paper as paper_positions


def found_by(check, *args):
    with pytest.raises(BrokenLawError if isinstance(check, Law) else AssertionError):
        check(*args)


def open_everywhere(monkeypatch, attend):
    """Put another attention in place of ours, in every layer."""
    monkeypatch.setattr(attention, "attend", attend)


def test_scores_scaled_by_the_models_width(monkeypatch):
    def wrong(q, k, v, mask, layout, *, bias, dropout, score):
        return attention.attend_reference(q / q.shape[1] ** 0.5, k, v, mask, layout, bias=bias)

    open_everywhere(monkeypatch, wrong)
    found_by(gpt2_parity, 0)


def test_a_mask_of_zeros(monkeypatch):
    def wrong(q, k, v, mask, layout, *, bias, dropout, score):
        scores = (q @ k.mT / math.sqrt(q.shape[3])).masked_fill(~layout.mask_matrix(mask), 0.0)
        return scores.softmax(dim=-1) @ v

    open_everywhere(monkeypatch, wrong)
    found_by(check_future_is_hidden, subject("gpt2"))


def test_a_mask_the_wrong_way_round(monkeypatch):
    allow = causal.allow
    monkeypatch.setitem(causal.__dict__, "allow", lambda i, j: allow(j, i))
    monkeypatch.setattr(layout, "causal", None)  # so that no shortcut hides the rule
    monkeypatch.setattr(attention, "causal", None)
    found_by(check_future_is_hidden, subject("gpt2"))
    found_by(attend_definition, causal)


def test_positions_with_the_raw_index(monkeypatch):
    def wrong(at, dim):
        i = torch.arange(dim)
        angles = at[..., None] / 10_000 ** (2 * i / dim)
        return torch.where(i % 2 == 0, angles.sin(), angles.cos())

    monkeypatch.setattr("nn.test_positions.sinusoid", wrong)
    found_by(paper_positions)


def test_heads_split_without_a_transpose(monkeypatch):
    def wrong(self, x):
        return x.reshape(x.shape[0], -1, x.shape[1], self.width)

    monkeypatch.setattr(Attention, "split", wrong)
    found_by(check_future_is_hidden, subject("generator"))
    found_by(check_permuted_text_gives_permuted_output, subject("bert"))


def test_a_softmax_before_the_loss(monkeypatch):
    def wrong(logits, answers):
        return F.nll_loss(logits.softmax(dim=-1).log_softmax(dim=-1), answers)

    monkeypatch.setattr(F, "cross_entropy", wrong)
    found_by(check_one_batch_can_be_learned, subject("gpt2"))


def test_padding_that_leaks_through_cross_attention(monkeypatch):
    forward = Attention.forward

    def wrong(self, x, layout, *, source=None, layer_cache=None):
        if source is not None:
            layout = type(layout)(layout.queries, layout.keys)
        return forward(self, x, layout, source=source, layer_cache=layer_cache)

    monkeypatch.setattr(Attention, "forward", wrong)
    found_by(check_padding_of_the_source_changes_nothing, subject("translator"))


def test_no_padding_mask_before_the_mean(monkeypatch):
    monkeypatch.setattr("glassformer.models.classifier.mean_pool", lambda x, keep: x.mean(dim=1))
    found_by(check_padding_changes_nothing, subject("classifier"))


def test_the_tests_pass_without_the_bugs():
    """What finds a bug must be silent without it."""
    check_future_is_hidden(subject("gpt2"))
    check_future_is_hidden(subject("generator"))
    check_permuted_text_gives_permuted_output(subject("bert"))
    check_one_batch_can_be_learned(subject("gpt2"))
    check_padding_of_the_source_changes_nothing(subject("translator"))
    check_padding_changes_nothing(subject("classifier"))
    attend_definition(masks.causal)
    paper_positions()
    gpt2_parity(0)
