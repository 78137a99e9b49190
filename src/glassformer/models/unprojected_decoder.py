"""The decoder without W_o: the heads are concatenated, but not mixed."""

from typing import TypeAlias

from glassformer.models import decoder
from glassformer.nn.attention import UnprojectedAttention


class UnprojectedDecoder(decoder.Decoder):
    Config: TypeAlias = decoder.Config
    attention = UnprojectedAttention
