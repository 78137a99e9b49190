"""Models and tokenizers of llama2.c: a header of seven integers, then float32 tensors."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer import weights
from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.models.llama import Config, Llama
from glassformer.models.network import Network
from glassformer.text.scored import ScoredTokenizer

HEADER, TOKEN = struct.Struct("<7i"), struct.Struct("<fi")  # TOKEN: score, length
EOS = (1, 2)  # `<s>` (BOS, which also marks the start of the next document) and `</s>`


def load(
    path: Path, tokenizer: Path | None = None
) -> tuple[Network, ScoredTokenizer | None, dict[str, Any]]:
    """Load a model file and an optional tokenizer file; the metadata lists the end-of-text ids."""
    config = read_config(path)
    state = read_tensors(path, config)
    network = weights.build_with_weights(lambda: Llama(config), state, path)
    loaded_tokenizer = read_tokenizer(tokenizer, config.vocab) if tokenizer else None
    return network, loaded_tokenizer, {"eos": list(EOS)}


def read_config(path: Path) -> Config:
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise GlassError(f"{path} is not a llama2.c model: it is shorter than the header")
    dim, hidden, depth, heads, kv_heads, vocab, context = HEADER.unpack(header)
    try:
        return Config(
            vocab=abs(vocab),
            context=context,
            dim=dim,
            depth=depth,
            heads=heads,
            kv_heads=kv_heads,
            hidden=hidden,
            tied=vocab > 0,  # negative: the head has its own weights
        )
    except GlassError as error:
        raise GlassError(f"{path} is not a llama2.c model: {error}") from None


def read_tensors(path: Path, config: Config) -> weights.State:
    """Split the file into tensors; each tensor in the file covers all layers."""
    c, head_dim = config, config.dim // config.heads
    kv_dim = (c.kv_heads or c.heads) * head_dim
    rotary_size = c.context * head_dim // 2
    shapes: dict[str, tuple[int, ...]] = {
        "token.weight": (c.vocab, c.dim),
        "blocks.{}.attention_norm.weight": (c.depth, c.dim),
        "blocks.{}.attention.query.weight": (c.depth, c.dim, c.dim),
        "blocks.{}.attention.key.weight": (c.depth, kv_dim, c.dim),
        "blocks.{}.attention.value.weight": (c.depth, kv_dim, c.dim),
        "blocks.{}.attention.out.weight": (c.depth, c.dim, c.dim),
        "blocks.{}.feedforward_norm.weight": (c.depth, c.dim),
        "blocks.{}.feedforward.gate.weight": (c.depth, c.hidden, c.dim),
        "blocks.{}.feedforward.down.weight": (c.depth, c.dim, c.hidden),
        "blocks.{}.feedforward.up.weight": (c.depth, c.hidden, c.dim),
        "norm.weight": (c.dim,),
        "rotary": (2, rotary_size),  # cosines and sines, which we compute ourselves
    }
    if not c.tied:
        shapes["head.weight"] = (c.vocab, c.dim)
    expected = HEADER.size + 4 * sum(map(math.prod, shapes.values()))
    size = path.stat().st_size
    if size != expected:
        raise GlassError(f"{path} is corrupted: expected {expected} bytes, got {size}")

    values = np.fromfile(path, dtype="<f4", offset=HEADER.size)
    offset = 0
    state: weights.State = {}
    for name, shape in shapes.items():
        end = offset + math.prod(shape)
        tensor = torch.from_numpy(values[offset:end].copy()).reshape(shape)
        offset = end
        if name.endswith(("query.weight", "key.weight")):
            tensor = torch.stack([split_halves(layer, head_dim) for layer in tensor])
        layers = enumerate(tensor) if "{}" in name else [("", tensor)]
        state |= {name.format(i): layer.clone() for i, layer in layers}
    del state["rotary"]
    return state


def split_halves(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder rows so that adjacent pairs (2i, 2i + 1) become pairs (i, i + head_dim/2)."""
    pairs = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return pairs.transpose(1, 2).flatten(0, 2)


def read_tokenizer(path: Path, vocab: int) -> ScoredTokenizer:
    """Read the maximum token length, then the score, length and bytes of each token."""
    with wrap_read_errors(path):
        content, offset = path.read_bytes(), 4
    tokens: list[bytes] = []
    scores: list[float] = []
    for _ in range(vocab):
        if offset + TOKEN.size > len(content):
            raise GlassError(f"{path} is corrupted: it ends after {len(tokens)} of {vocab} tokens")
        score, length = TOKEN.unpack_from(content, offset)
        offset += TOKEN.size
        if not 0 <= length <= len(content) - offset:
            raise GlassError(f"{path} is corrupted: token {len(tokens)} has length {length}")
        tokens.append(content[offset : offset + length])
        scores.append(score)
        offset += length
    return ScoredTokenizer(tokens, scores)
