"""Glassformer: train, run and look inside Transformers."""

import importlib
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.api import Model, compare, evaluate, load, resume, train
    from glassformer.core.errors import GlassError
    from glassformer.registry import MODELS
    from glassformer.text import TOKENIZERS
    from glassformer.trace import Trace

__all__ = [
    "MODELS",
    "TOKENIZERS",
    "GlassError",
    "Model",
    "Trace",
    "compare",
    "evaluate",
    "load",
    "resume",
    "train",
]
__version__ = version("glassformer")

# Idle OpenMP threads sleep instead of spinning: otherwise a training step takes ten times longer
# next to another busy process. A short spin before sleeping keeps small models fast. OpenMP reads
# both variables when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_MODULES = {
    "MODELS": "registry",
    "TOKENIZERS": "text",
    "GlassError": "core.errors",
    "Model": "api",
    "Trace": "trace",
    **dict.fromkeys(("compare", "evaluate", "load", "resume", "train"), "api"),
}


def __getattr__(name: str) -> Any:
    """Import public names on first use, because importing torch takes seconds."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
