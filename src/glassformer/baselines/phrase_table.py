"""A phrase table: each phrase is replaced by its most frequent translation (after Koehn, 2003).

Words are aligned by IBM Model 1 in both directions, with a prior that favors the diagonal. Phrase
pairs are spans whose words are aligned only with each other. To translate, a text is split greedily
into the longest known phrases, which keep their order. A word without a translation is copied if it
also occurs in the target language; if each language has its own vocabulary, it is left out.

Shapes: b batch, t target tokens, s source tokens, w max target words, n phrases, v vocabulary.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from glassformer.models.network import ModelConfig, Network, Trait
from glassformer.nn.cache import Cache
from glassformer.nn.counts import IntTables, NGramIndex, check_tables
from glassformer.nn.layout import SequenceLayout, mark_padding
from glassformer.nn.word_alignment import WordPairs, alignment_probs

MIN_LINK_PROB = 0.1  # lower limit for the product of a link's probabilities in both directions
OTHER_TOKEN_PROB = 0.05  # total probability of all tokens except the one in the table

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Config(ModelConfig):
    vocab: int = 37_000
    source_vocab: int | None = None  # by default source and target share one vocabulary
    eos: int = 0  # the id that ends a translation
    max_source_words: int = 4  # in a phrase
    max_target_words: int = 7  # in the translation of a phrase


class PhraseTable(Network):
    """Translates phrase by phrase; its table is fitted directly."""

    Config: TypeAlias = Config
    forward_inputs = ("ids", "source", "source_keep")
    traits = frozenset({Trait.SEQ2SEQ, Trait.CACHED, Trait.FITTED, Trait.PADDING_INVARIANT})

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        c = config
        self.phrases = NGramIndex(c.source_vocab or c.vocab, c.max_source_words)
        # for each phrase length: n w, padded with -1; a prefix without a translation is all -1
        self.translations = IntTables(c.max_source_words)

    def check(self) -> None:
        for keys, table in zip(self.phrases.keys, self.translations, strict=True):
            is_valid = table.shape == (len(keys), self.config.max_target_words) or not table.numel()
            is_valid = is_valid and len(table) == len(keys)
            check_tables(is_valid, "the numbers of phrases and translations differ")
            check_tables(bool((table < self.config.vocab).all()), "an id is not in the vocabulary")

    def fit(self, source: Tensor, target: Tensor) -> None:
        """Fit to pairs of texts: sources and targets, each concatenated with -1 between texts."""
        counts = Counter[tuple[Phrase, Phrase]]()
        texts = [split_texts(ids) for ids in (source, target)]
        links_by_text = align_words(source, target)
        limits = self.config.max_source_words, self.config.max_target_words
        for s, t, links in zip(*texts, links_by_text, strict=True):
            counts.update(extract_phrases(s, t, links, *limits))
        best: dict[Phrase, Phrase] = {}
        # sorted so that the most frequent translation is written last and wins; ties go to the
        # shortest
        for (s, t), _ in sorted(counts.items(), key=lambda item: (item[1], -len(item[0][1]))):
            best[s] = t
        if self.config.source_vocab is None:  # copy names and numbers
            for word in torch.unique(target[target >= 0]).tolist():
                best.setdefault((word,), (word,))
        sources = torch.full((len(best), self.config.max_source_words), -1)
        targets = torch.full((len(best), self.config.max_target_words), -1)
        for i, (s, t) in enumerate(best.items()):
            sources[i, : len(s)], targets[i, : len(t)] = torch.tensor(s), torch.tensor(t)
        lengths = (sources >= 0).sum(dim=1)
        for length, index in enumerate(self.phrases.fit(list(sources.unbind(1))), start=1):
            has_length = lengths == length
            size = len(self.phrases.keys[length - 1])
            table = torch.full((size, self.config.max_target_words), -1)
            table[index[has_length]] = targets[has_length]
            self.translations[length - 1] = table

    def forward(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        source_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Next-token log-probabilities, given the source: b t, b s -> b t v.

        Only the positions of the ids matter, not their values. The cache stores the translation.
        """
        layout = SequenceLayout.from_ids(ids, keep, cache)
        source_cache = cache.source.layers[0] if cache and cache.source else None
        if source_cache is not None and source_cache.is_complete and source is not None:
            raise ValueError("the cache already holds a source: use a new cache for another source")
        if source_cache is None or not source_cache.is_complete:
            if source is None:
                raise ValueError("the phrase table needs source ids, unless its cache holds them")
            translation = self.translate(source, source_keep)[:, None, :, None]
        if source_cache is not None:
            translation, _ = (
                source_cache.contents()
                if source_cache.is_complete
                else source_cache.extend(translation, translation)
            )
        if cache is not None:
            cache.layers[0].extend(ids[:, None, :, None], ids[:, None, :, None])
        translation = translation[:, 0, :, 0]
        positions = layout.positions().expand(len(ids), -1).clamp(max=translation.shape[1] - 1)
        other_prob = OTHER_TOKEN_PROB / self.config.vocab
        probs = torch.full((*ids.shape, self.config.vocab), other_prob, device=ids.device)
        token = translation.gather(1, positions)[..., None]
        token_prob = torch.full(token.shape, 1 - OTHER_TOKEN_PROB, device=ids.device)
        return probs.scatter_add_(2, token, token_prob).log_()

    def translate(self, source: Tensor, keep: Tensor | None = None) -> Tensor:
        """The translation of each sequence, terminated and padded with `eos`: b s -> b t."""
        ids = mark_padding(source, keep)
        padded = torch.cat((ids, ids.new_full((len(ids), self.config.max_source_words), -1)), dim=1)
        columns = [
            padded[:, i : i + ids.shape[1]].flatten() for i in range(self.config.max_source_words)
        ]
        translations = torch.full(
            (*ids.shape, self.config.max_target_words), -1, device=ids.device
        ).flatten(0, 1)
        lengths = torch.ones_like(columns[0])
        for length, index in enumerate(self.phrases.find(columns), start=1):
            table = self.translations[length - 1]
            if not len(table):
                continue
            is_known = (index >= 0) & (table[index.clamp(min=0), 0] >= 0)
            translations[is_known], lengths[is_known] = table[index[is_known]], length
        return self.join_phrases(
            *(torch.unflatten(x, 0, ids.shape) for x in (translations, lengths))
        )

    def join_phrases(self, translations: Tensor, lengths: Tensor) -> Tensor:
        """Concatenate the translations of consecutive phrases: b s w, b s -> b t.

        Both arguments describe the longest phrase that starts at each source token: its
        translation and its length. Each phrase starts where the one before it ended.
        """
        rows = []
        for row_translations, row_lengths in zip(
            translations.tolist(), lengths.tolist(), strict=True
        ):
            row, i = list[int](), 0
            while i < len(row_lengths):
                row += [id for id in row_translations[i] if id >= 0]
                i += row_lengths[i]
            rows.append(torch.tensor([*row, self.config.eos]))
        joined = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.config.eos)
        return joined.to(translations.device)

    def cache(self, capacity: int) -> Cache:
        return Cache(1, capacity, source=Cache(1, capacity=None))


