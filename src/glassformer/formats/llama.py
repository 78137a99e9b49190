"""Llama as Hugging Face writes it, with old and new keys for the rotary positions."""

from dataclasses import asdict
from typing import Any

from glassformer.core.errors import GlassError
from glassformer.formats.table import GELU, Family, Rule, Setting, both
from glassformer.models.llama import Config

BLOCK, LAYER = "blocks.{}", "model.layers.{}"
ROPE_SCALING = {  # their name, ours
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_context",
}


def tidy(theirs: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings stand alone, in `rope_scaling`, or in the newer `rope_parameters`."""
    theirs = dict(theirs)
    old, new = theirs.pop("rope_scaling", None), theirs.pop("rope_parameters", None)
    if old and new and old != new:
        raise GlassError("rope_scaling and rope_parameters are both set, and differ")
    rope = new or old or {}
    if not isinstance(rope, dict):
        raise GlassError(f"the rotary settings must be a table, not {rope!r}")
    rope = {key: value for key, value in rope.items() if value is not None}
    kind = rope.pop("rope_type", rope.get("type", "default"))
    rope.pop("type", None)
    if "rope_theta" in rope:
        theirs["rope_theta"] = rope.pop("rope_theta")
    if kind == "llama3":
        rope.setdefault("original_max_position_embeddings", theirs.get("max_position_embeddings"))
        missing = [key for key in ROPE_SCALING if rope.get(key) is None]
        if missing:
            raise GlassError(f"the rotary positions of type llama3 lack {missing[0]}")
        theirs["rope_scaling"] = {ours: rope.pop(key) for key, ours in ROPE_SCALING.items()}
    elif kind != "default":
        raise GlassError(f"the rotary positions are of type {kind!r}; known are default, llama3")
    return theirs | rope  # what is left is refused if it is not known


def finish(theirs: dict[str, Any], config: Config) -> None:
    if rope_scaling := theirs["rope_scaling"]:
        values = asdict(rope_scaling)
        named = {name: values[ours] for name, ours in ROPE_SCALING.items()}
        theirs["rope_scaling"] = {"rope_type": "llama3", **named}


LLAMA = Family(
    model="llama",
    ours=("llama",),
    architecture=lambda _: "LlamaForCausalLM",
    architectures=frozenset(["LlamaForCausalLM", "LlamaModel"]),
    harmless=frozenset(["is_llama_config"]),
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
        Setting("hidden_act", "activation", "silu", GELU),
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
        *both(f"{LAYER}.self_attn.q_proj", f"{BLOCK}.attention.query"),
        *both(f"{LAYER}.self_attn.k_proj", f"{BLOCK}.attention.key"),
        *both(f"{LAYER}.self_attn.v_proj", f"{BLOCK}.attention.value"),
        *both(f"{LAYER}.self_attn.o_proj", f"{BLOCK}.attention.out"),
        Rule(f"{LAYER}.post_attention_layernorm.weight", (f"{BLOCK}.feedforward_norm.weight",)),
        *both(f"{LAYER}.mlp.gate_proj", f"{BLOCK}.feedforward.gate"),
        *both(f"{LAYER}.mlp.up_proj", f"{BLOCK}.feedforward.up"),
        *both(f"{LAYER}.mlp.down_proj", f"{BLOCK}.feedforward.down"),
        Rule("model.norm.weight", ("norm.weight",)),
        Rule("lm_head.weight", ("head.weight",)),
    ],
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    ignored=("*rotary_emb.inv_freq",),
    tidy=tidy,
    finish=finish,
)
