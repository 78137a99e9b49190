"""What a value inside a model is: asked of the part that makes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn

from glassformer.core.i18n import say
from glassformer.nn.attention import Attention, PlainAttention, bias_term, dot, scaled_dot
from glassformer.nn.feedforward import FeedForward, GatedFeedForward, activation_name
from glassformer.nn.heads import MaskedHead, Pooler
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import Position, Sinusoidal
from glassformer.trace import Tap


@dataclass(frozen=True)
class Told:
    title: str = ""
    formula: str = ""
    says: str = ""
    weights: tuple[tuple[str, Tensor], ...] = ()  # what it is made with: r c
    partly: bool = False  # whether it needs more than a sheet shows: angles, slopes


def tell(network: nn.Module, name: str, head: int) -> Told:
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
        return Told(say("Residual"), declared(part, leaf), say("What was there before is kept."))
    if leaf == "order0":
        return Told(
            say("Chances by counting (tokens known: {n})", n=0),
            declared(part, leaf),
            say("How often each token (column) is the answer at all."),
        )
    if leaf.startswith("order"):
        return Told(
            say("Chances by counting (tokens known: {n})", n=leaf.removeprefix("order")),
            declared(part, leaf),
            say("How often each token (column) is the answer; what is rare trusts knowing less."),
        )
    formula = declared(part, leaf)
    return {
        "embedded": Told(say("Embedded"), formula, say("All that is told of a token, together.")),
        "pooled": Told(say("Pooled"), say(formula), say("One row stands for the whole text.")),
        "features": Told(say("Features"), "", say("What is known of each token in the end.")),
        "votes": Told(say("Votes"), formula, say("What pairs of tokens vote for.")),
        "output": Told(say("Scores in the end"), "", say("One for every token or label there is.")),
    }.get(leaf, Told())


def of_part(part: nn.Module, leaf: str) -> Told:
    """What a whole part says."""
    if isinstance(part, LayerNorm | RMSNorm):
        return in_norm(part, "norm")
    if isinstance(part, Attention):
        says = say("All heads together, brought back to one row for each token.")
        formula = "concat(heads) W_o" + bias_term(part.out)
        return Told(say("Projection"), formula, says, matrix(part.out, "o"))
    if isinstance(part, PlainAttention):
        return Told(say("Mixture"), say("pattern X"), say("Each token becomes a mixture of all."))
    if isinstance(part, FeedForward | GatedFeedForward):
        formula = f"{say('hidden')} W₂{bias_term(part.narrow, '₂')}"
        return Told(
            say("Feed-forward"), formula, say("What the features add."), matrix(part.narrow, "₂")
        )
    if isinstance(part, MaskedHead):
        act = activation_name(part.activation)
        formula = say("norm({act}(X W + b)) Eᵀ + offset", act=act)
        says = say("A score for every token in every place.")
        return Told(say("Guesses"), formula, says, matrix(part.dense, ""))
    if isinstance(part, Pooler):
        says = say("The first token, made ready to stand for the whole text.")
        return Told(say("Pooled"), "tanh(X[0] W + b)", says, matrix(part.dense, ""))
    if isinstance(part, nn.Linear):
        title = say("Head") if leaf == "head" else say("Layer")
        says = say("A score for every class.") if leaf == "head" else ""
        return Told(title, "X W" + bias_term(part), says, matrix(part, ""))
    if isinstance(part, Sinusoidal):
        formula = "P[p, 2i] = sin(p / 10000^(2i/d)),  P[p, 2i+1] = cos(p / 10000^(2i/d))"
        return Told(say("Position"), formula, say("Waves tell where each token stands."))
    return {
        "token": Told(
            say("Embedding"), "E[id]", say("Each token is looked up in a table that was learnt.")
        ),
        "source_token": Told(
            say("Embedding of the source"), "E[id]", say("The source has a table of its own.")
        ),
        "segment": Told(
            say("Segment"), "S[0] or S[1]", say("Which of two texts a token belongs to.")
        ),
        "position": Told(say("Position"), "P[place]", say("Where each token stands.")),
    }.get(leaf, Told())


def in_norm(part: LayerNorm | RMSNorm, leaf: str) -> Told:
    root = isinstance(part, RMSNorm)
    formula = declared(part, leaf)
    scale: list[tuple[str, Tensor]] = [(say("scale"), part.weight[None])]
    if isinstance(part, LayerNorm):
        scale.append((say("shift"), part.bias[None]))
    return {
        "mean": Told(say("Mean"), formula, say("What the norm takes away.")),
        "deviation": Told(say("Deviation"), formula, say("What the norm divides by.")),
        "normal": Told(say("Normalised"), formula, say("Every row is of one size.")),
        "norm": Told(
            say("Norm"),
            say("x / deviation × scale") if root else say("(x − mean) / deviation × scale + shift"),
            say("Every row is of one size, then scaled as was learnt."),
            tuple(scale),
        ),
    }[leaf]


def in_attention(part: Attention | PlainAttention, leaf: str, head: int, *, crosses: bool) -> Told:
    formula = declared(part, leaf)
    pattern = Told(say("Pattern"), formula, say("Whom each token (row) reads, and how much."))
    if isinstance(part, PlainAttention):
        return {"scores": Told(say("Scores"), formula, say("How alike tokens are."))}.get(
            leaf, pattern
        )
    if crosses and leaf in ("k", "v"):
        formula = formula.replace("X", "S")
    offers = say("What each token offers to be found by.")
    gives = say("What each token has to give.")
    if crosses:
        source = say(" S is what the encoder says of the source.")
        offers, gives = offers + source, gives + source
    return {
        "q": Told(
            say("Queries"), formula, say("What each token asks for."),
            matrix(part.query, "q", columns(part.query, part, head)),
        ),
        "k": Told(
            say("Keys"), formula, offers,
            matrix(part.key, "k", columns(part.key, part, head)),
        ),
        "v": Told(
            say("Values"), formula, gives,
            matrix(part.value, "v", columns(part.value, part, head)),
        ),
        "scores": Told(
            say("Scores"), formula, say("How well questions meet offers."),
            partly=type(part.position) is not Position or part.score not in (scaled_dot, dot),
        ),
        "pattern": pattern,
        "heads": Told(
            say("Mixture"), formula, say("Each token becomes a mixture of what it reads.")
        ),
    }[leaf]  # fmt: skip


def in_feedforward(part: FeedForward | GatedFeedForward) -> Told:
    weights = matrix(part.widen, "₁")
    if isinstance(part, GatedFeedForward):
        weights += matrix(part.gate, "g")
    says = say("Features of each token, by itself: large where one is found.")
    return Told(say("Inside the feed-forward layer"), declared(part, "hidden"), says, weights)


def declared(part: nn.Module, leaf: str) -> str:
    """The formula that a part declares for a value that it names."""
    taps: Mapping[str, Tap] = getattr(part, "taps", {})
    return taps[leaf].formula if leaf in taps else ""


def columns(layer: nn.Linear, part: Attention, head: int) -> slice:
    """Those of a head in a layer that may serve several heads with one."""
    heads, mine = part.query.out_features // part.width, layer.out_features // part.width
    at = head * mine // heads
    return slice(at * part.width, (at + 1) * part.width)


def matrix(
    layer: nn.Linear, name: str, part: slice = slice(None)
) -> tuple[tuple[str, Tensor], ...]:
    """Its weights and its bias, by their names in formulas."""
    mark = f"_{name}" if name.isascii() and name else name
    found = [(f"W{mark}", layer.weight[part].T)]
    if layer.bias is not None:
        found.append((f"b{mark}" if name in ("₁", "₂") else "b", layer.bias[None, part]))
    return tuple(found)
