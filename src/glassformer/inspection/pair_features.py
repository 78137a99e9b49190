"""Attention and a feed-forward layer that predict a word from pairs of words."""

import torch
from torch import Tensor


def compute_pair_features() -> dict[str, Tensor | list[str]]:
    """Attention as a lookup: which words before “ran” matter, and what their pairs predict."""
    query = torch.tensor([[0.0, 0, 0, 1]])
    keys = torch.zeros(4, 4)
    keys[3, :2] = 1  # “ran” attends to “battery” and “program”
    earlier_words = torch.tensor([[1.0, 0, 1, 1]])
    attended = earlier_words * (query @ keys) + query
    w = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 0]])
    w_2 = torch.tensor([[1.0, 0], [0, 1], [0, 0]])
    sums = attended @ w - 1
    features = sums.clamp(min=0)
    return {
        "attended_words": ["battery", "program", "log", "ran"],
        "pairs": ["battery, ran", "program, ran", "program, log"],
        "query": query,
        "keys": keys,
        "scores": query @ keys,
        "attended": attended,
        "w": w,
        "sums": sums,
        "features": features,
        "w_2": w_2,
        "next_word": features @ w_2,
    }
