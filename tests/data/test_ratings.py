"""Tables of ratings: columns are guessed, and a bad row gives one line with what to do."""

import csv
from collections import Counter

import pytest

from glassformer import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.catalog import Catalog
from glassformer.data.files import BadRowPolicy
from glassformer.data.rating_scale import Scale, parse_time
from glassformer.data.ratings import make_rating_reader
from glassformer.data.request import DataOptions, DataRequest
from glassformer.data.sample import film_ratings, film_titles

HEADER = ("userId", "movieId", "rating", "timestamp")
ROWS = [("7", "1", "4.0", "100"), ("7", "2", "3.5", "90"), ("8", "1", "5.0", "80")]


def write(path, rows, header=HEADER):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows] if header else rows)
    return path


def read(*files, kind="rating", on_bad_row=None, **options):
    """Return the texts of all examples, the metadata of the columns and the titles."""
    request = DataRequest(files=files, **options)
    reader, columns, titles = make_rating_reader(request, NullReporter(), kind)
    return [e.texts for e in reader(on_bad_row or BadRowPolicy())], columns, titles


# --- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        HEADER,
        ("User ID", "item", "stars", "date"),
        ("reviewer_id", "ISBN", "Score", "time"),
        ("用户", "电影", "评分", "时间"),
    ],
)
def test_columns_are_guessed_by_their_names(tmp_path, header):
    file = write(tmp_path / "a.csv", ROWS, header)
    texts, columns, _ = read(file)
    assert texts == [row[:3] for row in ROWS]
    assert columns == {"text": [*header[:2]], "target": header[2]}
    texts, columns, _ = read(file, kind="time")
    assert texts == [(user, item, time) for user, item, _, time in ROWS]
    assert columns["target"] == header[3]


def test_columns_can_be_chosen(tmp_path):
    file = write(tmp_path / "a.csv", ROWS, ("a", "b", "c", "d"))
    texts, columns, _ = read(file, text=("b", "a"), label="d")
    assert texts[0] == ("1", "7", "100")
    assert columns == {"text": ["b", "a"], "target": "d"}


def test_without_a_header_the_columns_are_user_item_rating_and_time(tmp_path):
    file = write(tmp_path / "a.csv", ROWS, header=None)
    assert read(file, header=False)[0] == [row[:3] for row in ROWS]
    assert read(file, header=False, kind="time")[0][0] == ("7", "1", "100")


def test_without_times_the_order_is_that_of_the_rows(tmp_path):
    file = write(tmp_path / "a.csv", [row[:3] for row in ROWS], HEADER[:3])
    texts, columns, _ = read(file, kind="time")
    assert texts == [(user, item, "") for user, item, *_ in ROWS]
    assert "target" not in columns


def test_a_table_of_titles_is_recognized_in_any_position(tmp_path):
    ratings = write(tmp_path / "ratings.csv", ROWS)
    movies = write(tmp_path / "movies.csv", [("1", "Heat"), ("2", "Up")], ("movieId", "title"))
    for files in ((ratings, movies), (movies, ratings)):
        texts, _, titles = read(*files)
        assert len(texts) == 3
        assert titles == {"1": "Heat", "2": "Up"}
    with pytest.raises(GlassError, match=r"movies\.csv has titles of items but no ratings"):
        read(movies)


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        (("a", "item", "rating"), {}, "no column looks like the users: choose it with --text USER"),
        (("user", "a", "rating"), {}, "no column looks like the items: .* user, a, rating"),
        (("user", "item", "a"), {}, "no column looks like the ratings: .* --label RATING"),
        (("user", "item", "rating"), {"label": "grade"}, "unknown column 'grade'; the columns are"),
        (("user", "item", "a"), {"label": "item"}, "user, item and rating must be three columns"),
    ],
)
def test_missing_columns_are_named(tmp_path, header, options, message):
    file = write(tmp_path / "a.csv", [row[:3] for row in ROWS], header)
    with pytest.raises(GlassError, match=message):
        read(file, **options)


def test_a_file_without_rows_is_rejected(tmp_path):
    with pytest.raises(GlassError, match=r"a\.csv"):
        read(write(tmp_path / "a.csv", []))


