"""Formulas as MathML."""

from xml.etree import ElementTree

import pytest

from cases import CASES
from glassformer.inspection.mathml import to_mathml
from glassformer.trace import list_values


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("W_q", "<msub><mi>W</mi><mi>q</mi></msub>"),
        ("Kᵀ", "<msup><mi>K</mi><mi>T</mi></msup>"),
        ("W₁", "<msub><mi>W</mi><mn>1</mn></msub>"),
        ("√16", "<msqrt><mn>16</mn></msqrt>"),
        ("√(a + b)", "<msqrt><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow></msqrt>"),
        ("x^(2i)", "<msup><mi>x</mi><mrow><mn>2</mn><mi>i</mi></mrow></msup>"),
        ("a < b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
        ("softmax(x)", "<mi>softmax</mi><mrow><mo>(</mo><mrow><mi>x</mi></mrow><mo>)</mo></mrow>"),
        ("√", "<mo>√</mo>"),
        ("(a", "<mrow><mo>(</mo><mrow><mi>a</mi></mrow></mrow>"),
    ],
)
def test_parts_of_a_formula(formula, expected):
    assert to_mathml(formula) == f"<math><mrow>{expected}</mrow></math>"


def test_an_empty_formula_has_no_markup():
    assert to_mathml("") == ""


def test_formulas_of_all_models_are_well_formed_and_keep_their_words():
    values = [tap for case in CASES.values() for tap in list_values(case.network).values() if tap]
    formulas = {tap.formula for tap in values if tap.formula}
    assert len(formulas) > 40
    for formula in formulas:
        tree = ElementTree.fromstring(to_mathml(formula))
        text = "".join(tree.itertext())
        for letter in formula:
            assert not letter.isalpha() or letter in text or letter in "ᵀᴵᴾ", formula
