"""Beam search as a tree: every candidate of every step, with its parent."""

from typing import Any

import torch

from glassformer.api import Model
from glassformer.core.errors import GlassError
from glassformer.generate.beam import BeamStep, beam_search
from glassformer.serve.subject import Subject
from glassformer.tasks.translate import LENGTH_PENALTY, TranslateCodec

MAX_STEPS = 40


def search_tree(model: Model, subject: Subject, beam_size: int) -> dict[str, Any]:
    """The nodes of a tree and the finished translations, best first.

    A node has the token, the index of its parent (-1: the start), its total log-probability, and
    whether it stayed in the beam or ended a translation.
    """
    codec = model.codec
    tokenizer = model.require_tokenizer()
    if not isinstance(codec, TranslateCodec):
        raise GlassError("beam search is shown for translators only")
    source = subject.inputs["source"]
    limit = min(MAX_STEPS, 2 * source.shape[1] + 10)
    nodes: list[dict[str, Any]] = []
    totals: list[float] = []
    beams = [-1] * beam_size  # the node at which each beam ends

    def observe(step: BeamStep) -> None:
        nonlocal beams
        columns = (step.tokens[0].tolist(), step.parents[0].tolist(), step.log_probs[0].tolist())
        kept, indices = set(step.beams[0].tolist()), []
        for rank, (token, parent, total) in enumerate(zip(*columns, strict=True)):
            ends = token == codec.eos and rank < beam_size
            is_possible = total > -float("inf")
            indices.append(len(nodes) if is_possible else -1)
            if is_possible:
                state = "end" if ends else "beam" if rank in kept else "dropped"
                text = "<end>" if token == codec.eos else tokenizer.token(token)
                nodes.append({"token": text, "parent": beams[parent], "state": state})
                totals.append(total)
        beams = [indices[rank] for rank in step.beams[0].tolist()]

    start = torch.full_like(source[:, :1], codec.bos)
    (hypotheses,) = beam_search(
        model.network, start, [limit], eos=codec.eos, beam_size=beam_size,
        length_penalty=LENGTH_PENALTY, observe=observe, source=source,
    )  # fmt: skip
    return {
        "nodes": nodes,
        "log_probs": torch.tensor(totals),
        "texts": [tokenizer.decode(ids) for _, ids in hypotheses],
        "scores": torch.tensor([score for score, _ in hypotheses]),
    }
