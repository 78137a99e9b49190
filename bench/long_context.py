"""How far attention can reach, and what it costs: dense, sparse, and with a memory.

    python bench/long_context.py DATA RESULTS [--only cost recall enwik8]

DATA is a folder with enwik8/enwik8.xz. Every measurement is appended to RESULTS (JSON lines), so
that the script can be stopped and started again; docs/long_context.md and its plot are written from
what is there.

cost: attention by itself and whole training steps, forward and backward, one sequence. The time is
the best of three or more; memory is the peak of a process of its own above what it used before.
The stride of the sparse patterns is √t.
recall: Transformer-XL with and without a memory (0 tokens), the same wiring and the same time. The
text consists of 40 random letters, the same 40 letters again, 40 others, and so on. What predicts
the repeated letters lies outside of the segment of 32 letters. The score is their probability.
enwik8: the same two models on the first 20 MB; the last tenth is held out, scored once.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import random
import resource
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from pages import write_page
from quality import GLASS, append_result, check_output, matmul_speed, read_results

from glassformer import MODELS, load
from glassformer.core.figures import subplots
from glassformer.nn.attention import attend
from glassformer.nn.masks import Mask, causal
from glassformer.nn.sparse import (
    local_chunk,
    local_stride,
    local_summaries,
    local_window,
    share_heads,
)
from glassformer.tasks import TASKS
from glassformer.training.cost import GRIDS, grid_bytes
from glassformer.training.evaluate import open_run_task

HOME = Path(__file__).parents[1]
PAGE, PICTURE = HOME / "docs" / "long_context.md", HOME / "docs" / "pictures" / "long_context.png"
HEADS, HEAD_DIM = 4, 32
LENGTHS = (1024, 4096, 16384)
SPARSE = ("strided", "fixed", "window")
CONTEXTS, WIDTHS = (512, 2048, 8192), (128, 256, 512)
TICKS = (512, 1024, 2048, 4096, 8192, 16384)
DISTANCE, SEGMENT, MEMORY = 40, 32, {"recall": 64, "enwik8": 128}
MINUTES = {"recall": 1.5, "enwik8": 5.0}


# --- cost -----------------------------------------------------------------------------------------


def make_mask(pattern: str, length: int) -> Mask:
    stride = math.isqrt(length)
    if pattern == "dense":
        return causal
    if pattern == "window":
        return local_window(stride)
    halves = {
        "strided": [local_window(stride), local_stride(stride)],
        "fixed": [local_chunk(stride), local_summaries(stride, max(stride // 16, 1))],
    }
    return share_heads(halves[pattern], HEADS)


def measure_cost(job: dict) -> dict[str, float]:
    """The time and the memory of one pass, forward and backward."""
    torch.manual_seed(0)
    if job["kind"] == "attention":
        length, mask = job["tokens"], make_mask(job["pattern"], job["tokens"])

        def run() -> None:
            q, k, v = (
                torch.randn(1, HEADS, length, HEAD_DIM, requires_grad=True) for _ in range(3)
            )
            attend(q, k, v, mask).sum().backward()
    else:
        name = "gpt2" if job["pattern"] == "dense" else "sparse"
        sizes = {"vocab": 256, "context": job["tokens"], "dim": job["dim"], "depth": 4, "heads": 4}
        sizes |= {"dropout": 0.0} if name == "gpt2" else {"stride": math.isqrt(job["tokens"])}
        network = MODELS[name](MODELS[name].Config(**sizes))
        ids = torch.randint(0, 256, (1, job["tokens"]))

        def run() -> None:
            network(ids).float().logsumexp(-1).sum().backward()
            network.zero_grad(set_to_none=True)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = list[float]()
    while len(times) < 3 or sum(times) < 1:  # seconds
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"ms": 1000 * min(times), "mb": memory / 1024}


def list_costs() -> list[dict]:
    jobs = [
        {"kind": "attention", "pattern": pattern, "tokens": tokens}
        for tokens in LENGTHS
        for pattern in ("dense", *SPARSE)
    ]
    jobs += [
        {"kind": "step", "pattern": pattern, "tokens": tokens, "dim": 128}
        for tokens in CONTEXTS
        for pattern in ("dense", "strided")
    ]
    return jobs + [
        {"kind": "step", "pattern": "dense", "tokens": 512, "dim": dim} for dim in WIDTHS[1:]
    ]


def fit_exponent(sizes: list[float], values: list[float]) -> float:
    """The slope of the values over the sizes, both as logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


