"""Tokens become pieces of text as they come."""

from collections.abc import Iterable, Iterator, Sequence

from glassformer.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """The text that each further token adds; half a character waits for its other half."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer, self.recent, self.read = tokenizer, list(before[-8:]), len(before[-8:])

    def add(self, token: int) -> str:
        """Only the last tokens are decoded: some tokenizers join a token to the one before it."""
        self.recent.append(token)
        pending = self.pending()
        if pending.endswith("\ufffd"):
            return ""
        self.recent, self.read = self.recent[self.read :], len(self.recent) - self.read
        return pending

    def pending(self) -> str:
        """What is not told yet."""
        known = self.tokenizer.decode(self.recent[: self.read])
        return self.tokenizer.decode(self.recent)[len(known) :]


def pieces(
    tokens: Iterable[int], tokenizer: Tokenizer, before: Sequence[int], stop: Sequence[str] = ()
) -> Iterator[str]:
    """The text of tokens that come after others, a piece at a time, up to a text in `stop`."""
    spelling, held = IncrementalDecoder(tokenizer, before), ""
    stop = [word for word in stop if word]
    for token in tokens:
        held += spelling.add(token)
        found = [at for word in stop if (at := held.find(word)) >= 0]
        if found:
            yield held[: min(found)]
            return
        sure = len(held) - max((overlap(held, word) for word in stop), default=0)
        if sure:
            yield held[:sure]
            held = held[sure:]
    yield held + spelling.pending()


def overlap(text: str, word: str) -> int:
    """How much of the end of a text may be the beginning of a word."""
    return next((n for n in range(len(word) - 1, 0, -1) if text.endswith(word[:n])), 0)
