"""Valid folders and files of every kind, and a typical use of each."""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from cases import CASES, VOCAB
from glassformer import MODELS, GlassError, Model, load
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.tasks.check import check
from glassformer.text.plain import Characters
from glassformer.training.request import Request
from glassformer.training.resume import resume
from glassformer.training.run import find_damage
from glassformer.training.start import Start
from glassformer.training.train import train

ROOT = Path(__file__).parents[2]
TASKS = {"book": "generate", "masked": "fill-mask", "labels": "classify", "pairs": "translate"}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": partial(gzip.compress, mtime=0),
    ".xz": lzma.compress,
}


@dataclass(frozen=True)
class Specimen:
    """A valid folder, and a function that uses it or a corrupted copy of it."""

    path: Path
    use: Callable[[Path], object]


Specimens = dict[str, list[Specimen]]  # by kind


def build_specimens(home: Path) -> Specimens:
    """Write valid folders of every kind."""
    data, runs = write_data(home / "data"), train_runs(home)
    models = [run / name for run in runs for name in ("best", "baseline") if (run / name).exists()]
    models += save_untrained(home / "ours")
    models += write_hugging_face(home / "theirs", load(runs[-1]), load(runs[3]))
    recipes = [
        write(home / "recipes" / file.stem / file.name, file.read_bytes())
        for file in sorted((ROOT / "recipes").glob("*.toml"))
    ]
    return {
        "model": [
            *(Specimen(path, use_model) for path in models),
            Specimen(write_llama2c(home / "llama2c"), use_llama2c),
        ],
        "data": [Specimen(file.parent, use_data) for file in data],
        "recipe": [Specimen(file.parent, use_recipe) for file in recipes],
        "run": [Specimen(run, use_run) for run in runs[:2]],
    }


