"""Export a worksheet as HTML, LaTeX or CSV tables."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

from glassformer.core.folder import write_file
from glassformer.core.i18n import language, show_whitespace, tr
from glassformer.inspection.sheet import Step, Table

PAGE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.glass + .glass { break-before: page; border-top: 2px solid #888; margin-top: 3rem }
@media (prefers-color-scheme: dark) { body { background: #15181c; color: #e8e8e8 } }
"""
# translucent colors, because a notebook has its own light or dark background
STYLE = """
.glass { overflow-wrap: anywhere }
.glass code { background: rgb(128 128 128 / .14); padding: .1rem .4rem; border-radius: .25rem }
.glass pre { background: rgb(128 128 128 / .1); padding: .5rem .8rem; overflow-x: auto }
.glass .tables { display: flex; flex-wrap: wrap; gap: 1.2rem; align-items: flex-start }
.glass figure { margin: .6rem 0; max-width: 100%; overflow-x: auto }
.glass figcaption { font-size: .85rem; opacity: .75; margin-bottom: .25rem }
.glass table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem }
.glass td, .glass th { padding: .15rem .5rem; text-align: right; white-space: nowrap;
                       border: 1px solid rgb(128 128 128 / .3) }
.glass th { font-weight: 500; background: rgb(128 128 128 / .1) }
.glass .wrong { background: rgb(220 50 30 / .22) }
.glass .correct td { background: rgb(40 160 70 / .12) }
.glass .note { border-left: 3px solid #d9a400; padding-left: .8rem }
.glass summary { cursor: pointer; padding: .15rem 0 }
"""
TEX = {  # characters to escape in text
    "ᵀ": "$^T$", "√": r"$\surd$", "−": "$-$", "∂": r"$\partial$", "Σ": r"$\Sigma$",
    "·": r"$\cdot$", "×": r"$\times$", "←": r"$\leftarrow$", "∞": r"$\infty$", "₁": "$_1$",
    "₂": "$_2$", "²": "$^2$", "ᴵ": "$^I$", "ᴾ": "$^P$", "…": r"\dots{}", "“": "``", "”": "''",
    "ε": r"$\varepsilon$", "⏎": r"$\hookleftarrow$", "⇥": r"$\rightarrow$", "^": r"\^{}",
    "\\": r"\textbackslash{}",
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\~{}", "–": "--", "÷": r"$\div$", "⟨": r"$\langle$", "⟩": r"$\rangle$",
    "[": "{[}", "*": "{*}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    "→": r"$\rightarrow$", "³": "$^3$", "␣": r"\textvisiblespace{}",
}  # fmt: skip

MATH = {  # characters to escape in math mode
    "ᵀ": "^T", "√": r"\sqrt ", "−": "-", "∂": r"\partial ", "Σ": r"\sum ", "·": r"\cdot ",
    "×": r"\times ", "←": r"\leftarrow ", "∞": r"\infty ", "₁": "_1", "₂": "_2", "²": "^2",
    "ᴵ": "^I", "ᴾ": "^P", "…": r"\dots ", "–": "--", "ε": r"\varepsilon ", "÷": r"\div ",
    " ": r"\ ", "→": r"\to ", "³": "^3",
    "%": r"\%", "&": r"\&", "#": r"\#", "，": r"，\ ", "；": r"；\ ",
}  # fmt: skip


def html(sheets: Sequence[Sequence[Step]], title: str) -> str:
    """A self-contained page; when printed, each worksheet starts on a new page."""
    bodies = "".join(
        f'<div class="glass">{"".join(map(html_step, sheet))}</div>\n' for sheet in sheets
    )
    return (
        f'<!doctype html>\n<html lang="{language.get()}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE}{STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f"{bodies}</html>\n"
    )


def html_fragment(steps: Sequence[Step]) -> str:
    """HTML for a notebook: collapsible steps, or the only step."""
    fold = ("<details><summary>", "</summary>", "</details>")
    before, between, after = fold if len(steps) > 1 else ("<p>", "</p>", "")
    bodies = [
        f"{before}{escape(step.title)} {formula(step)}{between}{html_body(step)}{after}"
        for step in steps
    ]
    return f'<div class="glass"><style>{STYLE}</style>{"".join(bodies)}</div>'


