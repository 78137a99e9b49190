"""Find texts that are almost equal: most of their sequences of words are the same.

Each text gets a signature of minimums of hash functions over its word sequences (MinHash: Broder,
1997). Two texts agree in a share of the signature that estimates the share of sequences that they
have in common.
"""

import re
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from glassformer.data.split import hash_text

HASHES = 32  # numbers in a signature
BAND = 4  # numbers that must agree for two texts to be compared
MIN_AGREEMENT = 0.7  # of the signatures of near-duplicates
SEQUENCE = 3  # words, or characters of a text in which words are not separated
MIN_SEQUENCES = 5  # shorter texts are left out: they are often similar by chance

RNG = np.random.default_rng(0)
FACTORS = RNG.integers(1, 2**32, (HASHES, 1), dtype=np.uint64) | np.uint64(1)
OFFSETS = RNG.integers(0, 2**32, (HASHES, 1), dtype=np.uint64)

Signature = NDArray[np.uint32]


def make_signature(text: str) -> Signature | None:
    """The signature of a text; None if it is too short. Case and punctuation do not count."""
    units = re.findall(r"\w+", text.casefold())
    if len(units) < MIN_SEQUENCES + SEQUENCE - 1:
        units = list("".join(units)) if not text.isascii() else units
    hashes = np.array([crc32(unit.encode("utf-8", "replace")) for unit in units], dtype=np.uint64)
    if len(hashes) < MIN_SEQUENCES + SEQUENCE - 1:
        return None
    sequences = hashes[: 1 - SEQUENCE].copy()
    for i in range(1, SEQUENCE):
        sequences = sequences * np.uint64(0x9E3779B1) + hashes[i : len(hashes) - SEQUENCE + 1 + i]
    mixed = np.unique(sequences)[None] * FACTORS + OFFSETS  # wraps around at 2**64
    minimums: Signature = (mixed >> np.uint64(32)).min(axis=1).astype(np.uint32)
    return minimums


class NearDuplicateCounter:
    """Counts validation texts that almost equal a training text. Equal texts are leaks instead."""

    def __init__(self) -> None:
        self.signatures: dict[str, list[Signature]] = {"train": [], "valid": []}
        self.texts: dict[str, list[str]] = {"train": [], "valid": []}  # their starts
        self.hashes: dict[str, list[int]] = {"train": [], "valid": []}

    def add(self, split: str, text: str) -> None:
        signature = make_signature(text)
        if signature is not None:
            self.signatures[split].append(signature)
            self.texts[split].append(text[:200])
            self.hashes[split].append(hash_text(text))

    def find(self) -> list[tuple[str, str]]:
        """The starts of near-duplicates: a validation text and the training text it resembles."""
        buckets: dict[tuple[int, bytes], list[int]] = {}
        for row, signature in enumerate(self.signatures["train"]):
            for band in range(0, HASHES, BAND):
                buckets.setdefault((band, signature[band : band + BAND].tobytes()), []).append(row)
        found = []
        for row, signature in enumerate(self.signatures["valid"]):
            bands = range(0, HASHES, BAND)
            keys = ((band, signature[band : band + BAND].tobytes()) for band in bands)
            candidates = {other for key in keys for other in buckets.get(key, [])[:50]}
            for other in candidates:
                agreement = (self.signatures["train"][other] == signature).mean()
                is_equal = self.hashes["valid"][row] == self.hashes["train"][other]
                if agreement >= MIN_AGREEMENT and not is_equal:
                    found.append((self.texts["valid"][row], self.texts["train"][other]))
                    break
        return found
