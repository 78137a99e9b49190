"""What is said to a person, in their language: English, or 中文 from one catalogue."""

import json
import unicodedata
from contextvars import ContextVar
from functools import cache
from pathlib import Path

language: ContextVar[str] = ContextVar("language", default="en")


def tr(text: str, /, **values: object) -> str:
    """The text, or what the catalogue has for it, with values put in."""
    text = load_catalog().get(text, text) if language.get() == "zh" else text
    return text.format(**values) if values else text


@cache
def load_catalog() -> dict[str, str]:
    """The Chinese of each English text, read when it is first asked for."""
    file = Path(__file__).parents[1] / "locale" / "zh.json"
    texts: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return texts


def show_whitespace(token: str) -> str:
    """A token with its edge spaces, line ends and control characters made visible."""
    inside = token.strip(" ")
    left = len(token) - len(token.lstrip(" "))
    right = len(token) - len(inside) - left
    return "".join(map(escape_character, "·" * left + inside + "·" * right))


def escape_character(character: str) -> str:
    """A character that a terminal or a page would obey, as one that it shows."""
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return {"\n": "⏎", "\t": "⇥"}.get(character, f"⟨{ord(character):x}⟩" if hidden else character)
