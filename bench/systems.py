"""docs/systems.md: each system in a paragraph, a picture and its figures, made from real runs.

    python bench/systems.py RUNS DATA

RUNS is a folder for the runs; what is in it already is not done again, so that it can be stopped.
DATA holds tinyshakespeare/input.txt, cmn-eng/train.tsv.gz and imdb/train.jsonl.gz. All of it takes
about two hours on two cores.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chinese
import claims
import labels
import torch

from glassformer import MODELS, load
from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.folder import read_json
from glassformer.core.reporter import Reporter
from glassformer.inspection.draw import heat_map
from glassformer.training.compare import PICTURE, REPORT, compare
from glassformer.training.evaluate import evaluate
from glassformer.training.recipe import read_recipe
from glassformer.training.train import train

HOME = Path(__file__).parents[1]
DOCS, RECIPES = HOME / "docs", HOME / "recipes"
PLOTS = DOCS / "pictures"
SMALL = ["model.dim=128", "model.depth=4", "model.heads=4", "model.context=64"]
LENGTHS = (64, 128, 256)
SAID = ("你好。", "我爱你。", "今天天气很好。", "你叫什么名字？", "我不知道他在哪里。", "机器学习")


def compared(runs: Path, name: str, task: str, *data: Path, **options: Any) -> str:
    """A comparison's table, picture and data line, as its report has them."""
    run, _ = compare(task, *data, run=runs / name, reporter=Reporter(), **options)
    shutil.copy(run / PICTURE, PLOTS / f"{name}.png")
    _, body = (run / REPORT).read_text().split("\n\n", 1)
    return body.replace(f"]({PICTURE})", f"](pictures/{name}.png)")


