"""The Transformer of Khan's tutorial: 6 features, one head of size 4, one block per stack.

Shapes: t words, d features, v vocabulary.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import Attention
from glassformer.nn.block import Block, CrossBlock, post_norm
from glassformer.nn.feedforward import FeedForward
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.masks import causal
from glassformer.nn.positions import Sinusoidal

DIM, HEAD_DIM, HIDDEN = 6, 4, 12
START, END = "<start>", "<end>"
WORDS = read_words("thrones")
SOURCE = WORDS["words"]
VOCABULARY = [*WORDS["ids"], START, END]
FEATURES = [f"f{i}" for i in range(DIM)]
HEAD_FEATURES = [f"e{i}" for i in range(HEAD_DIM)]
MATRICES = {"query": "q", "key": "k", "value": "v", "out": "o", "up": "1", "down": "2"}


class TutorialTransformer(nn.Module):
    """One encoder block and one decoder block, built from Glassformer's layers.

    The encoder's attention and the source embeddings have the tutorial's values. The tutorial omits
    the other weights, so they are ours.
    """

    def __init__(self) -> None:
        super().__init__()
        attention = partial(Attention, DIM, 1, head_dim=HEAD_DIM, bias=False, out_bias=False)
        feedforward = partial(FeedForward, DIM, HIDDEN, activation=F.relu)
        self.token = nn.Embedding(len(VOCABULARY), DIM)
        self.position = Sinusoidal(DIM)
        self.encoder = Block(DIM, attention(), feedforward(), residual=post_norm)
        self.decoder = CrossBlock(
            DIM, attention(mask=causal), attention(), feedforward(), residual=post_norm
        )
        self.head = nn.Linear(DIM, len(VOCABULARY), bias=False)
        self.double()
        self.set_weights()

    @torch.no_grad()
    def set_weights(self) -> None:
        """Set random weights with two decimals, then the weights that the tutorial prints."""
        random = torch.Generator().manual_seed(2)
        printed = read_matrices("thrones")
        for name, weights in self.named_parameters():
            if "norm" not in name:
                sample = torch.randn(weights.shape, generator=random, dtype=torch.float64)
                weights.copy_((sample * 0.5).round(decimals=2))
        for name in ("query", "key", "value", "out"):
            layer: Any = self.encoder.attention.get_submodule(name)
            layer.weight.copy_(printed[f"w_{MATRICES[name]}"].T)  # nn.Linear stores the transpose
        self.token.weight[ids_of(SOURCE)] = printed["embedding"]

    def encode(self, x: Tensor) -> Tensor:
        """The output of the encoder for the input embedding: t d -> 1 t d."""
        y: Tensor = self.encoder(x[None], SequenceLayout(len(x), len(x)))
        return y

    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings plus positional encoding: t -> t d."""
        x: Tensor = self.token(ids) + self.position(SequenceLayout(len(ids), len(ids)))
        return x

    def forward(self, source: Tensor, ids: Tensor) -> Tensor:
        encoded = self.encode(self.embed(source))
        layout = SequenceLayout(len(ids), len(ids))
        across = SequenceLayout(len(ids), len(source))
        logits: Tensor = self.head(self.decoder(self.embed(ids)[None], layout, encoded, across))
        return logits[0]  # t v


def copy_weights(module: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    """Copies of a module's biases and matrices (transposed for x W) by name: `w_q`, `b_1`."""
    weights = {}
    for name, layer in module.named_children():
        if isinstance(layer, nn.Linear):
            weights[f"{prefix}w_{MATRICES[name]}"] = layer.weight.detach().T.clone()
            if layer.bias is not None:
                weights[f"{prefix}b_{MATRICES[name]}"] = layer.bias.detach()[None].clone()
    return weights


def ids_of(words: list[str]) -> Tensor:
    return torch.tensor([VOCABULARY.index(word) for word in words])


def to_matrix(value: Tensor) -> Tensor:
    """The matrix of a value's only sequence and only head."""
    return value.flatten(0, -3)[0]
