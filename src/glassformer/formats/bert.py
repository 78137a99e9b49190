"""BERT in the Hugging Face format, with or without its heads."""

from typing import Any

from glassformer.core.errors import GlassError
from glassformer.formats.table import ACTIVATIONS, Family, Rule, Setting, weight_and_bias
from glassformer.models import bert, bert_classifier
from glassformer.weights import State

BLOCK, LAYER = "body.blocks.{}", "bert.encoder.layer.{}"
MLM_HEAD = "cls.predictions"


def find_model(ours: State) -> tuple[str, dict[str, Any]]:
    """Return the name of our model with these tensors, and the settings inferred from them."""
    if "masked.offset" in ours:
        return "bert", {"next_sentence": "head.weight" in ours}
    if "head.weight" in ours:
        return "bert_classifier", {"classes": ours["head.weight"].shape[0]}
    return "bert_encoder", {"pooled": "pooler.dense.weight" in ours}


def find_architecture(config: bert.BodyConfig) -> str:
    if config.position != "learned":
        raise GlassError(
            "cannot export this BERT to Hugging Face: its positions are not learned; train with "
            "position=learned, or export this one with `--to onnx`"
        )
    match config:
        case bert.Config():
            return "BertForPreTraining" if config.next_sentence else "BertForMaskedLM"
        case bert_classifier.Config():
            return "BertForSequenceClassification"
        case _:
            return "BertModel"


def finish(theirs: dict[str, Any], config: bert.BodyConfig) -> None:
    """Add the settings that are computed from the config."""
    theirs["intermediate_size"] = config.hidden or 4 * config.dim


BERT = Family(
    model="bert",
    ours=("bert", "bert_classifier", "bert_encoder"),
    architecture=find_architecture,
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
        Setting("hidden_act", "activation", "gelu", ACTIVATIONS),
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
    without_effect=frozenset(
        """classifier_dropout directionality pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type""".split()
    ),
    rules=[
        Rule("bert.embeddings.word_embeddings.weight", ("body.token.weight",)),
        Rule("bert.embeddings.position_embeddings.weight", ("body.position.weight",)),
        Rule("bert.embeddings.token_type_embeddings.weight", ("body.segment.weight",)),
        *weight_and_bias("bert.embeddings.LayerNorm", "body.norm"),
        *weight_and_bias(f"{LAYER}.attention.self.query", f"{BLOCK}.attention.query"),
        *weight_and_bias(f"{LAYER}.attention.self.key", f"{BLOCK}.attention.key"),
        *weight_and_bias(f"{LAYER}.attention.self.value", f"{BLOCK}.attention.value"),
        *weight_and_bias(f"{LAYER}.attention.output.dense", f"{BLOCK}.attention.out"),
        *weight_and_bias(f"{LAYER}.attention.output.LayerNorm", f"{BLOCK}.attention_norm"),
        *weight_and_bias(f"{LAYER}.intermediate.dense", f"{BLOCK}.feedforward.up"),
        *weight_and_bias(f"{LAYER}.output.dense", f"{BLOCK}.feedforward.down"),
        *weight_and_bias(f"{LAYER}.output.LayerNorm", f"{BLOCK}.feedforward_norm"),
        *weight_and_bias("bert.pooler.dense", "pooler.dense"),
        *weight_and_bias(f"{MLM_HEAD}.transform.dense", "masked.dense"),
        *weight_and_bias(f"{MLM_HEAD}.transform.LayerNorm", "masked.norm"),
        Rule(f"{MLM_HEAD}.bias", ("masked.offset",)),
        *weight_and_bias("cls.seq_relationship", "head", only="BertForPreTraining"),
        *weight_and_bias("classifier", "head", only="BertForSequenceClassification"),
    ],
    copies={
        f"{MLM_HEAD}.decoder.weight": "bert.embeddings.word_embeddings.weight",
        f"{MLM_HEAD}.decoder.bias": f"{MLM_HEAD}.bias",
    },
    ignored=("*embeddings.position_ids",),
    finish=finish,
    find_model=find_model,
)
