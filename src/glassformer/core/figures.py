"""Matplotlib figures without a display and without pyplot's global state."""

import base64
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CHINESE_FONT = Path(__file__).with_name("fonts") / "GlassformerSansSC-Regular.otf"  # GB2312
FONTS = (  # with more Chinese characters; only the installed ones are used
    *("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei"),
)


def subplots(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, like `pyplot.subplots`. `figsize` is required."""
    size = options.pop("figsize")
    figure = figure_class()(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def animate(figure: Any, draw: Callable[[int], None], frames: int) -> Any:
    """An animation of a figure; `draw(i)` redraws it for frame i. Notebooks show it as a GIF."""
    from matplotlib.animation import FuncAnimation

    class Animation(FuncAnimation):
        missing: set[str] = figure.missing

        def _repr_html_(self) -> str:
            with TemporaryDirectory() as folder:
                file = Path(folder, "animation.gif")
                self.save(file, writer="pillow", dpi=100)
                data = base64.b64encode(file.read_bytes()).decode()
            return f'<img alt="" src="data:image/gif;base64,{data}">'

    return Animation(figure, draw, frames=frames, interval=700)


@cache
def installed_fonts() -> tuple[list[str], set[int]]:
    """The font families to draw with, in order, and the code points that they cover."""
    from matplotlib import font_manager, ft2font

    font_manager.fontManager.addfont(CHINESE_FONT)
    installed = {font.name for font in font_manager.fontManager.ttflist}
    own = ft2font.FT2Font(CHINESE_FONT).family_name
    family = ["DejaVu Sans", own, *(name for name in FONTS if name in installed)]
    files = [font_manager.findfont(name) for name in family]
    return family, {code for file in files for code in ft2font.FT2Font(file).get_charmap()}


@cache
def figure_class() -> Any:
    """A subclass of matplotlib's `Figure` that draws text literally.

    A dollar sign does not start a formula. In SVG, text stays text and the viewer needs the font;
    in other formats, a character that no installed font covers is drawn as its code point: ⟨4e09⟩.
    """
    from io import BytesIO

    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    family, drawable = installed_fonts()

    def format_tick(formatter: Callable[[float, int], str], x: float, position: int) -> str:
        return escape(formatter(x, position))

    def escape(text: str) -> str:
        return "".join(c if ord(c) in drawable or c.isspace() else f"⟨{ord(c):x}⟩" for c in text)

    class LiteralFigure(Figure):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.missing: set[str] = set()  # characters that no installed font covers
            FigureCanvasAgg(self)

        def draw(self, renderer: Any) -> None:
            with rc_context({"font.family": family, "svg.fonttype": "none"}):
                for text in self.findobj(Text):
                    text.set_fontfamily(family)
                    text.set_parse_math("\\mathdefault" in text.get_text())  # 10³ on a log axis
                is_svg = isinstance(self.canvas, FigureCanvasSVG)
                undo_actions = [] if is_svg else self.escape_texts()
                try:
                    super().draw(renderer)
                finally:
                    for undo in undo_actions:
                        undo()

        def escape_texts(self) -> list[Callable[[], None]]:
            """Escape characters that no font covers; return functions that undo it."""
            undo_actions: list[Callable[[], None]] = []
            for text in self.findobj(Text):
                original = text.get_text()
                if escape(original) != original:
                    self.missing.update(set(original) - set(escape(original)))
                    text.set_text(escape(original))
                    undo_actions.append(partial(text.set_text, original))
            for axes in self.get_axes():
                for axis in (axes.xaxis, axes.yaxis):
                    formatter = axis.get_major_formatter()
                    if isinstance(formatter, FuncFormatter):  # generates its labels on every draw
                        undo_actions.append(partial(setattr, formatter, "func", formatter.func))
                        formatter.func = partial(format_tick, formatter.func)
            return undo_actions

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, dpi=100)
            return file.getvalue()

    return LiteralFigure
