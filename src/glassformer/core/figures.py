"""Pictures of our own, drawn without a screen: whoever has others open keeps them as they are."""

import base64
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# fonts that have Chinese signs, where one is installed
FONTS = (
    *("Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei"),
)


def subplots(rows: int = 1, columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A chart and its axes, as pyplot's function of this name gives them."""
    size = options.pop("figsize")
    chart = figure_class()(figsize=size, layout="constrained")
    return chart, chart.subplots(rows, columns, **options)


def moving(chart: Any, draw: Callable[[int], None], frames: int) -> Any:
    """A chart that is drawn anew for each frame."""
    from matplotlib.animation import FuncAnimation

    class Moving(FuncAnimation):
        missing: set[str] = chart.missing

        def _repr_html_(self) -> str:
            with TemporaryDirectory() as folder:
                file = Path(folder, "moving.gif")
                self.save(file, writer="pillow", dpi=100)
                data = base64.b64encode(file.read_bytes()).decode()
            return f'<img alt="" src="data:image/gif;base64,{data}">'

    return Moving(chart, draw, frames=frames, interval=700)


@cache
def installed_fonts() -> tuple[list[str], set[int]]:
    """The fonts to draw with, in their order, and the characters that one of them has."""
    from matplotlib import font_manager, ft2font

    known = {font.name for font in font_manager.fontManager.ttflist}
    family = ["DejaVu Sans", *(name for name in FONTS if name in known)]
    files = [font_manager.findfont(name) for name in family]
    return family, {code for file in files for code in ft2font.FT2Font(file).get_charmap()}


@cache
def figure_class() -> Any:
    """Matplotlib's figure, in which every sign is shown as it is: a dollar begins no formula, and a
    text stays a text in SVG, so that whoever opens it needs the font. Elsewhere a character that no
    installed font has is shown by its number: ⟨4e09⟩."""
    from io import BytesIO

    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    family, drawable = installed_fonts()

    def write_legibly(write: Callable[[float, int], str], x: float, at: int) -> str:
        return legible(write(x, at))

    def legible(text: str) -> str:
        return "".join(c if ord(c) in drawable or c.isspace() else f"⟨{ord(c):x}⟩" for c in text)

    class Chart(Figure):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.missing: set[str] = set()  # characters that no font has
            FigureCanvasAgg(self)

        def draw(self, renderer: Any) -> None:
            with rc_context({"font.family": family, "svg.fonttype": "none"}):
                for text in self.findobj(Text):
                    text.set_fontfamily(family)
                    text.set_parse_math("\\mathdefault" in text.get_text())  # a power on an axis
                restore = [] if isinstance(self.canvas, FigureCanvasSVG) else self.make_legible()
                try:
                    super().draw(renderer)
                finally:
                    for undo in restore:
                        undo()

        def make_legible(self) -> list[Callable[[], None]]:
            """Exchange the characters that no font has; what takes each of them back."""
            restore: list[Callable[[], None]] = []
            for text in self.findobj(Text):
                written = text.get_text()
                if legible(written) != written:
                    self.missing.update(set(written) - set(legible(written)))
                    text.set_text(legible(written))
                    restore.append(partial(text.set_text, written))
            for axes in self.get_axes():
                for axis in (axes.xaxis, axes.yaxis):
                    formatter = axis.get_major_formatter()
                    if isinstance(formatter, FuncFormatter):  # it writes the labels anew each time
                        restore.append(partial(setattr, formatter, "func", formatter.func))
                        formatter.func = partial(write_legibly, formatter.func)
            return restore

        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, dpi=100)
            return file.getvalue()

    return Chart
