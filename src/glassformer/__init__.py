"""Glassformer: a Transformer behind glass."""

import importlib
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.api import Model, load, train
    from glassformer.core.errors import GlassError
    from glassformer.registry import MODELS
    from glassformer.text import TOKENIZERS
    from glassformer.trace import Trace

__all__ = ["MODELS", "TOKENIZERS", "GlassError", "Model", "Trace", "load", "train"]
__version__ = version("glassformer")

# Threads that wait soon sleep: beside another busy program a step is then not ten times slower.
# OpenMP reads this when torch is imported; a short wait before sleep keeps small models quick.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_HOME = {
    "MODELS": "registry",
    "TOKENIZERS": "text",
    "GlassError": "core.errors",
    "Model": "api",
    "Trace": "trace",
    "load": "api",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: torch takes seconds."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
