"""Streaming: decode tokens to text as they are generated."""

from collections.abc import Iterable, Iterator, Sequence

from glassformer.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """Decodes token by token; an incomplete UTF-8 character waits for its remaining bytes.

    Only recent tokens are decoded. The first `n_decoded` of them have been returned already; they
    are kept because some tokenizers decode a token differently after another one.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self.tokenizer, self.recent = tokenizer, list(before[-8:])
        self.n_decoded = len(self.recent)

    def add(self, token: int) -> str:
        """The text that this token completes."""
        self.recent.append(token)
        pending = self.pending()
        if pending.endswith("\ufffd"):
            return ""
        self.recent = self.recent[self.n_decoded :]
        self.n_decoded = len(self.recent)
        return pending

    def pending(self) -> str:
        """The text of the tokens that has not been returned yet."""
        decoded = self.tokenizer.decode(self.recent[: self.n_decoded])
        return self.tokenizer.decode(self.recent)[len(decoded) :]


def decode_stream(
    tokens: Iterable[int], tokenizer: Tokenizer, before: Sequence[int], stop: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the text of tokens that follow `before`, up to the first stop text (exclusive)."""
    decoder, buffer = IncrementalDecoder(tokenizer, before), ""
    stop = [word for word in stop if word]
    for token in tokens:
        buffer += decoder.add(token)
        matches = [i for word in stop if (i := buffer.find(word)) >= 0]
        if matches:
            yield buffer[: min(matches)]
            return
        # the end of the buffer may be the beginning of a stop text: keep it until that is clear
        ready = len(buffer) - max((overlap(buffer, word) for word in stop), default=0)
        if ready:
            yield buffer[:ready]
            buffer = buffer[ready:]
    yield buffer + decoder.pending()


def overlap(text: str, word: str) -> int:
    """The length of the longest suffix of a text that is a proper prefix of a word."""
    return next((n for n in range(len(word) - 1, 0, -1) if text.endswith(word[:n])), 0)
