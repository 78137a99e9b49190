"""Every translatable text has a Chinese translation."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import glassformer
from glassformer.core.i18n import language, load_catalog, tr
from glassformer.inspection.heads import ATTENTION_STATS

PACKAGE = Path(glassformer.__file__).parent


def translatable_texts():
    """Yield the argument of every call of `tr` in the package, and the texts passed by name."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_tr_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "tr"
            if is_tr_call and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
    yield from (*ATTENTION_STATS, "cost")


def test_every_text_has_a_translation_with_the_same_placeholders():
    texts = set(translatable_texts())
    assert len(texts) > 100
    assert texts <= load_catalog().keys(), sorted(texts - load_catalog().keys())
    placeholders = lambda text: sorted(
        part.split("}")[0].split(":")[0] for part in text.split("{")[1:]
    )
    for english, chinese in load_catalog().items():
        if re.search(r"\{\d+\}", english):  # a plural "s" may be dropped
            assert set(placeholders(chinese)) <= set(placeholders(english)), english
        else:
            assert placeholders(english) == placeholders(chinese), english


def test_tr_uses_the_language_of_the_context():
    token = language.set("en")
    try:
        assert tr("Solution") == "Solution"
        language.set("zh")
        assert tr("Solution") == "答案"
        assert tr("{n} more rows", n=3) == "另有 3 行"
        assert tr("no such text: {n}", n=3) == "no such text: 3"
    finally:
        language.reset(token)


def test_catalog_is_loaded_once_and_only_for_chinese():
    code = (
        "from glassformer.core.i18n import language, load_catalog, tr\n"
        "tr('Solution')\n"
        "assert load_catalog.cache_info().misses == 0\n"
        "language.set('zh')\n"
        "tr('Solution'), tr('Solution')\n"
        "assert load_catalog.cache_info().misses == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
