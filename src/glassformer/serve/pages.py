"""The training of a run, worked examples, and the worksheet of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.core.i18n import show_whitespace
from glassformer.inspection.mathml import to_mathml
from glassformer.inspection.sheet import Step, Table
from glassformer.lessons import LESSONS, lesson_title, load_lesson
from glassformer.serve.session import Request, Response, Session, read_input


def show_training(session: Session, request: Request) -> Response:
    """The metrics, the log and the settings of a run."""
    run = session.read_run(str(request.get("run") or session.name))
    return {**run, "metrics": [finite_only(line) for line in run["metrics"]]}


def finite_only(line: Mapping[str, Any]) -> Response:
    """A line of metrics with None for numbers that are not finite, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in line.items()
    }


def list_lessons(_session: Session, _request: Request) -> Response:
    return {"lessons": [{"name": name, "title": lesson_title(name)} for name in LESSONS]}


def show_lesson(_session: Session, request: Request) -> Response:
    name = request.get("lesson")
    if not isinstance(name, str) or name not in LESSONS:
        raise GlassError(f"there is no lesson {name!r}; available: {', '.join(LESSONS)}")
    return {"name": name, "title": lesson_title(name), "steps": show_steps(load_lesson(name))}


def show_steps(steps: Sequence[Step]) -> list[Response]:
    return [
        {
            "title": step.title,
            "formula": to_mathml(step.formula),
            "text": step.text,
            "note": step.note,
            "tables": [show_table(step, table) for table in step.tables],
        }
        for step in steps
    ]


def show_table(step: Step, table: Table) -> Response:
    return {
        "name": table.name,
        "rows": [show_whitespace(row) for row in table.rows],
        "columns": [show_whitespace(column) for column in table.columns],
        "kind": table.kind,
        "decimals": table.decimals,
        "cells": table.cells(),
        "wrong": step.wrong_cells(table).tolist(),
        "values": table.values,
    }


def show_worksheet(session: Session, request: Request) -> Response:
    """The worksheet of the model itself on a text."""
    text = read_input(request).get("text")
    if not isinstance(text, str) or not text:
        raise GlassError("a worksheet needs a text")
    steps = session.model.walk(text)
    return {"name": "model", "title": session.name, "steps": show_steps(steps)}
