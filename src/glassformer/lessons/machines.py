"""Two words through self-attention: from one-hot vectors to the output of one head."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import AdditiveScore, Attention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Learned, Sinusoidal, sinusoid
from glassformer.trace import Trace

PAPER_HEAD_DIM = 64
CONTEXT, PAPER_DIM = 512, 512
POSITION_DIMS = (2, 4, 16, PAPER_DIM)
QUERY_DIM, KEY_DIM, HIDDEN = 4, 2, 3  # of the additive score


@torch.no_grad()
def compute_values() -> Values:
    matrices = read_matrices("machines")
    words = read_words("machines")
    return {
        **matrices,
        **words,
        "features": [f"f{i}" for i in range(4)],
        "head_features": [f"e{i}" for i in range(3)],
        "first_word": words["words"][:1],
        **compute_embedding(matrices["embedding"]),
        **compute_positions(),
        **compute_attention(matrices),
        **compute_additive_score(),
    }


def embed_words() -> Tensor:
    """The vectors of the two words: 2 x 4."""
    words = read_words("machines")
    embedding = read_matrices("machines")["embedding"]
    return embedding[[words["vocabulary"].index(word) for word in words["words"]]]


def compute_embedding(embedding: Tensor) -> Values:
    words = read_words("machines")
    ids = torch.tensor([words["vocabulary"].index(word) for word in words["words"]])
    table = nn.Embedding(*embedding.shape).double()
    table.weight.copy_(embedding)
    one_hot = F.one_hot(ids, len(embedding)).double()
    return {
        "ids": ids.double()[None],
        "one_hot": one_hot,
        "product": one_hot @ embedding,
        "looked_up": table(ids),
    }


def compute_positions() -> Values:
    """How far apart the encodings of positions are, and how many parameters they have."""
    four = sinusoid(torch.arange(6).double(), 4)
    smallest = [
        smallest_distance(sinusoid(torch.arange(CONTEXT).double(), d)) for d in POSITION_DIMS
    ]
    fixed = Sinusoidal(PAPER_DIM)
    learned = Learned(CONTEXT, PAPER_DIM)
    counts = [[sum(p.numel() for p in module.parameters())] for module in (fixed, learned)]
    return {
        "position_numbers": [str(p) for p in range(6)],
        "positions": four,
        "distances": torch.cdist(four, four),
        "context": CONTEXT,
        "position_dims": [f"d={d}" for d in POSITION_DIMS],
        "smallest_distances": torch.tensor([smallest], dtype=torch.float64),
        "position_parameters": torch.tensor(counts, dtype=torch.float64),
    }


def smallest_distance(points: Tensor) -> float:
    """The smallest distance between any two of the points (n d)."""
    return float(F.pdist(points).min())


def compute_attention(matrices: dict[str, Tensor]) -> Values:
    layer = Attention(4, 1, head_dim=3, bias=False, out_bias=False).double()
    for name, linear in (("w_q", layer.query), ("w_k", layer.key), ("w_v", layer.value)):
        linear.weight.copy_(matrices[name].T)  # nn.Linear stores the transpose
    with Trace(layer) as trace:
        layer(embed_words()[None], SequenceLayout(2, 2))
    q, k, v = (trace[name][0, 0] for name in "qkv")
    products = q @ k.T
    scores = products[:1] / math.sqrt(PAPER_HEAD_DIM)
    unscaled = products[:1].softmax(-1)
    scaled = scores.softmax(-1)
    return {
        "x": embed_words(),
        "q": q,
        "k": k,
        "v": v,
        "products": products,
        "first_products": products[:1],
        "head_dim": PAPER_HEAD_DIM,
        "scores": scores,
        "unscaled_pattern": unscaled,
        "small_weight": float(unscaled[0, 1]),
        "scaled_pattern": scaled,
        "slopes": torch.stack((unscaled.prod(), scaled.prod()))[None],
        "pattern_by_root_3": trace["pattern"][0, 0],
        "z": scaled @ v,
        "z_by_root_3": trace["head_outputs"][0, 0],
    }


def compute_additive_score() -> Values:
    """Bahdanau's score of a query with four features and keys with two."""
    random = torch.Generator().manual_seed(3)

    def sample(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64).round(decimals=1)

    query = sample(1, QUERY_DIM)
    keys = sample(3, KEY_DIM)
    w_query = sample(QUERY_DIM, HIDDEN)
    w_key = sample(KEY_DIM, HIDDEN)
    v = sample(HIDDEN, 1)
    score = AdditiveScore(heads=1, head_dim=HIDDEN).double()
    score.v.copy_(v[None])
    q, k = query @ w_query, keys @ w_key
    return {
        "long_query": query,
        "short_keys": keys,
        "w_query": w_query,
        "w_key": w_key,
        "score_vector": v,
        "additive_scores": score(q[None, None], k[None, None])[0, 0],
        "projected_products": q @ k.T,
    }