def html_step(step: Step) -> str:
    head = f"<h2>{escape(step.title)}</h2>\n{formula(step)}"
    return f"<section>{head}\n{html_body(step)}\n</section>"


def formula(step: Step) -> str:
    return f"<code>{escape(step.formula)}</code>" if step.formula else ""


def html_body(step: Step) -> str:
    parts = []
    if step.text:
        parts.append(f"<p>{escape(step.text)}</p>")
    if step.code:
        parts.append(f"<pre>{escape(step.code)}</pre>")
    tables = "".join(html_table(step, table) for table in step.tables)
    parts.append(f'<div class="tables">{tables}</div>')
    if step.note:
        parts.append(f'<p class="note">{escape(step.note)}</p>')
    return "\n".join(parts)


def html_table(step: Step, table: Table) -> str:
    table = crop_table(table, 256)
    head = "".join(f"<th>{escape(show_whitespace(name))}</th>" for name in table.columns)
    corner = "<th></th>" if table.rows else ""
    lines = [f"<tr>{corner}{head}</tr>"] if head else []
    shades = table.shades()
    wrong = step.wrong_cells(table).tolist()
    for i, row in enumerate(table.cells()):
        name = f"<th>{escape(show_whitespace(table.rows[i]))}</th>" if table.rows else ""
        cells = "".join(map(html_cell, row, shades[i], wrong[i]))
        lines.append(f"<tr>{name}{cells}</tr>")
    kind = ' class="correct"' if table.kind == "correct" else ""
    caption = f"<figcaption>{escape(table.name)}</figcaption>"
    return f"<figure{kind}>{caption}<table>{''.join(lines)}</table></figure>"


def html_cell(cell: str, shade: float, is_wrong: bool) -> str:
    if is_wrong:
        return f'<td class="wrong">{cell}</td>'
    tint = f' style="background: rgb(40 110 210 / {0.6 * shade:.2f})"' if shade else ""
    return f"<td{tint}>{cell}</td>"


def crop_table(table: Table, columns: int, rows: int = 10**9) -> Table:
    """Crop a table to a page; its name then states how many rows and columns are shown."""
    (n_rows, n_columns), name = table.values.shape, table.name
    if n_columns > columns:
        name = tr("{name}, first {n} of {total} columns", name=name, n=columns, total=n_columns)
    if n_rows > rows:
        name = tr("{name}, first {n} of {total} rows", name=name, n=rows, total=n_rows)
    return replace(table.crop(rows, columns), name=name)


def latex(sheets: Sequence[Sequence[Step]], title: str) -> str:
    """A LaTeX article; characters beyond Latin-1 need XeLaTeX, Chinese also the package ctex."""
    body = "\n\\clearpage\n".join("\n".join(map(latex_step, sheet)) for sheet in sheets)
    non_latin = {char for char in title + body if char > "\xff"}
    kind = "ctexart" if any("\u2e80" < char < "\ua000" for char in non_latin) else "article"
    first = "% compile with XeLaTeX; needs the package ctex\n" if kind == "ctexart" else ""
    fonts = ""
    if non_latin and kind == "article":
        first = "% compile with XeLaTeX or LuaLaTeX\n"
        fonts = "\\usepackage{fontspec}\n"
    head = [
        f"{first}\\documentclass{{{kind}}}",
        "\\usepackage[margin=2cm]{geometry}",
        f"{fonts}\\usepackage{{amsmath,graphicx,xcolor}}",
        "\\setlength{\\parindent}{0pt}",
        f"\\title{{{escape_tex(title)}}}\\date{{}}",
        "\\begin{document}\n\\maketitle",
    ]
    return "\n".join([*head, body, "\\end{document}\n"])


