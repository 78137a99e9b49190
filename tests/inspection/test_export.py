"""Worksheets as HTML, LaTeX, CSV and exercises."""

import math

import pytest
import torch

from glassformer.inspection import export
from glassformer.inspection.sheet import BLANK, Step, Table, blank_out, format_number
from glassformer.lessons import load_lesson

STEP = Step(
    "A & B_1",
    "softmax(Q Kᵀ / √d)",
    "<text>",
    (
        Table("as printed", torch.tensor([[1.0, 2.0]]), ["r<"], ["a", "b"], "printed", 1),
        Table("correct", torch.tensor([[1.0, 3.0]]), ["r<"], ["a", "b"], "correct", 1),
    ),
    "because",
)


def test_numbers_have_no_trailing_zeros():
    texts = [format_number(v, 4) for v in (0.5, -0.00001, 12.0, 1 / 3, -math.inf, math.nan)]
    assert texts == ["0.5", "0", "12", "0.3333", "-inf", "nan"]


def test_html_marks_wrong_cells_and_escapes_text():
    page = export.html([[STEP]], "Title <1>")
    assert '<td>1</td><td class="wrong">2</td>' in page
    assert "&lt;text&gt;" in page
    assert "<text>" not in page
    assert "http" not in page  # it is self-contained


def test_latex_escapes_special_characters():
    text = export.latex([[STEP], [STEP]], "Title")
    assert r"\subsection*{A \& B\_1}" in text
    assert r"$\operatorname{softmax}(Q\ K^T\ /\ \sqrt {d})$" in text
    assert r"\textcolor{red}{2}" in text
    assert text.count("\\clearpage") == 1
    assert text.count("{") == text.count("}")


def test_wide_tables_are_cropped_and_labeled_as_cropped():
    step = Step("s", tables=(Table("t", torch.arange(600.0).reshape(2, 300)),))
    page, text = export.html([[step]], "t"), export.latex([[step]], "t")
    assert "t, first 256 of 300 columns" in page
    assert page.count("<td>") == 2 * 256
    assert "first 16 of 300 columns" in text
    assert "& 15 " in text
    assert "& 16 " not in text


def test_no_row_of_a_latex_table_begins_with_a_bracket():
    step = Step("s", tables=(Table("t", torch.ones(2, 1), ["[CLS]", "*"], ["[SEP]"]),))
    assert not [line for line in export.latex([[step]], "t").splitlines() if line[:1] in ("[", "*")]
    assert "{article}" in export.latex([[step]], "t")
    assert "{ctexart}" in export.latex([[step]], "机器")


def test_csv_names_cannot_be_spreadsheet_formulas(tmp_path):
    step = Step("s", tables=(Table("t", torch.ones(1, 1), ["=1+1"], ["-2"]),))
    (file,) = export.write_tables([step], tmp_path)
    assert file.read_text() == ",'-2\n'=1+1,1.0\n"


def test_tables_are_written_as_csv(tmp_path):
    first, second = export.write_tables([STEP], tmp_path)
    assert first.name == "01-1-a-b_1-as-printed.csv"
    assert second.read_text() == ",a,b\nr<,1.0,3.0\n"


def test_only_computed_numbers_are_blanked_out():
    steps = load_lesson("norm")
    exercise = blank_out(steps, fraction=0.5)
    is_blanked = {
        table.kind: table.hidden is not None and bool(table.hidden.any())
        for step in exercise
        for table in step.tables
    }
    assert is_blanked == {"given": False, "computed": True}
    hidden = sum(row.count(BLANK) for s in exercise for t in s.tables for row in t.cells())
    total = sum(t.values.numel() for s in steps for t in s.tables if t.kind == "computed")
    assert 0.3 * total < hidden < 0.7 * total


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("Q Kᵀ / √d_k", r"Q\ K^T\ /\ \sqrt {d_k}"),
        ("sin(p / 10000^(2i/d))", r"\operatorname{sin}(p\ /\ 10000^{2i/d})"),
        ("√(mean of (x − mean)² + ε)",
         r"\sqrt {\text{mean of}\ (x\ -\ \text{mean})^2\ +\ \varepsilon }"),
        ("max(0, X W₁ + b₁)", r"\operatorname{max}(0,\ X\ W_1\ +\ b_1)"),
        ("损失 = −log p", r"\text{损失}\ =\ -\operatorname{log}\ p"),
    ],
)  # fmt: skip
def test_formulas_become_latex_math(formula, expected):
    assert export.to_math(formula) == expected
