"""What a model reads: the request of a page as inputs of a network.

A request is a dict with `text` (and `target`, the decoder input of a translator), `ids` (tokens to
continue), `image` (a base64 file), `label` and `seed` (of an image to paint), or `user` and `item`.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.api import Model
from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.data.images import Size, read_picture
from glassformer.models.network import Trait
from glassformer.predict import inputs_for
from glassformer.tasks.ranking import RecommendationCodec
from glassformer.tasks.task import move_to_device

MAX_IMAGE_BYTES = 8_000_000
KEYS = {"text", "target", "ids", "image", "label", "seed", "user", "item"}


@dataclass(frozen=True)
class Subject:
    """The inputs of a network, and the names of their positions."""

    inputs: dict[str, Tensor]
    tokens: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)  # of a translator
    image: Tensor | None = None  # that a classifier reads: y x c, from 0 to 1


def read_subject(model: Model, request: Mapping[str, Any]) -> Subject:
    """The inputs that a request asks for; unknown keys and wrong types are errors."""
    if unknown := request.keys() - KEYS:
        raise GlassError(f"unknown keys in the input: {', '.join(sorted(unknown))}")
    for name in ("text", "target", "image", "label"):
        if request.get(name) is not None and not isinstance(request[name], str):
            raise GlassError(f"{name} must be a text, got {request[name]!r}")
    check_bounds({"seed": request.get("seed")})
    if model.network.has(Trait.PAINTER):
        return read_class(model, request)
    if model.network.has(Trait.IMAGES):
        return read_image(model, request)
    if model.tokenizer is None:
        return read_user(model, request)
    return read_text(model, request)


def read_text(model: Model, request: Mapping[str, Any]) -> Subject:
    network = model.network
    tokenizer = model.require_tokenizer()
    if request.get("ids") is not None:
        model.require_trait(Trait.CAUSAL_LM, "generate")
        inputs = {"ids": check_ids(request["ids"], network.vocab).to(network.device)}
    else:
        text = request.get("text") or ""
        inputs = inputs_for(network, tokenizer, text, request.get("target"))
    check_length(model, inputs)
    tokens, source = (
        [tokenizer.token(int(i)) for i in inputs[name][0]] if name in inputs else []
        for name in ("ids", "source")
    )
    return Subject(inputs, tokens, source)


def check_ids(ids: Any, vocab: int) -> Tensor:
    is_valid = isinstance(ids, list) and ids and all(type(i) is int and 0 <= i < vocab for i in ids)
    if not is_valid:
        raise GlassError(f"ids must be a list of integers from 0 to {vocab - 1}")
    return torch.tensor([ids])


def check_length(model: Model, inputs: Mapping[str, Tensor]) -> None:
    """Raise an error for a text that is longer than the network can read."""
    context = model.network.context
    length = inputs["ids"].shape[1]
    if context is not None and length > context and not model.network.has(Trait.SEGMENT_MEMORY):
        raise GlassError(
            f"the text has {length:,} tokens, but this model reads at most {context:,}: shorten it"
        )


def read_class(model: Model, request: Mapping[str, Any]) -> Subject:
    """Noise and the class of an image to paint."""
    example = (request.get("label"), request.get("seed") or 0)
    batch = move_to_device(model.codec.encode([example]), model.network)
    return Subject(model.network.select_inputs(batch))


def read_image(model: Model, request: Mapping[str, Any]) -> Subject:
    """The pixels of a PNG or JPEG file; without one, a gray image."""
    size = Size(*model.task["image"])
    scale_to = size.height if size.height == size.width else model.task.get("image_size")
    if request.get("image"):
        try:
            content = base64.b64decode(request["image"], validate=True)
        except binascii.Error as error:
            raise GlassError(f"the image is not base64: {error}") from None
        if len(content) > MAX_IMAGE_BYTES:
            raise GlassError(f"the image is larger than {MAX_IMAGE_BYTES // 10**6} MB")
        pixels = read_picture(io.BytesIO(content), size, scale_to)
    else:
        pixels = np.full((size.channels, size.height, size.width), 128, dtype=np.uint8)
    batch = move_to_device(model.codec.encode([pixels]), model.network)
    image = torch.from_numpy(pixels).float().permute(1, 2, 0) / 255
    return Subject(model.network.select_inputs(batch), image=image)


def read_user(model: Model, request: Mapping[str, Any]) -> Subject:
    """A user and an item, or the history of a user; by default the first ones."""
    codec = model.codec
    if not isinstance(codec, RecommendationCodec):
        raise GlassError("this model reads neither texts nor images, so there is nothing to trace")
    catalog, network = codec.catalog, model.network
    user = catalog.find_user(request.get("user") or catalog.users[0])
    if network.has(Trait.RATER):
        item = catalog.find_item(request["item"]) if request.get("item") else 0
        return Subject({"user": torch.tensor([user]), "item": torch.tensor([item])})
    history = catalog.histories[user][-(network.context or 10**9) :]
    if not history:
        raise GlassError("the model knows none of the items of this user")
    return Subject({"ids": torch.tensor([history])}, [catalog.name(item) for item in history])
