"""The registry of models: `MODELS` maps their names to their classes."""

import sys
from typing import Any

from glassformer.baselines.biases import Biases
from glassformer.baselines.lead import Lead
from glassformer.baselines.logistic import Logistic
from glassformer.baselines.markov import Markov
from glassformer.baselines.nb_svm import NBSVM
from glassformer.baselines.neighbors import Neighbors
from glassformer.baselines.phrase_table import PhraseTable
from glassformer.baselines.popularity import Popularity
from glassformer.core import config
from glassformer.core.errors import GlassError
from glassformer.models.bert import Bert
from glassformer.models.bert_classifier import BertClassifier
from glassformer.models.bert_encoder import BertEncoder
from glassformer.models.classifier import Classifier
from glassformer.models.convolutional import Convolutional
from glassformer.models.convolutional_classifier import ConvolutionalClassifier
from glassformer.models.decoder import Decoder
from glassformer.models.factorization import Factorization
from glassformer.models.generator import Generator
from glassformer.models.gpt2 import GPT2
from glassformer.models.gpt2_classifier import GPT2Classifier
from glassformer.models.image_cnn import ImageCNN
from glassformer.models.llama import Llama
from glassformer.models.network import Network
from glassformer.models.post_norm_decoder import PostNormDecoder
from glassformer.models.recurrent import Recurrent
from glassformer.models.recurrent_classifier import RecurrentClassifier
from glassformer.models.recurrent_translator import RecurrentTranslator
from glassformer.models.sagan import SAGAN
from glassformer.models.sasrec import SASRec
from glassformer.models.sparse import Sparse
from glassformer.models.speedrun import Speedrun
from glassformer.models.speedrun_translator import SpeedrunTranslator
from glassformer.models.summarizer import Summarizer
from glassformer.models.text_cnn import TextCNN
from glassformer.models.transformer_xl import TransformerXL
from glassformer.models.translator import Translator
from glassformer.models.universal import Universal
from glassformer.models.universal_classifier import UniversalClassifier
from glassformer.models.universal_translator import UniversalTranslator
from glassformer.models.unprojected_decoder import UnprojectedDecoder
from glassformer.models.vision import Vision

MODELS: dict[str, type[Network]] = {
    "markov": Markov,
    "nb_svm": NBSVM,
    "phrase_table": PhraseTable,
    "lead": Lead,
    "neighbors": Neighbors,
    "biases": Biases,
    "popularity": Popularity,
    "recurrent": Recurrent,
    "recurrent_classifier": RecurrentClassifier,
    "recurrent_translator": RecurrentTranslator,
    "convolutional": Convolutional,
    "convolutional_classifier": ConvolutionalClassifier,
    "text_cnn": TextCNN,
    "classifier": Classifier,
    "generator": Generator,
    "translator": Translator,
    "bert": Bert,
    "bert_classifier": BertClassifier,
    "bert_encoder": BertEncoder,
    "gpt2": GPT2,
    "gpt2_classifier": GPT2Classifier,
    "llama": Llama,
    "decoder": Decoder,
    "post_norm_decoder": PostNormDecoder,
    "unprojected_decoder": UnprojectedDecoder,
    "transformer_xl": TransformerXL,
    "sparse": Sparse,
    "summarizer": Summarizer,
    "universal": Universal,
    "universal_classifier": UniversalClassifier,
    "universal_translator": UniversalTranslator,
    "factorization": Factorization,
    "sasrec": SASRec,
    "speedrun": Speedrun,
    "speedrun_translator": SpeedrunTranslator,
    "logistic": Logistic,
    "image_cnn": ImageCNN,
    "vision": Vision,
    "sagan": SAGAN,
}


def find_model(name: str) -> type[Network]:
    if name not in MODELS:
        raise GlassError(f"unknown model {name!r}{config.did_you_mean(name, MODELS)}")
    return MODELS[name]


def build_model(name: str, settings: dict[str, Any]) -> Network:
    """Build a model from its name and its settings, as read from a file or the command line."""
    model_class = find_model(name)
    return model_class(config.from_dict(model_class.Config, settings, "model."))


def describe_model(name: str) -> str:
    """What a model is, in one line: the first line of the docstring of its file."""
    docstring = sys.modules[MODELS[name].__module__].__doc__ or ""
    return docstring.partition("\n")[0]


def model_name(network: object) -> str:
    """The name of a network's class in `MODELS`."""
    for name, model_class in MODELS.items():
        if type(network) is model_class:
            return name
    raise GlassError(
        f"{type(network).__name__} is not a registered model, expected one of {', '.join(MODELS)}"
    )
