"""Built-in sample data, from Python's own files or generated: no download is needed.

`python_documentation` is for language models, `code_passages` for classification, `number_pairs`
for translation, `reports` for summaries, `film_ratings` for recommendation.
"""

import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    """Yield `per_package` short passages of code from each package, with package and file.

    No passage is repeated or blank.
    """
    rng, seen = random.Random(seed), {""}
    for package in PACKAGES:
        spec = find_spec(package)
        folder = Path((spec.submodule_search_locations or [""])[0]) if spec else Path()
        files = [p for p in sorted(folder.rglob("*.py")) if "test" not in p.parts]
        texts = [
            (str(p.relative_to(folder.parent)), p.read_text("utf-8").splitlines()) for p in files
        ]
        texts = [(name, lines) for name, lines in texts if len(lines) >= 20]
        weights = [len(lines) for _, lines in texts]
        count = 0
        while count < per_package:
            ((name, lines),) = rng.choices(texts, weights)
            length = rng.randint(3, 8)
            start = rng.randrange(len(lines) - length)
            passage = "\n".join(lines[start : start + length])
            if passage.strip() not in seen:
                seen.add(passage.strip())
                count += 1
                yield passage, package, name


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
            year = rng.randint(1900, 2099)
            month = rng.randint(1, 12)
            day = rng.randint(1, 28)
            chinese_year = "".join(DIGITS[int(d)] for d in str(year))
            pair = (
                f"{chinese_year}年{chinese(month)}月{chinese(day)}日",
                f"{MONTHS[month - 1]} {day}, {year}",
            )
        if pair not in seen:
            seen.add(pair)
            yield pair


# --- reports with headlines -----------------------------------------------------------------------

COMPANIES = (
    [*"North South East West High Low Green Silver Stone River Lake Hill".split()],
    [*"field bridge port wood mill gate ford haven".split()],
)
PRODUCTS = (
    "bicycles batteries bricks cables clocks engines glass paper pumps ships tools toys".split()
)
CITIES = (
    "Bergen Cork Dakar Graz Izmir Kobe Leeds Lima Lyon Malmo Nantes Osaka Porto Quito Riga "
    "Salta Turin Utrecht Varna Zagreb"
).split()
# a verb for the headline, a sentence that says what happened, and one with its reason
EVENTS = (
    ("opens a plant in {city}", "A new plant will open in {city} in {month}.",
     "The site was chosen because the harbor is near."),
    ("closes its office in {city}", "The office in {city} will close in {month}.",
     "Rents there have doubled within a few years."),
    ("hires {count} people", "By {month}, {count} people are to be hired, most of them in {city}.",
     "Orders have grown faster than the workforce."),
    ("recalls {count} {product}", "In {month}, {count} {product} were called back from {city}.",
     "A test had found a crack in a part."),
    ("buys a rival from {city}", "In {month}, a competitor based in {city} was taken over.",
     "Both sides had been in talks for a year."),
    ("raises prices by {percent} percent", "From {month}, prices go up by {percent} percent.",
     "Energy has become more expensive."),
    ("moves to {city}", "In {month}, the head office will be moved to {city}.",
     "The old building is too small."),
    ("sells {count} {product} to {city}",
     "The city of {city} ordered {count} {product} in {month}.",
     "It is the largest order so far."),
)  # fmt: skip
OPENINGS = (
    "This is the report of the board for the last quarter.",
    "Dear shareholders, thank you for your patience in the past months.",
    "The following notes were taken at the annual meeting.",
    "Here is a short account of what happened since the last letter.",
)
FILLERS = (
    "The weather was mild, and the roads stayed open.", "Guests came from {other} and {third}.",
    "The canteen has a new menu.", "A committee of {small} members checked the books.",
    "Last year the mood was worse.", "The next meeting takes place in {other}.",
    "Several speakers asked for shorter reports.", "The parking lot has {small} more spaces.",
    "A guide for new employees was printed.", "The auditors had no objections.",
    "Visitors from {third} toured the halls.", "The choir sang {small} songs.",
    "The library was painted blue.", "Two questions remained open until the evening.",
)  # fmt: skip


def reports(count: int = 4000, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield long reports with their headlines, each derived from facts in the report.

    The facts are in the middle of the report, in an order and with other words around them.
    """
    rng, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        company = rng.choice(COMPANIES[0]) + rng.choice(COMPANIES[1])
        product = rng.choice(PRODUCTS)
        city, other, third = rng.sample(CITIES, 3)
        verb, fact, reason = rng.choice(EVENTS)
        values = {
            "city": city, "other": other, "third": third, "product": product,
            "month": rng.choice(MONTHS), "count": rng.randrange(20, 900),
            "percent": rng.randrange(2, 30), "small": ONES[rng.randrange(2, 20)],
        }  # fmt: skip
        about = f"The company behind all this is {company}, known for its {product}."
        facts = [about, fact, reason]
        rng.shuffle(facts)
        fillers = rng.sample(FILLERS, rng.randint(6, len(FILLERS)))
        places = sorted(rng.sample(range(len(fillers) + 1), 3), reverse=True)
        for place, sentence in zip(places, facts, strict=True):
            fillers.insert(place, sentence)
        document = " ".join((rng.choice(OPENINGS), *fillers)).format(**values)
        if document not in seen:
            seen.add(document)
            yield document, f"{company} {verb.format(**values)}"


# --- ratings of films -----------------------------------------------------------------------------

GENRES = ("romance", "action", "comedy")  # the hidden features
FILMS = 150
VIEWERS = 400
RATINGS_PER_VIEWER = 45
Features = NDArray[np.float64]


def film_features(seed: int = 0) -> tuple[Features, Features]:
    """The hidden features of films and what each viewer likes: films x 3, viewers x 3."""
    random = np.random.default_rng(seed)
    return random.normal(size=(FILMS, 3)), random.normal(size=(VIEWERS, 3))


def film_titles() -> dict[str, str]:
    """The title of each film names the genres that it has most of."""
    films, _ = film_features()
    titles = {}
    for number, features in enumerate(films, start=1):
        genres = [name for name, value in zip(GENRES, features, strict=True) if value > 0.7]
        titles[f"film-{number}"] = f"Film {number} ({', '.join(genres) or 'drama'})"
    return titles


def film_ratings(seed: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Yield viewer, film, rating (0.5 to 5) and time.

    A rating is 3.2 plus the quality of the film, the kindness of the viewer, the dot product of
    their features and noise. A viewer often sees a film next that is similar to the last.
    """
    random = np.random.default_rng(seed + 1)
    films, viewers = film_features(seed)
    quality = random.normal(0, 0.4, FILMS)
    kindness = random.normal(0, 0.3, VIEWERS)
    distances = np.linalg.norm(films[:, None] - films[None], axis=2)
    for viewer in range(VIEWERS):
        unseen = set(range(FILMS))
        film = int(random.integers(FILMS))
        for time in range(RATINGS_PER_VIEWER):
            score = 3.2 + quality[film] + kindness[viewer] + 0.5 * films[film] @ viewers[viewer]
            score += random.normal(0, 0.3)
            rating = float(np.clip(round(2 * score) / 2, 0.5, 5.0))
            yield f"viewer-{viewer + 1}", f"film-{film + 1}", str(rating), str(time)
            unseen.discard(film)
            rest = sorted(unseen)
            is_similar = random.random() < 0.8
            nearest = rest[int(distances[film, rest].argmin())]
            film = nearest if is_similar else rest[int(random.integers(len(rest)))]
