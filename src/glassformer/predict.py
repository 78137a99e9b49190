"""A trained network in use: examples go in, answers come out, by one path for every codec.

answers = predict(network, codec_for(network, artifacts), ["a lovely film"])
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.generate.pieces import pieces
from glassformer.models.network import Network, Trait
from glassformer.nn.heads import mean_pool
from glassformer.registry import model_name
from glassformer.tasks import TASKS
from glassformer.tasks.classify import ClassifyCodec
from glassformer.tasks.fill_mask import FillMaskCodec
from glassformer.tasks.generate import GenerateCodec
from glassformer.tasks.task import Artifacts, Codec, on_device
from glassformer.tasks.translate import TranslateCodec
from glassformer.text.tokenizer import Tokenizer

CODECS: dict[Trait, type[Codec]] = {  # of a network that does not say what task it is for
    Trait.SEQ2SEQ: TranslateCodec,
    Trait.CAUSAL_LM: GenerateCodec,
    Trait.MASKED_LM: FillMaskCodec,
    Trait.CLASSIFIER: ClassifyCodec,
    Trait.ENCODER: ClassifyCodec,
}


def codec_for(network: Network, artifacts: Artifacts) -> Codec:
    """How a network reads and answers: as its task says, or else by what it can do."""
    task = artifacts.metadata.get("name")
    if task in TASKS:
        return TASKS[task].codec(artifacts)
    if artifacts.tokenizer is None:
        raise GlassError("this model has no tokenizer, so it cannot read text")
    return next(codec for trait, codec in CODECS.items() if network.has(trait))(artifacts)


def predict(
    network: Network, codec: Codec, examples: Sequence[Any], **options: Any
) -> Iterator[Any]:
    """The answer to each example; options are those of the codec's `run`."""
    for start in range(0, len(examples), codec.batch_size):
        batch = codec.encode(examples[start : start + codec.batch_size], network.context)
        yield from codec.decode(codec.run(network, on_device(batch, network), **options))


def stream_text(
    network: Network,
    codec: GenerateCodec,
    prompt: str,
    *,
    stop: Sequence[str] = (),
    **options: Any,
) -> Iterator[str]:
    """The continuation of a text, a piece at a time; it ends before a text in `stop`."""
    tokens = codec.stream(network, on_device(codec.encode([prompt]), network), **options)
    return pieces(tokens, codec.tokenizer, codec.tokenizer.encode(prompt), stop)


def inputs_for(
    network: Network, tokenizer: Tokenizer, text: str, target: str | None = None
) -> dict[str, Tensor]:
    """A text as the network takes it in use; for a translator also a translation, or its own."""
    codec = codec_for(network, Artifacts(tokenizer=tokenizer))
    if not tokenizer.encode(text) and "[CLS]" not in tokenizer.special_tokens:
        raise GlassError("the text is empty: give at least one word")
    batch = on_device(codec.encode([text]), network)
    if not isinstance(codec, TranslateCodec):
        return {"ids": batch["ids"]}
    own = target is None
    ids = codec.run(network, batch)[0] if own else tokenizer.encode(target or "")
    start = torch.tensor([[codec.begin, *ids]], device=network.device)
    return {"ids": start, "source": batch["source"]}


@torch.inference_mode()
def embed_texts(
    network: Network, tokenizer: Tokenizer, texts: Sequence[str], batch_size: int = 32
) -> NDArray[np.float32]:
    """A vector for each text: the mean of the features of its tokens."""
    if not network.has(Trait.ENCODER):
        raise GlassError(f"{model_name(network)} only counts: it has no features of a text")
    codec, out = ClassifyCodec(Artifacts(tokenizer=tokenizer)), list[NDArray[np.float32]]()
    for start in range(0, len(texts), batch_size):
        batch = on_device(codec.encode(texts[start : start + batch_size], network.context), network)
        features: Tensor = network.features(batch["ids"], batch["keep"])  # type: ignore[operator]
        out.append(mean_pool(features, batch["keep"]).float().cpu().numpy())
    return np.concatenate(out) if out else np.empty((0, network.config.dim), np.float32)
