"""BERT as Hugging Face writes it, with whichever heads it has."""

from __future__ import annotations

from typing import Any

from glassformer.convert.table import GELU, Family, Rule, Setting, both
from glassformer.errors import GlassError
from glassformer.models.bert import Config
from glassformer.weights import State

BLOCK, LAYER = "blocks.{}", "bert.encoder.layer.{}"
GUESS = "cls.predictions"


def heads(ours: State) -> dict[str, Any]:
    classes = ours["head.weight"].shape[0] if "head.weight" in ours else 0
    pooled = "pooler.dense.weight" in ours
    return {"masked": "masked.offset" in ours, "pooled": pooled, "classes": classes}


def architecture(config: Config) -> str:
    if config.position != "learned":
        raise GlassError("Hugging Face's BERT learns its positions: train with position=learned")
    if config.masked and config.classes not in (0, 2):
        raise GlassError(
            f"Hugging Face has no BERT that guesses tokens and has {config.classes} classes"
        )
    if config.masked:
        return "BertForPreTraining" if config.classes else "BertForMaskedLM"
    return "BertForSequenceClassification" if config.classes else "BertModel"


def finish(theirs: dict[str, Any], config: Config) -> None:
    theirs["intermediate_size"] = config.hidden or 4 * config.dim
    theirs["id2label"] = {str(i): f"LABEL_{i}" for i in range(config.classes or 2)}


BERT = Family(
    model="bert",
    architecture=architecture,
    architectures=frozenset(
        """BertForMaskedLM BertForNextSentencePrediction BertForPreTraining
        BertForSequenceClassification BertModel""".split()
    ),
    prefix="bert.",
    settings=[
        Setting("vocab_size", "vocab", 30_522),
        Setting("max_position_embeddings", "context", 512),
        Setting("type_vocab_size", "segments", 2),
        Setting("hidden_size", "dim", 768),
        Setting("num_hidden_layers", "depth", 12),
        Setting("num_attention_heads", "heads", 12),
        Setting("intermediate_size", "hidden", 3072),
        Setting("hidden_act", "activation", "gelu", GELU),
        Setting("layer_norm_eps", "eps", 1e-12),
        Setting("hidden_dropout_prob", "dropout", 0.1),
        Setting("attention_probs_dropout_prob", "dropout", 0.1),
    ],
    fixed={
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    },
    harmless=frozenset(
        """classifier_dropout directionality pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type""".split()
    ),
    rules=[
        Rule("bert.embeddings.word_embeddings.weight", ("token.weight",)),
        Rule("bert.embeddings.position_embeddings.weight", ("position.weight",)),
        Rule("bert.embeddings.token_type_embeddings.weight", ("segment.weight",)),
        *both("bert.embeddings.LayerNorm", "norm"),
        *both(f"{LAYER}.attention.self.query", f"{BLOCK}.attention.query"),
        *both(f"{LAYER}.attention.self.key", f"{BLOCK}.attention.key"),
        *both(f"{LAYER}.attention.self.value", f"{BLOCK}.attention.value"),
        *both(f"{LAYER}.attention.output.dense", f"{BLOCK}.attention.out"),
        *both(f"{LAYER}.attention.output.LayerNorm", f"{BLOCK}.attention_norm"),
        *both(f"{LAYER}.intermediate.dense", f"{BLOCK}.feedforward.widen"),
        *both(f"{LAYER}.output.dense", f"{BLOCK}.feedforward.narrow"),
        *both(f"{LAYER}.output.LayerNorm", f"{BLOCK}.feedforward_norm"),
        *both("bert.pooler.dense", "pooler.dense"),
        *both(f"{GUESS}.transform.dense", "masked.dense"),
        *both(f"{GUESS}.transform.LayerNorm", "masked.norm"),
        Rule(f"{GUESS}.bias", ("masked.offset",)),
        *both("cls.seq_relationship", "head", only="BertForPreTraining"),
        *both("classifier", "head", only="BertForSequenceClassification"),
    ],
    copies={
        f"{GUESS}.decoder.weight": "bert.embeddings.word_embeddings.weight",
        f"{GUESS}.decoder.bias": f"{GUESS}.bias",
    },
    ignored=("*embeddings.position_ids",),
    finish=finish,
    heads=heads,
)