# --- memory ---------------------------------------------------------------------------------------


def write_repetitions(file: Path, blocks: int = 8000) -> None:
    choose = random.Random(0)
    parts = ["".join(choose.choices(string.ascii_lowercase, k=DISTANCE)) for _ in range(blocks)]
    file.write_text("".join(2 * part for part in parts))


def train_with_memory(job: dict, data: Path, folder: Path) -> dict[str, float]:
    file, run = folder / "text.txt", folder / "run"
    if job["kind"] == "recall":
        write_repetitions(file)
        sizes = {"context": SEGMENT, "dim": 64, "depth": 3, "heads": 4}
    else:
        file.write_bytes(lzma.decompress((data / "enwik8/enwik8.xz").read_bytes())[:20_000_000])
        sizes = {"context": 128, "dim": 192, "depth": 4, "heads": 6}
    settings = {f"model.{k}": v for k, v in {**sizes, "memory": job["memory"]}.items()}
    options = [f"--set={name}={value}" for name, value in settings.items()]
    trained = json.loads(check_output([
        *GLASS, "train", "generate", str(file), "--model", "transformer_xl", "--no-prior",
        "--tokenizer", "characters" if job["kind"] == "recall" else "bytes", "--seed", "0",
        "--minutes", str(MINUTES[job["kind"]]), "--run", str(run), "--json", *options,
    ]))  # fmt: skip
    scores = {"steps": trained["steps"], "bits_per_byte": trained["bits_per_byte"]}
    if job["kind"] == "recall":
        scores["recall"] = measure_recall(run)
    return scores


def measure_recall(run: Path) -> float:
    """The mean probability of the repeated letters in the validation text."""
    model = load(run)
    task = open_run_task(TASKS["generate"], model.artifacts, run)
    _, scores = task.evaluate(model.network)
    nats = scores.array("nats")
    positions = task.dataset.size + np.arange(len(nats))  # in the whole text
    is_repeated = positions % (2 * DISTANCE) >= DISTANCE
    return float(np.exp(-nats[is_repeated]).mean())


# --- report ---------------------------------------------------------------------------------------


def select(results: list[dict], **values: object) -> list[dict]:
    return [row for row in results if all(row.get(k) == v for k, v in values.items())]