def write(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def write_data(home: Path) -> list[Path]:
    """Write small data files of every kind and a folder of texts, each in a folder of its own."""
    book = "the cat sat on the mat and the dog sat on the log.\n" * 30
    pairs = "".join(f"one {i % 7} two {i}\teins {i % 7} zwei {i}\n" for i in range(60))
    words_and_labels = [("cat", "animal"), ("mat", "thing")]
    rows = [
        {"text": f"the {word} sat {i}", "label": label}
        for i in range(30)
        for word, label in words_and_labels
    ]
    cells = [["text", "label"], *([row["text"], row["label"]] for row in rows)]
    texts = {
        "book.txt": book, "masked.txt": book, "pairs.tsv": pairs, "labels.json": json.dumps(rows),
        "labels.jsonl": "\n".join(map(json.dumps, rows)),
        "labels.csv": "\n".join(map(",".join, cells)),
        "labels.tsv": "\n".join(map("\t".join, cells)),
    }  # fmt: skip
    files = {name: text.encode() for name, text in texts.items()}
    for name in ("book.txt.gz", "labels.jsonl.gz", "labels.csv.xz", "labels.json.xz"):
        files[name] = COMPRESS[name[-3:]](files[name[:-3]])
    paths = [write(home / name.replace(".", "-") / name, data) for name, data in files.items()]
    for i, row in enumerate(rows):
        write(home / "folder" / "labels" / row["label"] / f"{i}.txt", row["text"].encode())
    if find_spec("pyarrow"):
        from pyarrow import Table, parquet

        paths.append(write(home / "labels-parquet" / "labels.parquet", b""))
        parquet.write_table(Table.from_pylist(rows), paths[-1])
    return [*paths, home / "folder" / "labels"]


def train_runs(home: Path) -> list[Path]:
    """Train a small run of every task, each with a baseline, and one with an adapter."""
    sizes = ["model.dim=16", "model.depth=1", "model.heads=2"]
    windows = [*sizes, "model.context=16", "train.batch_size=2"]
    texts = [*sizes, "train.batch_tokens=2"]
    options: dict[str, dict[str, Any]] = {
        "classify": {
            "tokenizer": "words",
            "model": "classifier",
            "settings": [*texts, "model.context=16"],
        },
        "generate": {"tokenizer": "bpe", "settings": windows},
        "translate": {"settings": [*texts, "model.hidden=32"]},
        "fill-mask": {"settings": [*windows, "model.position=learned"]},
        "adapter": {"base": home / "runs" / "fill-mask" / "best", "lora": 2},
        "plain": {"tokenizer": "bpe", "settings": windows, "model": "gpt2", "prior": False},
    }
    names = ("labels.csv", "book.txt", "pairs.tsv", "masked.txt", "labels.csv", "book.txt")
    for (run, run_options), name in zip(options.items(), names, strict=True):
        train(
            TASKS[name.split(".")[0]], home / "data" / name.replace(".", "-") / name,
            run=home / "runs" / run, steps=4, save_every=2, device="cpu", precision="float32",
            threads=1, reporter=NullReporter(), **run_options,
        )  # fmt: skip
    return [home / "runs" / run for run in options]


def save_untrained(home: Path) -> list[Path]:
    """Save models of architectures that `train_runs` does not cover."""
    tokenizer = Characters.train(["the cat sat"], special_tokens=("<unk>", "<start>", "<end>"))
    assert tokenizer.vocab <= VOCAB
    for name in (
        "decoder: additive, rotary", "recurrent: lstm", "recurrent_translator: dot", "wide llama",
        "convolutional", "gpt2_classifier", "bert by distance", "markov with skips",
    ):  # fmt: skip
        task = {"labels": ["a", "b", "c"]} if "classifier" in name else None
        Model(CASES[name].network, tokenizer, task).save(home / name.replace(" ", "-"))
    return sorted(home.iterdir())


def write_hugging_face(home: Path, gpt2: Model, bert: Model) -> list[Path]:
    """Write folders for `transformers`: every tokenizer file format, and sharded weights."""
    tokenizer = gpt2.require_tokenizer()
    sizes = {"context": 16, "dim": 16, "depth": 1, "heads": 2, "hidden": 24}
    llama_class = MODELS["llama"]
    llama = Model(llama_class(llama_class.Config(vocab=tokenizer.vocab, **sizes)), tokenizer)
    models = {"gpt2": gpt2, "bert": bert, "llama": llama}
    models |= {"shards": gpt2, "merges": gpt2, "vocab": bert}
    for name, model in models.items():
        model.save(home / name, format="huggingface")
        if name in ("merges", "vocab"):
            (home / name / "tokenizer.json").unlink()
            model.tokenizer.engine.model.save(str(home / name))
    folder, unsharded = home / "shards", home / "shards" / "model.safetensors"
    state = load_file(unsharded)
    unsharded.unlink()
    shards = {key: f"model-{i % 2}.safetensors" for i, key in enumerate(sorted(state))}
    for file in sorted(set(shards.values())):
        save_file({key: state[key] for key in state if shards[key] == file}, folder / file)
    index = json.dumps({"weight_map": shards}).encode()
    write(folder / f"{unsharded.name}.index.json", index)
    return [home / name for name in models]


def write_llama2c(home: Path) -> Path:
    """Write a model and a tokenizer in the format of llama2.c: one block, two heads."""
    pieces = [b"<unk>", b"<s>", b"</s>", b" ", b"a", b"b", b" a", b"ab", b"<0x21>", b"aa"]
    dim, hidden, vocab, context = 8, 12, len(pieces), 8
    count = vocab * dim + 3 * dim + 4 * dim * dim + 3 * dim * hidden + context * dim // 2
    header = struct.pack("<7i", dim, hidden, 1, 2, 2, vocab, context)
    numbers = struct.pack(f"<{count}f", *(i % 7 / 9 for i in range(count)))
    write(home / "model.bin", header + numbers)
    entries = b"".join(struct.pack("<fi", float(i), len(p)) + p for i, p in enumerate(pieces))
    return write(home / "tokenizer.bin", struct.pack("<i", 6) + entries).parent


# --- uses -----------------------------------------------------------------------------------------


def use_model(path: Path) -> None:
    with contextlib.suppress(GlassError):
        find_damage(path)
    run_model(load(path))


def use_llama2c(path: Path) -> None:
    run_model(load(path / "model.bin", tokenizer=path / "tokenizer.bin"))


def run_model(model: Model) -> None:
    """Call every method that the model may support."""
    for use in (
        lambda: model.require_tokenizer().encode("a" * 2000),
        lambda: model.require_tokenizer().encode("a" * 1999 + "!"),
        lambda: model.generate("ab", max_new_tokens=3, temperature=0.0),
        lambda: model.classify(["a b"]),
        lambda: model.translate(["a b"]),
        lambda: model.fill_mask("a [MASK] b"),
        lambda: model.embed(["a b"]),
    ):
        with contextlib.suppress(GlassError):
            use()


def use_run(path: Path) -> None:
    with contextlib.suppress(GlassError):
        use_model(path)
    resume(path, NullReporter(), steps=6)


def use_recipe(path: Path) -> None:
    for file in path.iterdir():
        Start.of(Request.of(None, (), file, (), {}), None, None)


def use_data(path: Path) -> None:
    for file in path.iterdir():
        check(TASKS[file.name.split(".")[0]], DataRequest(files=(file,)))
