"""Pairs of sentences, English and Chinese, split so that no sentence stands on both sides.

    python bench/chinese.py cmn.txt[.gz] FOLDER

Reads lines of English, Chinese and (left alone) where they come from, as Tatoeba's pairs are given
away; writes train.tsv, valid.tsv and test.tsv, each of Chinese and English. Sentences that
translate each other, directly or through others, stay together: one of 28 such groups is for
validation, one for the test, chosen by a hash of the group.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import sys
from pathlib import Path

PARTS = 28


def read(file: Path) -> list[tuple[str, str]]:
    """Chinese and English, each pair once, shuffled."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    pairs = list(dict.fromkeys((chinese, english) for english, chinese, *_ in rows))
    random.Random(0).shuffle(pairs)
    return pairs


def groups(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """For each Chinese sentence the name of its group: of all that it is joined to."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    for chinese, english in pairs:
        parent[root(f"z{chinese}")] = root(f"e{english}")
    return {chinese: root(f"z{chinese}") for chinese, _ in pairs}


def part_of(group: str) -> str:
    number = int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") % PARTS
    return {0: "test", 1: "valid"}.get(number, "train")


def split(file: Path, folder: Path) -> None:
    pairs = read(file)
    group = groups(pairs)
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "valid", "test"):
        chosen = [pair for pair in pairs if part_of(group[pair[0]]) == part]
        lines = ["chinese\tenglish", *("\t".join(pair) for pair in chosen)]
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n")
        print(f"{folder / part}.tsv: {len(chosen):,} pairs")


if __name__ == "__main__":
    split(Path(sys.argv[1]), Path(sys.argv[2]))
