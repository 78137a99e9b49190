"""Llama 2's tokenizer, as llama2.c stores it: pieces with scores, merged best first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from glassformer.text.tokenizer import clean

BYTE = re.compile(rb"<0x([0-9A-F]{2})>")


class Scored:
    """Characters become pieces; the two neighbours whose union scores best merge, again and again.

    A character that is no piece is spelled in bytes. A text is read as if a space stood before it.
    """

    kind = "scored"

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        self.pieces, self.scores, self.vocab = list(pieces), list(scores), len(pieces)
        self.specials = {"<unk>": 0, "<s>": 1, "</s>": 2}
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
        while True:
            merges = [self._ids.get(self.pieces[a] + self.pieces[b]) for a, b in pairwise(ids)]
            known = [(-self.scores[m], at) for at, m in enumerate(merges) if m is not None]
            if not known:
                return ids
            _, at = min(known)
            ids[at : at + 2] = [merges[at]]  # type: ignore[list-item]

    def _spell(self, character: str) -> list[int]:
        piece = character.encode()
        if piece in self._ids:
            return [self._ids[piece]]
        return [self._bytes.get(byte, 0) for byte in piece]

    def decode(self, ids: Iterable[int]) -> str:
        whole = b"".join(self._values.get(i, self.pieces[i]) for i in ids)
        return whole.decode(errors="replace").removeprefix(" ")

    def token(self, id: int) -> str:
        return self._values.get(id, self.pieces[id]).decode(errors="replace")

    def to_json(self) -> str:
        pieces = [piece.decode("latin-1") for piece in self.pieces]
        return json.dumps({"kind": self.kind, "pieces": pieces, "scores": self.scores})
