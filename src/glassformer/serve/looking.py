"""Handlers for the whole model on a text: heads, the lens, patching, steps and memory.

Shapes: t tokens, h heads, n blocks or steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.core.errors import GlassError
from glassformer.inspection.heads import (
    PREDICTS_NEXT_TOKEN,
    ablation_cost,
    attention_fractions,
)
from glassformer.inspection.lens import read_lens
from glassformer.inspection.pictures.reach import read_segments
from glassformer.inspection.traced_text import TracedText
from glassformer.models.network import Trait
from glassformer.serve.flow import found_layers
from glassformer.serve.passes import Pass
from glassformer.serve.session import Request, Response, Session


def describe_heads(session: Session, request: Request) -> Response:
    """The mean weight of each head on each kind of token; nothing for cross-attention."""
    session.model.require_tokenizer()  # roles are about tokens
    found = session.find_pass({"input": request.get("input")})
    inputs, rows = found.subject.inputs, []
    for layer in found_layers(session, found):
        name, value = layer["name"], layer["value"]
        if layer["is_cross"]:
            continue
        ids = inputs["source" if name.startswith("encoder") and "source" in inputs else "ids"][0]
        for head, pattern in enumerate(found.value(value)[0].float()):
            if pattern.shape == (len(ids), len(ids)):
                rows.append({"value": value, "head": head, **attention_fractions(pattern, ids)})
    if not rows:
        raise GlassError("this model has no heads whose roles can be read from tokens")
    return {"heads": rows}


@torch.inference_mode()
def ablate_head(session: Session, request: Request) -> Response:
    """The effect of zeroing one head, in nats: of the loss, or the KL divergence of the output."""
    session.model.require_tokenizer()
    found = session.find_pass(request)
    layer = request.get("layer")
    head = request.get("head")
    value = f"{layer}.head_outputs" if f"{layer}.head_outputs" in found.visits else str(layer)
    if value not in found.visits or type(head) is not int:
        raise GlassError(f"there is no head {head!r} in {layer!r}")
    network = found.network
    inputs = found.subject.inputs
    output = found.output
    cost_is_loss = bool(PREDICTS_NEXT_TOKEN & network.traits) and output.shape[1] > 1
    cost = ablation_cost(network, inputs, output, value, head, cost_is_loss=cost_is_loss)
    return {"cost": torch.tensor([cost])}


def apply_lens(session: Session, request: Request) -> Response:
    found = session.find_pass(request)
    lens = read_lens(as_traced_text(found), found.network)
    names = [[session.vocabulary[int(i)] for i in row] for row in lens.ids]
    norms = torch.stack([found.value(block)[0].float().norm(dim=-1) for block in lens.blocks])
    return {"blocks": lens.blocks, "names": names, "probs": lens.probs, "norms": norms}


def as_traced_text(found: Pass) -> TracedText:
    subject = found.subject
    return TracedText(
        subject.tokens, subject.source, subject.inputs, found.trace, found.output[0].float()
    )


def compare_texts(session: Session, request: Request) -> Response:
    """Activation patching between two texts."""
    texts = [request.get(name) for name in ("clean", "corrupt")]
    if not all(isinstance(text, str) and text for text in texts):
        raise GlassError("patching needs two texts")
    result = session.model.patch(str(texts[0]), str(texts[1]))
    return {
        "tokens": result.tokens,
        "answers": list(result.answers),
        "probs": torch.tensor(result.probs),
        "gap": torch.tensor([result.gap]),
        "names": list(result.positions),
        "positions": torch.stack(list(result.positions.values())),
        "heads": [{"name": name, "values": row} for name, row in result.heads.items()],
    }


def show_reach(session: Session, request: Request) -> Response:
    """The number of steps of a Universal Transformer; the memory of a Transformer-XL."""
    found = session.find_pass(request)
    network = session.model.network
    loops = [name.removesuffix(".n_steps") for name in found.visits if name.endswith(".n_steps")]
    halting = [
        {"name": loop, "weights": torch.stack([v[0] for v in all_visits(found, f"{loop}.weight")])}
        for loop in loops
    ]
    memory: list[Response] = []
    if network.has(Trait.SEGMENT_MEMORY):
        ids = found.subject.inputs["ids"]
        size = network.context or 1
        patterns = read_segments(network, ids, size)
        memory = [{"name": n, "pattern": p, "segment": size} for n, p in patterns.items()]
    return {"halting": halting, "memory": memory}


def all_visits(found: Pass, name: str) -> list[Tensor]:
    names = [n for n in found.visits if n.partition("#")[0] == name]
    return [found.value(n) for n in names]
