"""BERT as Hugging Face writes it, with whichever heads it has."""

from typing import Any

from glassformer.core.errors import GlassError
from glassformer.formats.table import GELU, Family, Rule, Setting, both
from glassformer.models import bert, bert_classifier
from glassformer.weights import State

BLOCK, LAYER = "body.blocks.{}", "bert.encoder.layer.{}"
GUESS = "cls.predictions"


def find_model(ours: State) -> tuple[str, dict[str, Any]]:
    """Which of our models these tensors are, and the settings that they tell."""
    if "masked.offset" in ours:
        return "bert", {"next_sentence": "head.weight" in ours}
    if "head.weight" in ours:
        return "bert_classifier", {"classes": ours["head.weight"].shape[0]}
    return "bert_encoder", {"pooled": "pooler.dense.weight" in ours}


def architecture(config: bert.BodyConfig) -> str:
    if config.position != "learned":
        raise GlassError("Hugging Face's BERT learns its positions: train with position=learned")
    match config:
        case bert.Config():
            return "BertForPreTraining" if config.next_sentence else "BertForMaskedLM"
        case bert_classifier.Config():
            return "BertForSequenceClassification"
        case _:
            return "BertModel"


def finish(theirs: dict[str, Any], config: bert.BodyConfig) -> None:
    theirs["intermediate_size"] = config.hidden or 4 * config.dim
    classes = config.classes if isinstance(config, bert_classifier.Config) else 2
    theirs["id2label"] = {str(i): f"LABEL_{i}" for i in range(classes)}


BERT = Family(
    model="bert",
    ours=("bert", "bert_classifier", "bert_encoder"),
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
        Rule("bert.embeddings.word_embeddings.weight", ("body.token.weight",)),
        Rule("bert.embeddings.position_embeddings.weight", ("body.position.weight",)),
        Rule("bert.embeddings.token_type_embeddings.weight", ("body.segment.weight",)),
        *both("bert.embeddings.LayerNorm", "body.norm"),
        *both(f"{LAYER}.attention.self.query", f"{BLOCK}.attention.query"),
        *both(f"{LAYER}.attention.self.key", f"{BLOCK}.attention.key"),
        *both(f"{LAYER}.attention.self.value", f"{BLOCK}.attention.value"),
        *both(f"{LAYER}.attention.output.dense", f"{BLOCK}.attention.out"),
        *both(f"{LAYER}.attention.output.LayerNorm", f"{BLOCK}.attention_norm"),
        *both(f"{LAYER}.intermediate.dense", f"{BLOCK}.feedforward.up"),
        *both(f"{LAYER}.output.dense", f"{BLOCK}.feedforward.down"),
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
    find_model=find_model,
)
