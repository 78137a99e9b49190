"""GPT-2 in the Hugging Face format: transposed linear weights; q, k and v in one matrix."""

from glassformer.formats.table import ACTIVATIONS, Family, Rule, Setting, weight_and_bias

BLOCK, LAYER = "blocks.{}", "transformer.h.{}"
QUERY_KEY_VALUE = tuple(f"{BLOCK}.attention.{part}" for part in ("query", "key", "value"))

GPT2 = Family(
    model="gpt2",
    ours=("gpt2",),
    architecture=lambda _: "GPT2LMHeadModel",
    architectures=frozenset(["GPT2LMHeadModel", "GPT2Model"]),
    prefix="transformer.",
    settings=[
        Setting("vocab_size", "vocab", 50_257),
        Setting("n_positions", "context", 1024),
        Setting("n_embd", "dim", 768),
        Setting("n_layer", "depth", 12),
        Setting("n_head", "heads", 12),
        Setting("n_inner", "hidden", None),
        Setting("activation_function", "activation", "gelu_new", ACTIVATIONS),
        Setting("layer_norm_epsilon", "eps", 1e-5),
        Setting("resid_pdrop", "dropout", 0.1),
        Setting("attn_pdrop", "dropout", 0.1),
        Setting("embd_pdrop", "dropout", 0.1),
    ],
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    without_effect=frozenset(
        """n_ctx predict_special_tokens reorder_and_upcast_attn summary_activation
        summary_first_dropout summary_proj_to_labels summary_type summary_use_proj""".split()
    ),
    rules=[
        Rule("transformer.wte.weight", ("token.weight",)),
        Rule("transformer.wpe.weight", ("position.weight",)),
        *weight_and_bias(f"{LAYER}.ln_1", f"{BLOCK}.attention_norm"),
        *weight_and_bias(f"{LAYER}.attn.c_attn", *QUERY_KEY_VALUE, transposed=True),
        *weight_and_bias(f"{LAYER}.attn.c_proj", f"{BLOCK}.attention.out", transposed=True),
        *weight_and_bias(f"{LAYER}.ln_2", f"{BLOCK}.feedforward_norm"),
        *weight_and_bias(f"{LAYER}.mlp.c_fc", f"{BLOCK}.feedforward.up", transposed=True),
        *weight_and_bias(f"{LAYER}.mlp.c_proj", f"{BLOCK}.feedforward.down", transposed=True),
        *weight_and_bias("transformer.ln_f", "norm"),
    ],
    copies={"lm_head.weight": "transformer.wte.weight"},
    ignored=("*.attn.bias", "*.attn.masked_bias"),
)