# --- bad rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "kind", "reason"),
    [
        (("9", "1", "good", "1"), "rating", "the rating 'good' is not a number"),
        (("9", "1", "nan", "1"), "rating", "the rating 'nan' is not a number"),
        (("9", "1", "inf", "1"), "rating", "the rating 'inf' is not a number"),
        (("9", "1", "", "1"), "rating", "the column 'rating' is empty"),
        ((" ", "1", "2", "1"), "rating", "the column 'userId' is empty"),
        (("9", "1", "2", "soon"), "time", "the time 'soon' is neither a number nor a date"),
    ],
)
def test_a_bad_row_is_an_error_or_skipped(tmp_path, row, kind, reason):
    file = write(tmp_path / "a.csv", [ROWS[0], row, *ROWS[1:]])
    with pytest.raises(GlassError, match=rf"a\.csv:3: {reason}"):
        read(file, kind=kind)
    on_bad_row = BadRowPolicy(tmp_path / "skipped.jsonl")
    assert len(read(file, kind=kind, on_bad_row=on_bad_row)[0]) == 3
    assert on_bad_row.count == 1


def test_times_are_numbers_or_dates():
    assert parse_time("964982703") == 964982703
    assert parse_time("2026-11-18") < parse_time("2026-11-18 09:30:00") < parse_time("2026-11-19")
    assert parse_time("yesterday") is None


def test_all_ratings_of_an_item_by_a_user_are_in_one_split(tmp_path):
    rows = [("7", str(i % 30), str(i % 7), "0") for i in range(90)]
    request = DataRequest(files=(write(tmp_path / "a.csv", rows),), valid_fraction=0.5)
    reader, _, _ = make_rating_reader(request, NullReporter())
    splits = {}
    for example in reader(BadRowPolicy()):
        splits.setdefault(example.texts[:2], set()).add(example.split)
    assert all(len(split) == 1 for split in splits.values())
    assert {"train", "valid"} == set().union(*splits.values())


def test_ratings_in_validation_files_are_for_validation_and_all_others_for_training(tmp_path):
    rows = [(str(i), "1", "4", "0") for i in range(60)]
    request = DataRequest(
        files=(write(tmp_path / "a.csv", rows),),
        valid=(write(tmp_path / "b.csv", [(f"v{i}", "1", "4", "0") for i in range(60)]),),
    )
    reader, _, _ = make_rating_reader(request, NullReporter())
    splits = [(example.split, example.texts[0][0] == "v") for example in reader(BadRowPolicy())]
    assert splits == [("train", False)] * 60 + [("valid", True)] * 60


@pytest.mark.parametrize(("kind", "column"), [("rating", 2), ("time", 3)])
def test_the_sample_gives_ratings_or_times(kind, column):
    texts, columns, titles = read(kind=kind)
    expected = [(row[0], row[1], row[column]) for row in film_ratings()]
    assert texts == expected
    assert columns == {"text": ["user", "item"], "target": kind}
    assert titles == film_titles()


# --- the scale ------------------------------------------------------------------------------------

STARS = Counter({1.0: 50, 2.0: 60, 3.0: 90, 4.0: 80, 5.0: 70})


def test_the_scale_is_that_of_the_ratings_that_occur():
    scale = Scale.of(STARS, None)
    assert (scale.low, scale.high) == (1, 5)
    assert scale.contains(1.0)
    assert not scale.contains(0.5)
    assert not scale.contains(5.5)
    assert Scale.read(scale.metadata) == scale


@pytest.mark.parametrize("stray", [7.0, 50.0, -1.0])
def test_a_single_rating_far_from_the_others_does_not_extend_the_scale(stray):
    scale = Scale.of(STARS + Counter({stray: 1}), None)
    assert (scale.low, scale.high) == (1, 5)
    assert not scale.contains(stray)


def test_a_rare_rating_next_to_the_others_extends_the_scale():
    assert Scale.of(STARS + Counter({6.0: 1}), None).high == 6
    few = Counter({1.0: 2, 2.0: 2, 3.0: 2, 5.0: 1})
    assert Scale.of(few, None).high == 5


