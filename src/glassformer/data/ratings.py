"""Read ratings (user, item, rating or time) and the titles of items from tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.data.examples import Example, ExampleReader
from glassformer.data.files import BadRowPolicy, IgnoreBadRows, Row
from glassformer.data.rating_scale import check_rating, check_time
from glassformer.data.request import DataRequest
from glassformer.data.sample import film_ratings, film_titles
from glassformer.data.tables import describe_formats, read_rows

USER_NAMES = (
    *("user", "userid", "username", "customer", "customerid", "reviewer", "reviewerid", "uid"),
    *("viewer", "member", "account", "用户", "用户id"),
)
ITEM_NAMES = (
    *("item", "itemid", "movie", "movieid", "film", "filmid", "product", "productid", "book"),
    *("bookid", "isbn", "song", "songid", "track", "trackid", "artist", "artistid", "asin"),
    *("business", "businessid", "article", "articleid", "iid", "物品", "电影", "商品", "电影id"),
)
RATING_NAMES = ("rating", "ratings", "stars", "star", "score", "overall", "评分", "分数")
TIME_NAMES = (
    *("timestamp", "time", "date", "datetime", "ts", "unixreviewtime", "ratedat", "created"),
    *("createdat", "时间", "日期"),
)
TITLE_NAMES = ("title", "name", "movietitle", "itemname", "标题", "片名", "名称", "书名")
FIRST_ROWS = 100  # looked at to choose the columns

Check = Callable[[str], str | None]  # says what is wrong with a rating or time; None if nothing is


@dataclass(frozen=True)
class RatingColumns:
    """The columns of a table of ratings; `value` is the rating, or the time of an event."""

    user: str
    item: str
    value: str | None

    @property
    def metadata(self) -> dict[str, Any]:
        target = {"target": self.value} if self.value else {}
        return {"text": [self.user, self.item], **target}


@dataclass(frozen=True)
class RatingFiles:
    """The user's files: tables of ratings, and tables with the titles of items."""

    ratings: tuple[Path, ...]
    titles: tuple[Path, ...]


# --- files and columns ----------------------------------------------------------------------------


def fold(name: str) -> str:
    """A column name without case, spaces and marks: userId, user_id and "User ID" are the same."""
    return "".join(c for c in name.casefold() if c.isalnum())


