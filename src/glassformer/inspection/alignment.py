"""What each token of a translation read of its source."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.displayable import Displayable
from glassformer.inspection.sheet import Step, Table
from glassformer.models.network import Network
from glassformer.tasks.task import Artifacts, on_device
from glassformer.tasks.translate import TranslateCodec
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace


@dataclass(frozen=True, repr=False)
class Alignment(Displayable):
    source: list[str]
    target: list[str]
    pattern: Tensor  # t s; each row sums to one

    def steps(self) -> list[Step]:
        table = Table(
            tr("pattern"), self.pattern, self.target, self.source, "given", 2, shaded=True
        )
        return [
            Step(tr("What each token of the translation (row) read of the source"), tables=(table,))
        ]


@torch.inference_mode()
def align(network: Network, tokenizer: Tokenizer, text: str, translation: str) -> Alignment:
    """Cross-attention while the translation is written, its end included.

    It is the mean over all heads of the last block but one, which aligns words best (Garg et al.,
    2019), or of the only block.
    """
    codec = TranslateCodec(Artifacts(tokenizer=tokenizer))
    target = [*tokenizer.encode(translation), codec.end]
    batch = on_device(codec.encode([text]), network)
    ids = torch.tensor([[codec.begin, *target[:-1]]], device=network.device)
    with Trace(network, "*cross.pattern", allow_missing=True) as trace:
        network(ids, batch["source"])
    if not trace:
        raise GlassError("this model looks at no source while it writes: it aligns nothing")
    names = list(trace)  # one a block, or one in all
    pattern = trace[names[max(len(names) - 2, 0)]][0].mean(dim=0).float().cpu()  # t s
    return Alignment(
        [*map(tokenizer.token, batch["source"][0].tolist())],
        [*map(tokenizer.token, target)],
        pattern,
    )
