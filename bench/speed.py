"""Speed of our GPT-2 and Llama compared with `transformers`, with the same weights.

python bench/speed.py
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any

import click
import torch
import transformers

from glassformer import Trace, load

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
logging.disable(logging.WARNING)
SMALL = {"vocab_size": 8192, "bos_token_id": 0, "eos_token_id": 0}


def time_best(*functions: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the best time of each function; they run in turn, so noise affects all alike."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
    return [min(seconds) for seconds in times]


def make_models() -> dict[str, Any]:
    gpt2 = transformers.GPT2Config(n_positions=256, n_embd=384, n_layer=6, n_head=6, **SMALL)
    llama = transformers.LlamaConfig(
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=1024,
        **SMALL,
    )
    return {
        "GPT-2": transformers.GPT2LMHeadModel(gpt2).eval(),
        "Llama": transformers.LlamaForCausalLM(llama).eval(),
    }


def decode_ours(network: Any, prompt: torch.Tensor, new_tokens: int) -> None:
    cache, ids = network.cache(prompt.shape[1] + new_tokens), prompt
    for _ in range(new_tokens):
        ids = network(ids, cache=cache)[:, -1:].argmax(dim=-1)


def decode_theirs(network: Any, prompt: torch.Tensor, new_tokens: int) -> None:
    past, ids = None, prompt
    for _ in range(new_tokens):
        out = network(ids, past_key_values=past, use_cache=True)
        past, ids = out.past_key_values, out.logits[:, -1:].argmax(dim=-1)


def run_backward(network: Any, forward: Callable[[], torch.Tensor], ids: torch.Tensor) -> None:
    network.zero_grad()
    logits = forward()[:, :-1].flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()


def compare(theirs: Any) -> dict[str, list[float]]:
    """Return the times of our model and theirs for each workload, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load(folder).network
    ids = torch.randint(0, 8192, (4, 256))

    def trace_patterns() -> None:
        with Trace(ours, "*.pattern"):
            ours(ids)

    rows = {}
    with torch.inference_mode():
        rows["forward, 4 x 256 tokens"] = time_best(lambda: ours(ids), lambda: theirs(ids))
        rows["32 new tokens, one at a time"] = time_best(
            lambda: decode_ours(ours, ids[:1, :32], 32),
            lambda: decode_theirs(theirs, ids[:1, :32], 32),
        )
        theirs.set_attn_implementation("eager")
        rows["forward, all patterns traced"] = time_best(
            trace_patterns, lambda: theirs(ids, output_attentions=True)
        )
        theirs.set_attn_implementation("sdpa")
    rows["forward and backward, 4 x 256"] = time_best(
        lambda: run_backward(ours, lambda: ours(ids), ids),
        lambda: run_backward(theirs, lambda: theirs(ids).logits, ids),
    )
    return rows


def main() -> None:
    torch.manual_seed(0)
    click.echo(f"torch {torch.__version__}, transformers {transformers.__version__}, ", nl=False)
    click.echo(f"{torch.get_num_threads()} threads; best of 7\n")
    for name, model in make_models().items():
        for workload, (ours, theirs) in compare(model).items():
            times = f"ours {ours * 1e3:8.1f} ms  theirs {theirs * 1e3:8.1f} ms"
            click.echo(f"{name}  {workload:<32} {times}  theirs/ours {theirs / ours:6.2f}")


if __name__ == "__main__":
    main()
