"""Built-in sample data, from Python's own files or generated: no download is needed.

`python_documentation` is for language models, `code_passages` for classification, `number_pairs`
for translation.
"""

import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

PACKAGES = (
    *("asyncio", "email", "encodings", "http", "importlib"),
    *("multiprocessing", "unittest", "urllib", "wsgiref", "xml"),
)


def python_documentation() -> Iterator[str]:
    """The Python reference that `help()` shows, by topic, without repeated paragraphs."""
    import pydoc_data.topics

    seen = {""}
    for _, topic in sorted(pydoc_data.topics.topics.items()):
        paragraphs = [p.strip("\n") for p in topic.split("\n\n")]
        new = [p for p in dict.fromkeys(paragraphs) if p not in seen]
        seen.update(new)
        yield "".join(f"{paragraph}\n\n" for paragraph in new)


def code_passages(per_package: int = 300, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yield `per_package` short passages of code from each package, with package and file."""
    rng = random.Random(seed)
    for package in PACKAGES:
        spec = find_spec(package)
        folder = Path((spec.submodule_search_locations or [""])[0]) if spec else Path()
        files = [p for p in sorted(folder.rglob("*.py")) if "test" not in p.parts]
        texts = [
            (str(p.relative_to(folder.parent)), p.read_text("utf-8").splitlines()) for p in files
        ]
        texts = [(name, lines) for name, lines in texts if len(lines) >= 20]
        weights = [len(lines) for _, lines in texts]
        for name, lines in rng.choices(texts, weights, k=per_package):
            length = rng.randint(3, 8)
            start = rng.randrange(len(lines) - length)
            yield "\n".join(lines[start : start + length]), package, name


# --- numbers and dates in Chinese and English -----------------------------------------------------

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
DIGITS = "零一二三四五六七八九"


def english(n: int) -> str:
    """A number below a million in English words: english(321) is "three hundred twenty-one"."""
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")
    size, name = (100, "hundred") if n < 1000 else (1000, "thousand")
    rest = f" {english(n % size)}" if n % size else ""
    return f"{english(n // size)} {name}{rest}"


def chinese(n: int) -> str:
    """The same in Chinese: chinese(321) is "三百二十一"."""
    if n < 10:
        return DIGITS[n]
    for size, name in ((10_000, "万"), (1000, "千"), (100, "百"), (10, "十")):
        if n >= size:
            head = "" if 10 <= n < 20 else chinese(n // size)
            rest = n % size
            gap = "零" if rest and rest < size // 10 else ""
            return head + name + (gap + chinese_remainder(rest) if rest else "")
    raise AssertionError(n)


def chinese_remainder(n: int) -> str:
    """A number after a larger unit, where ten is 一十 instead of 十."""
    return "一" + chinese(n) if 10 <= n < 20 else chinese(n)


def number_pairs(count: int = 6000, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield distinct pairs: a number or a date in Chinese, and the same in English."""
    rng = random.Random(seed)
    seen: set[tuple[str, str]] = set()
    while len(seen) < count:
        if rng.random() < 0.5:
            n = rng.randrange(10 ** rng.randint(1, 6))
            pair = (chinese(n), english(n))
        else:
            year, month, day = rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28)
            chinese_year = "".join(DIGITS[int(d)] for d in str(year))
            pair = (
                f"{chinese_year}年{chinese(month)}月{chinese(day)}日",
                f"{MONTHS[month - 1]} {day}, {year}",
            )
        if pair not in seen:
            seen.add(pair)
            yield pair
