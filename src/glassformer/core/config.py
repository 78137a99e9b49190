"""Frozen dataclasses to and from TOML, JSON and `--set a.b=3`. A key nobody knows is an error."""

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

TYPE_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise GlassError(f"{path} is not TOML: {error}") from None


def to_toml(tables: dict[str, Any]) -> str:
    """Tables as TOML, which has no null: a setting without a value is left out."""
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
    """Build a config, and the configs inside it, from nested dictionaries."""
    types = field_types(kind, values, where)
    missing = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING]  # type: ignore[arg-type]
    for name in missing:
        if name not in values:
            raise GlassError(f"setting {where + name!r} is missing")
    return kind(**{key: coerce(types[key], value, where + key) for key, value in values.items()})


def override(config: T, *settings: str) -> T:
    """`override(config, "model.dim=512", "model.heads=8")`, checked when all of them are in place.

    A value is written as in TOML, a word without quotes.
    """
    values = to_dict(config)
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise GlassError(f"{setting!r} is not a setting: write name=value")
        *outer, last = path.strip().split(".")
        kind, table, where = type(config), values, ""
        for name in outer:
            kind = field_types(kind, [name], where)[name]
            if not is_dataclass(kind):
                raise GlassError(f"setting {where + name!r} has no settings inside it")
            table, where = table.setdefault(name, {}), f"{where}{name}."
        wanted = field_types(kind, [last], where)[last]
        table[last] = coerce(wanted, _value(wanted, text.strip()), where + last)
    return from_dict(type(config), values)


def _value(kind: Any, text: str) -> Any:
    try:
        value = tomllib.loads(f"x={text}")["x"] if "\n" not in text else text
    except (ValueError, RecursionError):
        return text
    wants_text = kind is str or str in get_args(kind)
    return text if wants_text and not isinstance(value, str) else value


def coerce(kind: Any, value: Any, where: str) -> Any:
    """A value as the type that a setting declares; an error that names the setting otherwise."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        if isinstance(value, dict):
            return from_dict(kind, value, f"{where}.")
        raise GlassError(f"{where} must be a table of settings, not {value!r}")
    if origin is Literal:
        if value in args:
            return value
        raise GlassError(f"{where} must be one of {', '.join(map(str, args))}, not {value!r}")
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise GlassError(f"{where} must be a list, not {value!r}")
        return tuple(coerce(args[0], inside, where) for inside in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise GlassError(f"{where} must be a table, not {value!r}")
        return value
    if origin in (Union, UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        return None if value is None and len(inner) < len(args) else coerce(inner[0], value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > 2**64:
            raise GlassError(f"{where} is too large")
        return float(value)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, kind):
        raise GlassError(f"{where} must be {TYPE_NAMES[kind]}, not {value!r}")
    return value


def field_types(kind: type, keys: Iterable[str], where: str = "") -> dict[str, Any]:
    """The settings of a config class; an error, with the nearest name, for a key not among them."""
    types = get_type_hints(kind)
    for key in keys:
        if key not in types:
            raise GlassError(f"there is no setting {where + key!r}{did_you_mean(key, types)}")
    return types


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of an error message: what the writer of a wrong name may have meant."""
    names = list(names)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if (renamed := RENAMED.get(str(name))) in names:
        near = [str(renamed)]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
