"""A sheet on a terminal: numbers under their names, what is wrong in red, shares on a colour."""

from collections.abc import Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from glassformer.core.i18n import show_whitespace, tr
from glassformer.inspection.sheet import Step, Table

STYLES = {"printed": "default", "right": "green", "given": "cyan", "made": "default"}
MANY = 32  # columns or rows, beyond which a terminal shows only the first


def text(steps: Sequence[Step]) -> str:
    """The whole sheet without colours, as wide as the terminal is."""
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
    for line, style in ((step.formula, "bold"), (step.says, "default")):
        if line:
            console.print(line, style=style, markup=False)
    for table in step.tables:
        show_table(console, step, table)
    if step.why:
        console.print(step.why, style="yellow", markup=False)


def show_table(console: Console, step: Step, table: Table) -> None:
    """Named columns that do not fit beside stand below; of others only the first are shown."""
    most = max(table.values.shape) if table.whole else MANY
    tall, wide = table.values.shape
    console.print(f"  {table.name} ({tall} × {wide})", style=STYLES[table.kind], markup=False)
    wrong, table = step.wrong(table).tolist(), table.first(most, most)
    cells = [
        [f"{cell}*" if bad else cell for cell, bad in zip(row, marks, strict=False)]
        for row, marks in zip(table.cells(), wrong, strict=False)
    ]
    rows = [show_whitespace(name) for name in table.rows] or [""] * len(cells)
    names = [show_whitespace(name) for name in table.columns] or [""] * table.values.shape[1]
    space = 1 if table.shaded else 2  # a colour keeps columns apart, too
    widths = [max(map(cell_len, column)) + space for column in zip(names, *cells, strict=True)]
    left = max(map(cell_len, rows)) + 4
    groups = fitting(widths, console.width - left)
    groups = groups if table.columns else groups[:1]
    shades = table.shades()
    for group in groups:
        if table.columns:
            head = "".join(pad(names[i], widths[i]) for i in group)
            console.print(Text(" " * left + head), soft_wrap=True)
        for r, name in enumerate(rows):
            line = Text("    " + name + " " * (left - 4 - cell_len(name)))
            for i in group:
                plain = on_a_colour(shades[r][i]) if table.shaded else STYLES[table.kind]
                style = "red" if wrong[r][i] else plain
                line.append(pad(cells[r][i], widths[i]), style=style)
            console.print(line, soft_wrap=True)
    left_out = tall - len(rows), wide - sum(map(len, groups))
    more = [
        tr(told, n=n)
        for n, told in zip(left_out, ("{n} more rows", "{n} more columns"), strict=True)
        if n
    ]
    if more:
        console.print(f"    … {', '.join(more)}", style="dim")


def on_a_colour(share: float) -> str:
    return f"white on rgb(20,{round(20 + share * 120)},{round(40 + share * 160)})"


def fitting(widths: list[int], room: int) -> list[list[int]]:
    """Columns in groups that each fit into so much room."""
    groups: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        if groups[-1] and sum(widths[j] for j in groups[-1]) + width > room:
            groups.append([])
        groups[-1].append(i)
    return groups


def pad(cell: str, width: int) -> str:
    return " " * (width - cell_len(cell)) + cell
