"""Llama 2's tokenizer, as llama2.c stores it: pieces with scores, merged best first."""

import heapq
import json
import re
from collections.abc import Iterable, Sequence

from glassformer.text.tokenizer import REPLACEMENT, clean

BYTE = re.compile(rb"<0x([0-9A-F]{2})>")


class ScoredTokenizer:
    """Splits text into characters, then repeatedly merges the neighbors with the best joint score.

    A character that is not a piece is encoded as its bytes. A space is prepended to every text.
    """

    kind = "scored"

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        if len(scores) != len(pieces) or len(pieces) < 3:
            raise ValueError(
                f"expected at least 3 pieces and a score for each, got {len(pieces)} pieces "
                f"and {len(scores)} scores"
            )
        self.pieces = list(pieces)
        self.scores = list(scores)
        self.vocab = len(pieces)
        self.special_tokens = {"<unk>": 0, "<s>": 1, "</s>": 2}
        self.prefix = [1]
        self._byte_ids: dict[int, int] = {}
        self._ids: dict[bytes, int] = {}  # text pieces only: no special tokens or bytes
        for i, piece in enumerate(self.pieces[3:], start=3):
            if match := BYTE.fullmatch(piece):
                self._byte_ids[int(match[1], 16)] = i
            else:
                self._ids.setdefault(piece, i)
        self._id_bytes = {i: bytes([byte]) for byte, i in self._byte_ids.items()}

    def encode(self, text: str) -> list[int]:
        text = clean(text)
        characters = " " + text if text else ""
        initial = [i for character in characters for i in self._encode_character(character)]
        after = [*range(1, len(initial)), -1]  # linked list: indices of the neighbors
        before = [-1, *range(len(initial) - 1)]
        # None where a piece was merged into its left neighbor
        ids: list[int | None] = list(initial)
        heap: list[tuple[float, int, int, int, int]] = []

        def push(left: int, right: int) -> None:
            if left < 0 or right < 0:
                return
            a, b = ids[left], ids[right]
            assert a is not None
            assert b is not None
            merged = self._ids.get(self.pieces[a] + self.pieces[b])
            if merged is not None:
                heapq.heappush(heap, (-self.scores[merged], left, merged, a, b))

        for left in range(len(ids) - 1):
            push(left, left + 1)
        while heap:
            _, left, merged, a, b = heapq.heappop(heap)
            right = after[left]
            if ids[left] != a or right < 0 or ids[right] != b:
                continue  # one of the two has since merged with another neighbor
            ids[left], ids[right], after[left] = merged, None, after[right]
            if after[right] >= 0:
                before[after[right]] = left
            push(before[left], left)
            push(left, after[left])
        return [i for i in ids if i is not None]

    def _encode_character(self, character: str) -> list[int]:
        piece = character.encode()
        if piece in self._ids:
            return [self._ids[piece]]
        return [self._byte_ids.get(byte, 0) for byte in piece]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self._piece, ids)).decode(errors="replace").removeprefix(" ")

    def token(self, id: int) -> str:
        return self._piece(id).decode(errors="replace")

    def _piece(self, id: int) -> bytes:
        if id >= self.vocab:
            return REPLACEMENT.encode()
        return self._id_bytes.get(id, self.pieces[id])

    def to_json(self) -> str:
        pieces = [piece.decode("latin-1") for piece in self.pieces]
        return json.dumps({"kind": self.kind, "pieces": pieces, "scores": self.scores})
