"""What the server knows: one model, the run it comes from, and its most recent forward passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from glassformer import checkpoint
from glassformer.api import SHIPPED_MODEL, Model, load
from glassformer.core.errors import GlassError
from glassformer.core.folder import read_text
from glassformer.models.network import Network
from glassformer.serve.passes import Pass, PassCache, parse_edits, without_parts
from glassformer.serve.subject import read_subject
from glassformer.training.run import LOG, METRICS, Run
from glassformer.training.runs import read_tables

Request = Mapping[str, Any]  # from the page: JSON
Response = dict[str, Any]  # may contain tensors (see envelope.py)
MAX_RUNS = 50


def read_input(request: Request) -> dict[str, Any]:
    """What the model reads in a request: a new dict."""
    given = request.get("input")
    if not isinstance(given, dict | None):
        raise GlassError(f"the input must be an object, got {given!r}")
    return dict(given or {})


@dataclass
class Session:
    """A model that a page looks into."""

    path: Path
    model: Model
    text: str | None = None  # that a page shows first; None: an example
    passes: PassCache = field(default_factory=PassCache)

    @classmethod
    def open(cls, path: Path | None = None, text: str | None = None) -> Session:
        """Load the model in a folder, by default the small one that comes with the package."""
        path = path or SHIPPED_MODEL
        return cls(path, load(path), text)

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def is_shipped(self) -> bool:
        return self.path == SHIPPED_MODEL

    @cached_property
    def vocabulary(self) -> list[str]:
        """Every token as text."""
        tokenizer = self.model.require_tokenizer()
        return [tokenizer.token(i) for i in range(tokenizer.vocab)]

    def find_pass(self, request: Request) -> Pass:
        """The forward pass for the `input`, the `edits` and the parts `without` of a request."""
        given = read_input(request)
        edits = request.get("edits")
        without = request.get("without")
        key = json.dumps([given, edits, without], sort_keys=True)
        return self.passes.find(key, lambda: self.make_pass(given, edits, without))

    def make_pass(self, given: dict[str, Any], edits: Any, without: Any) -> Pass:
        network: Network = self.model.network
        subject = read_subject(self.model, given)
        without = without or []
        parsed = parse_edits(network, edits or [], without)
        if without:
            network = without_parts(network, without)
        return Pass(network, subject, self.model.tokenizer, parsed)

    # --- runs ---------------------------------------------------------------------------------

    def list_runs(self) -> list[str]:
        """The names of the runs beside this one, itself first; none for a saved model."""
        if not self.is_run:
            return []
        folder = self.path.resolve().parent
        others = sorted(
            file.parent.name
            for file in folder.glob(f"*/{METRICS}")
            if not file.parent.name.startswith(".") and file.parent.name != self.name
        )
        return [self.name, *others[: MAX_RUNS - 1]]

    @property
    def is_run(self) -> bool:
        return (self.path / METRICS).is_file()

    def read_run(self, name: str) -> dict[str, Any]:
        """The metrics and the log of a run in the list."""
        if name not in self.list_runs():
            raise GlassError(f"there is no run {name!r} beside {self.path}")
        path = self.path.resolve().parent / name
        log = read_text(path / LOG) if (path / LOG).is_file() else ""
        tables = read_tables(path) if (path / checkpoint.CONFIG).is_file() else {}
        return {"name": name, "metrics": Run(path).metrics(), "log": log, "config": tables}
