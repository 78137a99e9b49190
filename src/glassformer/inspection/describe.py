"""Describe a value inside a model: its title, formula, meaning and weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.attention import (
    Attention,
    PlainAttention,
    UnprojectedAttention,
    bias_term,
    dot,
    scaled_dot,
)
from glassformer.nn.feedforward import FeedForward, GatedFeedForward, activation_name
from glassformer.nn.heads import MaskedHead, Pooler
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import Position, Sinusoidal
from glassformer.trace import Tap


@dataclass(frozen=True)
class Description:
    title: str = ""
    formula: str = ""
    text: str = ""
    weights: tuple[tuple[str, Tensor], ...] = ()  # the formula's matrices by name: r c
    has_unshown_inputs: bool = False  # whether the formula uses values that no worksheet shows


def describe_value(network: nn.Module, name: str, head: int) -> Description:
    """Describe the value with this name; its weights are those of one head."""
    path, _, leaf = name.rpartition(".")
    try:
        module = network.get_submodule(name)
        return describe_module(module, leaf)
    except AttributeError:  # the name is a tap inside a module, not a module
        module = network.get_submodule(path)
    if isinstance(module, LayerNorm | RMSNorm):
        return replace(describe_norm(module, leaf), has_unshown_inputs=path.startswith("masked"))
    if isinstance(module, Attention | PlainAttention):
        return describe_attention(module, leaf, head, is_cross=path.endswith("cross"))
    if isinstance(module, FeedForward | GatedFeedForward):
        return describe_feedforward(module)
    formula = tap_formula(module, leaf)
    if leaf.endswith("_residual"):
        return Description(
            tr("Residual connection"), formula, tr("The layer's input is added to its output.")
        )
    if leaf.startswith("order"):
        text = (
            tr("How often each token (column) occurs.")
            if leaf == "order0"
            else tr(
                "How often each token (column) follows this context; rare contexts are smoothed "
                "with shorter ones."
            )
        )
        n = leaf.removeprefix("order")
        return Description(tr("N-gram probabilities (context: {n} tokens)", n=n), formula, text)
    return {
        "embedded": Description(
            tr("Input embedding"), formula, tr("For each token, the sum of its embeddings.")
        ),
        "pooled": Description(
            tr("Pooled features"), tr(formula), tr("One vector for the whole text.")
        ),
        "features": Description(tr("Features"), "", tr("The final hidden state of each token.")),
        "network_logits": Description(
            tr("Logits of the network"), formula, tr("What the network predicts by itself.")
        ),
        "gates": Description(
            tr("Gates of the count prior"),
            formula,
            tr("How much the counts after 0, 1, 2, ... tokens of context (columns) contribute."),
        ),
        "count_logits": Description(
            tr("Logits of the counts"),
            formula,
            tr("What the n-gram counts predict; added to the logits of the network."),
        ),
        "alignment": Description(
            tr("Alignment"),
            formula,
            tr("The source token (column) that is looked up for each token of the translation."),
        ),
        "lexical_gates": Description(
            tr("Gates of the translation table"),
            formula,
            tr("How much word frequency and translation table (columns) contribute to each token."),
        ),
        "lexical_logits": Description(
            tr("Logits of the translation table"),
            formula,
            tr("What the translation table predicts; added to the logits of the network."),
        ),
        "ngram_logits": Description(
            tr("Logits of the n-grams"),
            formula,
            tr("What the n-gram classifier predicts; mixed with the logits of the network."),
        ),
        "votes": Description(tr("Votes"), formula, tr("The votes of all pairs of tokens.")),
        "output": Description(tr("Logits"), "", tr("One logit for every token or label.")),
    }.get(leaf, Description())


def describe_module(module: nn.Module, leaf: str) -> Description:
    """Describe the output of a module."""
    if isinstance(module, LayerNorm | RMSNorm):
        return describe_norm(module, "norm")
    if isinstance(module, UnprojectedAttention):
        text = tr("The outputs of all heads, concatenated.")
        return Description(tr("Attention output"), "concat(heads)", text)
    if isinstance(module, Attention):
        text = tr("The outputs of all heads, concatenated and projected to the model's features.")
        formula = "concat(heads) W_o" + bias_term(module.out)
        return Description(tr("Output projection"), formula, text, named_weights(module.out, "o"))
    if isinstance(module, PlainAttention):
        text = tr("Each token becomes a weighted sum of all tokens.")
        return Description(tr("Attention output"), tr("pattern X"), text)
    if isinstance(module, FeedForward | GatedFeedForward):
        formula = f"{tr('hidden')} W₂{bias_term(module.down, '₂')}"
        text = tr("The hidden layer, projected back to the model's features.")
        weights = named_weights(module.down, "₂")
        return Description(tr("Feed-forward network"), formula, text, weights)
    if isinstance(module, MaskedHead):
        act = activation_name(module.activation)
        formula = tr("norm({act}(X W + b)) Eᵀ + bias", act=act)
        text = tr("A logit for every token of the vocabulary at every position.")
        return Description(
            tr("Masked language model head"), formula, text, named_weights(module.dense, "")
        )
    if isinstance(module, Pooler):
        text = tr("The first token, transformed to represent the whole text.")
        weights = named_weights(module.dense, "")
        return Description(tr("Pooled features"), "tanh(X[0] W + b)", text, weights)
    if isinstance(module, nn.Linear):
        title = tr("Output layer") if leaf == "head" else tr("Linear layer")
        text = tr("A logit for every class.") if leaf == "head" else ""
        return Description(title, "X W" + bias_term(module), text, named_weights(module, ""))
    if isinstance(module, Sinusoidal):
        formula = "P[p, 2i] = sin(p / 10000^(2i/d)),  P[p, 2i+1] = cos(p / 10000^(2i/d))"
        text = tr("Sine and cosine waves encode the position of each token.")
        return Description(tr("Positional encoding"), formula, text)
    return {
        "token": Description(
            tr("Embedding"), "E[id]", tr("Each token is looked up in a learned table.")
        ),
        "source_token": Description(
            tr("Source embedding"), "E[id]", tr("The source has its own embedding table.")
        ),
        "segment": Description(
            tr("Segment embedding"), "S[0] or S[1]", tr("Which of two texts a token belongs to.")
        ),
        "position": Description(
            tr("Positional encoding"), "P[position]", tr("A vector for each position.")
        ),
    }.get(leaf, Description())


def describe_norm(module: LayerNorm | RMSNorm, leaf: str) -> Description:
    is_rms = isinstance(module, RMSNorm)
    formula = tap_formula(module, leaf)
    weights: list[tuple[str, Tensor]] = [(tr("scale"), module.weight[None])]
    if isinstance(module, LayerNorm):
        weights.append((tr("shift"), module.bias[None]))
    return {
        "mean": Description(tr("Mean"), formula, tr("It is subtracted from the row.")),
        "std": Description(
            tr("Root mean square") if is_rms else tr("Standard deviation"),
            formula,
            tr("The row is divided by it."),
        ),
        "normalized": Description(
            tr("Normalized"),
            formula,
            tr("Every row has root mean square 1.")
            if is_rms
            else tr("Every row has mean 0 and standard deviation 1."),
        ),
        "norm": Description(
            tr("RMS normalization") if is_rms else tr("Layer normalization"),
            tr("x / RMS × scale") if is_rms else tr("(x − mean) / std × scale + shift"),
            tr("Every row is normalized, then scaled by learned weights."),
            tuple(weights),
        ),
    }[leaf]


def describe_attention(
    module: Attention | PlainAttention, leaf: str, head: int, *, is_cross: bool
) -> Description:
    formula = tap_formula(module, leaf)
    pattern = Description(
        tr("Attention weights"), formula,
        tr("How much each token (row) attends to each token (column); every row sums to 1."),
    )  # fmt: skip
    if isinstance(module, PlainAttention):
        text = tr("The dot product of every pair of tokens.")
        return {"scores": Description(tr("Attention scores"), formula, text)}.get(leaf, pattern)
    if is_cross and leaf in ("k", "v"):
        formula = formula.replace("X", "S")
    source = tr(" S is the output of the encoder.") if is_cross else ""
    return {
        "q": Description(
            tr("Queries"), formula, tr("What each token looks for."),
            named_weights(module.query, "q", head_columns(module.query, module, head)),
        ),
        "k": Description(
            tr("Keys"), formula, tr("What the queries are compared with.") + source,
            named_weights(module.key, "k", head_columns(module.key, module, head)),
        ),
        "v": Description(
            tr("Values"), formula, tr("What each token passes on when attended to.") + source,
            named_weights(module.value, "v", head_columns(module.value, module, head)),
        ),
        "scores": Description(
            tr("Attention scores"), formula,
            tr("How well each query (row) matches each key (column)."),
            has_unshown_inputs=type(module.position) is not Position
            or module.score not in (scaled_dot, dot),
        ),
        "pattern": pattern,
        "head_outputs": Description(
            tr("Attention output"), formula, tr("Each token becomes a weighted sum of the values.")
        ),
    }[leaf]  # fmt: skip


def describe_feedforward(module: FeedForward | GatedFeedForward) -> Description:
    weights = named_weights(module.up, "₁")
    if isinstance(module, GatedFeedForward):
        weights += named_weights(module.gate, "g")
    text = tr("The hidden layer, computed for each token separately.")
    title = tr("Feed-forward network, hidden layer")
    return Description(title, tap_formula(module, "hidden"), text, weights)


def tap_formula(module: nn.Module, leaf: str) -> str:
    """The formula that a module declares for one of its taps, or an empty string."""
    taps: Mapping[str, Tap] = getattr(module, "taps", {})
    return taps[leaf].formula if leaf in taps else ""


def head_columns(layer: nn.Linear, module: Attention, head: int) -> slice:
    """The outputs of a query, key or value layer that belong to a head.

    In grouped-query attention, several heads share keys and values.
    """
    heads = module.query.out_features // module.head_dim
    groups = layer.out_features // module.head_dim
    group = head * groups // heads
    return slice(group * module.head_dim, (group + 1) * module.head_dim)


def named_weights(
    layer: nn.Linear, name: str, outputs: slice = slice(None)
) -> tuple[tuple[str, Tensor], ...]:
    """The matrix and the bias of a linear layer, by their names in formulas."""
    suffix = f"_{name}" if name.isascii() and name else name
    weights = [(f"W{suffix}", layer.weight[outputs].T)]
    if layer.bias is not None:
        weights.append((f"b{suffix}" if name in ("₁", "₂") else "b", layer.bias[None, outputs]))
    return tuple(weights)
