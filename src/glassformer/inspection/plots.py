"""The plots of `glass draw`, all listed in `PLOTS` by name.

A new plot is a function in a module of `pictures/`, and one entry here. A module is imported when
one of its plots is drawn, so `--help` imports none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from inspect import signature
from typing import Any

from glassformer.core.config import did_you_mean
from glassformer.core.errors import GlassError

OPTIONS = ("layer", "head", "part", "kind", "token")  # of `glass draw`


class Needs(StrEnum):
    """What a plot is drawn from: the first argument of its function."""

    NOTHING = "nothing"  # no argument
    OPTIONAL_MODEL = "optional model"  # no argument, or a model: network and tokenizer by name
    TEXT = "text"  # the TracedText of a text and a model
    IMAGE = "image"  # the TracedImage of an image and a model
    MODEL = "model"  # a network and the metadata of its task
    TRANSLATION = "translation"  # the Alignment of a text and the model's translation


@dataclass(frozen=True)
class Plot:
    """The function that draws a plot, and its help text.

    The function returns a matplotlib figure or an animation. Parameters named as in `OPTIONS` are
    options of the command; `network`, `tokenizer` and `labels` are those of the model.
    """

    module: str  # in glassformer.inspection
    name: str  # function name
    help: str
    needs: Needs = Needs.NOTHING
    patterns: tuple[str, ...] = ()  # globs for the traced values that it needs; empty means all
    is_animation: bool = False
    several_heads: bool = False  # whether `head` may be a tuple of heads

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


TEXT = Needs.TEXT
TRANSLATION = Needs.TRANSLATION
OPTIONAL = Needs.OPTIONAL_MODEL
PATTERN = ("*pattern",)
FLOW = ("*.q", "*.k", "*.v", "*.scores", "*.pattern", "*.head_outputs", "*_norm")

# fmt: off
PLOTS = {
    "one-hot": Plot("pictures.counting", "one_hot", "a one-hot row selects a row of a matrix"),
    "product": Plot("pictures.product", "product",
        "products, number by number"),
    "votes": Plot("pictures.counting", "votes", "pairs of words vote for the next; a mask"),
    "lookup": Plot("pictures.pairs", "lookup", "Q Kᵀ: a one-hot query selects a mask"),
    "pairs": Plot("pictures.pairs", "pairs", "a feed-forward layer that finds pairs of words"),
    "circles": Plot("pictures.positions", "circles", "words and positions: circles around words"),
    "waves": Plot("pictures.positions", "waves",
        "sinusoidal positional encoding, as waves and circles"),
    "distances": Plot("pictures.positions", "distances", "distances between positional encodings"),
    "concatenation": Plot("pictures.positions", "concatenation",
        "appending a one-hot position is adding a vector"),
    "softmax": Plot("pictures.softmax", "softmax",
        "why scores are scaled; temperature; derivatives"),
    "self-attention": Plot("pictures.self_attention", "self_attention",
        "attention of one token, without a model"),
    "folding": Plot("pictures.folding", "folding",
        "how all heads are computed at once"),
    "masks": Plot("pictures.masks", "masks", "which query may attend to which key, for six masks"),
    "shift": Plot("pictures.masks", "shift", "targets shifted by one, and the causal mask"),
    "skips": Plot("pictures.skips", "skips",
        "gradients and loss with and without skip connections"),
    "normalization": Plot("pictures.normalization", "normalization",
        "features before and after layer norm; batch norm"),
    "connections": Plot("pictures.connections", "connections",
        "what one output of a layer has seen"),
    "receptive-field": Plot("pictures.influence", "receptive_field",
        "how many inputs an output sees, by depth"),
    "architecture": Plot("pictures.architecture", "architecture",
        "the Transformer with one part highlighted"),
    "markov": Plot("pictures.counting", "markov",
        "words, with arrows to the words that follow them",
        OPTIONAL),
    "shapes": Plot("pictures.sizes", "shapes", "the shape of every value", OPTIONAL),
    "words": Plot("pictures.features", "words", "token embeddings in two dimensions", TEXT),
    "flow": Plot("pictures.self_attention", "flow",
        "attention of one token, from query to output", TEXT, FLOW),
    "attention": Plot("pictures.attention", "attention",
        "attention weights as a heat map", TEXT, PATTERN),
    "lines": Plot("pictures.attention", "lines",
        "attention weights as lines between tokens", TEXT, PATTERN, several_heads=True),
    "heads": Plot("pictures.attention", "heads",
        "attention weights of every head of every layer", TEXT, PATTERN),
    "residual": Plot("pictures.features", "residual",
        "the norm of the residual stream, by block", TEXT),
    "norm": Plot("pictures.features", "norm",
        "each token's features before and after a norm", TEXT),
    "lens": Plot("pictures.features", "lens",
        "the prediction after each block (logit lens)", TEXT),
    "prior": Plot("pictures.prior", "prior", "what the prior and the network each predict",
        TEXT, ("prior.*",)),
    "memory": Plot("pictures.reach", "memory", "attention to earlier segments (transformer_xl)",
        TEXT, PATTERN),
    "halting": Plot("pictures.reach", "halting", "how often each token was processed (universal)",
        TEXT, ("*loop.*",)),
    "unfolding": Plot("pictures.unfolding", "unfolding",
        "animation: layer by layer, then token by token", TEXT, PATTERN, is_animation=True),
    "gaze": Plot("pictures.gaze", "gaze", "which positions of an image the others attend to",
        Needs.IMAGE),
    "factors": Plot("pictures.factors", "factors", "two learned features of the most rated items",
        Needs.MODEL),
    "alignment": Plot("pictures.attention", "alignment",
        "attention from each target token to TEXT", TRANSLATION),
}
# fmt: on


def plots_needing(*needs: Needs) -> list[str]:
    """The names of the plots that are drawn from any of these."""
    return [name for name, plot in PLOTS.items() if plot.needs in needs]


def find_plot(name: str) -> Plot:
    """The plot with this name."""
    if name not in PLOTS:
        hint = did_you_mean(name, PLOTS) or f"; available: {', '.join(PLOTS)}"
        raise GlassError(f"unknown plot {name!r}{hint}")
    return PLOTS[name]


def draw_diagram(name: str, **options: Any) -> Any:
    """Draw a plot that needs no model."""
    plot = find_plot(name)
    if plot.needs not in (Needs.NOTHING, Needs.OPTIONAL_MODEL):
        raise GlassError(f"{name} needs a model: use glassformer.load(RUN).draw({name!r}, TEXT)")
    return plot.draw(**options)
