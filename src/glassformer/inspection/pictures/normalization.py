"""What a norm does to the features, and how layer norm differs from batch norm."""

from typing import Any

import torch
from torch import nn

from glassformer.core.figures import subplots
from glassformer.core.i18n import tr
from glassformer.inspection.pictures.canvas import format_number
from glassformer.nn.norms import LayerNorm

TOKENS, DIM = 400, 64
ROWS, COLUMNS = 6, 8  # of the small tables


@torch.no_grad()
def normalization() -> Any:
    """Features before and after layer norm; and layer norm and batch norm of a small table."""
    from matplotlib.patches import Rectangle

    random = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(TOKENS, DIM, generator=random).exp()
    chart, axes = subplots(2, 2, figsize=(10, 6.6))
    for ax, title, values in (
        (axes[0][0], tr("before"), x),
        (axes[0][1], tr("after"), LayerNorm(DIM)(x)),
    ):
        ax.hist(values.flatten().numpy(), bins=80, color="C0")
        mean = float(values.mean())
        std = float(values.std())
        numbers = {"mean": f"{abs(mean):.2f}", "std": f"{std:.2f}"}
        ax.set_title(tr("{title}: mean {mean}, standard deviation {std}", title=title, **numbers))
        ax.set(yticks=[], xlabel=tr("feature"))
    table = x[:ROWS, :COLUMNS]
    layer = LayerNorm(COLUMNS)(table)
    batch = nn.BatchNorm1d(COLUMNS)(table)
    for ax, values, title, box in (
        (axes[1][0], layer, tr("layer norm: each token by itself"), (-0.5, 1.5, COLUMNS, 1)),
        (axes[1][1], batch, tr("batch norm: each feature over the batch"), (1.5, -0.5, 1, ROWS)),
    ):
        ax.imshow(values.numpy(), cmap="RdBu", vmin=-2.5, vmax=2.5)
        left, top, width, height = box
        ax.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor="C3", linewidth=2))
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                text = format_number(value, 1)
                color = "white" if abs(value) > 1.8 else "black"
                ax.text(j, i, text, ha="center", va="center", fontsize=8, color=color)
        ax.set(title=title, xlabel=tr("feature"), ylabel=tr("token"), xticks=[], yticks=[])
    return chart
