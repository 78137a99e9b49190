"""Which examples are kept for validation: decided by a hash, so that equal texts stay together."""

from __future__ import annotations

import hashlib


def held_out(key: str, seed: int, share: float = 0.1) -> bool:
    """Whether all examples with this key (a text, or its group) are kept for validation."""
    digest = hashlib.blake2b(f"{seed}:{key}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64
