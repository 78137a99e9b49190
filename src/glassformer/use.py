"""A trained network in use: texts go in, answers come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.data.batches import padded
from glassformer.errors import GlassError
from glassformer.generate.beam import beam_search
from glassformer.generate.decode import stream as decode
from glassformer.generate.pieces import pieces
from glassformer.generate.sampling import Sampling
from glassformer.models import MODELS, counts, fills_masks, name_of
from glassformer.nn.heads import mean_pool
from glassformer.tasks.classify import context_of, encode_pair, scores, separator, shortened
from glassformer.tasks.fill_mask import MARKS, encode_masked
from glassformer.tasks.translate import LONGEST, limits_for, start_and_end
from glassformer.text.tokenizer import Tokenizer
from glassformer.trace import Trace

BATCH = 32  # texts that are read at once
BEAM, PENALTY = 4, 0.6  # how many translations are followed; above 0 favours longer ones
ONE_AT_A_TIME = Lock()  # there is one trace at a time
ENDS = ("<|endoftext|>", "</s>", "<s>")  # marks after which a text is at its end


def rows_of(network: nn.Module, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids of several lengths as the network takes them: ids and keep, b t."""
    ids, keep = padded([np.array(row) for row in rows])
    device = next(network.parameters()).device
    return ids.to(device), keep.to(device)


def continued(
    network: nn.Module,
    tokenizer: Tokenizer,
    prompt: str,
    new: int,
    *,
    sampling: Sampling,
    seed: int | None = None,
    stop: Sequence[str] = (),
    eos: Sequence[int] = (),
) -> Iterator[str]:
    """The continuation of a text, a piece at a time; it ends before a text in `stop`, or at an id
    in `eos`, which are the tokenizer's own unless given."""
    ids, _ = rows_of(network, [encode_prompt(tokenizer, prompt)])
    tokens = map(int, decode(network, ids, new, sampling=sampling, seed=seed))
    ends = {*eos} or {tokenizer.specials[mark] for mark in ENDS if mark in tokenizer.specials}
    words = takewhile(lambda token: token not in ends, tokens)
    return pieces(words, tokenizer, tokenizer.encode(prompt), stop)


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a text to continue, behind the token that the model expects before every text."""
    return tokenizer.prefix + tokenizer.encode(prompt) or tokenizer.encode("\n") or [0]


@torch.inference_mode()
def labelled(
    network: nn.Module,
    tokenizer: Tokenizer,
    texts: Sequence[tuple[str, ...]],
    labels: Sequence[str],
) -> list[dict[str, float]]:
    """For each text, or pair of texts, its labels with their probabilities, likeliest first."""
    most, mark = context_of(network), separator(tokenizer)
    encoded = [
        shortened(np.array(encode_pair(tokenizer, row) or [0]), most, mark).tolist()
        for row in texts
    ]
    out: list[dict[str, float]] = []
    for at in range(0, len(encoded), BATCH):
        ids, keep = rows_of(network, encoded[at : at + BATCH])
        for row in scores(network, tokenizer, ids, keep).softmax(dim=-1).tolist():
            ranked = sorted(zip(labels, row, strict=True), key=lambda pair: -pair[1])
            out.append(dict(ranked))
    return out


def translated(
    network: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], *, beam: int, penalty: float
) -> list[str]:
    """The best translation of each text; of nothing, nothing."""
    begin, end = start_and_end(tokenizer)
    rows = [encode_source(tokenizer, text) or [end] for text in texts]
    out: list[str] = []
    for at in range(0, len(texts), BATCH // 2):
        some = slice(at, at + BATCH // 2)
        said = written(network, rows[some], begin, end, beam=beam, penalty=penalty)
        pairs = zip(said, texts[some], strict=True)
        out += [tokenizer.decode(ids) if text.strip() else "" for ids, text in pairs]
    return out


def encode_source(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text to translate; an error if it is longer than any that was learnt from."""
    ids = tokenizer.encode(text)
    if len(ids) > LONGEST:
        raise GlassError(
            f"a translator reads at most {LONGEST} tokens, and {text[:40]!r} ... has {len(ids):,}: "
            "split it into sentences"
        )
    return ids


def written(
    network: nn.Module,
    rows: Sequence[Sequence[int]],
    begin: int,
    end: int,
    *,
    beam: int = BEAM,
    penalty: float = PENALTY,
) -> list[list[int]]:
    """The ids of the best translation of each row of ids."""
    ids, keep = rows_of(network, rows)
    first, _ = rows_of(network, [[begin]] * len(rows))
    found = beam_search(
        network,
        first,
        limits_for(keep),
        end=end,
        width=beam,
        penalty=penalty,
        source=ids,
        source_keep=keep,
    )
    return [answers[0][1] for answers in found]


@torch.inference_mode()
def filled(
    network: nn.Module, tokenizer: Tokenizer, text: str, top: int
) -> list[list[tuple[str, float]]]:
    """For each [MASK] in a text the likeliest tokens, with their probabilities."""
    if not fills_masks(network) or not all(name in tokenizer.specials for name in MARKS):
        raise GlassError("this model was not trained to fill masks: it has no head for them")
    if "[MASK]" not in text:
        raise GlassError("there is no [MASK] in the text")
    ids, _ = rows_of(network, [encode_masked(tokenizer, text)])
    hidden = ids[0] == tokenizer.specials["[MASK]"]
    chances = network(ids)[0, hidden].float().softmax(dim=-1)
    best = chances.topk(min(top, chances.shape[-1]))
    return [
        [(tokenizer.token(i), p) for i, p in zip(row, likely, strict=True)]
        for row, likely in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@torch.inference_mode()
def embedded(network: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.float32]:
    """A vector for each text: the mean of what the last block says of its tokens."""
    marks = [tokenizer.specials[m] for m in ("[CLS]", "[SEP]") if m in tokenizer.specials]
    most, out = context_of(network) - len(marks), list[NDArray[np.float32]]()
    for at in range(0, len(texts), BATCH):
        rows = [tokenizer.encode(text)[:most] for text in texts[at : at + BATCH]]
        ids, keep = rows_of(network, [marks[:1] + row + marks[1:] or [0] for row in rows])
        out.append(mean_pool(features(network, ids, keep), keep).float().cpu().numpy())
    return np.concatenate(out) if out else np.empty((0, network.config.dim), np.float32)


def features(network: Any, ids: Tensor, keep: Tensor) -> Tensor:
    """What the last block says of each token, b t d."""
    if isinstance(network, MODELS["translator"]):
        return network.encode(ids, keep)  # type: ignore[no-any-return]
    if isinstance(network, MODELS["bert"]):
        return network.read(ids, keep=keep).features  # type: ignore[no-any-return]
    if isinstance(network, MODELS["recurrent_translator"]):
        return network.encode(ids, keep)[0]  # type: ignore[no-any-return]
    if counts(network):
        raise GlassError(f"{name_of(network)} only counts: it has no features of a text")
    stacks = [name for name in ("norm", "blocks", "layers") if hasattr(network, name)]
    last = stacks[0] if stacks else "features"
    last += f".{len(getattr(network, last)) - 1}" if last in ("blocks", "layers") else ""
    with ONE_AT_A_TIME, Trace(network, last) as trace:
        network(ids, keep=keep)
    return trace[last]
