"""User-facing text in English, or in Chinese (中文) from one catalog."""

import json
import re
import unicodedata
from contextvars import ContextVar
from functools import cache
from pathlib import Path

QUOTED = re.compile(r"""(["'`])(?:(?!\1).)+\1""", re.DOTALL)
language: ContextVar[str] = ContextVar("language", default="en")


def tr(text: str, /, **values: object) -> str:
    """Translate a text into the current language and fill in `values` with `str.format`.

    A text that is not in the catalog stays in English.
    """
    text = load_catalog().get(text, text) if language.get() == "zh" else text
    return text.format(**values) if values else text


@cache
def load_catalog() -> dict[str, str]:
    """The Chinese translation of each English text; read on first use."""
    file = Path(__file__).parents[1] / "locale" / "zh.json"
    texts: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return texts


def show_whitespace(token: str) -> str:
    """A token with leading and trailing spaces, newlines and control characters made visible."""
    stripped = token.strip(" ")
    left = len(token) - len(token.lstrip(" "))
    right = len(token) - len(stripped) - left
    return "".join(map(escape_character, "·" * left + stripped + "·" * right))


def escape_character(character: str) -> str:
    """A visible replacement for an invisible or control character; other characters unchanged."""
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return {"\n": "⏎", "\t": "⇥"}.get(character, f"⟨{ord(character):x}⟩" if hidden else character)


def localize(message: str) -> str:
    """Translate a complete message into the current language.

    Errors, progress lines and help are written as f-strings. The message is matched with the
    catalog's templates ("{0} does not exist" for "a.txt does not exist"), and the translation of
    the template is filled with the same values, which are localized in turn unless they are names.
    A message that matches no template is returned unchanged.
    """
    if language.get() != "zh" or not message.strip():
        return message
    if (exact := load_catalog().get(message)) is not None:
        return exact
    for pattern, translation in compile_templates():
        if match := pattern.fullmatch(message):
            return translation.format(
                *(localize_value(match, i + 1) for i in range(pattern.groups))
            )
    return message


def localize_value(match: re.Match[str], group: int) -> str:
    """The localized value of a group. Names are unchanged: words that begin a message, such as
    the file in "target does not exist", and values in quotes."""
    value = match[group]
    start, end = match.span(group)
    with_quotes = match.string[max(start - 1, 0) : end + 1]
    is_name = not start and " " not in value
    is_quoted = QUOTED.fullmatch(value) or QUOTED.fullmatch(with_quotes)
    return value if is_name or is_quoted else localize(value)


@cache
def compile_templates() -> list[tuple[re.Pattern[str], str]]:
    """The catalog's numbered templates as patterns, those with the most literal text first.

    Of two adjacent values the second is an optional suffix, such as "; did you mean 'x'?".
    """
    templates = []
    for english, chinese in load_catalog().items():
        first, *rest = re.split(r"\{\d+\}", english)
        if not rest:
            continue
        pattern, is_adjacent = re.escape(first), False
        for literal in rest:
            pattern += r"(|[ ;(,].*?)" if is_adjacent else "(.*?)"
            pattern = pattern + re.escape(literal)
            is_adjacent = not literal
        length = sum(map(len, (first, *rest)))
        templates.append((length, re.compile(pattern, re.DOTALL), chinese))
    templates.sort(key=lambda template: -template[0])
    return [(pattern, chinese) for _, pattern, chinese in templates]
