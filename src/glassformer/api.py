"""The object that `load` gives: a network with its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from glassformer import checkpoint, models
from glassformer.convert import huggingface, llama2c
from glassformer.errors import GlassError
from glassformer.text.tokenizer import Tokenizer


class Model:
    """A network, the tokenizer that made its ids (or None), and its config."""

    def __init__(self, network: nn.Module, tokenizer: Tokenizer | None = None) -> None:
        self.network, self.tokenizer = network, tokenizer

    @property
    def config(self) -> Any:
        return self.network.config

    @property
    def name(self) -> str:
        """The architecture's name in `MODELS`."""
        return models.name_of(self.network)

    def save(
        self,
        path: str | Path,
        *,
        format: Literal["glassformer", "huggingface"] = "glassformer",
        overwrite: bool = False,
    ) -> None:
        """Write a folder that `load` opens; in the other format, one for `transformers`."""
        writers = {"glassformer": checkpoint.save, "huggingface": huggingface.save}
        if format not in writers:
            raise GlassError(f"the format is one of {', '.join(writers)}, not {format!r}")
        writers[format](Path(path), self.network, self.tokenizer, overwrite=overwrite)

    def __repr__(self) -> str:
        size = sum(p.numel() for p in self.network.parameters())
        words = self.tokenizer.kind if self.tokenizer else "none"
        return f"<glassformer.Model {self.name}: {size:,} parameters, tokenizer: {words}>"


def load(
    path: str | Path, *, ignore: Sequence[str] = (), tokenizer: str | Path | None = None
) -> Model:
    """Open a folder of ours, a Hugging Face folder (GPT-2, BERT, Llama) or a llama2.c file.

    `ignore` names settings and tensors of a Hugging Face folder to pass over; `tokenizer` is the
    tokenizer file of a llama2.c model. Nothing in the files is run.
    """
    path = Path(path)
    if path.is_file():
        return Model(*llama2c.load(path, Path(tokenizer) if tokenizer else None))
    if not path.is_dir():
        raise GlassError(f"there is no folder {path}")
    if (path / checkpoint.CONFIG).exists():
        return Model(*checkpoint.load(path))
    if (path / huggingface.CONFIG).exists():
        return Model(*huggingface.load(path, ignore))
    wanted = f"{checkpoint.CONFIG} (ours) or {huggingface.CONFIG} (Hugging Face)"
    raise GlassError(f"{path} holds no model: it has no {wanted}")
