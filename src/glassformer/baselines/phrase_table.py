"""A phrase table: each phrase becomes what it became most often (after Koehn, 2003).

Which words translate each other is found by counting (IBM's first model, in both directions, with
a liking for the diagonal); phrases are what these links hold together; a text is cut into the
longest phrases that are known, which are translated in their order. A word without a translation
that may stand in the other language stays as it is.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.nn.counts import CountModule, NGramIndex, check_tables, int_parameter
from glassformer.nn.layout import SequenceLayout

ROUNDS, DIAGONAL, LINKED = 5, 4.0, 0.1  # of counting; how steep; how sure a link must be
DOUBT = 0.05  # the chance that another word follows than the table says


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 37_000
    eos: int = 0  # the id that ends a translation
    max_source_words: int = 4  # words of a phrase
    max_target_words: int = 7  # words that it may become


class PhraseTable(CountModule, Network):
    """Its table is learnt in one go."""

    Config: TypeAlias = Config
    forward_inputs = ("ids", "source", "source_keep")
    traits = frozenset({Trait.SEQ2SEQ, Trait.CACHED, Trait.FITTED, Trait.PADDED})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.known = NGramIndex(c.vocab, c.max_source_words)
        self.become = nn.ParameterList(
            int_parameter() for _ in range(c.max_source_words)
        )  # n widest, -1 at the end

    def check(self) -> None:
        for keys, become in zip(self.known.keys, self.become, strict=True):
            sound = become.shape == (len(keys), self.config.max_target_words) or not become.numel()
            check_tables(sound and len(become) == len(keys), "phrases are not equally many")
            check_tables(bool((become < self.config.vocab).all()), "a word is unknown")

    def fit(self, source: Tensor, target: Tensor) -> None:
        """Learn from texts that translate each other, one after the other with -1 between them."""
        said = Counter[tuple[tuple[int, ...], tuple[int, ...]]]()
        texts = [split(ids) for ids in (source, target)]
        for s, t, links in zip(*texts, links_of(source, target, self.config.vocab), strict=True):
            said.update(
                phrases_of(s, t, links, self.config.max_source_words, self.config.max_target_words)
            )
        best: dict[tuple[int, ...], tuple[int, ...]] = {}
        for (one, other), _ in sorted(said.items(), key=lambda item: (item[1], -len(item[0][1]))):
            best[one] = other
        for word in torch.unique(
            target[target >= 0]
        ).tolist():  # names and numbers stay as they are
            best.setdefault((word,), (word,))
        rows = torch.full((len(best), self.config.max_source_words), -1)
        into = torch.full((len(best), self.config.max_target_words), -1)
        for i, (one, other) in enumerate(best.items()):
            rows[i, : len(one)], into[i, : len(other)] = torch.tensor(one), torch.tensor(other)
        lengths = (rows >= 0).sum(dim=1)
        for length, number in enumerate(self.known.fit(list(rows.unbind(1))), start=1):
            whole, size = lengths == length, len(self.known.keys[length - 1])
            become = torch.full((size, self.config.max_target_words), -1)
            become[number[whole]] = into[whole]
            self.become[length - 1].data = become

    def forward(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        source_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Scores for the token after each of ids: b t, b s -> b t v. What they are matters not."""
        layout, known = SequenceLayout.from_ids(ids, keep, cache), cache.source if cache else None
        if known is not None and known.layers[0].is_complete and source is not None:
            raise ValueError("the cache holds a source already: give another a new cache")
        if known is None or not known.layers[0].is_complete:
            if source is None:
                raise ValueError("the phrase table needs source ids, unless its cache has them")
            said = self.translate(source, source_keep)[:, None, :, None]
        if known is not None:
            layer_cache = known.layers[0]
            said, _ = (
                layer_cache.contents()
                if layer_cache.is_complete
                else layer_cache.extend(said, said)
            )
        if cache is not None:
            cache.layers[0].extend(ids[:, None, :, None], ids[:, None, :, None])
        said = said[:, 0, :, 0]
        at = layout.positions().expand(len(ids), -1).clamp(max=said.shape[1] - 1)
        doubt = DOUBT / self.config.vocab
        probs = torch.full((*ids.shape, self.config.vocab), doubt, device=ids.device)
        answer = said.gather(1, at)[..., None]
        sure = torch.full(answer.shape, 1 - DOUBT, device=ids.device)
        return probs.scatter_add_(2, answer, sure).log_()

    def translate(self, source: Tensor, keep: Tensor | None = None) -> Tensor:
        """What the table makes of each text, ended: b s -> b t."""
        ids = source if keep is None else source.masked_fill(~keep.bool(), -1)
        ahead = torch.cat((ids, ids.new_full((len(ids), self.config.max_source_words), -1)), dim=1)
        columns = [
            ahead[:, i : i + ids.shape[1]].flatten() for i in range(self.config.max_source_words)
        ]
        become = torch.full(
            (*ids.shape, self.config.max_target_words), -1, device=ids.device
        ).flatten(0, 1)
        taken = torch.ones_like(columns[0])
        for length, number in enumerate(self.known.find(columns), start=1):
            table = self.become[length - 1]
            if not len(table):
                continue
            there = (number >= 0) & (table[number.clamp(min=0), 0] >= 0)
            become[there], taken[there] = table[number[there]], length
        return self.joined(*(torch.unflatten(x, 0, ids.shape) for x in (become, taken)))

    def joined(self, become: Tensor, taken: Tensor) -> Tensor:
        """The phrases that start where the last one ended, in a row: b s w, b s -> b t."""
        rows = []
        for words, lengths in zip(become.tolist(), taken.tolist(), strict=True):
            row, at = list[int](), 0
            while at < len(lengths):
                row += [id for id in words[at] if id >= 0]
                at += lengths[at]
            rows.append(torch.tensor([*row, self.config.eos]))
        said = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.config.eos)
        return said.to(become.device)

    def cache(self, capacity: int) -> Cache:
        return Cache(1, capacity, source=Cache(1, capacity=None))


