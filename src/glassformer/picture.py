"""What draws pictures into files, without a screen."""

from __future__ import annotations

from functools import cache
from typing import Any

# fonts that have Chinese signs, where one is installed
FONTS = (
    *("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei"),
)


@cache
def canvas() -> Any:
    """Matplotlib's pyplot; texts stay texts in SVG, so that whoever opens it needs the font."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import font_manager, pyplot

    known = {font.name for font in font_manager.fontManager.ttflist}
    mpl.rcParams["font.family"] = ["DejaVu Sans", *(name for name in FONTS if name in known)]
    mpl.rcParams["svg.fonttype"] = "none"
    return pyplot
