"""The corrected code of two tutorials equals the layers of Glassformer."""

import ast
import inspect

import pytest
import torch

from glassformer.inspection import export, terminal
from glassformer.inspection.sheet import Step
from glassformer.lessons import code, corrected, load_lesson
from glassformer.lessons.lesson import read_text
from glassformer.nn.attention import Attention
from glassformer.nn.masks import causal

VALUES = code.compute_values()
STEPS = load_lesson("code")


def test_every_block_is_equal_to_a_layer():
    differences = {name: float(v) for name, v in VALUES.items() if name.endswith("_difference")}
    assert len(differences) == 11
    assert max(differences.values()) < 1e-6


def test_a_mistake_of_the_printed_code_would_be_detected():
    """Dividing by √k instead of √(k/h) changes the output; so does dropping the mask."""

    class Unscaled(corrected.SelfAttention):
        def weigh(self, q, k, hidden):
            return super().weigh(q / code.HEADS**0.5, k, hidden)

    x = torch.randn(2, 5, code.DIM, dtype=torch.float64)
    for kind, mask, is_equal in (
        (corrected.SelfAttention, True, True), (corrected.SelfAttention, False, False),
        (Unscaled, True, False),
    ):  # fmt: skip
        mine = kind(code.DIM, code.HEADS, mask=mask).double()
        ours = Attention(code.DIM, code.HEADS, mask=causal, bias=False).double()
        ours.load_state_dict(mine.state_dict())
        assert torch.allclose(mine(x), ours(x, code.layout_of(x)), atol=1e-6) == is_equal


def test_five_of_thirteen_blocks_do_not_run():
    assert (VALUES["n_blocks"], VALUES["n_failing"]) == (13, 5)
    text = " ".join(step["text"] for step in read_text("code", "en")["steps"].values())
    errors = [text.count(name) for name in ("IndentationError", "TabError", "AttributeError")]
    assert errors == [2, 2, 1]
    assert "5 of the 13 stop with an error" in STEPS[0].text


def test_all_of_the_corrected_code_is_shown_as_it_is_in_the_file():
    source = inspect.getsource(corrected)
    shown = "\n".join(step.code for step in STEPS)
    for step in STEPS[1:]:
        lines = [line.strip() for line in step.code.splitlines()]
        assert all(line in source for line in lines)
        ast.parse(step.code)
    defined = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
    assert len(defined) == 14
    assert all(f"def {function.name}(" in shown for function in defined)


def test_features_must_be_divisible_among_heads():
    with pytest.raises(ValueError, match="6 features cannot be divided among 4 heads"):
        corrected.SelfAttention(6, 4)


def test_code_is_shown_with_its_line_breaks_everywhere():
    step = Step("a step", code="def f(x):\n    return x < 1  # {&}")
    assert "    def f(x):\n        return x < 1  # {&}" in terminal.render_text([step])
    assert "<pre>def f(x):\n    return x &lt; 1  # {&amp;}</pre>" in export.html([[step]], "t")
    verbatim = "\\begin{verbatim}\ndef f(x):\n    return x < 1  # {&}\n\\end{verbatim}"
    assert verbatim in export.latex([[step]], "t")
