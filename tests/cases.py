"""Small models of every architecture, for the tests of laws and generation."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from glassformer import MODELS
from glassformer.laws import Subject
from glassformer.models.encoder_decoder import LexicalPriorConfig
from glassformer.models.network import ModelConfig, PriorConfig, Trait

VOCAB, LENGTH = 50, 12


@dataclass
class Case:
    """A small model with random weights; a translator always gets the same source."""

    name: str
    settings: dict = field(default_factory=dict)
    prior: ModelConfig | None = None

    def __post_init__(self) -> None:
        torch.manual_seed(1)
        model_class = MODELS[self.name]
        self.network = model_class(model_class.Config(**self.settings)).eval()
        if self.has(Trait.FITTED):
            fit(self.name, self.network)
            return
        if self.prior is not None:
            prior = self.network.attach_prior(self.prior)
            text = torch.randint(0, 5, (600,)) * 10  # few ids, so that many n-grams occur again
            if self.has(Trait.SEQ2SEQ):
                text = torch.randint(0, VOCAB, (600,))
                text[::10] = -1
                target = torch.where(text < 0, -1, text * 7 % VOCAB)
                prior.fit(text[1:], target[1:], torch.arange(60) % 4)
                prior.set_gates(1.0)
            elif self.has(Trait.CLASSIFIER):
                text[::10] = -1
                prior.classifier.fit(text, torch.arange(61) % 3)
                prior.weights = torch.tensor((0.7, 0.6))
            else:
                prior.fit(text, torch.arange(600) * 4 // 600)
        for parameter in self.network.parameters():  # no weight stays at 0 or 1
            with torch.no_grad():
                parameter.add_(torch.randn_like(parameter) * 0.05)

    def __call__(self, ids: Tensor, **more) -> Tensor:
        if self.has(Trait.SEQ2SEQ) and not (more.get("cache") and more["cache"].length):
            more.setdefault("source", source(len(ids)))
        return self.network(ids, **more)

    def inputs(self, batch: int = 3, length: int = LENGTH) -> dict[str, Tensor]:
        """Random inputs of the network."""
        inputs = self.network.random_inputs(batch, length, torch.Generator().manual_seed(0))
        return inputs | ({"source": source(batch)} if self.has(Trait.SEQ2SEQ) else {})

    def has(self, *traits: Trait) -> bool:
        return self.network.traits.issuperset(traits)

    def __str__(self) -> str:
        return self.name


def fit(name: str, network: nn.Module) -> None:
    """Fit a baseline to random texts."""
    texts = ids(40)
    if name == "phrase_table":
        gap = torch.full((40, 1), -1)
        network.fit(*(torch.cat((x, gap), 1).flatten()[:-1] for x in (texts, (texts + 7) % 50)))
    elif name == "logistic":
        network.fit(torch.randn(40, 1, 8, 8), torch.arange(40) % 3)
    elif name == "lead":
        network.fit(*(torch.arange(VOCAB) % n == 1 for n in (4, 3, 11)))
    elif name == "nb_svm":
        rows = torch.cat((texts, torch.full((40, 1), -1)), 1).flatten()[:-1]
        network.fit(rows, torch.arange(40) % 3)
    elif name == "biases":
        network.fit(texts[:, 0], texts[:, 1], (texts[:, 0] * 3 + texts[:, 1]) % 5)
    else:
        network.fit(texts)


def source(batch: int) -> Tensor:
    return (torch.arange(batch * 7).reshape(batch, 7) * 11 + 3) % VOCAB


def ids(batch: int = 3, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length))


SIZES = {"vocab": VOCAB, "dim": 32, "depth": 2, "heads": 4, "dropout": 0.0}
WITH_CONTEXT = {**SIZES, "context": 32}
RECURRENT = {name: value for name, value in WITH_CONTEXT.items() if name != "heads"}
CONVOLUTIONAL = {**RECURRENT, "kernel_size": 3}
IMAGES = {"height": 8, "width": 8, "classes": 3}
TEXT_CNN = {"vocab": VOCAB, "classes": 3, "dim": 32}

CASES = {
    "classifier": Case("classifier", {**WITH_CONTEXT, "classes": 3}),
    "generator": Case("generator", WITH_CONTEXT),
    "translator": Case("translator", {**SIZES, "hidden": 64}),
    "two vocabularies": Case("translator", {**SIZES, "hidden": 64, "source_vocab": 60}),
    "speedrun_translator": Case("speedrun_translator", SIZES),
    **{
        f"{name} with a prior": Case(name, settings, LexicalPriorConfig(4))
        for name, settings in (
            ("speedrun_translator", SIZES),
            ("translator", {**SIZES, "hidden": 64}),
        )
    },
    "two vocabularies with a prior": Case(
        "translator", {**SIZES, "hidden": 64, "source_vocab": 60}, LexicalPriorConfig(4)
    ),
    "bert": Case("bert", WITH_CONTEXT),
    "bert without next sentence": Case("bert", {**WITH_CONTEXT, "next_sentence": False}),
    "bert by distance": Case("bert", {**WITH_CONTEXT, "position": "alibi"}),
    "bert_classifier": Case("bert_classifier", {**WITH_CONTEXT, "classes": 3}),
    "bert_encoder": Case("bert_encoder", WITH_CONTEXT),
    "gpt2": Case("gpt2", WITH_CONTEXT),
    "gpt2_classifier": Case("gpt2_classifier", {**WITH_CONTEXT, "classes": 3}),
    "speedrun": Case("speedrun", WITH_CONTEXT),
    **{
        f"{name} with a prior": Case(name, settings, PriorConfig(3))
        for name, settings in (
            ("speedrun", WITH_CONTEXT),
            ("gpt2", WITH_CONTEXT),
            ("recurrent", RECURRENT),
            ("convolutional", CONVOLUTIONAL),
        )
    },
    "transformer_xl": Case("transformer_xl", {**WITH_CONTEXT, "memory": 5}),
    "transformer_xl with a prior": Case(
        "transformer_xl", {**WITH_CONTEXT, "memory": 5}, PriorConfig(3)
    ),
    **{
        f"sparse: {pattern}, {factorize}": Case(
            "sparse",
            {**WITH_CONTEXT, "pattern": pattern, "factorize": factorize, "stride": 4, "summary": 2},
        )
        for pattern, factorize in (
            *(("strided", "heads"), ("strided", "layers"), ("fixed", "heads")),
            *(("fixed", "layers"), ("window", "heads")),
        )
    },
    "summarizer": Case("summarizer", {**WITH_CONTEXT, "depth": 4, "block": 4, "compression": 3}),
    **{
        f"{name}: {adaptive}": Case(name, {**settings, "depth": 3, "adaptive": adaptive})
        for name, settings in (
            ("universal", WITH_CONTEXT),
            ("universal_classifier", {**WITH_CONTEXT, "classes": 3}),
            ("universal_translator", SIZES),
        )
        for adaptive in (True, False)
    },
    "universal_translator with a prior": Case(
        "universal_translator", {**SIZES, "hidden": 64}, LexicalPriorConfig(4)
    ),
    "llama": Case("llama", {**WITH_CONTEXT, "kv_heads": 2, "hidden": 48}),
    "wide llama": Case("llama", {**WITH_CONTEXT, "head_dim": 16, "hidden": 48, "tied": True}),
    "markov": Case("markov", {"vocab": VOCAB, "order": 3}),
    "markov with skips": Case("markov", {"vocab": VOCAB, "skips": 4}),
    "markov with a mask": Case("markov", {"vocab": VOCAB, "skips": 4, "masked": True}),
    "nb_svm": Case("nb_svm", {"vocab": VOCAB, "classes": 3, "min_count": 1}),
    "neighbors": Case("neighbors", {"vocab": VOCAB}),
    "lead": Case("lead", {"vocab": VOCAB, "sep": 2, "eos": 3}),
    "biases": Case("biases", {"users": VOCAB, "items": VOCAB}),
    "popularity": Case("popularity", {"items": VOCAB}),
    "factorization": Case("factorization", {"users": 20, "items": 30, "dim": 8}),
    "sasrec": Case(
        "sasrec", {"items": VOCAB, "context": 32, "dim": 32, "heads": 4, "dropout": 0.0}
    ),
    "phrase_table": Case("phrase_table", {"vocab": VOCAB, "eos": 3}),
    **{
        f"decoder: {score}, {position}": Case(
            "decoder", {**WITH_CONTEXT, "score": score, "position": position}
        )
        for score, position in (
            *(("scaled", "learned"), ("unscaled", "sinusoidal"), ("additive", "rotary")),
            *(("unscaled", "none"), ("scaled", "alibi"), ("scaled", "none"), ("plain", "learned")),
        )
    },
    "post_norm_decoder": Case("post_norm_decoder", {**WITH_CONTEXT, "hidden": 40}),
    "unprojected_decoder": Case("unprojected_decoder", {**WITH_CONTEXT, "position": "none"}),
    "text_cnn": Case("text_cnn", TEXT_CNN),
    "logistic": Case("logistic", IMAGES),
    "image_cnn": Case("image_cnn", {**IMAGES, "dim": 16, "dropout": 0.0, "max_shift": 0}),
    "vision": Case(
        "vision", {**IMAGES, "patch": 2, "dim": 32, "depth": 2, "heads": 4, "max_shift": 0}
    ),
    "sagan": Case("sagan", {**IMAGES, "noise": 8, "dim": 8}),
    "sagan without attention": Case("sagan", {**IMAGES, "noise": 8, "dim": 8, "attention": False}),
    "text_cnn with a prior": Case("text_cnn", TEXT_CNN, PriorConfig(3)),
    "bert_classifier with a prior": Case(
        "bert_classifier", {**WITH_CONTEXT, "classes": 3}, PriorConfig(3)
    ),
    "convolutional": Case("convolutional", CONVOLUTIONAL),
    "convolutional_classifier": Case("convolutional_classifier", {**CONVOLUTIONAL, "classes": 3}),
    **{
        f"recurrent: {cell}": Case("recurrent", {**RECURRENT, "cell": cell})
        for cell in ("lstm", "gru")
    },
    "recurrent_classifier": Case("recurrent_classifier", {**RECURRENT, "classes": 3}),
    **{
        f"recurrent_translator: {attention}": Case(
            "recurrent_translator",
            {"vocab": VOCAB, "dim": 32, "depth": 2, "dropout": 0.0, "attention": attention},
        )
        for attention in ("none", "dot", "additive")
    },
}


TEXT_CASES = {  # that read text
    name: case
    for name, case in CASES.items()
    if "ids" in case.network.forward_inputs and not case.has(Trait.NEXT_ITEM)
}


def with_traits(*traits: Trait, without: Trait | None = None) -> list[str]:
    """The names of the cases that have all of these traits, and not `without`."""
    return [
        n for n, case in CASES.items() if case.has(*traits) and not (without and case.has(without))
    ]


def subject(name: str) -> Subject:
    """A case as the subject of a law."""
    return Subject(CASES[name].network, name=name)
