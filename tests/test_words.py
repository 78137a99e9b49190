"""What is said to a person has its Chinese."""

import ast
import subprocess
import sys
from pathlib import Path

import glassformer
from glassformer.core.i18n import language, load_catalog, tr
from glassformer.inspection.heads import ATTENTION_TARGETS

PACKAGE = Path(glassformer.__file__).parent


def said_in_the_package():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            says = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "tr"
            if says and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
    yield from (*ATTENTION_TARGETS, "cost")


def test_every_text_has_a_translation_that_takes_the_same_values():
    texts = set(said_in_the_package())
    assert len(texts) > 100
    assert texts <= load_catalog().keys(), sorted(texts - load_catalog().keys())
    fields = lambda text: sorted(part.split("}")[0].split(":")[0] for part in text.split("{")[1:])
    for english, chinese in load_catalog().items():
        assert fields(english) == fields(chinese), english


def test_a_text_is_said_in_the_language_of_the_context():
    token = language.set("en")
    try:
        assert tr("Solution") == "Solution"
        language.set("zh")
        assert tr("Solution") == "答案"
        assert tr("{n} more rows", n=3) == "另有 3 行"
        assert tr("no such text: {n}", n=3) == "no such text: 3"
    finally:
        language.reset(token)


def test_the_catalogue_is_read_only_where_it_is_needed():
    code = (
        "from glassformer.core.i18n import language, load_catalog, tr\n"
        "tr('Solution')\n"
        "assert load_catalog.cache_info().misses == 0\n"
        "language.set('zh')\n"
        "tr('Solution'), tr('Solution')\n"
        "assert load_catalog.cache_info().misses == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
