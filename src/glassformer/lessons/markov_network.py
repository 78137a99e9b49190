"""From counts to a network: embedding, positions, de-embedding and softmax, and their sizes.

Shapes: n words of a text, d features, v vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.inspection.word_counts import SHOW_ME, count_words
from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices
from glassformer.nn.attention import Attention
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.positions import Rotary, sinusoid
from glassformer.trace import Trace

UPDATES, LR, L2 = 400, 0.05, 1e-4
POSITIONS = 8


def compute_values() -> Values:
    words, counts = count_words(SHOW_ME, 1)
    transitions = counts.fractions([torch.arange(len(words))]).double()
    embedding, output = learn(transitions)
    with torch.no_grad():
        logits = embedding @ output
        return {
            "words": words,
            "features": ["f0", "f1"],
            **compute_sizes(),
            "updates": UPDATES,
            "embedding": embedding,
            "word_distances": torch.cdist(embedding, embedding),
            "network_weights": torch.tensor(
                [[transitions.numel(), embedding.numel() + output.numel()]]
            ).double(),
            **compute_positions(embedding[words.index("my")][None]),
            "output": output,
            "logits": logits,
            **compute_softmax(logits[words.index("my")][None]),
            "transitions": transitions,
            "probs": logits.softmax(dim=-1),
        }


def compute_sizes() -> Values:
    """The size of each matrix for the tutorial's numbers, from layers without memory ("meta")."""
    printed = read_matrices("markov_network")
    v, n, d, head_dim, heads = (int(x) for x in printed["sizes"][0])
    with torch.device("meta"):
        embedding = nn.Embedding(v, d)
        layer = Attention(d, heads, head_dim=head_dim, bias=False)
        output = nn.Linear(d, v, bias=False)
        x = embedding(torch.zeros(1, n, dtype=torch.long))
        with Trace(layer) as trace:
            attended = layer(x, SequenceLayout(n, n, device="meta"))
        logits = output(attended)
    shapes = [
        (n, v), embedding.weight.shape, x.shape, trace["q"].shape, trace["scores"].shape,
        trace["head_outputs"].transpose(1, 2).flatten(2).shape, attended.shape,
        output.weight.T.shape, logits.shape,
    ]  # fmt: skip
    counts = [v**2, v**3, embedding.weight.numel() + output.weight.numel()]
    return {
        **printed,
        "right_parameters": torch.tensor([[float(v**3)]], dtype=torch.float64),
        "parameter_counts": torch.tensor([counts], dtype=torch.float64).T,
        "shapes": torch.tensor([list(shape[-2:]) for shape in shapes], dtype=torch.float64),
    }


def learn(transitions: Tensor) -> tuple[Tensor, Tensor]:
    """An embedding (v 2) and a de-embedding (2 v), fitted to the transitions by Adam."""
    random = torch.Generator().manual_seed(0)
    vocab = len(transitions)
    embedding = nn.Embedding(vocab, 2).double()
    output = nn.Linear(2, vocab, bias=False).double()
    for module in (embedding, output):
        sample = torch.randn(vocab, 2, generator=random, dtype=torch.float64)
        module.weight.data.copy_(sample)
    weights = [embedding.weight, output.weight]
    optimizer = torch.optim.Adam(weights, lr=LR)
    for _ in range(UPDATES):
        log_probs = F.log_softmax(output(embedding(torch.arange(vocab))), dim=-1)
        loss = -(transitions * log_probs).sum() + L2 * sum(w.square().sum() for w in weights)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return embedding.weight.detach(), output.weight.detach().T


def compute_positions(vector: Tensor) -> Values:
    """A word's vector (1 2) at several positions: moved on a circle, and rotated."""
    circle = sinusoid(torch.arange(POSITIONS).double(), 2)
    moved = vector + circle
    q = vector.expand(1, 1, POSITIONS, 2)
    rotated = Rotary(2).rotate(q, q, SequenceLayout(POSITIONS, POSITIONS))[0][0, 0]
    return {
        "position_numbers": [str(p) for p in range(POSITIONS)],
        "my": vector,
        "circle": circle,
        "moved": moved,
        "distances": torch.stack(
            [(moved - vector).norm(dim=1), moved.norm(dim=1), rotated.norm(dim=1)], dim=1
        ),
        "rotated": rotated,
    }


def compute_softmax(logits: Tensor) -> Values:
    """The softmax of one row of logits, written out, and its derivative."""
    probs = logits.softmax(dim=-1)
    powers = logits.exp()
    jacobian = torch.func.jacrev(lambda x: x.softmax(dim=-1))(logits[0])
    return {
        "logits_of_my": logits,
        "powers": powers,
        "sum_of_powers": powers.sum(dim=1, keepdim=True),
        "probs_of_my": probs,
        "derivatives": torch.stack((probs[0] * (1 - probs[0]), jacobian.diagonal())),
    }
