"""The pictures of `glass draw` by their names: `PICTURES` is the only list.

A new picture is a function in `diagrams.py`, `draw.py` or a module of its own, and one entry here.
A module is imported when one of its pictures is drawn, so that help imports none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from inspect import signature
from typing import Any

OPTIONS = ("layer", "head", "part")  # of `glass draw`


class Needs(StrEnum):
    """What a picture is drawn from: the first argument of its function."""

    NOTHING = "nothing"  # no argument
    TEXT = "text"  # the Reading of a text by a model
    TRANSLATION = "translation"  # the Alignment of a text with the model's translation of it


@dataclass(frozen=True)
class Plot:
    """Where a picture is made, and what help says about it.

    Its function returns a figure of matplotlib, or an animation. Parameters called `layer`, `head`
    and `part` are options of the command; `network` and `tokenizer` are those of the model.
    """

    module: str  # in glassformer.inspection
    name: str  # of the function
    help: str
    needs: Needs = Needs.NOTHING
    patterns: tuple[str, ...] = ()  # of the values that it reads of a text; none: all of them
    moves: bool = False  # whether it is an animation

    @property
    def function(self) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(
            import_module(f"glassformer.inspection.{self.module}"), self.name
        )
        return found

    def forward_inputs(self, option: str) -> bool:
        return option in signature(self.function).parameters

    def draw(self, *subject: Any, **options: Any) -> Any:
        """The picture, drawn with those of the options that it takes and that are not None."""
        given = {name: value for name, value in options.items() if value is not None}
        return self.function(*subject, **{n: v for n, v in given.items() if self.forward_inputs(n)})


TEXT, TRANSLATION = Needs.TEXT, Needs.TRANSLATION
PATTERN = ("*pattern",)

# fmt: off
PLOTS = {
    "one-hot": Plot("diagrams", "one_hot", "a one-hot row times a matrix picks a row of it"),
    "markov": Plot("diagrams", "markov", "words as circles, arrows to what follows them"),
    "waves": Plot("diagrams", "waves", "sinusoidal positions, and the circles they go round"),
    "softmax": Plot("diagrams", "softmax", "why scores are divided by the root of the width"),
    "masks": Plot("diagrams", "masks", "which query may look at which key, for six masks"),
    "skips": Plot("diagrams", "skips", "gradients and loss without and with skip connections"),
    "architecture": Plot("diagrams", "architecture", "the paper's Transformer, one part lit"),
    "words": Plot("draw", "words", "the embeddings of its tokens in two dimensions", TEXT),
    "attention": Plot("draw", "attention", "what each token reads: a heat map", TEXT, PATTERN),
    "lines": Plot("draw", "lines", "the same as lines between tokens", TEXT, PATTERN),
    "heads": Plot("draw", "heads", "every head of every layer, small", TEXT, PATTERN),
    "residual": Plot("draw", "residual", "the size of the residual stream, by block", TEXT),
    "norm": Plot("draw", "norm", "each token's numbers before and after a norm", TEXT),
    "lens": Plot("draw", "lens", "what the model would answer after each block", TEXT),
    "alignment": Plot("draw", "alignment", "what each token of it read of TEXT", TRANSLATION),
    "unfolding": Plot("draw", "unfolding", "the same, growing token by token: an animation",
        TRANSLATION, moves=True),
}
# fmt: on


def plots_needing(*needs: Needs) -> list[str]:
    """The names of the pictures that are drawn from such a thing."""
    return [name for name, picture in PLOTS.items() if picture.needs in needs]