def split(ids: Tensor) -> list[list[int]]:
    """Texts with -1 between them, each by itself."""
    ends = [*(ids < 0).nonzero()[:, 0].tolist(), len(ids)]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [ids[start:end].tolist() for start, end in zip(starts, ends, strict=True)]


def links_of(source: Tensor, target: Tensor, vocab: int) -> list[list[tuple[int, int]]]:
    """Which words of each pair of texts translate each other, by their places."""
    texts = int((source < 0).sum()) + 1
    (s, of_s), (t, of_t) = (
        (ids[ids >= 0], (ids < 0).cumsum(0)[ids >= 0]) for ids in (source, target)
    )
    many_s, many_t = (of.bincount(minlength=texts) for of in (of_s, of_t))
    start_s, start_t = (many.cumsum(0) - many for many in (many_s, many_t))

    # each word with every word of the other text
    times = many_t[of_s]
    one = torch.repeat_interleave(torch.arange(len(s)), times)
    other = torch.arange(len(one)) - (times.cumsum(0) - times)[one] + start_t[of_s[one]]
    text = of_s[one]
    i, j = one - start_s[text], other - start_t[text]
    far = ((i + 0.5) / many_s[text] - (j + 0.5) / many_t[text]).abs()
    near = torch.exp(-DIAGONAL * far)

    forth = share(one, other, s[one] * vocab + t[other], near, vocab)
    back = share(other, one, t[other] * vocab + s[one], near, vocab)
    sure = forth * back > LINKED
    links: list[list[tuple[int, int]]] = [[] for _ in range(texts)]
    for where, a, b in torch.stack((text, i, j), dim=1)[sure].tolist():
        links[where].append((a, b))
    return links


def share(
    given: Tensor, masked_positions: Tensor, pair: Tensor, near: Tensor, vocab: int
) -> Tensor:
    """How much of each asked word each given word of its text explains, by IBM's first model."""
    distinct, pair = torch.unique(pair, return_inverse=True)
    chance, words = (
        torch.ones(len(distinct)),
        int(masked_positions.max()) + 1 if len(masked_positions) else 0,
    )
    for _ in range(ROUNDS):
        part = chance[pair] * near
        part = part / torch.zeros(words).index_add(0, masked_positions, part)[masked_positions]
        chance = torch.zeros(len(distinct)).index_add(0, pair, part)
        chance = (
            chance / torch.zeros(vocab).index_add(0, distinct // vocab, chance)[distinct // vocab]
        )
    return part


def phrases_of(
    source: Sequence[int], target: Sequence[int], links: Sequence[tuple[int, int]],
    max_source_words: int, max_target_words: int,
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:  # fmt: skip
    """Every phrase whose words are linked to one another's and to none outside."""
    of_source = [[j for i, j in links if i == k] for k in range(len(source))]
    of_target = [[i for i, j in links if j == k] for k in range(len(target))]
    for start in range(len(source)):
        low, high = len(target), -1
        for stop in range(start + 1, min(start + max_source_words, len(source)) + 1):
            low = min((low, *of_source[stop - 1]))
            high = max((high, *of_source[stop - 1]))
            inside = [i for j in range(low, high + 1) for i in of_target[j]]
            if not inside or min(inside) < start or max(inside) >= stop:
                continue
            while high + 1 - low <= max_target_words:  # words without a link may belong to it
                yield tuple(source[start:stop]), tuple(target[low : high + 1])
                if high + 1 == len(target) or of_target[high + 1]:
                    break
                high += 1
            high = max(j for k in range(start, stop) for j in of_source[k])
