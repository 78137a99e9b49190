"""Convert frozen dataclasses to and from TOML, JSON and `--set a.b=3`; unknown keys are errors."""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tomli_w

from glassformer.core.errors import GlassError
from glassformer.core.renamed import RENAMED

T = TypeVar("T")

TYPE_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not valid TOML: {error}") from None


def to_toml(tables: dict[str, Any]) -> str:
    """Write tables as TOML. TOML has no null, so settings that are None are left out."""
    return tomli_w.dumps(drop_none(tables))


def to_dict(config: Any) -> dict[str, Any]:
    return drop_none(asdict(config))


def drop_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: drop_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def from_dict(kind: type[T], values: dict[str, Any], where: str = "") -> T:
    """Build a config and its nested configs from nested dictionaries.

    `where` is the path of the enclosing table, such as "model.", for error messages.
    """
    types = field_types(kind, values, where)
    required = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]  # type: ignore[arg-type]
    for name in required:
        if name not in values:
            raise GlassError(f"setting {where + name!r} is missing")
    return kind(**{key: coerce(types[key], value, where + key) for key, value in values.items()})


def override(config: T, *settings: str, where: str = "") -> T:
    """Return a config with some settings changed: `override(config, "model.dim=512", "steps=8")`.

    Values are written as in TOML, except that strings need no quotes. The result is validated once,
    after all settings are applied. `where` is used as in `from_dict`.
    """
    values = to_dict(config)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise GlassError(f"expected name=value, got {setting!r}")
        *outer, last = path.strip().split(".")
        kind = type(config)
        table = values
        prefix = where
        for name in outer:
            kind = field_types(kind, [name], prefix)[name]
            if not is_dataclass(kind):
                raise GlassError(f"setting {prefix + name!r} is not a table of settings")
            table = table.setdefault(name, {})
            prefix = f"{prefix}{name}."
        field_type = field_types(kind, [last], prefix)[last]
        table[last] = coerce(field_type, _parse_value(field_type, text.strip()), prefix + last)
    return from_dict(type(config), values, where)


def _parse_value(kind: Any, text: str) -> Any:
    try:
        value = tomllib.loads(f"x={text}")["x"] if "\n" not in text else text
    except (ValueError, RecursionError):
        return text
    accepts_str = kind is str or str in get_args(kind)
    return text if accepts_str and not isinstance(value, str) else value


def coerce(kind: Any, value: Any, where: str) -> Any:
    """Convert a value to the declared type of the setting `where`, or raise a `GlassError`."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, dict):
            return from_dict(kind, value, f"{where}.")
        raise GlassError(f"{where} must be a table of settings, got {value!r}")
    if origin is Literal:
        if value in args:
            return value
        raise GlassError(f"{where} must be one of {', '.join(map(str, args))}, got {value!r}")
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise GlassError(f"{where} must be a list, got {value!r}")
        return tuple(coerce(args[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise GlassError(f"{where} must be a table, got {value!r}")
        return value
    if origin in (Union, UnionType):
        non_none = [arg for arg in args if arg is not type(None)]
        is_optional = len(non_none) < len(args)
        return None if value is None and is_optional else coerce(non_none[0], value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > 2**64:
            raise GlassError(f"{where} is too large: expected a magnitude of at most 2^64")
        return float(value)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, kind):
        raise GlassError(f"{where} must be {TYPE_NAMES[kind]}, got {value!r}")
    return value


def field_types(kind: type, keys: Iterable[str], where: str = "") -> dict[str, Any]:
    """Return the type of each setting of a config class; raise a `GlassError` for unknown keys."""
    types = get_type_hints(kind)
    for key in keys:
        if key not in types:
            hint = did_you_mean(key, types, where)
            if not hint and where == "model.":
                hint = "; `glass models TASK` lists the model.* settings"
            if not hint and where == "train.":
                hint = "; `glass models --training` lists the train.* settings"
            raise GlassError(f"unknown setting {where + key!r}{hint}")
    return types


def did_you_mean(name: object, names: Iterable[str], where: str = "") -> str:
    """The end of an error message about an unknown name: the closest valid names, if any.

    `where` is prepended to each of them.
    """
    names = list(names)
    suggestions = difflib.get_close_matches(str(name), names, n=3, cutoff=0.6)
    if (renamed := RENAMED.get(str(name))) in names:
        suggestions = [str(renamed)]
    full_names = " or ".join(repr(where + suggestion) for suggestion in suggestions)
    return f"; did you mean {full_names}?" if suggestions else ""
