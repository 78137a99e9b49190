"""Translate: write in one language what was read in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data.batches import Buckets, group, in_a_row, padded, some_of
from glassformer.data.corpus import LEARN, default_vocab, learn_tokenizer, ready_tokenizer
from glassformer.data.files import TABLES, Bad, Quiet, kind_of
from glassformer.data.labelled import aligned, first_rows, table_rows
from glassformer.data.sample import numbers
from glassformer.data.split import Overlap
from glassformer.data.store import Store, Writer
from glassformer.errors import GlassError
from glassformer.generate.decode import finished_texts
from glassformer.generate.sampling import GREEDY
from glassformer.live import Bar, Live
from glassformer.tasks.task import Batch, Given
from glassformer.text.tokenizer import Tokenizer

START, END = "<start>", "<end>"
LINKS = 8_000_000  # pairs of words that a phrase table is learnt from: memory
LONGEST = 256  # tokens on either side; longer pairs are left out, and counted

Pair = tuple[str, str, str, str]  # place, source, target, part


class Translate:
    name: ClassVar[str] = "translate"
    models: ClassVar[tuple[str, ...]] = ("translator", "recurrent_translator", "phrases")
    built_on: ClassVar[dict[str, str]] = {}
    settings: ClassVar[dict[str, Any]] = {
        "dim": 192,
        "depth": 2,
        "heads": 4,
        "hidden": 768,
        "dropout": 0.1,
    }
    training: ClassVar[dict[str, Any]] = {
        "batch": 2,
        "rate": 1e-3,
        "beta2": 0.98,
        "decay": 0.01,
        "warmup": 0.1,
    }
    figure: ClassVar[str] = "loss"
    peek: ClassVar[int] = 64  # each is written out to its end, which takes long at first
    whole: ClassVar[int | None] = None
    table: ClassVar[bool] = True
    unit: ClassVar[str] = "tokens"
    counted: ClassVar[str] = "phrases"
    simple: ClassVar[str] = "a table of phrases"
    verdict: ClassVar[str] = "chrf"

    def __init__(self, tokenizer: Tokenizer, facts: dict[str, Any], folder: Path) -> None:
        self.tokenizer, self.facts = tokenizer, facts
        self.begin, self.end = start_and_end(tokenizer)
        self.parts = {
            name: (
                Store(folder / f"{name}.source.ids", tokenizer.vocab),
                Store(folder / f"{name}.target.ids", tokenizer.vocab),
            )
            for name in ("train", "valid")
        }

    @classmethod
    def prepare(cls, given: Given, folder: Path, tell: Live) -> Self:
        pairs = reader(given, tell)
        sample: list[str] = []
        size = 0
        count = 0
        for _, source, target, _ in pairs(given.bad):
            count += 1
            size += len(source) + len(target)
            if size < LEARN:
                sample += (source, target)
        if not sample:
            raise GlassError("there are no pairs to learn from")
        tokenizer = make_tokenizer(given, sample, tell)

        sides = ("source", "target")
        writers = {
            (part, side): Writer(folder / f"{part}.{side}.ids", tokenizer.vocab)
            for part in ("train", "valid")
            for side in sides
        }
        counts = {"train": 0, "valid": 0, "too long": 0}
        overlap, bar = Overlap(), Bar(tell, "encoding", count)
        for place, source, target, part in pairs(Quiet()):
            ids = [tokenizer.encode(text) for text in (source, target)]
            if max(map(len, ids)) > LONGEST:
                counts["too long"] += 1
                given.bad(place, f"a side is longer than {LONGEST} tokens", source)
                continue
            counts[part] += 1
            overlap.add(part, source)
            bar.add(1)
            for side, one in zip(sides, ids, strict=True):
                writers[part, side].add(one)
        for writer in writers.values():
            writer.close()
        if not counts["valid"] or not (counts["train"] or given.share == 1):
            raise GlassError(f"{count} pairs are too few to learn from and to validate on")
        tell(f"{counts['train']:,} pairs to learn from, {counts['valid']:,} to validate on")
        if both := overlap.count():
            tell(f"{both:,} of the validation sources are among those to learn from: too easy")
        return cls(tokenizer, {}, folder)

    def sizes(self) -> dict[str, int]:
        return {"vocab": self.tokenizer.vocab, "end": self.end}

    def start(self, batch: int, context: int, seed: int) -> None:
        source, target = self.parts["train"]
        self.buckets = Buckets(source.lengths + target.lengths + 2, batch * 1024, seed)

    def batch(self, step: int) -> Batch:
        return self.gather("train", self.buckets.at(step))

    def gather(self, part: str, rows: np.ndarray[Any, Any]) -> Batch:
        """Sources, and targets that start with a mark and are asked to end with another."""
        source, target = self.parts[part]
        nothing = np.array([self.end])
        read = [source[i] if source.lengths[i] else nothing for i in rows]
        ids, keep = padded([np.concatenate(([self.begin], target[i], [self.end])) for i in rows])
        source_ids, source_keep = padded(read)
        answers = torch.where(keep[:, 1:], ids[:, 1:], -100)
        return {
            "ids": ids[:, :-1],
            "keep": keep[:, :-1],
            "answers": answers,
            "source": source_ids,
            "source_keep": source_keep,
        }

    def epoch(self) -> int:
        return len(self.buckets)

    def count(self, batch: Batch) -> int:
        return int((batch["answers"] >= 0).sum())

    def loss(self, network: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
        logits = network(batch["ids"], batch["source"], source_keep=batch["source_keep"])
        answers = batch["answers"].flatten()
        logits = logits.flatten(0, 1).float()
        return F.cross_entropy(logits, answers, reduction="sum", label_smoothing=smoothing)

    def evaluate(self, network: nn.Module, most: int | None = None) -> dict[str, Any]:
        """Loss under teacher forcing, and how many translations are right to the letter."""
        device, (source, target) = next(network.parameters()).device, self.parts["valid"]
        chosen = some_of(len(source), most)
        lengths = (source.lengths + target.lengths + 2)[chosen]
        total, count, said = 0.0, 0, dict[int, list[int]]()
        with torch.inference_mode():
            for rows in group(np.argsort(lengths, kind="stable"), lengths, 8192):
                examples = chosen[rows]
                batch = {k: v.to(device) for k, v in self.gather("valid", examples).items()}
                total += float(self.loss(network, batch))
                count += self.count(batch)
                said.update(zip(examples.tolist(), self.say(network, batch), strict=True))
        exact = sum(words == target[i].tolist() for i, words in said.items()) / len(chosen)
        figures = {"loss": total / count, "exact": exact, "examples": len(chosen), "tokens": count}
        return figures | self.bleu(said)

    def bleu(self, said: dict[int, list[int]]) -> dict[str, Any]:
        """sacreBLEU and chrF, with the signature that makes them comparable."""
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        decode, (_, target) = self.tokenizer.decode, self.parts["valid"]
        ours = [decode(ids) for ids in said.values()]
        right = [decode(target[i].tolist()) for i in said]
        ideographs = sum(c.isalpha() and ord(c) > 0x2E80 for text in right for c in text)
        metric = BLEU(tokenize="zh" if ideographs > len("".join(right)) / 3 else "13a")
        bleu = metric.corpus_score(ours, [right])
        chrf = CHRF().corpus_score(ours, [right])
        signature = str(metric.get_signature())
        return {"bleu": bleu.score, "bleu_signature": signature, "chrf": chrf.score}

    def say(self, network: nn.Module, batch: Batch) -> list[list[int]]:
        start = torch.full_like(batch["ids"][:, :1], self.begin)
        read = {name: batch[name] for name in ("source", "source_keep")}
        new = limits_for(batch["source_keep"])
        return finished_texts(network, start, new, end=self.end, sampling=GREEDY, **read)

    @property
    def size(self) -> int:
        source, target = self.parts["train"]
        return source.size + target.size

    @property
    def predictions(self) -> int:
        _, target = self.parts["train"]
        return target.size + len(target)  # and each ends

    def teach(self, network: Any, share: float) -> float:
        source, target = self.parts["train"]
        links = float((source.lengths * target.lengths).sum())  # every word with every other
        share = min(share, LINKS / max(links, 1))
        rows = some_of(len(source), max(round(len(source) * share), 1))
        network.learn(in_a_row(source, rows), in_a_row(target, rows))
        return len(rows) / len(source)

    def sample(self, network: nn.Module) -> str:
        rows = np.arange(min(4, len(self.parts["valid"][0])))
        device = next(network.parameters()).device
        batch = {k: v.to(device) for k, v in self.gather("valid", rows).items()}
        decode, said = self.tokenizer.decode, self.say(network, batch)
        source = self.parts["valid"][0]
        return "\n".join(
            f"{decode(source[i].tolist())}  ->  {decode(one)}" for i, one in enumerate(said)
        )


def start_and_end(tokenizer: Tokenizer) -> tuple[int, int]:
    """The ids of the marks before and after a translation."""
    if not {START, END} <= tokenizer.specials.keys():
        raise GlassError(f"to translate, a tokenizer needs the marks {START} and {END}")
    return tokenizer.specials[START], tokenizer.specials[END]


def limits_for(source_keep: Tensor) -> list[int]:
    """How many tokens a translation of each text may have, whatever stands beside it: b s -> b."""
    lengths: list[int] = source_keep.sum(dim=1).tolist()
    return [min(LONGEST, 4 * length + 30) for length in lengths]


def make_tokenizer(given: Given, sample: list[str], tell: Live) -> Tokenizer:
    """Byte-level BPE for both languages together; the sample is read by characters."""
    if given.ready:
        return ready_tokenizer(given.ready, sample, extend=given.extend, tell=tell)
    kind = given.tokenizer or ("bpe" if given.files else "characters")
    size = sum(len(text.encode("utf-8", "replace")) for text in sample)
    vocab = None if kind == "characters" else given.vocab or default_vocab(kind, size)
    return learn_tokenizer(kind, sample, vocab=vocab, specials=(START, END))


def reader(given: Given, tell: Live) -> Callable[[Bad], Iterator[Pair]]:
    """The pairs, readable again and again: of a table, of two aligned files, or a sample."""
    if not given.files:
        tell("no data given: numbers and dates, from Chinese to English")
        return lambda _: (("", *pair, given.part_of(pair[0])) for pair in numbers())
    sides = [(*side, side_reader(replace(given, files=side[0]), tell)) for side in given.sides()]

    def pairs(bad: Bad) -> Iterator[Pair]:
        for _, part, read in sides:
            for place, source, target in read(bad):
                if source.strip() and target.strip():
                    yield place, source.strip(), target.strip(), part or given.part_of(source)
                else:
                    bad(place, "one side is empty", f"{source}\t{target}")

    return pairs


def side_reader(given: Given, tell: Live) -> Callable[[Bad], Iterator[tuple[str, str, str]]]:
    tables = all(kind_of(file) in TABLES for file in given.files)
    if len(given.files) == 1 and not tables and not given.files[0].is_dir():
        raise GlassError(
            f"{given.files[0]} is no table: name two files of lines that translate each other, "
            "with --source and --target (and --valid twice)"
        )
    if len(given.files) == 2 and not given.text and not tables:
        return lambda bad: aligned(given.files[0], given.files[1], bad)
    first = first_rows(given.files, given.separator)
    if not first:
        raise GlassError(f"{given.files[0]} has no rows")
    names = given.text or tuple(first[0].values)[:2]
    if len(names) != 2 or not all(name in first[0].values for name in names):
        raise GlassError(
            f"two columns are needed, a source and a target; have {list(first[0].values)}"
        )
    tell(f"source: {names[0]}; target: {names[1]}")
    return lambda bad: (
        (row.place, row.values.get(names[0], ""), row.values.get(names[1], ""))
        for row in table_rows(given.files, bad, given.separator)
    )
