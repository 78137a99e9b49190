"""All corrections: for each, what a document prints or claims, and the right number.

The right numbers are stated here as they were computed independently of this code.
"""

import math

import pytest

from glassformer.inspection.sheet import equal_when_rounded
from glassformer.lessons import (
    errata_bloem,
    errata_detail,
    errata_khan,
    errata_lee,
    errata_missing,
    errata_rohrer,
)
from glassformer.lessons.lesson import load_steps, read_text
from lessons.test_lessons import matrix

CHAPTERS = {
    "rohrer": errata_rohrer,
    "bloem": errata_bloem,
    "khan": errata_khan,
    "lee": errata_lee,
    "detail": errata_detail,
    "missing": errata_missing,
}
# what is printed or claimed, the right number, and the decimals to which it is stated;
# None: no number is printed; None for both: the correction is not a number
EXPECTED = {
    "rohrer": {
        "one_hot": (None, "1 0", 0),
        "positions": ("5 5 5 5", "5.831 5.947 5.303 4.350", 3),
        "logits": ("1", "25", 0),
        "optima": ("1", "479001600", 0),  # 12!
    },
    "bloem": {
        "dense": ("10", "25", 0),
        "content": (None, "0", 9),
        "own_key": ("0", ".3239", 4),
        "std": (None, "2 4 8 16/2 4 8 16", 0),
        "parameters": (None, "196608", 0),  # 3 k²
        "code": ("0", "5", 0),
        "scaling": ("16", "8", 6),
        "mask": (".6761", "0", 4),
        "pooling": ("1.3333", "2", 4),
        "masked": ("1", "8", 6),
        "enwik8": ("108", "100000000", 0),
        "bits": (None, "44.4", 1),
        "teacher_forcing": (None, None, 0),
        "sparse": (None, "32768", 0),
        "memory": ("250", "64", 0),
        "accumulation": ("4", "1", 6),
    },
    "khan": {
        "vocabulary": ("23", "25", 0),
        "sentence": ("6", "7", 0),
        "rule": ("6 6", "26.1 11.3", 1),
        "position": (".8415 .0464 .0022 .0001 0 0", ".8415 .5403 .0464 .9989 .0022 1", 4),
        "addition": ("12", "6", 0),
        "values": ("3.88 3.8 4.08 3.42", "3.6317 4.5824 4.2076 4.7639", 4),
        "divisor": ("2.4495", "2", 4),
        "output": ("3.8643 3.7925 4.0604 3.3975", "3.6244 4.5712 4.1963 4.7574", 4),
        "llama": (None, "0", 0),
        "mean_1": ("9.26", "9.388", 3),
        "scale_and_shift": ("0", "12", 0),
        "epsilon": (".9091", ".3015", 4),
        "feedforward": ("5", "6", 0),
        "linear": ("1", "2", 0),
        "std_2": (
            "1.1035 1.2143 1.3018 1.2891 1.3060 1.3208",
            "1.1326 .9709 1.3179 1.1689 1.2902 1.2057",
            4,
        ),
        "norm_2": (
            "1.28 1.26 -.48 -.3 -1.66 -.09",
            "1.2508 1.2243 -.4709 -.2943 -1.6186 -.0912",
            4,
        ),
        "cross": ("6 6 4", "4 6 6", 0),
        "decoder_input": ("7", "6", 0),
        "trained_positions": ("1", "6", 0),
        "products": ("1 4 7/2 5 8/3 6 9", "14 32 50/32 77 122/50 122 194", 0),
        "hidden": (".5761 .2119 .2119", "1 0 0", 3),
        "past": (".0900 .2447 .6652", "1 0 0", 3),
        "flatten": ("828", "150", 0),
        "probs": (".21 .05 .001 .56 .12", ".0126 .0403 .0128 .8941 .0403", 4),
        "loss": (None, "4.1 3.5", 1),
        "overfitted": (None, "0", 1),
        "reproduced": (None, "6 6/36 36/24 24/24 24/36 36/36 36/36 36", 0),
    },
    "lee": {
        "zero": (".6103 .2245 .0826 .0826", ".7311 .2689 0 0", 4),
        "target": (None, None, 0),
        "bert": (None, None, 0),
        "summarizer": (None, None, 0),
    },
    "detail": {
        "head_size": ("128", "64", 0),
        "own_key": ("5", "3", 0),
        "learnable": ("51200", "0", 0),
        "join": ("64", "512", 0),
        "skewness": ("0", ".687", 3),
        "cross": ("6 4 6", "4 6 6", 0),
        "causal": (".6761", "0", 4),
        "twice": (".7437", "0", 4),
        "gradient": ("0 0 0 0", ".144 .144 .144 .249", 3),
    },
    "missing": {
        "scale": (None, "22.6274", 4),  # √512
        "dropped": (None, ".1 1.11", 2),
        "smoothed": (None, ".92 .02 .02 .02 .02", 6),
        "warmup": (None, "0 .5 1 .6 .1", 1),
        "tying": (None, "63082496 18944000", 0),
        "norms": (None, "1 2.7", 1),
    },
}


