"""A walk as a page, as LaTeX, or as tables for a spreadsheet."""

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
# tints that do on a light and on a dark ground: a notebook brings its own
STYLE = """
.glass { overflow-wrap: anywhere }
.glass code { background: rgb(128 128 128 / .14); padding: .1rem .4rem; border-radius: .25rem }
.glass .tables { display: flex; flex-wrap: wrap; gap: 1.2rem; align-items: flex-start }
.glass figure { margin: .6rem 0; max-width: 100%; overflow-x: auto }
.glass figcaption { font-size: .85rem; opacity: .75; margin-bottom: .25rem }
.glass table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem }
.glass td, .glass th { padding: .15rem .5rem; text-align: right; white-space: nowrap;
                       border: 1px solid rgb(128 128 128 / .3) }
.glass th { font-weight: 500; background: rgb(128 128 128 / .1) }
.glass .wrong { background: rgb(220 50 30 / .22) }
.glass .right td { background: rgb(40 160 70 / .12) }
.glass .why { border-left: 3px solid #d9a400; padding-left: .8rem }
.glass summary { cursor: pointer; padding: .15rem 0 }
"""
TEX = {  # signs of formulas that a plain TeX font lacks
    "ᵀ": "$^T$", "√": r"$\surd$", "−": "$-$", "∂": r"$\partial$", "Σ": r"$\Sigma$",
    "·": r"$\cdot$", "×": r"$\times$", "←": r"$\leftarrow$", "∞": r"$\infty$", "₁": "$_1$",
    "₂": "$_2$", "²": "$^2$", "ᴵ": "$^I$", "ᴾ": "$^P$", "…": r"\dots{}", "“": "``", "”": "''",
    "ε": r"$\varepsilon$", "⏎": r"$\hookleftarrow$", "⇥": r"$\rightarrow$", "^": r"\^{}",
    "\\": r"\textbackslash{}",
    "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\~{}", "–": "--", "÷": r"$\div$", "⟨": r"$\langle$", "⟩": r"$\rangle$",
    "[": "{[}", "*": "{*}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
}  # fmt: skip

MATH = {  # the same in mathematics
    "ᵀ": "^T", "√": r"\sqrt ", "−": "-", "∂": r"\partial ", "Σ": r"\sum ", "·": r"\cdot ",
    "×": r"\times ", "←": r"\leftarrow ", "∞": r"\infty ", "₁": "_1", "₂": "_2", "²": "^2",
    "ᴵ": "^I", "ᴾ": "^P", "…": r"\dots ", "–": "--", "ε": r"\varepsilon ", "÷": r"\div ",
    " ": r"\ ",
    "%": r"\%", "&": r"\&", "#": r"\#", "，": r"，\ ", "；": r"；\ ",
}  # fmt: skip


def html(sheets: Sequence[Sequence[Step]], title: str) -> str:
    """A page that needs nothing else; a second sheet starts on a page of its own."""
    bodies = "".join(
        f'<div class="glass">{"".join(map(html_step, sheet))}</div>\n' for sheet in sheets
    )
    return (
        f'<!doctype html>\n<html lang="{language.get()}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PAGE}{STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f"{bodies}</html>\n"
    )


def folded(steps: Sequence[Step]) -> str:
    """A piece of a page, for a notebook: steps to unfold, or the only one."""
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
    if step.says:
        parts.append(f"<p>{escape(step.says)}</p>")
    tables = "".join(html_table(step, table) for table in step.tables)
    parts.append(f'<div class="tables">{tables}</div>')
    if step.why:
        parts.append(f'<p class="why">{escape(step.why)}</p>')
    return "\n".join(parts)


def html_table(step: Step, table: Table) -> str:
    table = fitting(table, 256)
    head = "".join(f"<th>{escape(show_whitespace(name))}</th>" for name in table.columns)
    corner = "<th></th>" if table.rows else ""
    lines = [f"<tr>{corner}{head}</tr>"] if head else []
    shades, wrong = table.shades(), step.wrong(table).tolist()
    for i, row in enumerate(table.cells()):
        name = f"<th>{escape(show_whitespace(table.rows[i]))}</th>" if table.rows else ""
        cells = "".join(map(html_cell, row, shades[i], wrong[i]))
        lines.append(f"<tr>{name}{cells}</tr>")
    kind = ' class="right"' if table.kind == "right" else ""
    caption = f"<figcaption>{escape(table.name)}</figcaption>"
    return f"<figure{kind}>{caption}<table>{''.join(lines)}</table></figure>"


def html_cell(cell: str, shade: float, wrong: bool) -> str:
    if wrong:
        return f'<td class="wrong">{cell}</td>'
    tint = f' style="background: rgb(40 110 210 / {0.6 * shade:.2f})"' if shade else ""
    return f"<td{tint}>{cell}</td>"


def fitting(table: Table, columns: int, rows: int = 10**9) -> Table:
    """A table that fits on a page: of more only the first, which its name then says."""
    (tall, wide), name = table.values.shape, table.name
    if wide > columns:
        name = tr("{name}, the first {most} of {wide} columns", name=name, most=columns, wide=wide)
    if tall > rows:
        name = tr("{name}, the first {most} of {tall} rows", name=name, most=rows, tall=tall)
    return replace(table.first(rows, columns), name=name)