def once(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured before, or is measured now and kept."""
    if not file.exists():
        file.write_text(json.dumps(make(), ensure_ascii=False))
    return read_json(file)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# --- one section a system ---------------------------------------------------------------------


def counting(runs: Path, data: Path) -> str:
    orders = [f"markov:order={order}" for order in range(1, 7)]
    skips = ["markov:skips=4", "markov:skips=4:masked=true"]
    return compared(runs, "counting", "generate", text(data), models=[*orders, *skips], steps=1)


def generators(runs: Path, data: Path) -> str:
    names = ["markov", "convolutional", "recurrent", "generator", "gpt2", "llama"]
    return compared(runs, "generators", "generate", text(data), models=names, minutes=3)


def forgetting(runs: Path, data: Path) -> str:
    said = once(runs / "claims.json", lambda: claims.evaluate(runs / "claims.png"))
    shutil.copy(runs / "claims.png", PLOTS)
    lines = [f"- {name}: {figures}." for name, figures in said.items()]
    return "\n".join([*lines, "", "![memory and time against length](pictures/claims.png)"])


def classifiers(runs: Path, data: Path) -> str:
    reviews, _, held_out = labels.split(data / "imdb" / "train.jsonl.gz", runs / "labels", 22_500)
    kinds = ("classifier", "convolutional_classifier", "recurrent_classifier", "gpt2_classifier")
    told = {"text": ["text"], "label": "label", "valid": [str(held_out)]}
    return compared(
        runs, "classifiers", "classify", reviews, models=["nb_svm", *kinds], minutes=2, **told
    )


def translators(runs: Path, data: Path) -> str:
    kinds = [f"recurrent_translator:attention={kind}" for kind in ("none", "dot", "additive")]
    return compared(runs, "translators", "translate", models=[*kinds, "translator"], minutes=2)


def scores(runs: Path, data: Path) -> str:
    kinds = [f"decoder:score={kind}" for kind in ("scaled", "unscaled", "additive", "plain")]
    return compared(
        runs, "scores", "generate", text(data), models=kinds, steps=1000, settings=SMALL
    )


def positions(runs: Path, data: Path) -> str:
    kinds = ("learned", "sinusoidal", "rotary", "alibi", "none")
    names = [f"decoder:position={kind}" for kind in kinds]
    run, _ = compare(
        "generate", text(data), run=runs / "positions", reporter=Reporter(), models=names,
        steps=1000,
        settings=SMALL,
    )  # fmt: skip

    def at_lengths() -> dict[str, Any]:
        return {
            kind: [bits_at(run / f"decoder-position={kind}", length) for length in LENGTHS]
            for kind in kinds
        }

    found = once(runs / "positions.json", at_lengths)
    chart, axes = subplots(figsize=(6, 3.6))
    for kind, bits in found.items():
        seen = [(n, b) for n, b in zip(LENGTHS, bits, strict=True) if b is not None]
        axes.plot(*zip(*seen, strict=True), marker="o", label=kind)
    axes.set_xscale("log", base=2)
    axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    axes.set(xlabel="characters read at once; it learnt from 64", ylabel="bits per byte")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    chart.savefig(PLOTS / "positions.png", dpi=110)
    rows = [[kind, *("cannot" if b is None else f"{b:.3f}" for b in found[kind])] for kind in kinds]
    rows.sort(key=lambda row: row[1])
    head = ["position", *(f"bits per byte, {length} at once" for length in LENGTHS)]
    last = (run / REPORT).read_text().strip().rsplit("\n\n", 1)[1]
    return f"{table(head, rows)}\n\n![bits against length](pictures/positions.png)\n\n{last}"


def bits_at(run: Path, length: int) -> float | None:
    """Bits per byte of a run's model when it reads so many tokens at once, if it can."""
    try:
        return evaluate(run, context=length)["bits_per_byte"]
    except GlassError:
        return None


def into_english(runs: Path, data: Path) -> str:
    folder, run = runs / "cmn-eng", runs / "chinese"
    if not folder.exists():
        chinese.split(data / "cmn-eng" / "train.tsv.gz", folder)
    if not (run / "README.md").exists():
        recipe, valid = RECIPES / "chinese.toml", [folder / "valid.tsv"]
        train(None, folder / "train.tsv", config=recipe, valid=valid, run=run)
    found = once(runs / "chinese.json", lambda: evaluate(run, (folder / "test.tsv",)))
    model = load(run)
    said = model.translate(list(SAID))
    read = model.align(SAID[4], said[4])
    chart = heat_map(read.pattern, read.target, read.source)
    chart.savefig(PLOTS / "chinese.svg")
    rows = [
        [name, *(f"{part[figure]:.1f}" for figure in ("bleu", "chrf")), f"{part['exact']:.1%}"]
        for name, part in (("translator", found), ("a table of phrases", found["baseline"]))
    ]
    lines = [f"- {text} → {words}" for text, words in zip(SAID, said, strict=True)]
    return "\n\n".join([
        table(["on the test split", "BLEU", "chrF", "right to the letter"], rows),
        "\n".join(lines),
        "![what each English token read of the Chinese](pictures/chinese.svg)",
        f"{found['examples']:,} pairs, greedy; {found['bleu_signature']}.",
    ])  # fmt: skip


def bert(runs: Path, data: Path) -> str:
    reviews = data / "imdb" / "train.jsonl.gz"
    few = once(runs / "labels-1000.json", lambda: labels.evaluate(reviews, runs / "labels"))
    many = once(
        runs / "labels-22500.json", lambda: labels.evaluate(reviews, runs / "labels", 22_500, 1)
    )
    rows = [
        [
            name,
            f"{sum(few[name]) / len(few[name]):.3f}",
            f"{many[name][0]:.3f}" if name in many else "",
        ]
        for name in few
    ]
    shutil.copy(runs / "labels" / "masked" / "plots" / "loss.png", PLOTS / "masked.png")
    head = ["BERT", "right, 1,000 labels, three seeds", "right, 22,500 labels, one seed"]
    return f"{table(head, rows)}\n\n![loss of the hidden words](pictures/masked.png)"


def gpt2(runs: Path, data: Path) -> str:
    shutil.copy(runs / "generators" / "gpt2" / "plots" / "bits_per_byte.png", PLOTS / "gpt2.png")
    rows = []
    for recipe in sorted(RECIPES.glob("gpt2-*.toml"), key=lambda file: size_of(file)):
        shape = read_recipe(recipe).model
        cells = [f"{shape[name]:,}" for name in ("depth", "dim", "heads")]
        rows.append([f"`{recipe.stem}`", *cells, f"{size_of(recipe):,}"])
    head = ["recipe", "blocks", "width", "heads", "parameters"]
    return f"{table(head, rows)}\n\n![bits against steps](pictures/gpt2.png)"


def size_of(recipe: Path) -> int:
    """The parameters of a recipe's model, counted without making one number of it."""
    read = read_recipe(recipe)
    settings = {name: value for name, value in read.model.items() if name != "name"}
    kind = MODELS[read.model["name"]]
    with torch.device("meta"):
        network = kind(kind.Config(vocab=read.data["vocab"], **settings))
    return sum(p.numel() for p in network.parameters())


def text(data: Path) -> Path:
    return data / "tinyshakespeare" / "input.txt"


HEAD = """# The systems, each with a figure from a real run

Written by `python bench/systems.py RUNS DATA`, which trains what is not in RUNS yet and writes this
page from what it finds there. All ran on {machine}; a comparison's own line says its data and its
date. Figures are on what was kept for validation, unless a test split is named; nothing was chosen
on a test split.

"""
SECTIONS: dict[str, tuple[Callable[[Path, Path], str], str]] = {
    "Counting": (
        counting,
        """`markov` learns by counting what followed the last tokens. Its order says how far
        back it looks; where a context never occurred it asks the next shorter one
        (Witten-Bell). With skips, every pair of the last token and one before it has a vote,
        wherever the two stood, and a mask silences pairs that are sure of nothing: the step
        from counting to attention. On characters four are best: longer contexts are too
        rare in a million.""",
    ),
    "Text: counting, convolution, recurrence, attention": (
        generators,
        """One text, one budget of time each, every model at its default size. `markov` counts;
        `convolutional` looks through windows that double with each layer; `recurrent` is an
        LSTM; `generator` is the tutorials' Transformer; `gpt2` is the default of `glass
        train generate`; `llama` has rotary positions and a gate.
        A convolution beats counting in that time, and no Transformer does.""",
    ),
    "What recurrence forgets, what a convolution cannot see, what runs in parallel": (
        forgetting,
        """A text begins with one of ten letters, goes on with noise and asks for the letter:
        an LSTM has to carry it through every step, a convolution sees it only inside its
        window, attention looks at it. They learnt from up to 128 tokens of noise and are asked
        after up to 1,024. What an LSTM lacks here is not memory for one letter but a slope
        over distance: shown short texts first it carries the letter through 1,024 tokens, shown
        all lengths from the start (dotted) it learns nothing in as many steps. A training step
        on 4,096 tokens takes the same time however they are cut for a convolution; the LSTM
        reads one token after the other, so long texts are slow; attention's work grows with the
        length of a text.""",
    ),
    "Labels: phrases, convolution, recurrence, attention": (
        classifiers,
        """Film reviews, 22,500 to learn from and 2,500 held out. `bag` weighs phrases of up to
        three words (NB-SVM), and wins. Other work ran beside it.""",
    ),
    "Translation: what attention was invented for": (
        translators,
        """Numbers and dates from Chinese to English, exact or wrong. Without attention the
        source has to fit into the memory of an LSTM; with it, dot-product or additive, each
        word looks back at the source. The Transformer learns it in a fraction of their time.
        Other work ran beside it.""",
    ),
    "How tokens are compared": (
        scores,
        """One Transformer, four ways to compare a query with a key, everything else equal:
        divided by the root of the width, undivided, a small network over both (additive),
        and no parameters at all.""",
    ),
    "How places are told": (
        positions,
        """The same Transformer with five ways to tell places, trained on 64 characters at
        once, then asked to read as many, twice as many and four times as many. Learned
        places end where training ended.""",
    ),
    "Chinese to English": (
        into_english,
        """`translator`, the paper's Transformer, on everyday sentences from Tatoeba
        (`recipes/chinese.toml`), split so that no sentence stands on both sides. The
        picture shows what each English token read of the Chinese.""",
    ),
    "BERT": (
        bert,
        """Pretrained on the reviews' texts (`recipes/masked.toml`: hidden words, and whether a
        half follows), then trained on labels, beside the same BERT from nothing and weighed
        phrases (`bench/labels.py`).""",
    ),
    "GPT-2": (
        gpt2,
        """The sizes of the paper, as recipes; their parameters are counted without making one
        of them. The curve is that of the default size on tiny Shakespeare.""",
    ),
}


def main(runs: Path, data: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    PLOTS.mkdir(exist_ok=True)
    machine = f"{torch.get_num_threads()} cores of {processor()}, torch {torch.__version__}"
    parts = [HEAD.format(machine=machine)]
    for title, (make, text) in SECTIONS.items():
        told = textwrap.fill(" ".join(text.split()), 120)
        parts.append(f"## {title}\n\n{told}\n\n{make(runs, data).strip()}\n\n")
    (DOCS / "systems.md").write_text("".join(parts).rstrip() + "\n")


def processor() -> str:
    with Path("/proc/cpuinfo").open() as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