def latex_step(step: Step) -> str:
    lines = [f"\\subsection*{{{escape_tex(step.title)}}}"]
    lines += [f"${to_math(step.formula)}$\\par\\smallskip"] if step.formula else []
    lines += [escape_tex(step.text) + "\\par"] if step.text else []
    lines += [f"\\begin{{verbatim}}\n{step.code}\n\\end{{verbatim}}"] if step.code else []
    for table in (crop_table(table, 16, rows=48) for table in step.tables):
        rows = table.cells()
        wrong = step.wrong_cells(table).tolist()
        names = [escape_tex(show_whitespace(name)) + " & " for name in table.rows] or [""] * len(
            rows
        )
        columns = ("l" if table.rows else "") + "r" * len(rows[0])
        head = [
            ("& " if table.rows else "")
            + " & ".join(escape_tex(show_whitespace(name)) for name in table.columns)
        ]
        body = [
            name + " & ".join(
                f"\\textcolor{{red}}{{{escape_tex(cell)}}}" if is_wrong else escape_tex(cell)
                for cell, is_wrong in zip(row, flags, strict=True)
            )
            for name, row, flags in zip(names, rows, wrong, strict=True)
        ]  # fmt: skip
        inside = " \\\\\n".join([*(head if table.columns else []), *body])
        lines.append(
            f"\\medskip\\textit{{{escape_tex(table.name)}}}\\par\\nopagebreak\\smallskip\n"
            "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%\n"
            f"\\begin{{tabular}}{{{columns}}}\n{inside}\n\\end{{tabular}}}}\\par"
        )
    return "\n".join(
        [*lines, *(["\\medskip " + escape_tex(step.note) + "\\par"] if step.note else [])]
    )


IDENTIFIER = r"[A-Za-z]+(?:_[A-Za-z0-9]{2,})+"  # the name of an operation or a kernel
WORDS = r"[A-Za-z\u4e00-\u9fff]{2,}(?:[ -][A-Za-z\u4e00-\u9fff]{2,})*"
FUNCTIONS = {"softmax", "log", "tanh", "sin", "cos", "max", "argmax", "concat"}


def to_math(formula: str) -> str:
    """Convert a formula such as W_q, 10000^(2i/d), √(…) or Q Kᵀ to LaTeX math."""
    formula = re.sub(r"√\(((?:[^()]|\([^()]*\))*)\)", r"√{\1}", formula)
    formula = re.sub(r"√([A-Za-z0-9]+(?:_\w)?)", r"√{\1}", formula)
    formula = re.sub(r"\^ ?(\(([^()]*)\)|\d+)", lambda m: f"^{{{m[2] or m[1]}}}", formula)
    formula = re.sub(r"√(?!\{)", "√{}", formula)
    formula = re.sub(r"^\^", "{}^", formula) if formula != "^" else r"\uparrow"
    return "".join(map(to_math_part, re.split(f"({IDENTIFIER}|{WORDS})", formula)))


def to_math_part(part: str) -> str:
    """Set functions and words upright and escape symbols."""
    if part in FUNCTIONS:
        return f"\\operatorname{{{part}}}"
    if re.fullmatch(f"{IDENTIFIER}|{WORDS}", part):
        return f"\\text{{{escape_tex(part)}}}"
    return "".join(MATH.get(char, char) for char in part)


def escape_tex(text: str) -> str:
    return "".join(TEX.get(char, char) for char in text)


def write_tables(steps: Sequence[Step], folder: Path) -> list[Path]:
    """Write each table to a numbered CSV file in the folder and return the files."""
    files = []
    for number, step in enumerate(steps, start=1):
        for index, table in enumerate(step.tables, start=1):
            title = table.name if table.name in step.title else f"{step.title} {table.name}"
            name = re.sub(r"\W+", "-", title).strip("-").lower()
            files.append(folder / f"{number:02}-{index}-{name[:60]}.csv")
            lines = [["", *map(escape_cell, table.columns)]] if table.columns else []
            values = table.values.tolist() if table.hidden is None else table.cells()
            names = [*map(escape_cell, table.rows)] or [""] * len(values)
            lines += [[name, *row] for name, row in zip(names, values, strict=True)]
            write_file(files[-1], to_csv(lines))
    return files


def escape_cell(name: str) -> str:
    """Quote a name that a spreadsheet would run as a formula."""
    return f"'{name}" if name.lstrip().startswith(("=", "+", "-", "@")) else name


def to_csv(lines: Sequence[Sequence[object]]) -> str:
    from io import StringIO

    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
