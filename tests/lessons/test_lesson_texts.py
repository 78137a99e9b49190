"""The data files of the lessons: texts in two languages, and printed matrices."""

import re
from string import Formatter

import pytest
import torch

from glassformer.core.i18n import language
from glassformer.lessons import LESSONS, TEXT_LESSONS, lesson_title
from glassformer.lessons.lesson import TEXTS, Placeholders, make_step, make_table, read_text
from glassformer.lessons.printed import FOLDER, make_matrix, read, read_matrices

# for the chapters that need a text
TEXT = "You win, or you die. The storm brings the enemy; the enemy won't wait."
PARTS = [chapter for lesson in [*LESSONS.values(), TEXT_LESSONS.values()] for chapter in lesson]
CHAPTERS = {chapter.__name__.split(".")[-1]: chapter for chapter in PARTS}
FIELDS = ("title", "formula", "text", "note")
# symbols in formulas and matrix names, which are not translated
SYMBOLS = set(
    "softmax mask max argmax concat attend sin cos log norm logits head ran tanh floor".split()
)

every_chapter = pytest.mark.parametrize("chapter", CHAPTERS.values(), ids=CHAPTERS)


def has_words(text):
    return bool(set(re.findall("[A-Za-z]{3,}", text)) - SYMBOLS)


def has_chinese(text):
    return bool(re.search("[\u4e00-\u9fff]", text))


def placeholders(text):
    """The sorted names and formats of the placeholders in a text."""
    return sorted((name, spec) for _, name, spec, _ in Formatter().parse(text) if name is not None)


def tables_of(texts):
    return [table for step in texts["steps"].values() for table in step.get("tables", ())]


def list_names(texts):
    """The names of tables, and the labels of rows and columns that are written in the file."""
    for table in tables_of(texts):
        yield table["name"]
        for key in ("rows", "columns"):
            labels = table.get(key, [])
            yield from labels if isinstance(labels, list) else ()


def values_in(texts):
    """The values of tables, of the labels of their rows and columns, and of placeholders."""
    for table in tables_of(texts):
        yield table["value"]
        yield from (table[key] for key in ("rows", "columns") if isinstance(table.get(key), str))
    for step in texts["steps"].values():
        for field in FIELDS:
            yield from (name for name, _ in placeholders(step.get(field, "")))


def test_every_chapter_has_a_file_in_both_languages_and_there_are_no_others():
    expected = {f"{name}.{code}.toml" for name in CHAPTERS for code in ("en", "zh")}
    assert {path.name for path in TEXTS.iterdir()} == expected
    assert len(expected) == 42


@every_chapter
def test_a_translation_has_the_steps_and_texts_of_the_english_file(chapter):
    english, chinese = read_text(chapter, "en"), read_text(chapter, "zh")
    assert english.keys() <= {"title", "steps"}
    assert chinese.keys() - {"names"} == english.keys()
    assert list(chinese["steps"]) == list(english["steps"])
    for key, step in english["steps"].items():
        assert step.keys() <= {*FIELDS, "tables"}, key
        translated = step.keys() & {"title", "text", "note"}
        translated |= {"formula"} if has_words(step.get("formula", "")) else set()
        assert chinese["steps"][key].keys() == translated, key


@every_chapter
def test_a_translation_is_chinese_and_has_the_same_placeholders(chapter):
    english, chinese = read_text(chapter, "en"), read_text(chapter, "zh")
    for key, step in chinese["steps"].items():
        for field, text in step.items():
            assert has_chinese(text), (key, field)
            assert placeholders(text) == placeholders(english["steps"][key][field]), (key, field)


@every_chapter
def test_a_translation_has_every_name_that_contains_words(chapter):
    english, chinese = read_text(chapter, "en"), read_text(chapter, "zh")
    names = set(list_names(english))
    assert chinese.get("names", {}).keys() == {name for name in names if has_words(name)}
    assert names
    assert all(has_chinese(name) for name in chinese.get("names", {}).values())
    assert not any(placeholders(name) for name in names)


@every_chapter
def test_the_values_in_use_are_the_values_computed(chapter):
    texts = [TEXT] if chapter in TEXT_LESSONS.values() else []
    values, used = chapter.compute_values(*texts), set(values_in(read_text(chapter, "en")))
    assert values.keys() == used


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_a_title_in_both_languages(name):
    english = lesson_title(name)
    token = language.set("zh")
    try:
        assert has_chinese(lesson_title(name))
    finally:
        language.reset(token)
    assert has_words(english)
    assert not has_chinese(english)


# --- text files -----------------------------------------------------------------------------------


def test_placeholders_are_names_and_not_paths():
    fill = Placeholders().vformat
    assert fill("{x:.2f} of {y}", (), {"x": 1 / 3, "y": "it"}) == "0.33 of it"
    for text in ("{x.__class__}", "{x[0]}", "{}", "{0}", "{missing}"):
        with pytest.raises(KeyError):
            fill(text, (), {"x": [1.0]})


def test_a_table_accepts_only_known_options():
    values = {"a": torch.ones(1, 2), "words": ["p", "q"]}
    entry = {"name": "n", "value": "a", "rows": ["r"], "columns": "words", "decimals": 1}
    table = make_table(entry | {"kind": "given", "shaded": True}, values, {"n": "名", "r": "行"})
    assert (table.name, table.rows, table.columns) == ("名", ["行"], ["p", "q"])
    assert (table.decimals, table.kind, table.shaded) == (1, "given", True)
    assert not table.dash_for_nan
    assert torch.equal(table.values, values["a"])
    with pytest.raises(TypeError, match="color"):
        make_table(entry | {"color": "red"}, values, {})
    with pytest.raises(KeyError, match="b"):
        make_table(entry | {"value": "b"}, values, {})


def test_values_are_filled_into_the_texts_of_a_step():
    text = {"title": "{n} words", "note": "{fraction:.1%}"}
    step = make_step(text, {"n": 3, "fraction": 0.25}, {})
    assert (step.title, step.formula, step.text, step.note) == ("3 words", "", "", "25.0%")
    assert step.tables == ()


# --- printed matrices -----------------------------------------------------------------------------


def test_printed_matrices_have_the_shape_given_in_their_file():
    names = [path.stem for path in FOLDER.iterdir()]
    assert set(names) <= set(CHAPTERS)
    assert sum(len(read_matrices(name)) for name in names if "matrices" in read(name)) == 58
    with pytest.raises(ValueError, match=r"x: expected shape \[2, 1\], got \[1, 2\]"):
        make_matrix("x", {"shape": [2, 1], "rows": [[1, 2.5]]})
