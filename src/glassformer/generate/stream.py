"""Streaming: decode tokens to text as they are generated."""

from collections.abc import Iterable, Iterator, Sequence

from glassformer.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """Decodes token by token; holds back a UTF-8 character until it is complete.

    Only recent tokens are decoded. The text of the first `n_returned` has already been returned;
    they are kept because some tokenizers decode a token differently after another one.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.recent = list(prompt_ids[-8:])
        self.n_returned = len(self.recent)

    def add(self, token: int) -> str:
        """The text that this token completes."""
        self.recent.append(token)
        pending = self.pending()
        if pending.endswith("\ufffd"):
            return ""
        self.recent = self.recent[self.n_returned :]
        self.n_returned = len(self.recent)
        return pending

    def pending(self) -> str:
        """The text of the recent tokens that has not been returned yet."""
        returned = self.tokenizer.decode(self.recent[: self.n_returned])
        return self.tokenizer.decode(self.recent)[len(returned) :]


def decode_stream(
    tokens: Iterable[int],
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    stop: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the text of tokens that follow a prompt, up to the first stop string (exclusive)."""
    decoder = IncrementalDecoder(tokenizer, prompt_ids)
    buffer = ""
    stop = [string for string in stop if string]
    for token in tokens:
        buffer += decoder.add(token)
        matches = [i for string in stop if (i := buffer.find(string)) >= 0]
        if matches:
            yield buffer[: min(matches)]
            return
        # hold back the end of the buffer while it may be the beginning of a stop string
        ready = len(buffer) - max((overlap(buffer, string) for string in stop), default=0)
        if ready:
            yield buffer[:ready]
            buffer = buffer[ready:]
    yield buffer + decoder.pending()


def overlap(text: str, stop: str) -> int:
    """The length of the longest suffix of a text that is a proper prefix of a stop string."""
    return next((n for n in range(len(stop) - 1, 0, -1) if text.endswith(stop[:n])), 0)
