"""One architecture, one file: its frozen `Config`, then the model. `MODELS` is the only list."""

from __future__ import annotations

from typing import Any

from torch import nn

from glassformer import config
from glassformer.errors import GlassError
from glassformer.models.bag import Bag
from glassformer.models.bert import Bert
from glassformer.models.classifier import Classifier
from glassformer.models.convolutional import Convolutional
from glassformer.models.convolutional_classifier import ConvolutionalClassifier
from glassformer.models.decoder import Decoder
from glassformer.models.generator import Generator
from glassformer.models.gpt2 import GPT2
from glassformer.models.gpt2_classifier import GPT2Classifier
from glassformer.models.llama import Llama
from glassformer.models.markov import Markov
from glassformer.models.neighbours import Neighbours
from glassformer.models.phrases import Phrases
from glassformer.models.recurrent import Recurrent
from glassformer.models.recurrent_classifier import RecurrentClassifier
from glassformer.models.recurrent_translator import RecurrentTranslator
from glassformer.models.translator import Translator

MODELS: dict[str, Any] = {
    "markov": Markov,
    "bag": Bag,
    "phrases": Phrases,
    "neighbours": Neighbours,
    "recurrent": Recurrent,
    "recurrent_classifier": RecurrentClassifier,
    "recurrent_translator": RecurrentTranslator,
    "convolutional": Convolutional,
    "convolutional_classifier": ConvolutionalClassifier,
    "classifier": Classifier,
    "generator": Generator,
    "translator": Translator,
    "bert": Bert,
    "gpt2": GPT2,
    "gpt2_classifier": GPT2Classifier,
    "llama": Llama,
    "decoder": Decoder,
}


def build(name: str, settings: dict[str, Any]) -> nn.Module:
    """A model from its name and settings, as a file or the command line gives them."""
    if name not in MODELS:
        raise GlassError(f"there is no model {name!r}{config.nearest(name, MODELS)}")
    network: nn.Module = MODELS[name](config.make(MODELS[name].Config, settings, "model."))
    return network


def counts(network: nn.Module) -> bool:
    """Whether it learns by counting, in one go, and not by steps downhill."""
    return hasattr(network, "learn")


def writes(network: nn.Module) -> bool:
    """Whether it writes a text token by token, and has a cache for it."""
    return hasattr(network, "cache")


def fills_masks(network: nn.Module) -> bool:
    """Whether it guesses hidden tokens; a BERT may lack the head for that."""
    return isinstance(network, Neighbours) or getattr(network, "masked", None) is not None


def name_of(network: nn.Module) -> str:
    """The name under which `MODELS` lists a network's class."""
    for name, kind in MODELS.items():
        if type(network) is kind:
            return name
    raise GlassError(f"{type(network).__name__} is not among the models: {', '.join(MODELS)}")
