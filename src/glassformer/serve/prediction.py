"""What a model predicts: outcomes and their probabilities, the next token, beam search, changes.

Shapes: t tokens, v outcomes (tokens, labels or items).
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.inspection.traced_text import prediction_position
from glassformer.inspection.worksheet import OutputScale
from glassformer.models.network import Trait
from glassformer.serve.beam import search_tree
from glassformer.serve.passes import Pass
from glassformer.serve.session import Request, Response, Session, read_input
from glassformer.serve.subject import read_subject
from glassformer.trace import Trace

PRIOR_LOGITS = ("prior.count_logits", "prior.lexical_logits")
TOP, TOP_CHANGES = 12, 8  # outcomes in an response


def predict(session: Session, found: Pass) -> Response:
    """What the network predicts: at one position, or for the whole input."""
    output = found.output[0].detach().float()
    if session.model.network.has(Trait.PAINTER):
        low, high = output.min(), output.max()
        return {"kind": "image", "image": ((output - low) / (high - low)).permute(1, 2, 0)}
    if output.ndim == 0:
        return {"kind": "number", "value": output[None]}
    probs = read_probs(session, found)
    names = find_outcomes(session) or [str(i) for i in range(len(probs))]
    best = probs.topk(min(TOP, len(probs)))
    return {
        "kind": "outcomes",
        "position": find_position(session, found),
        "names": [names[int(i)] for i in best.indices],
        "probs": best.values,
    }


def find_position(session: Session, found: Pass) -> int | None:
    """The position of the prediction: the first [MASK], or else the last token."""
    if found.output.ndim < 3:
        return None
    ids = found.subject.inputs["ids"][0]
    tokenizer = session.model.tokenizer
    return prediction_position(tokenizer, ids) if tokenizer else len(ids) - 1


def read_probs(session: Session, found: Pass) -> Tensor:
    """The probabilities of all outcomes (v); those of a classifier are calibrated."""
    output = found.output[0].detach().float()
    position = find_position(session, found)
    is_classifier = session.model.network.has(Trait.CLASSIFIER)
    task = session.model.task if is_classifier else {}
    scale = OutputScale(task.get("temperature", 1.0), bool(task.get("multi_label")))
    return scale.probs(output if position is None else output[position])


def find_outcomes(session: Session) -> list[str] | None:
    """The names of what the network predicts: tokens, labels or items; None if they have none."""
    model = session.model
    if "labels" in model.task and not model.network.has(Trait.PAINTER):
        return list(model.task["labels"])
    if model.tokenizer is not None:
        return session.vocabulary
    catalog = getattr(model.codec, "catalog", None)
    return None if catalog is None else [catalog.name(i) for i in range(len(catalog.items))]


def list_outcomes(session: Session, _request: Request) -> Response:
    """The names of what the model predicts: tokens, labels or items."""
    return {"names": find_outcomes(session)}


def tokenize(session: Session, request: Request) -> Response:
    """The ids of a text, for a page that continues it token by token."""
    session.model.require_tokenizer()
    subject = read_subject(session.model, read_input(request))
    ids = subject.inputs["ids"][0].tolist()
    return {"ids": ids, "text": session.model.require_tokenizer().decode(ids)}


@torch.inference_mode()
def predict_next(session: Session, request: Request) -> Response:
    """The logits of the next token: of the counts and the network alone, and of both."""
    session.model.require_trait(Trait.CAUSAL_LM, "generate")
    network = session.model.network
    given = read_input(request)
    ids = given.get("ids")
    if isinstance(given.get("ids"), list) and network.context:
        given["ids"] = given["ids"][-network.context :]  # as in generation
    subject = read_subject(session.model, given)
    with Trace(network, "prior.count_logits", "prior.network_logits", allow_missing=True) as trace:
        output = network(**subject.inputs)
    tokenizer = session.model.require_tokenizer()
    parts = {name.partition(".")[2].removesuffix("_logits"): value for name, value in trace.items()}
    names = {"count": "counts", "network": "network"}
    return {
        "logits": output[0, -1],
        "text": tokenizer.decode(ids) if isinstance(ids, list) else "",
        **{names[name]: value[0, -1] for name, value in parts.items()},
    }


def compare_with_prior(session: Session, request: Request) -> Response:
    """The probability of each token of the text (t) by the prior, by the network, and by both."""
    found = session.find_pass(request)
    names = [name for name in PRIOR_LOGITS if name in found.visits]
    if not names:
        raise GlassError("this model has no prior that predicts tokens")
    targets = found.subject.inputs["ids"][0, 1:, None]
    logits = [found.value(name) for name in (names[0], "prior.network_logits")]
    rows = [x[0, :-1].float().softmax(dim=-1) for x in (*logits, found.output)]
    return {"probs": torch.stack([row.gather(1, targets)[:, 0] for row in rows])}


def measure_change(session: Session, request: Request) -> Response:
    """How the prediction of another pass differs.

    `divergence` (t) is the KL divergence of the new prediction from the old one at each position;
    `before` and `after` are the probabilities of the outcomes that either finds most likely.
    """
    other = request.get("other")
    if not isinstance(other, dict):
        raise GlassError("a change needs another pass to compare with")
    passes = [session.find_pass(r) for r in (request, other)]
    if passes[0].output.ndim < 2 or session.model.network.has(Trait.PAINTER):
        raise GlassError("this model has no outcomes whose probabilities could change")
    if passes[0].output.shape != passes[1].output.shape:
        raise GlassError(
            "the two texts have different numbers of tokens, so their positions differ"
        )
    old, new = (p.output[0].float().reshape(-1, p.output.shape[-1]) for p in passes)
    log_probs = [x.log_softmax(dim=-1) for x in (old, new)]
    divergence = (log_probs[0].exp() * (log_probs[0] - log_probs[1])).sum(dim=-1).clamp(min=0)
    before, after = (read_probs(session, p) for p in passes)
    best = torch.cat([p.topk(min(TOP_CHANGES, len(p))).indices for p in (before, after)]).tolist()
    ids = list(dict.fromkeys(best))
    names = find_outcomes(session) or [str(i) for i in range(len(before))]
    return {
        "divergence": divergence,
        "largest": (old - new).abs().max()[None],
        "names": [names[i] for i in ids],
        "before": before[ids],
        "after": after[ids],
    }


def show_beam(session: Session, request: Request) -> Response:
    """The hypotheses of beam search as a tree."""
    found = session.find_pass({"input": request.get("input")})
    beam = request.get("beam", 4)
    if type(beam) is not int or not 1 <= beam <= 16:
        raise GlassError(f"the beam size must be from 1 to 16, got {beam!r}")
    return search_tree(session.model, found.subject, beam)
