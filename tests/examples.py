"""Small data files for every task."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image


def write_examples(folder: Path) -> dict[str, Path]:
    """Write a data file, or a folder of images, for each task: returns its path by task."""
    book = folder / "book.txt"
    book.write_text("the cat sat on the mat and the dog sat on the log. " * 200)

    rows = [f"the {'good' if i % 2 else 'bad'} film number {i},{i % 2}" for i in range(120)]
    labels = folder / "labels.csv"
    labels.write_text("text,label\n" + "\n".join(rows))

    english, german = "one two three".split(), "eins zwei drei".split()
    phrase = lambda words, i: f"{words[i % 3]} {words[i // 3 % 3]} {i}"
    pairs = folder / "pairs.tsv"
    pairs.write_text("\n".join(f"{phrase(english, i)}\t{phrase(german, i)}" for i in range(120)))

    reports = folder / "reports.jsonl"
    documents = [(f"The {phrase(english, i)} is here. Bye.", english[i % 3]) for i in range(60)]
    reports.write_text("\n".join(json.dumps({"document": d, "summary": s}) for d, s in documents))

    ratings = folder / "ratings.csv"
    rows = [f"{i % 7},{i % 11},{i % 5},{i}" for i in range(60)]
    ratings.write_text("user,item,rating,time\n" + "\n".join(rows))

    images, rng = folder / "images", np.random.default_rng(0)
    for i in range(40):
        label = ("dark", "light")[i % 2]
        (images / label).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(128 * (i % 2), 128 * (i % 2) + 128, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(images / label / f"{i}.png")

    return {
        "generate": book,
        "fill-mask": book,
        "classify": labels,
        "translate": pairs,
        "summarize": reports,
        "recommend": ratings,
        "recommend-next": ratings,
        "classify-images": images,
        "paint": images,
    }
