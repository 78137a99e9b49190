"""Llama 2's tokenizer, as llama2.c stores it: pieces with scores, merged best first."""

import heapq
import json
import re
from collections.abc import Iterable, Sequence

from glassformer.text.tokenizer import REPLACEMENT, clean

BYTE = re.compile(rb"<0x([0-9A-F]{2})>")


class ScoredTokenizer:
    """Characters become pieces; the two neighbours whose union scores best merge, again and again.

    A character that is no piece is spelled in bytes. A text is read as if a space stood before it.
    """

    kind = "scored"

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        if len(scores) != len(pieces) or len(pieces) < 3:
            raise ValueError(f"{len(pieces)} pieces and {len(scores)} scores are no tokenizer")
        self.pieces, self.scores, self.vocab = list(pieces), list(scores), len(pieces)
        self.special_tokens, self.prefix = {"<unk>": 0, "<s>": 1, "</s>": 2}, [1]
        self._bytes: dict[int, int] = {}
        self._ids: dict[bytes, int] = {}  # of pieces of text: not of the specials, nor of bytes
        for i, piece in enumerate(self.pieces[3:], start=3):
            if match := BYTE.fullmatch(piece):
                self._bytes[int(match[1], 16)] = i
            else:
                self._ids.setdefault(piece, i)
        self._values = {i: bytes([byte]) for byte, i in self._bytes.items()}

    def encode(self, text: str) -> list[int]:
        text = clean(text)
        ids = [i for character in (" " + text if text else "") for i in self._spell(character)]
        after = [*range(1, len(ids)), -1]  # the neighbours of each piece; a merged one is None
        before = [-1, *range(len(ids) - 1)]
        pieces: list[int | None] = list(ids)
        heap: list[tuple[float, int, int, int, int]] = []

        def offer(left: int, right: int) -> None:
            if left < 0 or right < 0:
                return
            a, b = pieces[left], pieces[right]
            assert a is not None
            assert b is not None
            merged = self._ids.get(self.pieces[a] + self.pieces[b])
            if merged is not None:
                heapq.heappush(heap, (-self.scores[merged], left, merged, a, b))

        for left in range(len(ids) - 1):
            offer(left, left + 1)
        while heap:
            _, left, merged, a, b = heapq.heappop(heap)
            right = after[left]
            if pieces[left] != a or right < 0 or pieces[right] != b:
                continue  # one of the two has merged with another since
            pieces[left], pieces[right], after[left] = merged, None, after[right]
            if after[right] >= 0:
                before[after[right]] = left
            offer(before[left], left)
            offer(left, after[left])
        return [piece for piece in pieces if piece is not None]

    def _spell(self, character: str) -> list[int]:
        piece = character.encode()
        if piece in self._ids:
            return [self._ids[piece]]
        return [self._bytes.get(byte, 0) for byte in piece]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self._piece, ids)).decode(errors="replace").removeprefix(" ")

    def token(self, id: int) -> str:
        return self._piece(id).decode(errors="replace")

    def _piece(self, id: int) -> bytes:
        if id >= self.vocab:
            return REPLACEMENT.encode()
        return self._values.get(id, self.pieces[id])

    def to_json(self) -> str:
        pieces = [piece.decode("latin-1") for piece in self.pieces]
        return json.dumps({"kind": self.kind, "pieces": pieces, "scores": self.scores})