def test_the_list_of_corrections_is_complete():
    """One step for each correction, and one that introduces them."""
    for name, expected in EXPECTED.items():
        steps = [key for key in read_text(f"errata_{name}", "en")["steps"] if key != "about"]
        assert steps == list(expected), name
    counts = {name: len(expected) for name, expected in EXPECTED.items()}
    assert counts == {
        "rohrer": 4, "bloem": 16, "khan": 27, "lee": 4, "detail": 9, "missing": 6,
    }  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_every_correction_has_the_printed_and_the_right_number(name):
    steps = [step for step in load_steps(CHAPTERS[name]) if step.title != "All corrections"]
    for step, (key, (printed, right, decimals)) in zip(steps, EXPECTED[name].items(), strict=True):
        for kind, text in (("printed", printed), ("correct", right)):
            tables = [table for table in step.tables if table.kind == kind]
            assert len(tables) == (text is not None), (key, kind)
            if tables:
                values, places = tables[0].values.double(), 4 if kind == "printed" else decimals
                assert equal_when_rounded(matrix(text), values, places).all(), (key, kind, values)
        if printed is not None:
            marked = step.wrong_cells(next(t for t in step.tables if t.kind == "printed"))
            assert marked.any(), f"{key}: what is printed is not wrong"


def test_the_notes_have_the_counts_that_follow_from_the_printed_matrices():
    khan = {step.title: step.note for step in load_steps(errata_khan)}
    assert "9 of 36 cells contradict" in khan["Khan, step 5: the positional encoding"]
    assert "24 of 36 differ from the paper" in khan["Khan, step 5: the positional encoding"]
    assert "0 of its 24 cells" in khan["Khan, step 7: the values"]
    assert khan["Khan, step 10: the second norm"].startswith("30 of 36 cells")
    assert "and 24 otherwise" in khan["Khan, step 2: the vocabulary"]
    bloem = {step.title: step for step in load_steps(errata_bloem)}
    digits = math.log10(12) + 64 * math.log10(256)  # of 3 h k^(k/h)
    step = bloem["Bloem, 4.5: the parameters of several heads"]
    assert f"{10 ** (digits - 155):.1f}e+155" in step.text
    assert "take 256 MB" in bloem["Bloem, 9: the memory of the scores"].note


def test_every_command_that_a_correction_names_exists():
    from glassformer.cli.registry import COMMANDS
    from glassformer.inspection.plots import PLOTS
    from glassformer.lessons import LESSONS

    named = 0
    for name in EXPECTED:
        for key, step in read_text(f"errata_{name}", "en")["steps"].items():
            words = step.get("note", "").replace(".", " ").replace(",", " ").split()
            for i, word in enumerate(words[:-2]):
                if word == "glass":
                    assert words[i + 1] in COMMANDS, (name, key)
                    known = {"walk": LESSONS, "draw": PLOTS}.get(words[i + 1])
                    assert known is None or words[i + 2] in known, (name, key)
                    named += 1
    assert named > 20
