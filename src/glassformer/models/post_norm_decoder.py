"""The decoder with post-norm: each norm follows its residual sum."""

from typing import TypeAlias

from torch import nn

from glassformer.models import decoder
from glassformer.nn.block import post_norm


class PostNormDecoder(decoder.Decoder):
    Config: TypeAlias = decoder.Config
    residual = staticmethod(post_norm)

    def __init__(self, config: decoder.Config) -> None:
        super().__init__(config)
        # the last block ends with a norm
        self.norm = nn.Identity()  # type: ignore[assignment]
