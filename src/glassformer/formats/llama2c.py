"""Models and tokenizers as llama2.c writes them: seven whole numbers, then float32."""

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

HEADER, PIECE = struct.Struct("<7i"), struct.Struct("<fi")
ENDS = (1, 2)  # <s>, where the next story would begin, and </s>


def load(
    path: Path, tokenizer: Path | None = None
) -> tuple[Network, ScoredTokenizer | None, dict[str, Any]]:
    """The network in a model file, the tokenizer in another, and which ids end a text."""
    config = read_config(path)
    state = read_tensors(path, config)
    network = weights.build_with_weights(lambda: Llama(config), state, path)
    words = read_tokenizer(tokenizer, config.vocab) if tokenizer else None
    return network, words, {"eos": list(ENDS)}


def read_config(path: Path) -> Config:
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise GlassError(f"{path} is no llama2.c model: it is too short")
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
            tied=vocab > 0,  # a negative number says that the head is not the embedding
        )
    except GlassError as error:
        raise GlassError(f"{path} is no llama2.c model: {error}") from None


def read_tensors(path: Path, config: Config) -> weights.State:
    """Cut the file into tensors; those of all layers stand together."""
    c, head_dim = config, config.dim // config.heads
    keys, waves = (c.kv_heads or c.heads) * head_dim, c.context * head_dim // 2
    shapes: dict[str, tuple[int, ...]] = {
        "token.weight": (c.vocab, c.dim),
        "blocks.{}.attention_norm.weight": (c.depth, c.dim),
        "blocks.{}.attention.query.weight": (c.depth, c.dim, c.dim),
        "blocks.{}.attention.key.weight": (c.depth, keys, c.dim),
        "blocks.{}.attention.value.weight": (c.depth, keys, c.dim),
        "blocks.{}.attention.out.weight": (c.depth, c.dim, c.dim),
        "blocks.{}.feedforward_norm.weight": (c.depth, c.dim),
        "blocks.{}.feedforward.gate.weight": (c.depth, c.hidden, c.dim),
        "blocks.{}.feedforward.down.weight": (c.depth, c.dim, c.hidden),
        "blocks.{}.feedforward.up.weight": (c.depth, c.hidden, c.dim),
        "norm.weight": (c.dim,),
        "waves": (2, waves),  # cosines and sines, which we compute
    }
    if not c.tied:
        shapes["head.weight"] = (c.vocab, c.dim)
    wanted = HEADER.size + 4 * sum(map(math.prod, shapes.values()))
    if path.stat().st_size != wanted:
        raise GlassError(f"{path} has {path.stat().st_size} bytes; its header asks for {wanted}")

    numbers, at = np.fromfile(path, dtype="<f4", offset=HEADER.size), 0
    state: weights.State = {}
    for name, shape in shapes.items():
        end = at + math.prod(shape)
        tensor, at = torch.from_numpy(numbers[at:end].copy()).reshape(shape), end
        if name.endswith(("query.weight", "key.weight")):
            tensor = torch.stack([halves(layer, head_dim) for layer in tensor])
        layers = enumerate(tensor) if "{}" in name else [("", tensor)]
        state |= {name.format(i): layer.clone() for i, layer in layers}
    del state["waves"]
    return state


def halves(rows: Tensor, head_dim: int) -> Tensor:
    """Rows whose neighbours turn together, put so that row i turns with row i + width/2."""
    pairs = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return pairs.transpose(1, 2).flatten(0, 2)


def read_tokenizer(path: Path, vocab: int) -> ScoredTokenizer:
    """The longest piece's length, then for each piece its score, its length and its bytes."""
    with wrap_read_errors(path):
        content, at = path.read_bytes(), 4
    pieces: list[bytes] = []
    scores: list[float] = []
    for _ in range(vocab):
        if at + PIECE.size > len(content):
            raise GlassError(f"{path} ends after {len(pieces)} of {vocab} pieces")
        score, length = PIECE.unpack_from(content, at)
        at += PIECE.size
        if not 0 <= length <= len(content) - at:
            raise GlassError(f"{path} is damaged: piece {len(pieces)} has the length {length}")
        pieces.append(content[at : at + length])
        scores.append(score)
        at += length
    return ScoredTokenizer(pieces, scores)
