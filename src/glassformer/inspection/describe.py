"""What a value inside a model is: asked of the part that makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from glassformer.core.i18n import tr
from glassformer.nn.attention import Attention, PlainAttention, bias_term, dot, scaled_dot
from glassformer.nn.feedforward import FeedForward, GatedFeedForward, activation_name
from glassformer.nn.heads import MaskedHead, Pooler
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import Position, Sinusoidal
from glassformer.trace import Tap


@dataclass(frozen=True)
class Description:
    title: str = ""
    formula: str = ""
    says: str = ""
    weights: tuple[tuple[str, Tensor], ...] = ()  # what it is made with: r c
    partly: bool = False  # whether it needs more than a sheet shows: angles, slopes


def describe_value(network: nn.Module, name: str, head: int) -> Description:
    """The title, formula and meaning of the value of this name, in one head, as it comes by."""
    path, _, leaf = name.rpartition(".")
    try:
        part = network.get_submodule(name)
        return of_part(part, leaf)
    except AttributeError:  # it is named inside of a part, not said by one
        part = network.get_submodule(path)
    if isinstance(part, LayerNorm | RMSNorm):
        return replace(in_norm(part, leaf), partly=path.startswith("masked"))
    if isinstance(part, Attention | PlainAttention):
        return in_attention(part, leaf, head, crosses=path.endswith("cross"))
    if isinstance(part, FeedForward | GatedFeedForward):
        return in_feedforward(part)
    if leaf.endswith("_residual"):
        return Description(
            tr("Residual"), declared(part, leaf), tr("What was there before is kept.")
        )
    if leaf == "order0":
        return Description(
            tr("Chances by counting (tokens known: {n})", n=0),
            declared(part, leaf),
            tr("How often each token (column) is the answer at all."),
        )
    if leaf.startswith("order"):
        return Description(
            tr("Chances by counting (tokens known: {n})", n=leaf.removeprefix("order")),
            declared(part, leaf),
            tr("How often each token (column) is the answer; what is rare trusts knowing less."),
        )
    formula = declared(part, leaf)
    return {
        "embedded": Description(
            tr("Embedded"), formula, tr("All that is told of a token, together.")
        ),
        "pooled": Description(tr("Pooled"), tr(formula), tr("One row stands for the whole text.")),
        "features": Description(tr("Features"), "", tr("What is known of each token in the end.")),
        "votes": Description(tr("Votes"), formula, tr("What pairs of tokens vote for.")),
        "output": Description(
            tr("Scores in the end"), "", tr("One for every token or label there is.")
        ),
    }.get(leaf, Description())


def of_part(part: nn.Module, leaf: str) -> Description:
    """What a whole part says."""
    if isinstance(part, LayerNorm | RMSNorm):
        return in_norm(part, "norm")
    if isinstance(part, Attention):
        says = tr("All heads together, brought back to one row for each token.")
        formula = "concat(heads) W_o" + bias_term(part.out)
        return Description(tr("Projection"), formula, says, matrix(part.out, "o"))
    if isinstance(part, PlainAttention):
        return Description(
            tr("Mixture"), tr("pattern X"), tr("Each token becomes a mixture of all.")
        )
    if isinstance(part, FeedForward | GatedFeedForward):
        formula = f"{tr('hidden')} W₂{bias_term(part.down, '₂')}"
        return Description(
            tr("Feed-forward"), formula, tr("What the features add."), matrix(part.down, "₂")
        )
    if isinstance(part, MaskedHead):
        act = activation_name(part.activation)
        formula = tr("norm({act}(X W + b)) Eᵀ + offset", act=act)
        says = tr("A score for every token in every place.")
        return Description(tr("Guesses"), formula, says, matrix(part.dense, ""))
    if isinstance(part, Pooler):
        says = tr("The first token, made ready to stand for the whole text.")
        return Description(tr("Pooled"), "tanh(X[0] W + b)", says, matrix(part.dense, ""))
    if isinstance(part, nn.Linear):
        title = tr("Head") if leaf == "head" else tr("Layer")
        says = tr("A score for every class.") if leaf == "head" else ""
        return Description(title, "X W" + bias_term(part), says, matrix(part, ""))
    if isinstance(part, Sinusoidal):
        formula = "P[p, 2i] = sin(p / 10000^(2i/d)),  P[p, 2i+1] = cos(p / 10000^(2i/d))"
        return Description(tr("Position"), formula, tr("Waves tell where each token stands."))
    return {
        "token": Description(
            tr("Embedding"), "E[id]", tr("Each token is looked up in a table that was learnt.")
        ),
        "source_token": Description(
            tr("Embedding of the source"), "E[id]", tr("The source has a table of its own.")
        ),
        "segment": Description(
            tr("Segment"), "S[0] or S[1]", tr("Which of two texts a token belongs to.")
        ),
        "position": Description(tr("Position"), "P[place]", tr("Where each token stands.")),
    }.get(leaf, Description())


def in_norm(part: LayerNorm | RMSNorm, leaf: str) -> Description:
    root = isinstance(part, RMSNorm)
    formula = declared(part, leaf)
    scale: list[tuple[str, Tensor]] = [(tr("scale"), part.weight[None])]
    if isinstance(part, LayerNorm):
        scale.append((tr("shift"), part.bias[None]))
    return {
        "mean": Description(tr("Mean"), formula, tr("What the norm takes away.")),
        "std": Description(tr("Deviation"), formula, tr("What the norm divides by.")),
        "normalized": Description(tr("Normalised"), formula, tr("Every row is of one size.")),
        "norm": Description(
            tr("Norm"),
            tr("x / deviation × scale") if root else tr("(x − mean) / deviation × scale + shift"),
            tr("Every row is of one size, then scaled as was learnt."),
            tuple(scale),
        ),
    }[leaf]


def in_attention(
    part: Attention | PlainAttention, leaf: str, head: int, *, crosses: bool
) -> Description:
    formula = declared(part, leaf)
    pattern = Description(tr("Pattern"), formula, tr("Whom each token (row) reads, and how much."))
    if isinstance(part, PlainAttention):
        return {"scores": Description(tr("Scores"), formula, tr("How alike tokens are."))}.get(
            leaf, pattern
        )
    if crosses and leaf in ("k", "v"):
        formula = formula.replace("X", "S")
    offers = tr("What each token offers to be found by.")
    gives = tr("What each token has to give.")
    if crosses:
        source = tr(" S is what the encoder says of the source.")
        offers, gives = offers + source, gives + source
    return {
        "q": Description(
            tr("Queries"), formula, tr("What each token asks for."),
            matrix(part.query, "q", columns(part.query, part, head)),
        ),
        "k": Description(
            tr("Keys"), formula, offers,
            matrix(part.key, "k", columns(part.key, part, head)),
        ),
        "v": Description(
            tr("Values"), formula, gives,
            matrix(part.value, "v", columns(part.value, part, head)),
        ),
        "scores": Description(
            tr("Scores"), formula, tr("How well questions meet offers."),
            partly=type(part.position) is not Position or part.score not in (scaled_dot, dot),
        ),
        "pattern": pattern,
        "head_outputs": Description(
            tr("Mixture"), formula, tr("Each token becomes a mixture of what it reads.")
        ),
    }[leaf]  # fmt: skip


def in_feedforward(part: FeedForward | GatedFeedForward) -> Description:
    weights = matrix(part.up, "₁")
    if isinstance(part, GatedFeedForward):
        weights += matrix(part.gate, "g")
    says = tr("Features of each token, by itself: large where one is found.")
    return Description(tr("Inside the feed-forward layer"), declared(part, "hidden"), says, weights)


def declared(part: nn.Module, leaf: str) -> str:
    """The formula that a part declares for a value that it names."""
    taps: Mapping[str, Tap] = getattr(part, "taps", {})
    return taps[leaf].formula if leaf in taps else ""


def columns(layer: nn.Linear, part: Attention, head: int) -> slice:
    """Those of a head in a layer that may serve several heads with one."""
    heads, mine = part.query.out_features // part.head_dim, layer.out_features // part.head_dim
    at = head * mine // heads
    return slice(at * part.head_dim, (at + 1) * part.head_dim)


def matrix(
    layer: nn.Linear, name: str, part: slice = slice(None)
) -> tuple[tuple[str, Tensor], ...]:
    """Its weights and its bias, by their names in formulas."""
    mark = f"_{name}" if name.isascii() and name else name
    found = [(f"W{mark}", layer.weight[part].T)]
    if layer.bias is not None:
        found.append((f"b{mark}" if name in ("₁", "₂") else "b", layer.bias[None, part]))
    return tuple(found)