def latex(sheets: Sequence[Sequence[Step]], title: str) -> str:
    """An article for any LaTeX; one with 中文 in it needs XeLaTeX."""
    body = "\n\\clearpage\n".join("\n".join(map(latex_step, sheet)) for sheet in sheets)
    strange = {sign for sign in title + body if sign > "\xff"}
    kind = "ctexart" if any("\u2e80" < sign < "\ua000" for sign in strange) else "article"
    first = "% for XeLaTeX, with the package ctex\n" if kind == "ctexart" else ""
    fonts = ""
    if strange and kind == "article":
        first, fonts = "% for XeLaTeX or LuaLaTeX\n", "\\usepackage{fontspec}\n"
    head = [
        f"{first}\\documentclass{{{kind}}}",
        "\\usepackage[margin=2cm]{geometry}",
        f"{fonts}\\usepackage{{amsmath,graphicx,xcolor}}",
        "\\setlength{\\parindent}{0pt}",
        f"\\title{{{tex(title)}}}\\date{{}}",
        "\\begin{document}\n\\maketitle",
    ]
    return "\n".join([*head, body, "\\end{document}\n"])


def latex_step(step: Step) -> str:
    lines = [f"\\subsection*{{{tex(step.title)}}}"]
    lines += [f"${mathematics(step.formula)}$\\par\\smallskip"] if step.formula else []
    lines += [tex(step.says) + "\\par"] if step.says else []
    for table in (fitting(table, 16, rows=48) for table in step.tables):
        rows = table.cells()
        wrong = step.wrong(table).tolist()
        names = [tex(show_whitespace(name)) + " & " for name in table.rows] or [""] * len(rows)
        columns = ("l" if table.rows else "") + "r" * len(rows[0])
        head = [
            ("& " if table.rows else "")
            + " & ".join(tex(show_whitespace(name)) for name in table.columns)
        ]
        body = [
            name + " & ".join(
                f"\\textcolor{{red}}{{{tex(cell)}}}" if bad else tex(cell)
                for cell, bad in zip(row, marks, strict=True)
            )
            for name, row, marks in zip(names, rows, wrong, strict=True)
        ]  # fmt: skip
        inside = " \\\\\n".join([*(head if table.columns else []), *body])
        lines.append(
            f"\\medskip\\textit{{{tex(table.name)}}}\\par\\nopagebreak\\smallskip\n"
            "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%\n"
            f"\\begin{{tabular}}{{{columns}}}\n{inside}\n\\end{{tabular}}}}\\par"
        )
    return "\n".join([*lines, *(["\\medskip " + tex(step.why) + "\\par"] if step.why else [])])


CALLED = r"[A-Za-z]+(?:_[A-Za-z0-9]{2,})+"  # the name of an operation, of a kernel
WORD = r"[A-Za-z\u4e00-\u9fff]{2,}(?:[ -][A-Za-z\u4e00-\u9fff]{2,})*"
FUNCTIONS = {"softmax", "log", "tanh", "sin", "cos", "max", "argmax", "concat"}


def mathematics(formula: str) -> str:
    """A formula in the signs of LaTeX: W_q, 10000^(2i/d), √(…), Q Kᵀ."""
    formula = re.sub(r"√\(((?:[^()]|\([^()]*\))*)\)", r"√{\1}", formula)
    formula = re.sub(r"√([A-Za-z0-9]+(?:_\w)?)", r"√{\1}", formula)
    formula = re.sub(r"\^ ?(\(([^()]*)\)|\d+)", lambda m: f"^{{{m[2] or m[1]}}}", formula)
    formula = re.sub(r"√(?!\{)", "√{}", formula)
    formula = re.sub(r"^\^", "{}^", formula) if formula != "^" else r"\uparrow"
    return "".join(map(math_part, re.split(f"({CALLED}|{WORD})", formula)))


def math_part(part: str) -> str:
    """Functions and words upright, signs by their names."""
    if part in FUNCTIONS:
        return f"\\operatorname{{{part}}}"
    if re.fullmatch(f"{CALLED}|{WORD}", part):
        return f"\\text{{{tex(part)}}}"
    return "".join(MATH.get(sign, sign) for sign in part)


def tex(text: str) -> str:
    return "".join(TEX.get(sign, sign) for sign in text)


def tables(steps: Sequence[Step], folder: Path) -> list[Path]:
    """A CSV file for each matrix, numbered as they come."""
    files = []
    for number, step in enumerate(steps, start=1):
        for place, table in enumerate(step.tables, start=1):
            both = table.name if table.name in step.title else f"{step.title} {table.name}"
            name = re.sub(r"\W+", "-", both).strip("-").lower()
            files.append(folder / f"{number:02}-{place}-{name[:60]}.csv")
            lines = [["", *map(plain, table.columns)]] if table.columns else []
            values = table.values.tolist() if table.hidden is None else table.cells()
            names = [*map(plain, table.rows)] or [""] * len(values)
            lines += [[name, *row] for name, row in zip(names, values, strict=True)]
            write_file(files[-1], written(lines))
    return files


def plain(name: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{name}" if name.lstrip().startswith(("=", "+", "-", "@")) else name


def written(lines: Sequence[Sequence[object]]) -> str:
    from io import StringIO

    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