def write_report(results: list[dict]) -> None:
    figure, (left, right) = subplots(1, 2, figsize=(9, 4))
    lines = [
        "# Long contexts: cost and reach",
        "",
        "Generated by `python bench/long_context.py DATA RESULTS`; its docstring explains the "
        f"measurements. Machine: {'; '.join(sorted({r['machine'] for r in results}))}, torch "
        f"{results[-1]['torch']}, {min(r['date'] for r in results)} to "
        f"{max(r['date'] for r in results)}.",
        "",
        "## Attention by itself",
        "",
        f"One sequence, {HEADS} heads of {HEAD_DIM} features, forward and backward. *Exponent* is "
        "that of the time as a power of the number of tokens.",
        "",
        "| pattern | " + " | ".join(f"{n:,} tokens" for n in LENGTHS) + " | exponent | memory at "
        f"{LENGTHS[-1]:,} |",
        "| --- |" + " --- |" * (len(LENGTHS) + 2),
    ]
    for pattern in ("dense", *SPARSE):
        rows = {r["tokens"]: r for r in select(results, kind="attention", pattern=pattern)}
        if rows.keys() >= set(LENGTHS):
            times = [rows[n]["ms"] for n in LENGTHS]
            cells = " | ".join(f"{ms:,.1f} ms" for ms in times)
            lines.append(f"| {pattern} | {cells} | {fit_exponent(list(LENGTHS), times):.2f} | "
                         f"{rows[LENGTHS[-1]]['mb']:,.0f} MB |")  # fmt: skip
            left.plot(LENGTHS, times, marker="o", label=f"attention, {pattern}")
    lines += [
        "",
        "The sparse kernels are faster but need more memory than dense attention, whose fused "
        "kernel keeps no scores: they rearrange copies of queries, keys and values.",
        "",
        "## A training step",
        "",
        "Four layers, one sequence; `gpt2` (dense) and `sparse` (strided).",
        "",
        "| attention | tokens | dim | time | memory |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in select(results, kind="step"):
        lines.append(f"| {row['pattern']} | {row['tokens']:,} | {row['dim']} | {row['ms']:,.0f} ms "
                     f"| {row['mb']:,.0f} MB |")  # fmt: skip
    for pattern in ("dense", "strided"):
        rows = select(results, kind="step", pattern=pattern, dim=128)
        sizes = [row["tokens"] for row in rows]
        if len(sizes) > 1:
            left.plot(sizes, [r["ms"] for r in rows], "--s", label=f"step, {pattern}")
            right.plot(sizes, [r["mb"] for r in rows], "--s", label=f"step, {pattern}")
            exponents = [fit_exponent(sizes, [r[k] for r in rows]) for k in ("ms", "mb")]
            lines += [
                "",
                f"With {pattern} attention, the time of a step grows with the context to the power "
                f"of {exponents[0]:.2f}, its memory to that of {exponents[1]:.2f}.",
            ]
    rows = select(results, kind="step", pattern="dense", tokens=512)
    if len(rows) > 1:
        exponents = [fit_exponent([r["dim"] for r in rows], [r[k] for r in rows])
                     for k in ("ms", "mb")]  # fmt: skip
        lines += ["", f"With the width, they grow to the power of {exponents[0]:.2f} and "
                  f"{exponents[1]:.2f} (dense, 512 tokens)."]  # fmt: skip
    left.set(xlabel="tokens", ylabel="ms, forward and backward", xscale="log", yscale="log")
    right.set(xlabel="tokens", ylabel="MB of a training step", xscale="log", yscale="log")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        axes.set_xticks(TICKS, [f"{n:,}" for n in TICKS], fontsize=8)
        axes.minorticks_off()
    left.set_ylim(top=60_000)  # leaves room for the legend
    right.set_yticks((25, 50, 100, 200, 400), ("25", "50", "100", "200", "400"))
    figure.savefig(PICTURE, dpi=110, bbox_inches="tight")
    lines += ["", f"![time and memory against length](pictures/{PICTURE.name})", "",
              "## Memory", "",
              "`transformer_xl` with and without a memory, trained for the same time without a "
              f"prior. *Recall*: the probability of random letters that repeat those {DISTANCE} "
              f"letters before, in segments of {SEGMENT} letters (a guess: {1 / 26:.3f}).", "",
              "| data | tokens of memory | minutes | steps | recall | bits per byte |",
              "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in (r for r in results if r["kind"] in MINUTES):
        recall = f"{row['recall']:.3f}" if "recall" in row else ""
        lines.append(f"| {row['kind']} | {row['memory']} | {MINUTES[row['kind']]:g} | "
                     f"{row['steps']:,.0f} | {recall} | {row['bits_per_byte']:.3f} |")  # fmt: skip
    grids = grid_bytes(16, 1000)  # of one layer: the example of a tutorial
    lines += [
        "",
        "## The grid of scores",
        "",
        "If they were kept, the scores of 16 sequences of 1,000 tokens (one head) would take "
        f"{grids / GRIDS / 1e6:.0f} MB in float32, or {grids / 1e6:.0f} MB per layer with the "
        "values after the softmax and the gradients of both. 12 GB would hold "
        f"{12_000_000_000 // grids} layers; the tutorial that arrives at 12 counts the factor of "
        "four twice. The fused kernel keeps no grid at all. `glass info RUN` has these numbers for "
        "a run, and what half precision, micro-batches and checkpointing save and cost.",
    ]
    write_page(PAGE, "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", nargs="+", default=["cost", *MINUTES])
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:  # a process of its own, to measure its memory
        print(json.dumps(measure_cost(args.job)))
        return
    results = read_results(args.results)
    jobs = list_costs() if "cost" in args.only else []
    jobs += [
        {"kind": kind, "memory": memory}
        for kind in MINUTES
        for memory in (MEMORY[kind], 0)
        if kind in args.only
    ]
    for job in jobs:
        if select(results, **job):
            continue
        if job["kind"] in MINUTES:
            with tempfile.TemporaryDirectory() as folder:
                scores = train_with_memory(job, args.data, Path(folder))
        else:
            command = [sys.executable, __file__, ".", ".", "--job", json.dumps(job)]
            scores = json.loads(subprocess.check_output(command))
        results.append(append_result(args.results, job, scores, matmul_speed()))
    if results:
        write_report(results)


if __name__ == "__main__":
    main()