def split_texts(ids: Tensor) -> list[list[int]]:
    """Split concatenated texts at the -1 between them."""
    ends = [*(ids < 0).nonzero()[:, 0].tolist(), len(ids)]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [ids[start:end].tolist() for start, end in zip(starts, ends, strict=True)]


def align_words(source: Tensor, target: Tensor) -> list[list[tuple[int, int]]]:
    """For each pair of texts, the links (source index, target index) of aligned words."""
    pairs = WordPairs.from_texts(source, target)
    is_link = alignment_probs(pairs) * alignment_probs(pairs.swap()) > MIN_LINK_PROB
    links: list[list[tuple[int, int]]] = [[] for _ in range(int((source < 0).sum()) + 1)]
    columns = (pairs.text, pairs.source_position, pairs.target_position)
    for text, i, j in torch.stack(columns, dim=1)[is_link].tolist():
        links[text].append((i, j))
    return links


def extract_phrases(
    source: Sequence[int], target: Sequence[int], links: Sequence[tuple[int, int]],
    max_source_words: int, max_target_words: int,
) -> Iterator[tuple[Phrase, Phrase]]:  # fmt: skip
    """Yield every pair of spans whose words are linked with each other and with no word outside."""
    source_links = [[j for i, j in links if i == k] for k in range(len(source))]
    target_links = [[i for i, j in links if j == k] for k in range(len(target))]
    for start in range(len(source)):
        low, high = len(target), -1
        for stop in range(start + 1, min(start + max_source_words, len(source)) + 1):
            low = min((low, *source_links[stop - 1]))
            high = max((high, *source_links[stop - 1]))
            linked = [i for j in range(low, high + 1) for i in target_links[j]]
            if not linked or min(linked) < start or max(linked) >= stop:
                continue
            # also yield the phrase extended by the unaligned words after it
            while high + 1 - low <= max_target_words:
                yield tuple(source[start:stop]), tuple(target[low : high + 1])
                if high + 1 == len(target) or target_links[high + 1]:
                    break
                high += 1
            high = max(j for k in range(start, stop) for j in source_links[k])
