"""How well models predict text with an equal time budget, next to n-gram counts and nanoGPT.

    python bench/quality.py DATA RESULTS                      # run what is missing, then report
    python bench/quality.py DATA RESULTS --report --out bench/README.md    # only write the report
    python bench/quality.py DATA RESULTS --short              # under 15 minutes; not comparable

DATA is a folder with the texts (tinyshakespeare/input.txt, enwik8/enwik8.xz, ...); a text that is
missing is skipped. RESULTS is a JSON-lines file: every finished run appends a line, so the script
can be stopped at any time and continues where it left off. `--nanogpt DIR` adds nanoGPT's own
train.py from a checkout of it, with the settings that its README recommends for a CPU.

Each text is split once: the last tenth is scored once at the end, the last hundredth of the rest
selects the best checkpoint, and everything else is trained on. Our time budget covers the entire
command, nanoGPT's only its training steps. All models are run with one seed before the next seed
starts, so that slow phases of the machine affect all of them.
"""

import argparse
import gzip
import json
import lzma
import math
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch

GLASS = [sys.executable, "-c", "from glassformer.cli import main; main()"]
SEEDS = 3
MB = 1_000_000


# --- texts ----------------------------------------------------------------------------------------


def read_text(folder: Path, name: str) -> str:
    """The text `name`, about a megabyte long."""
    if name == "shakespeare":
        return (folder / "tinyshakespeare/input.txt").read_text()
    if name == "enwik8":
        with lzma.open(folder / "enwik8/enwik8.xz") as file:
            return file.read(MB).decode("utf-8", "ignore")
    if name == "tinystories":
        with gzip.open(folder / "tinystories/tinystories_sample_2MiB.txt.gz") as file:
            return file.read().decode()
    if name == "chinese":
        with gzip.open(folder / "cmn-eng/train.tsv.gz", "rt", encoding="utf-8") as file:
            lines = [line.split("\t")[1] for line in file]
        np.random.default_rng(0).shuffle(lines)
        return "\n".join(lines) + "\n"
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return "".join(file.read_text() for file in files)[: 2 * MB]


TEXTS = {
    "shakespeare": "tiny Shakespeare, 1.1 MB",
    "enwik8": "the first 1 MB of enwik8",
    "tinystories": "TinyStories, 2 MB",
    "chinese": "Chinese sentences (Tatoeba), 1.0 MB",
    "python": "source code of Python's standard library, 2 MB",
}
TOKENIZERS = {"shakespeare": "characters", "tinystories": "bpe"}  # of ours; else the default


@dataclass(frozen=True)
class Split:
    """The files of a text: what is trained on, what selects a checkpoint, what is scored."""

    train: Path
    select: Path
    test: Path


def split_text(text: str, folder: Path) -> Split:
    test, select = round(0.9 * len(text)), round(0.9 * 0.99 * len(text))
    parts = {"train": text[:select], "select": text[select:test], "test": text[test:]}
    files = {}
    for name, part in parts.items():
        files[name] = folder / f"{name}.txt"
        files[name].write_text(part, encoding="utf-8")
    return Split(**files)


# --- contenders -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    name: str
    options: tuple[str, ...] = ()  # of `glass train`
    is_nanogpt: bool = False


OURS = Contender("default")
PLAIN = Contender("default without prior", ("--no-prior",))
CONTENDERS = (
    Contender("n-gram counts", ("--model", "markov")),
    OURS,
    Contender("nanoGPT's recipe", is_nanogpt=True),
    PLAIN,
    Contender("convolutional", ("--model", "convolutional")),
    Contender("convolutional without prior", ("--model", "convolutional", "--no-prior")),
    Contender("gpt2", ("--model", "gpt2")),
)


@dataclass(frozen=True)
class Job:
    text: str
    minutes: float
    seed: int
    contender: Contender

    @property
    def key(self) -> tuple[str, float, int, str]:
        return self.text, self.minutes, self.seed, self.contender.name


def run_job(job: Job, split: Split, folder: Path, nanogpt: Path | None) -> dict[str, float]:
    if job.contender.is_nanogpt:
        assert nanogpt is not None
        return run_nanogpt(nanogpt, split, folder, 60 * job.minutes, job.seed)
    return run_glass(job, split, folder / "run")


