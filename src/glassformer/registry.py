"""Every model by its name: `MODELS` is the only list."""

from typing import Any

from glassformer.baselines.markov import Markov
from glassformer.baselines.nb_svm import NBSVM
from glassformer.baselines.neighbors import Neighbors
from glassformer.baselines.phrase_table import PhraseTable
from glassformer.core import config
from glassformer.core.errors import GlassError
from glassformer.models.bert import Bert
from glassformer.models.bert_classifier import BertClassifier
from glassformer.models.bert_encoder import BertEncoder
from glassformer.models.classifier import Classifier
from glassformer.models.convolutional import Convolutional
from glassformer.models.convolutional_classifier import ConvolutionalClassifier
from glassformer.models.decoder import Decoder
from glassformer.models.generator import Generator
from glassformer.models.gpt2 import GPT2
from glassformer.models.gpt2_classifier import GPT2Classifier
from glassformer.models.llama import Llama
from glassformer.models.network import Network
from glassformer.models.recurrent import Recurrent
from glassformer.models.recurrent_classifier import RecurrentClassifier
from glassformer.models.recurrent_translator import RecurrentTranslator
from glassformer.models.translator import Translator

MODELS: dict[str, type[Network]] = {
    "markov": Markov,
    "nb_svm": NBSVM,
    "phrase_table": PhraseTable,
    "neighbors": Neighbors,
    "recurrent": Recurrent,
    "recurrent_classifier": RecurrentClassifier,
    "recurrent_translator": RecurrentTranslator,
    "convolutional": Convolutional,
    "convolutional_classifier": ConvolutionalClassifier,
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
}


def find_model(name: str) -> type[Network]:
    if name not in MODELS:
        raise GlassError(f"there is no model {name!r}{config.did_you_mean(name, MODELS)}")
    return MODELS[name]


def build_model(name: str, settings: dict[str, Any]) -> Network:
    """A model from its name and settings, as a file or the command line gives them."""
    kind = find_model(name)
    return kind(config.from_dict(kind.Config, settings, "model."))


def model_name(network: object) -> str:
    """The name under which `MODELS` lists a network's class."""
    for name, kind in MODELS.items():
        if type(network) is kind:
            return name
    raise GlassError(f"{type(network).__name__} is not among the models: {', '.join(MODELS)}")
