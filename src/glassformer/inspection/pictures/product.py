"""Dot products and matrix products, number by number."""

from typing import Any

import torch
from torch import Tensor

from glassformer.core.i18n import tr
from glassformer.data.sample import GENRES, film_features
from glassformer.inspection.draw import find_kind
from glassformer.inspection.pictures.canvas import CELL, Area, Canvas, format_number

N_FILMS, N_VIEWERS = 4, 3


def product(kind: str = "matrix") -> Any:
    """A dot product, a matrix product, or the products of films and viewers."""
    kinds = {"matrix": draw_matrix_product, "dot": draw_dot_products, "films": draw_films}
    return find_kind(kinds, kind)()


def describe_product(a: Tensor, b: Tensor, decimals: int) -> str:
    """The terms of a dot product and their sum: 1 · .3 + 0 · .5 = .3."""
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    terms = (f"{format_number(x, decimals)} · {format_number(y, decimals)}" for x, y in pairs)
    return f"{' + '.join(terms)} = {format_number(float(a @ b), 2)}"


def draw_matrix_product() -> Any:
    """Two one-hot rows and a mixture of rows, times a matrix: 3 x 4 · 4 x 2 -> 3 x 2."""
    a = torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 1], [0.5, 0, 0.5, 0]])
    b = torch.arange(1.0, 9).reshape(4, 2) / 10
    canvas = Canvas(6.4, 4.9, tr("a matrix product: rows times columns"))
    right = canvas.matrix(3.2, 0.75, b, cell=0.5)
    left = canvas.matrix(0.8, 3.0, a, cell=0.5, decimals=2)
    both = canvas.matrix(3.2, 3.0, a @ b, cell=0.5, decimals=2)
    canvas.frame(Area(left.left, left.top + 1, left.right, left.top + 1.5))
    canvas.frame(Area(right.left + 0.5, right.top, right.right, right.bottom))
    canvas.frame(canvas.cell(both, 2, 1, 0.5))
    canvas.text(left.x, left.top - 0.2, "3 × 4")
    canvas.text(right.right + 0.35, right.y, "4 × 2")
    canvas.text(both.right + 0.35, both.y, "3 × 2")
    canvas.text(1.8, 1.3, tr("columns of the left matrix\n= rows of the right matrix\n= {n}", n=4))
    canvas.text(
        3.2, 4.68, f"{tr('third row · second column')}:  {describe_product(a[2], b[:, 1], 1)}"
    )
    return canvas.figure


def draw_dot_products() -> Any:
    """The dot product of two vectors, of a one-hot vector with itself, and with another."""
    one_hot = torch.eye(4)
    examples = (
        (tr("two vectors"), torch.tensor([2.0, 0, 3, 1]), torch.tensor([1.0, 4, 2, 0])),
        (tr("a one-hot vector with itself"), one_hot[1], one_hot[1]),
        (tr("two different one-hot vectors"), one_hot[1], one_hot[3]),
    )
    canvas = Canvas(7.6, 3.4, tr("the dot product: multiply the entries in pairs and add them up"))
    for i, (title, a, b) in enumerate(examples):
        x = 0.75 + 2.45 * i
        canvas.text(x + 2 * CELL, 0.65, title)
        for y, values, name in ((0.85, a, "p"), (1.35, b, "q"), (1.95, a * b, "p × q")):
            area = canvas.matrix(x, y, values[None], decimals=0)
            canvas.text(x - 0.1, area.y, name, ha="right")
        canvas.arrow((x + 2 * CELL, 2.36), (x + 2 * CELL, 2.6))
        canvas.matrix(x + 1.5 * CELL, 2.62, (a @ b)[None, None], decimals=0)
        canvas.text(x - 0.1, 2.8, "p · q", ha="right")
    return canvas.figure


def draw_films() -> Any:
    """The generated films of the sample ratings: a score is a dot product of hidden features."""
    films, viewers = (torch.from_numpy(x).float() for x in film_features())
    films, viewers = films[:N_FILMS], viewers[:N_VIEWERS]
    scores = films @ viewers.T
    genres = [tr(genre) for genre in GENRES]
    canvas = Canvas(7.4, 5.0, tr("how much a viewer likes a film: a dot product of their features"))
    names = [tr("film {n}", n=n + 1) for n in range(N_FILMS)]
    viewer_names = [tr("viewer {n}", n=n + 1) for n in range(N_VIEWERS)]
    right = canvas.matrix(4.0, 1.15, viewers.T, columns=viewer_names, rows=genres, cell=0.5)
    left = canvas.matrix(1.0, 2.9, films, rows=names, cell=0.5)
    both = canvas.matrix(4.0, 2.9, scores, cell=0.5)
    canvas.frame(Area(left.left, left.top, left.right, left.top + 0.5))
    canvas.frame(Area(right.left, right.top, right.left + 0.5, right.bottom))
    canvas.frame(canvas.cell(both, 0, 0, 0.5))
    for j, genre in enumerate(genres):
        place = left.left + 0.5 * j + 0.25, left.top - 0.08
        canvas.text(*place, genre, size=8, rotation=45, ha="left", va="bottom")
    canvas.text(6.5, both.y, tr("scores"))
    canvas.text(6.5, right.y, tr("what each\nviewer likes"))
    return canvas.figure
