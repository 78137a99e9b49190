"""What both recommenders share: lists of recommended or similar items, and ranking metrics.

Shapes: b users, i items, n users of an evaluation.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.data.catalog import Catalog
from glassformer.models.network import ItemVectors, Network
from glassformer.registry import model_name
from glassformer.tasks.task import Artifacts, Batch

TOP = 10  # of the ranking metrics
PREVIEW_ITEMS = 5

Items = list[dict[str, Any]]  # the best first: item, title if known, score


class RecommendationCodec:
    """Encodes users and decodes recommended items; a subclass scores all items with a network."""

    batch_size = 32

    def __init__(self, artifacts: Artifacts) -> None:
        self.catalog = Catalog.of(artifacts.metadata)

    def encode(self, examples: Sequence[Any], context: int | None = None) -> Batch:
        """Users, by their names, as one batch."""
        users = [self.catalog.find_user(user) for user in examples]
        return {"user": torch.tensor(users, dtype=torch.long)}

    def score_items(self, network: Network, user: Tensor) -> Tensor:
        """A score of each item, higher for what a user likes more: b -> b i."""
        raise NotImplementedError

    @torch.inference_mode()
    def run(self, network: Network, batch: Batch, *, n: int = 10) -> list[list[tuple[int, float]]]:
        """The indices and scores of the best items that a user has not rated, for each user."""
        scores = self.score_items(network, batch["user"]).float()
        for row, user in zip(scores, batch["user"].tolist(), strict=True):
            row[self.catalog.histories[user]] = -math.inf
        return [select_best(row, n) for row in scores]

    def decode(self, output: list[list[tuple[int, float]]]) -> list[Items]:
        return [
            [self.catalog.record(item) | {"score": round(score, 4)} for item, score in row]
            for row in output
        ]

    @torch.inference_mode()
    def similar(self, network: Network, item: object, n: int = 10) -> Items:
        """The items whose vectors have the smallest angle to that of an item; scores: cosines."""
        index = self.catalog.find_item(item)
        if not isinstance(network, ItemVectors):
            raise GlassError(
                f"{model_name(network)} has no vectors of items to compare: train factorization "
                "or sasrec"
            )
        vectors = F.normalize(network.item_vectors().float(), dim=1)  # i d
        cosines = vectors @ vectors[index]
        cosines[index] = -math.inf
        return self.decode([select_best(cosines, n)])[0]

    def preview(self, network: Network, batch: Batch) -> str:
        """The best items for a few users."""
        lines = []
        best = self.run(network, batch, n=PREVIEW_ITEMS)
        for user, row in zip(batch["user"].tolist(), best, strict=True):
            names = ", ".join(self.catalog.name(item) for item, _ in row)
            lines.append(f"{self.catalog.users[user]}: {names}")
        return "\n".join(lines)


def select_best(scores: Tensor, n: int) -> list[tuple[int, float]]:
    """The indices and values of the highest scores that are not -infinity; ties by index."""
    order = scores.sort(descending=True, stable=True).indices[:n].tolist()
    return [(i, float(scores[i])) for i in order if scores[i] > -math.inf]


# --- metrics --------------------------------------------------------------------------------------


def rank_targets(scores: Tensor, targets: Tensor, histories: Sequence[Tensor]) -> Tensor:
    """The rank of each target among all items that are not in the user's history: b i, b -> b.

    1 is the best. Ties count against the target, and so do values that are not numbers. A target of
    -1, an item that was never seen in training, is ranked last.
    """
    ranks = []
    for row, target, history in zip(scores, targets.tolist(), histories, strict=True):
        is_candidate = torch.ones_like(row, dtype=torch.bool)
        is_candidate[history] = False
        if target < 0:
            ranks.append(len(row) + 1)
            continue
        is_candidate[target] = False
        ranks.append(1 + int((is_candidate & ~(row < row[target])).sum()))
    return torch.tensor(ranks)


def hits(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 for each target among the first 10, else 0: n; their mean is the hit rate."""
    return (ranks <= TOP).astype(np.float64)


def gains(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 / log2(rank + 1) for each target among the first 10, else 0: n; their mean is the NDCG.

    With a single target per user, the ideal gain is 1.
    """
    return hits(ranks) / np.log2(ranks + 1)
