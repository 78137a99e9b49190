"""Which examples are kept for validation: decided by a hash, so that equal texts stay together."""

import hashlib
from array import array

import numpy as np


def fingerprint(text: str) -> int:
    """A number of 64 bits that stands for a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest)


def is_held_out(key: str, seed: int, share: float = 0.1) -> bool:
    """Whether all examples with this key (a text, or its group) are kept for validation."""
    return fingerprint(f"{seed}:{key}") < share * 2**64


class LeakCounter:
    """Texts that stand in both parts make a figure look better than it is."""

    def __init__(self) -> None:
        self.marks = {"train": array("Q"), "valid": array("Q")}

    def add(self, part: str, text: str) -> None:
        self.marks[part].append(fingerprint(text))

    def count(self) -> int:
        """How many of the validation part stand in the training part too."""
        train, valid = (np.frombuffer(m, dtype=np.uint64) for m in self.marks.values())
        return int(np.isin(valid, train).sum())