def test_a_rating_far_from_the_others_that_is_not_rare_extends_the_scale():
    assert Scale.of(STARS + Counter({10.0: 2}), None).high == 10
    many = Counter({rating: 10 * count for rating, count in STARS.items()})
    assert Scale.of(many + Counter({10.0: 3}), None).high == 5  # one in a thousand of 3,503
    assert Scale.of(many + Counter({10.0: 4}), None).high == 10


def test_a_given_scale_counts_and_is_checked():
    scale = Scale.of(STARS, (0.0, 10.0))
    assert (scale.low, scale.high) == (0, 10)
    assert scale.contains(0.0)
    assert scale.contains(10.0)
    assert not scale.contains(10.5)
    for wrong in ((5.0, 1.0), (1.0,), (1.0, float("inf"))):
        with pytest.raises(GlassError, match="scale must be a lower and a higher rating"):
            DataOptions(scale=wrong)


def test_continuous_ratings_may_lie_a_little_outside_those_that_occur():
    scale = Scale.of(Counter({i / 100: 1 for i in range(100, 500)}), None)
    assert (scale.low, scale.high) == (1, 4.99)
    assert scale.contains(5.2)
    assert not scale.contains(50)


@pytest.mark.parametrize("metadata", [{}, {"scale": [1, 5]}, {"scale": "x", "limits": [1, 2]}])
def test_a_corrupted_scale_is_rejected(metadata):
    with pytest.raises(GlassError, match="the scale of the model is corrupted"):
        Scale.read(metadata)


# --- users and items ------------------------------------------------------------------------------

CATALOG = Catalog(["7", "8"], ["1", "2", "3"], [[0, 1], [2]], ["Heat", "Up", "Heat 2"])


def test_items_are_found_by_id_title_or_part_of_a_title():
    assert CATALOG.find_item("2") == CATALOG.find_item(2) == CATALOG.find_item("up") == 1
    assert CATALOG.find_item("heat") == 0  # an equal title counts more than a part
    assert CATALOG.find_item("t 2") == 2
    with pytest.raises(GlassError, match="2 items match 'hea': 1: Heat; 3: Heat 2; give the id"):
        CATALOG.find_item("hea")


def test_unknown_users_and_items_are_named():
    assert CATALOG.find_user(8) == 1
    with pytest.raises(GlassError, match=r"unknown user '9': .* ratings of 2 users, such as '7'"):
        CATALOG.find_user(9)
    with pytest.raises(GlassError, match=r"unknown item 'Upp': .* 3 items .*Up"):
        CATALOG.find_item("Upp")


def test_an_item_without_a_title_is_shown_by_its_id():
    catalog = Catalog(["7"], ["a", "b"], [[0]], ["Heat", ""])
    assert [catalog.name(i) for i in range(2)] == ["Heat", "b"]
    assert Catalog(["7"], ["a"], [[0]]).name(0) == "a"
    assert CATALOG.counts().tolist() == [1, 1, 1]
    assert Catalog(["7", "8"], ["a", "b", "c"], [[0, 2], [2]]).counts().tolist() == [1, 0, 2]


def test_an_empty_text_is_no_item():
    with pytest.raises(GlassError, match="unknown item ''"):
        CATALOG.find_item("")


@pytest.mark.parametrize(
    "change",
    [
        {"users": "78"},
        {"items": [1, 2, 3]},
        {"titles": ["Heat"]},
        {"histories": [[0]]},
        {"histories": [[0], [3]]},
        {"histories": [[0], ["1"]]},
    ],
)
def test_a_corrupted_catalog_is_rejected(change):
    assert Catalog.of(CATALOG.metadata) == CATALOG
    with pytest.raises(GlassError, match="corrupted"):
        Catalog.of(CATALOG.metadata | change)


# --- the sample -----------------------------------------------------------------------------------


def test_the_sample_has_each_film_at_most_once_per_viewer_and_a_title_for_each():
    rows = list(film_ratings())
    assert rows == list(film_ratings())
    assert len({row[:2] for row in rows}) == len(rows) == 18_000
    assert {film for _, film, *_ in rows} <= set(film_titles())
    assert {0.5, 5.0} <= {float(rating) for _, _, rating, _ in rows}
