"""The formats in which a model can be saved, listed in `EXPORTERS`.

A new format is a module with two functions, and one entry here:

    save(path, network, tokenizer, *, task, overwrite)   writes a folder atomically
    exportable_models()                                  the names of the models that it supports

The module is imported on first use, so `--help` stays fast.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from glassformer.core.errors import GlassError


@dataclass(frozen=True)
class Exporter:
    """The module and description of a format."""

    module: str  # relative to glassformer
    help: str

    @property
    def save(self) -> Callable[..., None]:
        save: Callable[..., None] = import_module(f"glassformer.{self.module}").save
        return save

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that the format supports."""
        return tuple(import_module(f"glassformer.{self.module}").exportable_models())


EXPORTERS = {
    "glassformer": Exporter("checkpoint", "a folder that `load` opens"),
    "huggingface": Exporter("formats.huggingface", "a folder for `transformers`"),
    "onnx": Exporter("formats.onnx", "a folder for ONNX Runtime"),
}


def find_exporter(name: str) -> Exporter:
    if name not in EXPORTERS:
        raise GlassError(f"unknown format {name!r}: expected one of {', '.join(EXPORTERS)}")
    return EXPORTERS[name]
