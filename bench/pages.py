"""Write a generated page of docs/, and its Chinese version, in which bench/zh.json is applied.

    python bench/pages.py

writes the Chinese versions again from the English pages. An English text without an entry in
bench/zh.json stops it with the text. In an entry, {0}, {1}, ... are the numbers of the text.
"""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path

from glassformer import MODELS

HOME = Path(__file__).parents[1]
NAMES = ("depth", "long_context", "systems", "variants")
PAGES = [HOME / "docs" / f"{name}.md" for name in NAMES]
CATALOG = Path(__file__).with_name("zh.json")
PAIR = r"\d+: \d+(?:\.\d+)?%?"
SERIES = rf"{PAIR}(?:[,/ ]+{PAIR})*"  # 1: 100%, 4: 98% / 1: 17%
NUMBER = re.compile(rf"{SERIES}|\d{{4}}-\d\d-\d\d|(?<!\w)\d(?:[\d.,]*\d)?")
MARKUP = re.compile(r"(#+ |- |!\[)?(.*?)(\]\([^()]*\))?", re.DOTALL)  # heading, item, image


def write_page(page: Path, text: str) -> None:
    """Write a page and its Chinese version."""
    page.write_text(text, encoding="utf-8")
    page.with_suffix(".zh.md").write_text(translate_page(text), encoding="utf-8")


def translate_page(text: str) -> str:
    """The Chinese version of a page of headings, paragraphs, lists, tables, images and code."""
    catalog: dict[str, str] = json.loads(CATALOG.read_text(encoding="utf-8"))
    blocks, missing = [], []
    for block in text.strip().split("\n\n"):
        if block.startswith("```"):
            blocks.append(block)
            continue
        lines = block.split("\n")
        if not block.startswith(("|", "-")):
            lines = [" ".join(lines)]
        for i, line in enumerate(lines):
            cells = line.split("|") if line.startswith("|") else [line]
            translations = [translate_text(cell, catalog) for cell in cells]
            missing += [cell for cell, zh in zip(cells, translations, strict=True) if zh is None]
            lines[i] = "|".join(zh or "" for zh in translations)
        blocks.append("\n".join(lines))
    if missing:
        raise ValueError(f"no Chinese in {CATALOG} for:\n" + "\n".join(map(make_key, missing)))
    return "\n\n".join(blocks) + "\n"


def translate_text(text: str, catalog: dict[str, str]) -> str | None:
    """The translation of a cell, item, heading, image or paragraph; None if it is missing."""
    before, content, after = split_markup(text)
    name = content.strip().split(":")[0]
    is_the_same = name in MODELS or re.search("[\u4e00-\u9fff]", content)
    if is_the_same or not re.search("[A-Za-z]", re.sub("`[^`]*`", "", content)):
        return text
    translation = catalog.get(make_key(text))
    values = NUMBER.findall(content)
    return translation and f"{before}{translation.format(*values)}{after}"


def make_key(text: str) -> str:
    """The key of a text in the catalog: without markup, with {0}, {1}, ... for its numbers."""
    numbers = count()
    return NUMBER.sub(lambda _: f"{{{next(numbers)}}}", split_markup(text)[1])


def split_markup(text: str) -> tuple[str, str, str]:
    """What precedes a text (with spaces), the text, and what follows it."""
    stripped = text.strip()
    before, content, after = MARKUP.fullmatch(stripped).groups()
    if before != "![":  # a paragraph that ends with a link
        content, after = content + (after or ""), ""
    left, _, right = text.partition(stripped) if stripped else (text, "", "")
    return left + (before or ""), content, after + right


def main() -> None:
    for page in PAGES:
        write_page(page, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
