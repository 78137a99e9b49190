"""The alignment of a translation with its source, from cross-attention.

Shapes: t target tokens, s source tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.core.i18n import tr
from glassformer.inspection.displayable import Displayable
from glassformer.inspection.sheet import Step, Table
from glassformer.models.network import Network
from glassformer.tasks.task import Artifacts, move_to_device
from glassformer.tasks.translate import TranslateCodec
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace


@dataclass(frozen=True, repr=False)
class Alignment(Displayable):
    source: list[str]
    target: list[str]
    pattern: Tensor  # t s: attention weights; each row sums to one

    def steps(self) -> list[Step]:
        table = Table(
            tr("attention weights"),
            self.pattern,
            rows=self.target,
            columns=self.source,
            kind="given",
            decimals=2,
            shaded=True,
        )
        title = tr("Attention from each target token (row) to each source token (column)")
        return [Step(title, tables=(table,))]


@torch.inference_mode()
def align(network: Network, tokenizer: Tokenizer, text: str, translation: str) -> Alignment:
    """Return the cross-attention weights of a translation, including its end token.

    They are the mean over all heads of the penultimate block, which aligns words best (Garg et
    al., 2019), or of the only block, if there is just one.
    """
    codec = TranslateCodec(Artifacts(tokenizer=tokenizer))
    target = [*tokenizer.encode(translation), codec.eos]
    batch = move_to_device(codec.encode([text]), network)
    ids = torch.tensor([[codec.bos, *target[:-1]]], device=network.device)
    with Trace(network, "*cross.pattern", allow_missing=True) as trace:
        network(ids, batch["source"])
    if not trace:
        raise GlassError("this model has no cross-attention, so it cannot align a translation")
    names = list(trace)  # one per block; some models have only one cross-attention layer
    pattern = trace[names[max(len(names) - 2, 0)]][0].mean(dim=0).float().cpu()  # t s
    return Alignment(
        [*map(codec.source_tokenizer.token, batch["source"][0].tolist())],
        [*map(tokenizer.token, target)],
        pattern,
    )
