"""What each token of a translation read of its source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glassformer.core.errors import GlassError
from glassformer.inspection.sheet import Step, Table
from glassformer.inspection.shown import Shown
from glassformer.tasks.translate import start_and_end
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace
from glassformer.use import encode_source, rows_of
from glassformer.core.i18n import say


@dataclass(frozen=True, repr=False)
class Alignment(Shown):
    source: list[str]
    target: list[str]
    pattern: Tensor  # t s; each row sums to one

    def steps(self) -> list[Step]:
        table = Table(
            say("pattern"), self.pattern, self.target, self.source, "given", 2, shaded=True
        )
        return [
            Step(
                say("What each token of the translation (row) read of the source"), tables=(table,)
            )
        ]


@torch.inference_mode()
def align(network: nn.Module, tokenizer: Tokenizer, text: str, translation: str) -> Alignment:
    """Cross-attention while the translation is written, its end included.

    It is the mean over all heads of the last block but one, which aligns words best (Garg et al.,
    2019), or of the only block.
    """
    begin, end = start_and_end(tokenizer)
    source = encode_source(tokenizer, text) or [end]
    target = [*tokenizer.encode(translation), end]
    written, read = (rows_of(network, [ids])[0] for ids in ([begin, *target[:-1]], source))
    with Trace(network, "*cross.pattern") as trace:
        network(written, read)
    if not trace:
        raise GlassError("this model looks at no source while it writes: it aligns nothing")
    names = list(trace)  # one a block, or one in all
    pattern = trace[names[max(len(names) - 2, 0)]][0].mean(dim=0).float().cpu()  # t s
    return Alignment([*map(tokenizer.token, source)], [*map(tokenizer.token, target)], pattern)
