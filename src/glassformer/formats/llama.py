"""Llama in the Hugging Face format, with the old and new settings of the rotary positions."""

from dataclasses import asdict
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.formats.table import ACTIVATIONS, Family, Rule, Setting, weight_and_bias
from glassformer.models.llama import Config

BLOCK, LAYER = "blocks.{}", "model.layers.{}"
ROPE_SCALING = {  # theirs -> ours
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_context",
}


def flatten(theirs: dict[str, Any]) -> dict[str, Any]:
    """Unify the rotary settings, which may be in `rope_scaling` or the newer `rope_parameters`."""
    theirs = dict(theirs)
    old = theirs.pop("rope_scaling", None)
    new = theirs.pop("rope_parameters", None)
    if old and new and old != new:
        raise GlassError("rope_scaling and rope_parameters are both set, but differ: remove one")
    rope = new or old or {}
    if not isinstance(rope, dict):
        raise GlassError(f"expected the rotary settings to be a table, got {rope!r}")
    rope = {key: value for key, value in rope.items() if value is not None}
    rope_type = rope.pop("rope_type", rope.get("type", "default"))
    rope.pop("type", None)
    if "rope_theta" in rope:
        theirs["rope_theta"] = rope.pop("rope_theta")
    if rope_type == "llama3":
        rope.setdefault("original_max_position_embeddings", theirs.get("max_position_embeddings"))
        missing = [key for key in ROPE_SCALING if rope.get(key) is None]
        if missing:
            raise GlassError(f"the rotary settings of type 'llama3' lack {missing[0]}")
        theirs["rope_scaling"] = {ours: rope.pop(key) for key, ours in ROPE_SCALING.items()}
    elif rope_type != "default":
        raise GlassError(f"unsupported rope_type {rope_type!r}: expected default or llama3")
    return theirs | rope  # the remaining settings are checked by `our_settings`


def finish(theirs: dict[str, Any], config: Config) -> None:
    """Convert `rope_scaling` to their format."""
    if rope_scaling := theirs["rope_scaling"]:
        values = asdict(rope_scaling)
        renamed = {name: values[ours] for name, ours in ROPE_SCALING.items()}
        theirs["rope_scaling"] = {"rope_type": "llama3", **renamed}


LLAMA = Family(
    model="llama",
    ours=("llama",),
    architecture=lambda _: "LlamaForCausalLM",
    architectures=frozenset(["LlamaForCausalLM", "LlamaModel"]),
    without_effect=frozenset(["is_llama_config"]),
    prefix="model.",
    settings=[
        Setting("vocab_size", "vocab", 32_000),
        Setting("max_position_embeddings", "context", 2048),
        Setting("hidden_size", "dim", 4096),
        Setting("num_hidden_layers", "depth", 32),
        Setting("num_attention_heads", "heads", 32),
        Setting("num_key_value_heads", "kv_heads", None),
        Setting("head_dim", "head_dim", None),
        Setting("intermediate_size", "hidden", 11_008),
        Setting("hidden_act", "activation", "silu", ACTIVATIONS),
        Setting("rope_theta", "rope_theta", 10_000.0),
        Setting("rope_scaling", "rope_scaling", None),
        Setting("rms_norm_eps", "eps", 1e-6),
        Setting("tie_word_embeddings", "tied", False),
        Setting("attention_bias", "attention_bias", False),
        Setting("mlp_bias", "feedforward_bias", False),
        Setting("attention_dropout", "dropout", 0.0),
    ],
    fixed={"pretraining_tp": 1, "partial_rotary_factor": 1.0},
    rules=[
        Rule("model.embed_tokens.weight", ("token.weight",)),
        Rule(f"{LAYER}.input_layernorm.weight", (f"{BLOCK}.attention_norm.weight",)),
        *weight_and_bias(f"{LAYER}.self_attn.q_proj", f"{BLOCK}.attention.query"),
        *weight_and_bias(f"{LAYER}.self_attn.k_proj", f"{BLOCK}.attention.key"),
        *weight_and_bias(f"{LAYER}.self_attn.v_proj", f"{BLOCK}.attention.value"),
        *weight_and_bias(f"{LAYER}.self_attn.o_proj", f"{BLOCK}.attention.out"),
        Rule(f"{LAYER}.post_attention_layernorm.weight", (f"{BLOCK}.feedforward_norm.weight",)),
        *weight_and_bias(f"{LAYER}.mlp.gate_proj", f"{BLOCK}.feedforward.gate"),
        *weight_and_bias(f"{LAYER}.mlp.up_proj", f"{BLOCK}.feedforward.up"),
        *weight_and_bias(f"{LAYER}.mlp.down_proj", f"{BLOCK}.feedforward.down"),
        Rule("model.norm.weight", ("norm.weight",)),
        Rule("lm_head.weight", ("head.weight",)),
    ],
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    ignored=("*rotary_emb.inv_freq",),
    flatten=flatten,
    finish=finish,
)
