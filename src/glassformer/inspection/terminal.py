"""Show a worksheet in a terminal: labeled tables, wrong cells in red, weights shaded."""

import textwrap
from collections.abc import Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.sheet import Step, Table

STYLES = {"printed": "default", "correct": "green", "given": "cyan", "computed": "default"}
MAX_SIZE = 32  # maximum number of rows, and of columns, shown per table


def render_text(steps: Sequence[Step]) -> str:
    """The worksheet as text without colors, as wide as the terminal."""
    file = StringIO()
    console = Console(
        file=file, highlight=False, no_color=True, force_terminal=False, force_jupyter=False
    )
    show(console, steps)
    return file.getvalue().strip("\n")


def show(console: Console, steps: Sequence[Step]) -> None:
    for step in steps:
        show_step(console, step)


def show_step(console: Console, step: Step) -> None:
    if step.title:
        console.print(f"\n{step.title}", style="bold cyan", markup=False)
    for line, style in ((step.formula, "bold"), (step.text, "default")):
        if line:
            console.print(line, style=style, markup=False)
    if step.code:
        console.print(
            textwrap.indent(step.code, "    "), style="cyan", markup=False, soft_wrap=True
        )
    for table in step.tables:
        show_table(console, step, table)
    if step.note:
        console.print(step.note, style="yellow", markup=False)


def show_table(console: Console, step: Step, table: Table) -> None:
    """Print a table. Labeled columns wrap onto more lines; unlabeled ones are cut off."""
    max_size = max(table.values.shape) if table.show_all else MAX_SIZE
    n_rows, n_columns = table.values.shape
    console.print(
        f"  {table.name} ({n_rows} × {n_columns})", style=STYLES[table.kind], markup=False
    )
    wrong = step.wrong_cells(table).tolist()
    table = table.crop(max_size, max_size)
    cells = [
        [f"{cell}*" if is_wrong else cell for cell, is_wrong in zip(row, flags, strict=False)]
        for row, flags in zip(table.cells(), wrong, strict=False)
    ]
    rows = [show_whitespace(name) for name in table.rows] or [""] * len(cells)
    names = [show_whitespace(name) for name in table.columns] or [""] * table.values.shape[1]
    space = 1 if table.shaded else 2  # shading separates columns, too
    widths = [max(map(cell_len, column)) + space for column in zip(names, *cells, strict=True)]
    indent = max(map(cell_len, rows)) + 4
    groups = group_columns(widths, console.width - indent)
    groups = groups if table.columns else groups[:1]
    shades = table.shades()
    for group in groups:
        if table.columns:
            header = "".join(align_right(names[i], widths[i]) for i in group)
            console.print(Text(" " * indent + header), soft_wrap=True)
        for r, name in enumerate(rows):
            line = Text("    " + name + " " * (indent - 4 - cell_len(name)))
            for i in group:
                plain = background(shades[r][i]) if table.shaded else STYLES[table.kind]
                style = "red" if wrong[r][i] else plain
                line.append(align_right(cells[r][i], widths[i]), style=style)
            console.print(line, soft_wrap=True)
    more = []
    if n := n_rows - len(rows):
        more.append(tr("1 more row") if n == 1 else tr("{n} more rows", n=n))
    if n := n_columns - sum(map(len, groups)):
        more.append(tr("1 more column") if n == 1 else tr("{n} more columns", n=n))
    if more:
        console.print(f"    … {', '.join(more)}", style="dim")


def background(shade: float) -> str:
    return f"white on rgb(20,{round(20 + shade * 120)},{round(40 + shade * 160)})"


def group_columns(widths: list[int], max_width: int) -> list[list[int]]:
    """Split the columns, by index, into groups that each fit in the width."""
    groups: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        if groups[-1] and sum(widths[j] for j in groups[-1]) + width > max_width:
            groups.append([])
        groups[-1].append(i)
    return groups


def align_right(cell: str, width: int) -> str:
    return " " * (width - cell_len(cell)) + cell
