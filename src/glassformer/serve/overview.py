"""What the model is, which views apply to it, and first texts for the page."""

from __future__ import annotations

from itertools import product

from glassformer.core import config
from glassformer.models.network import PriorNetwork, Trait
from glassformer.serve.session import Request, Response, Session
from glassformer.serve.stages import attention_layers
from glassformer.text.tokenizer import unknown_fraction

SENTENCE = "The value of the list is the sum of its"
MASKED = "The [MASK] of the list."
NUMBER, GREETING = "三百二十一", "Hello, how are you?"


def describe_model(session: Session, _request: Request) -> Response:
    """What the model is, and which views apply to it."""
    model, network = session.model, session.model.network
    text = session.text or find_example(session)
    return {
        "name": session.name,
        "is_shipped": session.is_shipped,
        "architecture": model.name,
        "task": model.task.get("name", ""),
        "parameters": network.size,
        "context": network.context,
        "config": config.to_dict(model.config),
        "labels": model.task.get("labels", []),
        "reads": find_input_kind(session),
        "traits": sorted(network.traits),
        "has_prior": isinstance(network, PriorNetwork) and network.prior is not None,
        "vocab": len(session.vocabulary) if model.tokenizer is not None else 0,
        "views": find_views(session),
        "text": text,
        "other_text": find_other_text(session, text),
        "runs": session.list_runs(),
    }


def find_input_kind(session: Session) -> str:
    network = session.model.network
    if network.has(Trait.PAINTER):
        return "class"
    if network.has(Trait.IMAGES):
        return "image"
    if session.model.tokenizer is None:
        return "user"
    return "pair" if network.has(Trait.SEQ2SEQ) else "text"


def find_views(session: Session) -> list[str]:
    """The views that make sense for this model, in the order of the page."""
    network = session.model.network
    kind = find_input_kind(session)
    generates = network.has(Trait.CAUSAL_LM) and network.has(Trait.CACHED)
    reads_text = kind in ("text", "pair")
    is_fitted = network.has(Trait.FITTED)
    views = {
        "flow": True,
        "attention": bool(attention_layers(network)),
        "next": reads_text and (generates or network.has(Trait.SEQ2SEQ)),
        "edit": not is_fitted,
        "lens": reads_text and len(network.stacks) == 1 and not network.has(Trait.CLASSIFIER),
        "patch": reads_text and not is_fitted and bool(network.stacks),
        "training": session.is_run,
        "walk": True,
    }
    return [name for name, applies in views.items() if applies]


def find_example(session: Session) -> str:
    """A first text for the page, cut to what the model can read."""
    model, tokenizer = session.model, session.model.tokenizer
    if tokenizer is None:
        catalog = getattr(model.codec, "catalog", None)
        return "" if catalog is None else str(catalog.users[0])
    if model.network.has(Trait.SEQ2SEQ):
        is_known = unknown_fraction(tokenizer, (NUMBER,)) < 0.5
        return NUMBER if is_known and len(tokenizer.encode(NUMBER)) <= len(NUMBER) else GREETING
    if model.task.get("name") == "fill-mask":
        return MASKED
    words = SENTENCE.split()
    room = (model.network.context or 10**9) - len(tokenizer.prefix)
    while len(words) > 1 and len(tokenizer.encode(" ".join(words))) > room:
        words.pop()
    return " ".join(words)


def find_other_text(session: Session, text: str) -> str:
    """The text with a late token replaced by another of its tokens, of the same length; or ""."""
    tokenizer = session.model.tokenizer
    if tokenizer is None or "[MASK]" in text:
        return ""
    ids = tokenizer.encode(text)
    for i, j in product(reversed(range(len(ids) - 1)), range(len(ids))):
        other = tokenizer.decode([*ids[:i], ids[j], *ids[i + 1 :]])
        if ids[i] != ids[j] and len(tokenizer.encode(other)) == len(ids):
            return other
    return ""
