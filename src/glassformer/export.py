"""The formats that a model can be written in: `EXPORTERS` is the only list.

A new format is a module with two functions, and one entry here:

    save(path, network, tokenizer, *, task, overwrite)   writes a folder, whole or not at all
    exportable()                                         the names of the models that it can hold

A module is imported when its format is asked for, so that help imports none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from glassformer.core.errors import GlassError


@dataclass(frozen=True)
class Exporter:
    """Where a format is written, and what it is."""

    module: str  # in glassformer
    help: str

    @property
    def save(self) -> Callable[..., None]:
        found: Callable[..., None] = import_module(f"glassformer.{self.module}").save
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models that the format can hold."""
        return tuple(import_module(f"glassformer.{self.module}").exportable_models())


EXPORTERS = {
    "glassformer": Exporter("checkpoint", "a folder that `load` opens"),
    "huggingface": Exporter("formats.huggingface", "a folder for `transformers`"),
}


def find_exporter(name: str) -> Exporter:
    if name not in EXPORTERS:
        raise GlassError(f"the format is one of {', '.join(EXPORTERS)}, not {name!r}")
    return EXPORTERS[name]
