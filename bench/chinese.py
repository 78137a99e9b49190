"""Split English-Chinese sentence pairs so that no sentence is in two splits.

    python bench/chinese.py cmn.txt[.gz] FOLDER

Reads tab-separated lines of English, Chinese and attribution (ignored), the format of Tatoeba's
sentence pairs; writes train.tsv, valid.tsv and test.tsv with Chinese and English. Sentences that
are linked by translations, directly or through others, form a group and stay in one split: 1/28 of
the groups for validation and 1/28 for testing, chosen by a hash of the group.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import sys
from pathlib import Path

BUCKETS = 28  # buckets of groups: one for validation, one for testing


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """Read distinct pairs of Chinese and English, shuffled."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    pairs = list(dict.fromkeys((chinese, english) for english, chinese, *_ in rows))
    random.Random(0).shuffle(pairs)
    return pairs


def find_groups(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the group of each Chinese sentence, found by union-find over the translations."""
    parent: dict[str, str] = {}

    def find_root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    for chinese, english in pairs:
        parent[find_root(f"z{chinese}")] = find_root(f"e{english}")
    return {chinese: find_root(f"z{chinese}") for chinese, _ in pairs}


def choose_split(group: str) -> str:
    bucket = int.from_bytes(hashlib.sha256(group.encode()).digest()[:4], "big") % BUCKETS
    return {0: "test", 1: "valid"}.get(bucket, "train")


def split(file: Path, folder: Path) -> None:
    pairs = read_pairs(file)
    groups = find_groups(pairs)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        selected = [pair for pair in pairs if choose_split(groups[pair[0]]) == name]
        lines = ["chinese\tenglish", *("\t".join(pair) for pair in selected)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
        print(f"{folder / name}.tsv: {len(selected):,} pairs")


if __name__ == "__main__":
    split(Path(sys.argv[1]), Path(sys.argv[2]))
