"""The translator compared with torch.nn.Transformer with the same weights."""

import math

import pytest
import torch
from torch import nn

from glassformer.models.translator import Config, Translator
from glassformer.nn.positions import sinusoid

close = torch.testing.assert_close


def build_torch_transformer(ours):
    """Build torch.nn.Transformer without its final norms, which the paper does not have."""
    c = ours.config
    size = {"dim_feedforward": c.hidden, "dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(c.dim, c.heads, **size), c.depth, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(c.dim, c.heads, **size), c.depth)
    theirs = nn.Transformer(
        c.dim, c.heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )
    with torch.no_grad():
        for mine, other in zip(ours.encoder, theirs.encoder.layers, strict=True):
            copy_layer(mine, other)
        for mine, other in zip(ours.decoder, theirs.decoder.layers, strict=True):
            copy_layer(mine, other)
            copy_attention(mine.cross, other.multihead_attn)
            other.norm2.load_state_dict(mine.cross_norm.state_dict())
            other.norm3.load_state_dict(mine.feedforward_norm.state_dict())
    return theirs.eval()


def copy_layer(mine, other):
    copy_attention(mine.attention, other.self_attn)
    other.norm1.load_state_dict(mine.attention_norm.state_dict())
    other.norm2.load_state_dict(mine.feedforward_norm.state_dict())
    other.linear1.load_state_dict(mine.feedforward.up.state_dict())
    other.linear2.load_state_dict(mine.feedforward.down.state_dict())


def copy_attention(mine, other):
    parts = (mine.query, mine.key, mine.value)
    other.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
    other.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
    other.out_proj.load_state_dict(mine.out.state_dict())


@pytest.mark.parametrize("source_vocab", [None, 40])
@torch.no_grad()
def test_translator_matches_torch_transformer(source_vocab):
    ours = Translator(
        Config(vocab=30, source_vocab=source_vocab, dim=32, depth=2, heads=4, hidden=48)
    )
    for parameter in ours.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)
    ours.eval()
    theirs = build_torch_transformer(ours)
    ids, source = torch.randint(0, 30, (3, 6)), torch.randint(0, source_vocab or 30, (3, 9))
    source_keep = torch.arange(9) < torch.tensor([[9], [5], [7]])

    def embed(token, ids):
        return token(ids) * math.sqrt(32) + sinusoid(torch.arange(ids.shape[1]), 32)

    features = theirs(
        embed(ours.source_token or ours.token, source),
        embed(ours.token, ids),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6),
        tgt_is_causal=True,
        src_key_padding_mask=~source_keep,
        memory_key_padding_mask=~source_keep,
    )
    expected = features @ ours.token.weight.T
    close(ours(ids, source, source_keep=source_keep), expected, atol=1e-5, rtol=1e-5)


def test_base_model_has_the_published_size():
    with torch.device("meta"):
        network = Translator(Config())
    millions = sum(p.numel() for p in network.parameters()) / 1e6
    assert round(millions) == 63  # "65" in the paper, with its vocabulary of about 37,000
