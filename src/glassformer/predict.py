"""Prediction with a trained network, the same way for every task.

predictions = predict(network, codec_for(network, artifacts), ["a lovely film"])
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.generate.stream import decode_stream
from glassformer.models.network import Network, Trait
from glassformer.nn.heads import mean_pool
from glassformer.registry import model_name
from glassformer.tasks import TASKS
from glassformer.tasks.classify import ClassifyCodec
from glassformer.tasks.fill_mask import FillMaskCodec
from glassformer.tasks.generate import GenerateCodec
from glassformer.tasks.summarize import SummarizeCodec
from glassformer.tasks.task import Artifacts, Codec, move_to_device
from glassformer.tasks.translate import TranslateCodec
from glassformer.text.bilingual import source_tokenizer
from glassformer.text.tokenizer import Tokenizer

# For a network saved without a task: the first trait in this list that it has determines the codec.
CODECS: dict[Trait, type[Codec]] = {
    Trait.SEQ2SEQ: TranslateCodec,
    Trait.SUMMARIZER: SummarizeCodec,
    Trait.CAUSAL_LM: GenerateCodec,
    Trait.MASKED_LM: FillMaskCodec,
    Trait.CLASSIFIER: ClassifyCodec,
    Trait.ENCODER: ClassifyCodec,
}


def codec_for(network: Network, artifacts: Artifacts) -> Codec:
    """Return the codec of the network's task, or, if it has none, a codec that suits its traits."""
    task = artifacts.metadata.get("name")
    if task in TASKS:
        return TASKS[task].codec(artifacts)
    suitable = [codec for trait, codec in CODECS.items() if network.has(trait)]
    if artifacts.tokenizer is None or not suitable:
        raise GlassError("the model has no tokenizer, so it cannot read text")
    return suitable[0](artifacts)


def predict(
    network: Network, codec: Codec, examples: Sequence[Any], **options: Any
) -> Iterator[Any]:
    """Yield one prediction per example; `options` are those of the codec's `run`."""
    for start in range(0, len(examples), codec.batch_size):
        batch = codec.encode(examples[start : start + codec.batch_size], network.context)
        yield from codec.decode(codec.run(network, move_to_device(batch, network), **options))


def stream_text(
    network: Network,
    codec: GenerateCodec,
    prompt: str,
    *,
    stop: Sequence[str] = (),
    **options: Any,
) -> Iterator[str]:
    """Yield the continuation of a prompt in chunks, up to the first text in `stop`."""
    tokens = codec.stream(network, move_to_device(codec.encode([prompt]), network), **options)
    return decode_stream(tokens, codec.tokenizer, codec.tokenizer.encode(prompt), stop)


def inputs_for(
    network: Network, tokenizer: Tokenizer, text: str, target: str | None = None
) -> dict[str, Tensor]:
    """Return the network's inputs for a text, as in prediction.

    For a translator, the decoder input is `target`, or by default its own translation; for a
    summarizer, the same follows the text.
    """
    codec = codec_for(network, Artifacts(tokenizer=tokenizer))
    if not source_tokenizer(tokenizer).encode(text) and "[CLS]" not in tokenizer.special_tokens:
        raise GlassError("the text is empty: expected at least one token")
    batch = move_to_device(codec.encode([text]), network)
    if isinstance(codec, SummarizeCodec):
        return {"ids": codec.with_summary(network, batch, target)}
    if not isinstance(codec, TranslateCodec):
        return {"ids": batch["ids"]}
    ids = codec.run(network, batch)[0] if target is None else tokenizer.encode(target)
    decoder_ids = torch.tensor([[codec.bos, *ids]], device=network.device)
    return {"ids": decoder_ids, "source": batch["source"]}


@torch.inference_mode()
def embed_texts(
    network: Network, tokenizer: Tokenizer, texts: Sequence[str], batch_size: int = 32
) -> NDArray[np.float32]:
    """Return one vector per text, the mean of the hidden states of its tokens: texts x dim."""
    if not network.has(Trait.ENCODER):
        raise GlassError(
            f"cannot embed texts with {model_name(network)}: it computes no hidden state per "
            "token; use a model from `glass train fill-mask`"
        )
    tokenizer = source_tokenizer(tokenizer)
    codec = ClassifyCodec(Artifacts(tokenizer=tokenizer))
    vectors = list[NDArray[np.float32]]()
    for start in range(0, len(texts), batch_size):
        batch = move_to_device(
            codec.encode(texts[start : start + batch_size], network.context), network
        )
        features: Tensor = network.features(batch["ids"], batch["keep"])  # type: ignore[operator]
        vectors.append(mean_pool(features, batch["keep"]).float().cpu().numpy())
    return np.concatenate(vectors) if vectors else np.empty((0, network.config.dim), np.float32)


def cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of the angle between each two vectors, 0 for a zero vector: n d, m d -> n m."""
    unit = [
        vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        for vectors in (first, second)
    ]
    products: NDArray[np.float32] = unit[0] @ unit[1].T
    return products
