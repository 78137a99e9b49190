"""The Chinese pages of the documentation have the structure, the code and the numbers of the
English ones."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGLISH_ONLY = {"architecture.md"}  # for developers
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if not page.name.endswith(".zh.md")),
]
TRANSLATED = [page for page in PAGES if page.name not in ENGLISH_ONLY]
LINK = re.compile(r"\]\(([^()\s]+)\)")


def iter_parts(text: str):
    """The line number, kind and text of each line of code or of a table, item and paragraph."""
    paragraph, start, in_code = [], 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        begins = in_code or not line.strip() or line.startswith(("```", "#", "|", "- "))
        if begins and paragraph:
            yield start, "paragraph", " ".join(paragraph)
            paragraph = []
        if line.startswith("```"):
            in_code = not in_code
            yield number, "code", line
        elif in_code:
            yield number, "code", line
        elif line.startswith("#"):
            yield number, "heading", line
        elif line.startswith("|"):
            yield number, "row of a table", line
        elif line.strip():
            start = start if paragraph else number
            paragraph.append(line.strip())
    yield number, "end of the page", ""


def outline(kind: str, text: str):
    """What a part has in both languages."""
    if kind == "code":  # without the comment, or the description in a listing of folders
        return re.match(r"\s*", text)[0] + re.split(r"  | #", text.strip())[0]
    if kind == "heading":
        return text.partition(" ")[0], *describe_content(text)
    if kind == "row of a table":
        return [describe_content(cell) for cell in text.split("|")]
    return text.startswith("- "), *describe_content(text)


def describe_content(text: str):
    """The inline code, the targets of links and images, and the numbers of a text, each sorted."""
    code = re.findall(r"`[^`]+`", text)
    targets = [target.replace(".zh.md", ".md") for target in LINK.findall(text)]
    prose = re.sub(r"`[^`]+`|\[[^\[\]]*\.md\]|" + LINK.pattern, "", text)
    return sorted(code), sorted(targets), sorted(re.findall(r"\d+(?:[.,]\d+)*", prose))


def find_difference(english: str, chinese: str) -> str | None:
    """The first part in which the two texts differ; None if there is no difference."""
    parts = zip(iter_parts(english), iter_parts(chinese), strict=False)
    for (line, kind, text), (line_zh, kind_zh, text_zh) in parts:
        expected, got = (kind, outline(kind, text)), (kind_zh, outline(kind_zh, text_zh))
        if expected != got:
            return (
                f"line {line_zh}: expected {expected}, as in line {line} of the English page, "
                f"got {got}\n  English: {text}\n  Chinese: {text_zh}"
            )
    return None


def chinese_page(page: Path) -> Path:
    return page.with_suffix(".zh.md")


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_chinese_page_has_what_the_english_page_has(page):
    translation = chinese_page(page)
    assert translation.exists(), f"{page.name} has no Chinese version: write {translation.name}"
    text = translation.read_text(encoding="utf-8")
    difference = find_difference(page.read_text(encoding="utf-8"), text)
    assert difference is None, f"{translation.name} is not like {page.name}: {difference}"
    assert len(re.findall("[\u4e00-\u9fff]", text)) > 100


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_links_of_a_chinese_page_exist_and_lead_to_chinese_pages(page):
    translation = chinese_page(page)
    for target in LINK.findall(translation.read_text(encoding="utf-8")):
        if "://" in target or target == page.name:  # the English version of this page
            continue
        file = translation.parent / target.partition("#")[0]
        assert file.exists(), f"{translation.name}: {target} does not exist"
        assert not chinese_page(file).exists(), (
            f"{translation.name}: {target} has a Chinese version"
        )


def test_every_chinese_page_has_an_english_one():
    translations = {*ROOT.glob("*.zh.md"), *(ROOT / "docs").rglob("*.zh.md")}
    assert translations == {chinese_page(page) for page in TRANSLATED}


def test_generated_chinese_pages_are_up_to_date():
    sys.path.insert(0, str(ROOT / "bench"))
    import pages

    assert {page.name for page in pages.PAGES} <= {page.name for page in TRANSLATED}
    for page in pages.PAGES:
        expected = pages.translate_page(page.read_text(encoding="utf-8"))
        got = chinese_page(page).read_text(encoding="utf-8")
        assert got == expected, f"{page.name} has changed: run python bench/pages.py"


def test_generated_pages_need_a_translation_of_every_text():
    sys.path.insert(0, str(ROOT / "bench"))
    import pages

    row = "| network | copy, 12 |\n| --- | --- |\n| gpt2 | 3.5 |\n"
    assert pages.translate_page(row) == row.replace("network", "网络").replace("copy, ", "复制，")
    with pytest.raises(ValueError, match=r"for:\na new sentence with \{0\} numbers"):
        pages.translate_page("a new sentence with 2 numbers")


ENGLISH = """# Title

Two of 12 are `red`; see [data.md](data.md).

- one
- two

![a plot](plot.png)

```
glass info   # about this machine
```

| model | loss |
| --- | --- |
| `gpt2` | 1.5 or 2 |
"""
CHINESE = """# 标题

12 个中有两个是 `red`；见 [data.zh.md](data.zh.md)。

- 一
- 二

![图](plot.png)

```
glass info   # 本机的信息
```

| 模型 | 损失 |
| --- | --- |
| `gpt2` | 2 或 1.5 |
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("# Title", "## Title", "line 1: .*heading"),
        ("# Title", "# Title\n\n## A new section", "line 3: .*heading"),
        ("12", "13", "line 3: .*'13'"),
        ("`red`", "`blue`", "line 3: .*blue"),
        ("data.md", "other.md", "line 3: .*other.md"),
        ("- two\n", "", "line 6: .*"),
        ("plot.png", "other.png", "line 8: .*other.png"),
        ("glass info", "glass info --json", "line 11: .*--json"),
        ("1.5", "1.6", "line 16: .*1.6"),
        ("| `gpt2` | 1.5 or 2 |\n", "| `gpt2` | 1.5 or 2 |\n\nNew.\n", "line 18: .*New"),
    ],
)
def test_a_change_of_the_english_page_is_found(old, new, expected):
    assert find_difference(ENGLISH, CHINESE) is None
    assert re.match(expected, find_difference(ENGLISH.replace(old, new), CHINESE) or "", re.DOTALL)
