"""A folder that holds a model: config, tokenizer, weights, and a manifest of the three."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from glassformer import config, models, text, weights
from glassformer.errors import GlassError
from glassformer.folder import inside, new_folder, verify, write_manifest
from glassformer.text.tokenizer import Tokenizer

CONFIG, TOKENIZER = "config.toml", "tokenizer.json"
BEST, LAST = "best", "last"  # of a run: the weights to use, and those to go on from


def save(
    path: Path,
    network: nn.Module,
    tokenizer: Tokenizer | None,
    *,
    task: dict[str, Any] | None = None,
    more: Callable[[Path], None] = lambda _: None,
    overwrite: bool = False,
) -> None:
    """Write the folder, whole or not at all; `more` may write further files into it."""
    settings = {"name": models.name_of(network), **config.to_dict(network.config)}
    tables = {"model": settings} | ({"task": task} if task else {})
    with new_folder(path, overwrite=overwrite) as folder:
        (folder / CONFIG).write_text(config.write(tables), encoding="utf-8")
        if tokenizer is not None:
            (folder / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        weights.write(network.state_dict(), folder / weights.FILE)
        more(folder)
        write_manifest(folder)


def load(path: Path) -> tuple[nn.Module, Tokenizer | None, dict[str, Any]]:
    """Read the folder, after each of its files was found to be what was saved.

    Gives the network, the tokenizer, and what the task that it was trained for needs to know.
    """
    names = verify(path)
    for needed in (CONFIG, weights.FILE):
        if needed not in names:
            raise GlassError(f"{path} is damaged: its manifest does not list {needed}")
    tables = config.read(inside(path, CONFIG))
    settings, task = tables.get("model"), tables.get("task", {})
    if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
        raise GlassError(f"{path / CONFIG} names no model")
    name = settings.pop("name")
    state = weights.read(inside(path, weights.FILE))
    network = weights.fill(lambda: models.build(name, settings), state, path / weights.FILE)
    tokenizer = text.load(inside(path, TOKENIZER)) if TOKENIZER in names else None
    return network, tokenizer, task