def run_glass(job: Job, split: Split, run: Path) -> dict[str, float]:
    tokenizer = ["--tokenizer", TOKENIZERS[job.text]] if job.text in TOKENIZERS else []
    command = [*GLASS, "train", "generate", str(split.train), "--valid", str(split.select)]
    command += ["--minutes", str(job.minutes), "--seed", str(job.seed), "--run", str(run), "--json"]
    start = time.monotonic()
    trained = json.loads(check_output([*command, *tokenizer, *job.contender.options]))
    seconds = time.monotonic() - start
    result = json.loads(check_output([*GLASS, "evaluate", str(run), str(split.test), "--json"]))
    size = split.test.stat().st_size
    nats = result["bits_per_byte"] * math.log(2) * size
    return {
        "bits_per_byte": result["bits_per_byte"],
        "nats_per_character": nats / len(split.test.read_text(encoding="utf-8")),
        "steps": trained["steps"],
        "seconds": seconds,
    }


def check_output(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return str(done.stdout)


# --- nanoGPT --------------------------------------------------------------------------------------

NANOGPT = (
    "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=1 "
    "--log_interval=10 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 "
    "--dropout=0.0 --always_save_checkpoint=True --dataset=bench"
).split()


def run_nanogpt(
    checkout: Path, split: Split, folder: Path, seconds: float, seed: int
) -> dict[str, float]:
    """Train with nanoGPT's train.py for about this time, and score the last tenth."""
    texts = [file.read_text(encoding="utf-8") for file in (split.train, split.select, split.test)]
    characters = sorted(set("".join(texts)))
    index = {character: i for i, character in enumerate(characters)}
    data = checkout / "data/bench"
    data.mkdir(exist_ok=True)
    for name, text in (("train", texts[0]), ("val", texts[1])):
        np.array([index[c] for c in text], dtype=np.uint16).tofile(data / f"{name}.bin")
    (data / "meta.pkl").unlink(missing_ok=True)
    source = (checkout / "train.py").read_text()
    script = checkout / "train_bench.py"  # its only changes: the seed and the vocabulary
    source = source.replace("torch.manual_seed(1337", f"torch.manual_seed({1337 + seed}")
    source = source.replace("meta_vocab_size = None", f"meta_vocab_size = {len(characters)}")
    script.write_text(source)

    def train(steps: int) -> float:
        budget = [f"--{name}={steps}" for name in ("max_iters", "lr_decay_iters", "eval_interval")]
        command = [sys.executable, script.name, *NANOGPT, *budget, f"--out_dir={folder / 'out'}"]
        start = time.monotonic()
        check_output(command, cwd=checkout)
        return time.monotonic() - start

    setup = train(1)
    pace = (train(101) - setup) / 100
    steps = round(seconds / pace)
    spent = train(steps) - setup
    saved = torch.load(folder / "out/ckpt.pt", weights_only=True)
    sys.path.insert(0, str(checkout))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    network = GPT(GPTConfig(**saved["model_args"])).eval()
    network.load_state_dict(saved["model"])
    ids, length = torch.tensor([index[c] for c in texts[2]]), saved["model_args"]["block_size"]
    nats = 0.0
    with torch.inference_mode():
        for start in range(0, len(ids) - 1, length):
            window = ids[start : start + length + 1]
            _, loss = network(window[None, :-1], window[None, 1:])
            nats += float(loss) * (len(window) - 1)
    characters_scored = len(ids) - 1
    return {
        "bits_per_byte": nats / math.log(2) / split.test.stat().st_size,
        "nats_per_character": nats / characters_scored,
        "steps": steps,
        "seconds": spent,
    }


# --- runs and report ------------------------------------------------------------------------------


def list_jobs(
    short: bool = False, has_nanogpt: bool = False, minutes: Sequence[float] = ()
) -> list[Job]:
    """All runs, in blocks of one seed; with `minutes`, all models with these budgets instead."""
    contenders = [c for c in CONTENDERS if has_nanogpt or not c.is_nanogpt]
    if minutes:
        return [Job(text, budget, seed, c) for seed in range(SEEDS) for budget in minutes
                for text in TEXTS for c in contenders]  # fmt: skip
    if short:
        few = [c for c in contenders if c.is_nanogpt or c in (CONTENDERS[0], OURS, PLAIN)]
        return [Job("shakespeare", 0.5, 0, contender) for contender in few]
    jobs = []
    for seed in range(SEEDS):
        jobs += [Job("shakespeare", 1.67, seed, contender) for contender in contenders]
        jobs += [Job(text, 3.0, seed, c) for text in TEXTS if text != "shakespeare"
                 for c in contenders if c.name != "gpt2"]  # fmt: skip
        jobs.append(Job("shakespeare", 10.0, seed, OURS))
    return jobs


def matmul_speed(size: int = 1024) -> float:
    """The speed of a product of two square matrices in float32, in GFLOP/s."""
    x, best = torch.ones(size, size), math.inf
    for _ in range(10):
        start = time.perf_counter()
        x @ x
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def describe_machine() -> str:
    features = torch.backends.cpu.get_cpu_capability()
    return f"{torch.get_num_threads()} threads, {platform.machine()}, torch uses {features}"


def read_results(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append_result(file: Path, job: dict, scores: dict[str, float], gflops: float) -> dict:
    """Append the scores of a run to the results and print them; return the row."""
    row = {**job, **{name: round(score, 4) for name, score in scores.items()},
           "gflops": round(gflops, 1), "machine": describe_machine(),
           "torch": torch.__version__, "date": str(date.today())}  # fmt: skip
    with file.open("a") as handle:
        handle.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)
    return row


def report(results: list[dict], file: Path) -> None:
    """Write a table of what has been measured."""
    lines = [
        "# Language modeling with an equal time budget",
        "",
        "Generated by `python bench/quality.py DATA RESULTS`; its docstring explains the split. "
        "Values are means over seeds, and *seeds* is their number; lower is better. *Relative* is "
        "the bits per byte divided by those of nanoGPT's CPU recipe, on the same text and "
        "machine. The model *n-gram counts* is `--model markov`, with contexts of 4 characters or "
        "bytes.",
        "",
    ]
    machines = sorted({f"{r['machine']}, torch {r['torch']}" for r in results})
    speeds = [r["gflops"] for r in results]
    lines += [
        f"Machine: {'; '.join(machines)}; matrix products at {min(speeds):.0f} to "
        f"{max(speeds):.0f} GFLOP/s; {min(r['date'] for r in results)} to "
        f"{max(r['date'] for r in results)}.",
        "",
        "| text | minutes | model | bits per byte | nats per character | relative | seeds | steps |"
        "\n| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        groups.setdefault((result["text"], result["minutes"], result["model"]), []).append(result)
    order = [c.name for c in CONTENDERS]
    for text, minutes, model in sorted(
        groups, key=lambda k: ([*TEXTS].index(k[0]), k[1], order.index(k[2]))
    ):
        rows = groups[text, minutes, model]
        bits = mean(rows, "bits_per_byte")
        peers = groups.get((text, minutes, "nanoGPT's recipe"))
        relative = f"{bits / mean(peers, 'bits_per_byte'):.3f}" if peers else ""
        lines.append(
            f"| {TEXTS[text]} | {minutes:g} | {model} | {bits:.3f} | "
            f"{mean(rows, 'nats_per_character'):.3f} | {relative} | {len(rows)} | "
            f"{mean(rows, 'steps'):,.0f} |"
        )
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def mean(rows: list[dict], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT")
    parser.add_argument("--texts", nargs="+", default=[*TEXTS], help="only these texts")
    names = [c.name for c in CONTENDERS]
    parser.add_argument("--models", nargs="+", default=names, help="only these models")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="only the first seeds")
    parser.add_argument("--minutes", nargs="+", type=float, default=(), help="other budgets")
    parser.add_argument("--short", action="store_true", help="a few short runs, not comparable")
    parser.add_argument("--report", action="store_true", help="only write the report")
    parser.add_argument("--out", type=Path, help="the report; by default RESULTS with suffix .md")
    args = parser.parse_args()
    results = read_results(args.results)
    done = {(r["text"], r["minutes"], r["seed"], r["model"]) for r in results}
    jobs = [] if args.report else list_jobs(args.short, args.nanogpt is not None, args.minutes)
    for job in jobs:
        is_wanted = job.text in args.texts and job.contender.name in args.models
        is_wanted = is_wanted and job.seed < args.seeds
        if job.key in done or not is_wanted:
            continue
        try:
            text = read_text(args.data, job.text)
        except FileNotFoundError as error:
            print(f"skipped: {error}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            split = split_text(text, Path(scratch))
            speed = matmul_speed()
            result = run_job(job, split, Path(scratch), args.nanogpt)
        names = ("text", "minutes", "seed", "model")
        results.append(append_result(args.results, dict(zip(names, job.key, strict=True)), result,
                                     speed))  # fmt: skip
    if results:
        report(results, args.out or args.results.with_suffix(".md"))


if __name__ == "__main__":
    main()
