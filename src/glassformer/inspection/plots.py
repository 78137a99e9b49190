"""The plots of `glass draw`, all listed in `PLOTS` by name.

A new plot is a function in `diagrams.py`, `draw.py` or its own module, and one entry here. A module
is imported when one of its plots is drawn, so `--help` imports none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from inspect import signature
from typing import Any

OPTIONS = ("layer", "head", "part")  # of `glass draw`


class Needs(StrEnum):
    """What a plot is drawn from: the first argument of its function."""

    NOTHING = "nothing"  # no argument
    TEXT = "text"  # the TracedText of a text and a model
    IMAGE = "image"  # the TracedImage of an image and a model
    MODEL = "model"  # a network and the metadata of its task
    TRANSLATION = "translation"  # the Alignment of a text and the model's translation


@dataclass(frozen=True)
class Plot:
    """The function that draws a plot, and its help text.

    The function returns a matplotlib figure or an animation. Parameters named `layer`, `head` and
    `part` are options of the command; `network`, `tokenizer` and `labels` are those of the model.
    """

    module: str  # in glassformer.inspection
    name: str  # function name
    help: str
    needs: Needs = Needs.NOTHING
    patterns: tuple[str, ...] = ()  # globs for the traced values that it needs; empty means all
    is_animation: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(
            import_module(f"glassformer.inspection.{self.module}"), self.name
        )
        return function

    def accepts(self, option: str) -> bool:
        """Whether the function has a parameter with this name."""
        return option in signature(self.function).parameters

    def draw(self, *subject: Any, **options: Any) -> Any:
        """Draw the plot with those options that its function accepts and that are not None."""
        options = {name: value for name, value in options.items() if value is not None}
        return self.function(*subject, **{n: v for n, v in options.items() if self.accepts(n)})


TEXT, TRANSLATION = Needs.TEXT, Needs.TRANSLATION
PATTERN = ("*pattern",)

# fmt: off
PLOTS = {
    "one-hot": Plot("diagrams", "one_hot", "a one-hot row selects a row of a matrix"),
    "markov": Plot("diagrams", "markov", "words, with arrows to the words that follow them"),
    "waves": Plot("diagrams", "waves", "sinusoidal positional encoding, as waves and circles"),
    "softmax": Plot("diagrams", "softmax", "why scores are divided by √(head size)"),
    "masks": Plot("diagrams", "masks", "which query may attend to which key, for six masks"),
    "skips": Plot("diagrams", "skips", "gradients and loss with and without skip connections"),
    "architecture": Plot("diagrams", "architecture", "the Transformer, with one part highlighted"),
    "words": Plot("draw", "words", "token embeddings in two dimensions", TEXT),
    "attention": Plot("draw", "attention", "attention weights as a heat map", TEXT, PATTERN),
    "lines": Plot("draw", "lines", "attention weights as lines between tokens", TEXT, PATTERN),
    "heads": Plot("draw", "heads", "attention weights of every head of every layer", TEXT, PATTERN),
    "residual": Plot("draw", "residual", "the norm of the residual stream, by block", TEXT),
    "norm": Plot("draw", "norm", "each token's features before and after a norm", TEXT),
    "lens": Plot("draw", "lens", "the prediction after each block (logit lens)", TEXT),
    "prior": Plot("prior", "prior", "what the prior and the network each predict",
        TEXT, ("prior.*",)),
    "memory": Plot("reach", "memory", "attention to earlier segments (transformer_xl)",
        TEXT, PATTERN),
    "halting": Plot("reach", "halting", "how often each token was processed (universal)",
        TEXT, ("*loop.*",)),
    "gaze": Plot("gaze", "gaze", "where the positions of an image look", Needs.IMAGE),
    "factors": Plot("factors", "factors", "two learned features of the most rated items",
        Needs.MODEL),
    "alignment": Plot("draw", "alignment", "attention from each target token to TEXT", TRANSLATION),
    "unfolding": Plot("draw", "unfolding", "animation of the alignment, token by token",
        TRANSLATION, is_animation=True),
}
# fmt: on


def plots_needing(*needs: Needs) -> list[str]:
    """The names of the plots that are drawn from any of these."""
    return [name for name, plot in PLOTS.items() if plot.needs in needs]