def find_column(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The first column with one of the known names, in the order of these."""
    by_name = {fold(name): name for name in reversed(names)}
    return next((by_name[name] for name in known if name in by_name), None)


def split_files(request: DataRequest) -> RatingFiles:
    """Separate tables of titles, which have items and titles but no users, from ratings."""
    titles = []
    for file in request.files:
        names = list(next((row.values for row in read_first_rows(file, request)), {}))
        is_catalog = find_column(names, ITEM_NAMES) and find_column(names, TITLE_NAMES)
        if is_catalog and not find_column(names, USER_NAMES) and request.text[:1] != (names[0],):
            titles.append(file)
    ratings = tuple(file for file in request.files if file not in titles)
    if request.files and not ratings:
        raise GlassError(
            f"{request.files[0]} has titles of items but no ratings: expected a table with the "
            "columns user, item and rating"
        )
    return RatingFiles(ratings, tuple(titles))


def read_first_rows(file: Path, request: DataRequest) -> list[Row]:
    return list(islice(read_rows(file, IgnoreBadRows(), request.format), FIRST_ROWS))


def choose_columns(
    rows: list[Row], request: DataRequest, kind: str, known: Sequence[str]
) -> RatingColumns:
    """The columns that the user named, or those of the training data, or those with known names.

    `kind` is rating or time, and `known` the names of such columns. Without a header, the columns
    are user, item, rating and time.
    """
    names = list(rows[0].values)
    for name in (*request.text, *([request.label] if request.label else [])):
        if name not in names:
            raise GlassError(f"unknown column {name!r}; the columns are {', '.join(names)}")
    trained = [name if name in names else None for name in trained_columns(request)]
    if names == [str(i + 1) for i in range(len(names))]:
        numbered = [*names, None, None, None, None]
        guessed = [*numbered[:2], numbered[2 if kind == "rating" else 3]]
    else:
        guessed = [find_column(names, known) for known in (USER_NAMES, ITEM_NAMES, known)]
    given = [*request.text[:2], *[None] * (2 - len(request.text)), request.label]
    user, item, value = (a or b or c for a, b, c in zip(given, trained, guessed, strict=True))
    for name, column, option in (
        ("users", user, "--text USER --text ITEM"),
        ("items", item, "--text USER --text ITEM"),
        ("ratings", value or kind == "time", "--label RATING"),
    ):
        if not column:
            raise GlassError(
                f"no column looks like the {name}: choose it with {option}; the columns are "
                f"{', '.join(names)}"
            )
    if len({user, item, value}) < 3:
        raise GlassError(
            f"user, item and {kind} must be three columns, got {user!r}, {item!r} and {value!r}"
        )
    return RatingColumns(str(user), str(item), value)


def trained_columns(request: DataRequest) -> list[str | None]:
    """The columns that the model to evaluate was trained on: user, item, rating or time."""
    return [*(request.trained_text or (None, None)), request.trained_target]


# --- ratings --------------------------------------------------------------------------------------


def make_rating_reader(
    request: DataRequest, reporter: Reporter, kind: str = "rating"
) -> tuple[ExampleReader, dict[str, Any], dict[str, str]]:
    """Return a function that reads the ratings, metadata about the columns, and titles by item.

    The texts of an example are the user, the item and, by `kind`, the rating or the time, which is
    empty if the table has no times.
    """
    if not request.files:
        reporter("no data given: using ratings of films that are generated from hidden features")
        at = 2 if kind == "rating" else 3
        return (
            lambda _: (
                make_example(request, "", (user, item, (user, item, rating, time)[at]), None)
                for user, item, rating, time in film_ratings()
            ),
            {"text": ["user", "item"], "target": kind},
            film_titles(),
        )
    for line in describe_formats((*request.files, *request.valid), request.format):
        reporter(line)
    files = split_files(request)
    first = read_first_rows(files.ratings[0], request)
    if not first:
        raise GlassError(f"{files.ratings[0]} has no rows")
    known = RATING_NAMES if kind == "rating" else TIME_NAMES
    columns = choose_columns(first, request, kind, known)
    value = f'{kind} = "{columns.value}"' if columns.value else "no times, so in order of the rows"
    reporter(f'columns: user = "{columns.user}", item = "{columns.item}", {value}')
    check = check_rating if kind == "rating" else check_time

    def read(on_bad_row: BadRowPolicy) -> Iterator[Example]:
        for paths, split in ((files.ratings, "train" if request.valid else None),
                             (request.valid, "valid")):  # fmt: skip
            for file in paths:
                for row in read_rows(file, on_bad_row, request.format):
                    if problem := find_problem(row, columns, check):
                        on_bad_row(row.location, problem, str(row.values))
                        continue
                    names = (columns.user, columns.item, columns.value)
                    texts = tuple(row.values[n].strip() if n else "" for n in names)
                    yield make_example(request, row.location, texts, split)

    return read, columns.metadata, read_titles(files.titles, request, reporter)


def make_example(
    request: DataRequest, location: str, texts: tuple[str, ...], split: str | None
) -> Example:
    key = "\0".join(texts[:2])  # so that a repeated rating is in the same split
    return Example(location, texts, split or request.assign_split(key), group=key)


def find_problem(row: Row, columns: RatingColumns, check: Check) -> str | None:
    """What is wrong with a row of ratings; None if nothing is."""
    for name in (columns.user, columns.item, columns.value):
        if name and name not in row.values:
            return f"there is no column {name!r}"
        if name and not row.values[name].strip():
            return f"the column {name!r} is empty"
    return check(row.values[columns.value]) if columns.value else None


def read_titles(
    files: tuple[Path, ...], request: DataRequest, reporter: Reporter
) -> dict[str, str]:
    """The title of each item in tables with the columns item and title."""
    titles: dict[str, str] = {}
    for file in files:
        for row in read_rows(file, request.on_bad_row, request.format):
            names = list(row.values)
            item = find_column(names, ITEM_NAMES)
            title = find_column(names, TITLE_NAMES)
            if item and title and row.values[item].strip() and row.values[title].strip():
                titles[row.values[item].strip()] = row.values[title].strip()
        reporter(f"{file}: titles of {len(titles):,} items")
    return titles
