"""Metrics that display themselves as tables."""

from html import escape
from typing import Any

from glassformer.core.reporter import format_value


class Metrics(dict[str, Any]):
    """The metrics of a model by name: a dict that is shown as a table in terminals and notebooks.

    Intervals stand next to their metric; lists of classes and of examples are tables of their own.
    """

    def __repr__(self) -> str:
        rows = self.rows()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def rows(self) -> list[tuple[str, str]]:
        """The names and formatted values of the metrics that are single numbers or texts."""
        rows = []
        for name, value in self.items():
            if isinstance(value, dict | list | tuple) or value is None:
                continue
            text = format_value(value)
            if interval := self.get(f"{name}_interval"):
                text += f"  (95% CI {' to '.join(map(format_value, interval))})"
            rows.append((name, text))
        for name, value in self.get("baseline", {}).items():
            if isinstance(value, float):
                rows.append((f"baseline {name}", format_value(value)))
        return rows

    def _repr_html_(self) -> str:
        tables = [make_table([("metric", "value"), *self.rows()])]
        for name in ("classes", "worst"):
            records: list[dict[str, Any]] = self.get(name) or []
            if records:
                columns = [c for c in records[0] if c not in ("probabilities", "index")]
                cells = [[format_cell(r.get(c, "")) for c in columns] for r in records]
                tables.append(f"<b>{name}</b>" + make_table([columns, *cells]))
        return "".join(tables)


def format_cell(value: object) -> str:
    """A value of a class or an example, shortened; a score that is undefined is a dash."""
    return "-" if value is None else format_value(value)[:200]


def make_table(rows: list[Any]) -> str:
    """An HTML table; the first row is its header."""
    tags = ["th"] + ["td"] * (len(rows) - 1)
    lines = (
        "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row)
        for tag, row in zip(tags, rows, strict=True)
    )
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
