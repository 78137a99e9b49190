"""Transformer blocks: attention and feed-forward layers with residual connections.

`layout` holds the positions and the padding of the tokens (nn/layout.py). `tap` names a value, so
that a trace can record or edit it, and returns it, unchanged unless edited (trace.py).

Shapes: b batch, t tokens, s source tokens, d features.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from glassformer.core.i18n import tr
from glassformer.nn.cache import LayerCache
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.norms import LayerNorm
from glassformer.trace import Tap, tap

Layer = Callable[[Tensor], Tensor]
Residual = Callable[[str, Tensor, Layer, Layer], Tensor]
Norm = Callable[[int], nn.Module]


def pre_norm(name: str, x: Tensor, norm: Layer, layer: Layer) -> Tensor:
    """Normalize the input of the layer; `name` is the layer's, for the tap of the sum."""
    return tap(f"{name}_residual", x + layer(norm(x)))


def post_norm(name: str, x: Tensor, norm: Layer, layer: Layer) -> Tensor:
    """Normalize the sum instead, as in the original Transformer."""
    return norm(tap(f"{name}_residual", x + layer(x)))


def residual_taps(residual: Residual, *layers: str) -> dict[str, Tap]:
    """Declare the axes and the formula of a block's residual sums, one for each of its layers."""
    formula = "x + {layer}(norm(x))" if residual is pre_norm else "x + {layer}(x)"
    return {f"{layer}_residual": Tap("b t d", tr(formula, layer=layer)) for layer in layers}


class Block(nn.Module):
    """Attention, then feed-forward."""

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        feedforward: nn.Module,
        *,
        residual: Residual = pre_norm,
        norm: Norm = LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = norm(dim)
        self.feedforward = feedforward
        self.feedforward_norm = norm(dim)
        self.residual = residual

    def forward(
        self, x: Tensor, layout: SequenceLayout, layer_cache: LayerCache | None = None
    ) -> Tensor:
        """b t d -> b t d."""
        attention = partial(self.attention, layout=layout, layer_cache=layer_cache)
        x = self.residual("attention", x, self.attention_norm, attention)
        return self.residual("feedforward", x, self.feedforward_norm, self.feedforward)

    @property
    def taps(self) -> dict[str, Tap]:
        return residual_taps(self.residual, "attention", "feedforward")


class CrossBlock(nn.Module):
    """Self-attention, then cross-attention to a source, then feed-forward."""

    def __init__(
        self,
        dim: int,
        attention: nn.Module,
        cross: nn.Module,
        feedforward: nn.Module,
        *,
        residual: Residual = pre_norm,
        norm: Norm = LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = norm(dim)
        self.cross, self.cross_norm = cross, norm(dim)
        self.feedforward = feedforward
        self.feedforward_norm = norm(dim)
        self.residual = residual

    def forward(
        self,
        x: Tensor,
        layout: SequenceLayout,
        source: Tensor | None,
        source_layout: SequenceLayout,
        layer_cache: LayerCache | None = None,
        source_cache: LayerCache | None = None,
    ) -> Tensor:
        """x (b t d) and source (b s d, or None if `source_cache` is complete) -> b t d."""
        attention = partial(self.attention, layout=layout, layer_cache=layer_cache)
        cross = partial(self.cross, layout=source_layout, source=source, layer_cache=source_cache)
        x = self.residual("attention", x, self.attention_norm, attention)
        x = self.residual("cross", x, self.cross_norm, cross)
        return self.residual("feedforward", x, self.feedforward_norm, self.feedforward)

    @property
    def taps(self) -> dict[str, Tap]:
        return residual_taps(self.residual, "attention", "cross", "feedforward")


def enable_checkpointing(network: nn.Module) -> None:
    """Turn on gradient checkpointing: the backward pass recomputes each block's activations."""
    for module in network.modules():
        if isinstance(module, Block | CrossBlock):
            forward = partial(checkpoint, module.forward, use_reentrant=False)
            module.forward = forward  # type: ignore[method-assign]
