"""Split data into training and validation data by hash; equal texts are in the same split."""

import hashlib
from array import array
from collections.abc import Iterable, Mapping

import numpy as np


def hash_text(text: str) -> int:
    """A 64-bit hash of a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest)


def is_held_out(key: str, seed: int, fraction: float = 0.1) -> bool:
    """Whether all examples with this key (a text or a group) are held out for validation."""
    return hash_text(f"{seed}:{key}") < fraction * 2**64


def held_out_fraction(keys: Iterable[str], seed: int, count: int) -> float:
    """The fraction with which `is_held_out` holds out this many of the keys."""
    hashes = sorted(hash_text(f"{seed}:{key}") for key in keys)
    return (hashes[count - 1] + hashes[count]) / 2 / 2**64


def choose_held_out(sizes: Mapping[str, int], seed: int, fraction: float) -> set[str]:
    """Groups that together have about this fraction of the examples, but at least one group.

    `sizes` maps each group to its number of examples. Groups are visited in the order of their
    hashes, and held out if that brings the number of held-out examples closer to `fraction` of all.
    """
    chosen = set[str]()
    missing = fraction * sum(sizes.values())
    for group in sorted(sizes, key=lambda group: hash_text(f"{seed}:{group}")):
        if sizes[group] < 2 * missing:
            chosen.add(group)
            missing -= sizes[group]
    return chosen or {min(sizes, key=sizes.__getitem__)}


class LeakCounter:
    """Counts texts that are in both splits: a data leak, which makes metrics optimistic."""

    def __init__(self) -> None:
        self.hashes = {"train": array("Q"), "valid": array("Q")}

    def add(self, split: str, text: str) -> None:
        self.hashes[split].append(hash_text(text))

    def count(self) -> int:
        """The number of validation texts that are also training texts."""
        train, valid = (np.frombuffer(h, dtype=np.uint64) for h in self.hashes.values())
        return int(np.isin(valid, train).sum())
