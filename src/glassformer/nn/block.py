"""Transformer blocks: layers that take turns adding to the residual stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from glassformer.nn.cache import Past
from glassformer.nn.norms import LayerNorm
from glassformer.nn.span import Span
from glassformer.trace import tap

Layer = Callable[[Tensor], Tensor]
Residual = Callable[[Tensor, Layer, Layer], Tensor]
Norm = Callable[[int], nn.Module]


def pre_norm(x: Tensor, norm: Layer, layer: Layer) -> Tensor:
    return tap("residual", x + layer(norm(x)))


def post_norm(x: Tensor, norm: Layer, layer: Layer) -> Tensor:
    return norm(tap("residual", x + layer(x)))


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
        self.attention, self.attention_norm = attention, norm(dim)
        self.feedforward, self.feedforward_norm = feedforward, norm(dim)
        self.residual = residual

    def forward(self, x: Tensor, span: Span, past: Past | None = None) -> Tensor:
        x = self.residual(x, self.attention_norm, partial(self.attention, span=span, past=past))
        return self.residual(x, self.feedforward_norm, self.feedforward)


class CrossBlock(nn.Module):
    """Attention, then attention to a source, then feed-forward."""

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
        self.attention, self.attention_norm = attention, norm(dim)
        self.cross, self.cross_norm = cross, norm(dim)
        self.feedforward, self.feedforward_norm = feedforward, norm(dim)
        self.residual = residual

    def forward(
        self,
        x: Tensor,
        span: Span,
        source: Tensor | None,
        source_span: Span,
        past: Past | None = None,
        source_past: Past | None = None,
    ) -> Tensor:
        look = partial(self.attention, span=span, past=past)
        read = partial(self.cross, span=source_span, source=source, past=source_past)
        x = self.residual(x, self.attention_norm, look)
        x = self.residual(x, self.cross_norm, read)
        return self.residual(x, self.feedforward_norm, self.feedforward)


def checkpointed(network: nn.Module) -> None:
    """Let every block be computed again on the way back, instead of being remembered."""
    for module in network.modules():
        if isinstance(module, Block | CrossBlock):
            forward = partial(checkpoint, module.forward, use_reentrant=False)
            module.forward = forward  # type: ignore[method-assign]
