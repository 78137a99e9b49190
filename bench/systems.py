"""Write docs/systems.md: comparisons of all models, with plots and metrics from real runs.

    python bench/systems.py RUNS DATA
    python bench/systems.py RUNS DATA "GPT-2"   # only these sections; the others stay as they are

RUNS is a folder for the runs; runs that are already in it are not repeated, so the script can be
stopped and started again. DATA holds tinyshakespeare/input.txt, cmn-eng/train.tsv.gz,
imdb/train.jsonl.gz and aeslc/*.jsonl.gz. Everything takes about two and a half hours on two cores.
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
from pages import write_page

from glassformer import MODELS, load
from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.folder import read_json
from glassformer.core.reporter import Reporter
from glassformer.inspection.draw import heat_map
from glassformer.training.compare import PLOT, REPORT, compare
from glassformer.training.evaluate import evaluate
from glassformer.training.recipe import read_recipe
from glassformer.training.train import train

HOME = Path(__file__).parents[1]
DOCS, RECIPES = HOME / "docs", HOME / "recipes"
PLOTS = DOCS / "pictures"
SMALL = ["model.dim=128", "model.depth=4", "model.heads=4", "model.context=64"]
LENGTHS = (64, 128, 256)
BERT_ROWS = {  # row labels of the methods in labels.py
    "pretrained": "BERT, pretrained",
    "from scratch": "BERT, from scratch",
    "from scratch, 3x learning rate": "BERT, from scratch, three times the learning rate",
}
SENTENCES = (
    "你好。",
    "我爱你。",
    "今天天气很好。",
    "你叫什么名字？",
    "我不知道他在哪里。",
    "机器学习",
)


def compare_models(runs: Path, name: str, task: str, *data: Path, **options: Any) -> str:
    """Run a comparison; return the table, plot and data line of its report."""
    run, _ = compare(task, *data, run=runs / name, reporter=Reporter(), **options)
    shutil.copy(run / PLOT, PLOTS / f"{name}.png")
    _, body = (run / REPORT).read_text().split("\n\n", 1)
    return body.replace(f"]({PLOT})", f"](pictures/{name}.png)")


def load_or_make(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the saved result; compute and save it if there is none."""
    if not file.exists():
        file.write_text(json.dumps(make(), ensure_ascii=False))
    return read_json(file)


def format_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# --- one section per comparison -------------------------------------------------------------------


def write_counting(runs: Path, data: Path) -> str:
    orders = [f"markov:order={order}" for order in range(1, 7)]
    skips = ["markov:skips=4", "markov:skips=4:masked=true"]
    models = [*orders, *skips]
    return compare_models(runs, "counting", "generate", shakespeare(data), models=models, steps=1)


def write_generators(runs: Path, data: Path) -> str:
    models = ["markov", "convolutional", "recurrent", "generator", "gpt2", "llama"]
    return compare_models(
        runs, "generators", "generate", shakespeare(data), models=models, minutes=3, prior=False
    )


def write_reach(runs: Path, data: Path) -> str:
    models = ["gpt2", "transformer_xl", "sparse", "universal"]
    return compare_models(
        runs, "reach", "generate", shakespeare(data), models=models, minutes=1, prior=False
    )


def write_recall(runs: Path, data: Path) -> str:
    summaries = load_or_make(runs / "claims.json", lambda: claims.measure(runs / "claims.png"))
    shutil.copy(runs / "claims.png", PLOTS)
    lines = [f"- {name}: {summary}." for name, summary in summaries.items()]
    caption = "accuracy against distance, and time per step against text length"
    return "\n".join([*lines, "", f"![{caption}](pictures/claims.png)"])


def write_classifiers(runs: Path, data: Path) -> str:
    reviews, _, held_out = labels.split(data / "imdb" / "train.jsonl.gz", runs / "labels", 22_500)
    kinds = ("classifier", "convolutional_classifier", "recurrent_classifier", "gpt2_classifier")
    options = {"text": ["text"], "label": "label", "valid": [str(held_out)]}
    return compare_models(
        runs,
        "classifiers",
        "classify",
        reviews,
        models=["nb_svm", *kinds],
        minutes=2,
        prior=False,
        vocab=20_000,
        **options,
    )


def write_translators(runs: Path, data: Path) -> str:
    models = [f"recurrent_translator:attention={kind}" for kind in ("none", "dot", "additive")]
    models.append("translator")
    return compare_models(runs, "translators", "translate", models=models, minutes=2, prior=False)


def write_scores(runs: Path, data: Path) -> str:
    models = [f"decoder:score={kind}" for kind in ("scaled", "unscaled", "additive", "plain")]
    return compare_models(
        runs, "scores", "generate", shakespeare(data), models=models, steps=1000, prior=False,
        settings=SMALL,
    )  # fmt: skip


def write_positions(runs: Path, data: Path) -> str:
    kinds = ("learned", "sinusoidal", "rotary", "alibi", "none")
    models = [f"decoder:position={kind}" for kind in kinds]
    run, _ = compare(
        "generate", shakespeare(data), run=runs / "positions", reporter=Reporter(), models=models,
        steps=1000, prior=False, settings=SMALL,
    )  # fmt: skip

    def evaluate_lengths() -> dict[str, Any]:
        return {
            kind: [bits_per_byte(run / f"decoder-position={kind}", length) for length in LENGTHS]
            for kind in kinds
        }

    bits = load_or_make(runs / "positions.json", evaluate_lengths)
    figure, axes = subplots(figsize=(6, 3.6))
    for kind, values in bits.items():
        points = [(n, b) for n, b in zip(LENGTHS, values, strict=True) if b is not None]
        axes.plot(*zip(*points, strict=True), marker="o", label=kind)
    axes.set_xscale("log", base=2)
    axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    axes.set(xlabel="window length in characters (trained with 64)", ylabel="bits per byte")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(PLOTS / "positions.png", dpi=110)
    rows = [
        [kind, *("not possible" if b is None else f"{b:.3f}" for b in bits[kind])] for kind in kinds
    ]
    rows.sort(key=lambda row: row[1])
    header = ["position", *(f"bits per byte, window of {length}" for length in LENGTHS)]
    last = (run / REPORT).read_text().strip().rsplit("\n\n", 1)[1]
    plot = "![bits per byte against window length](pictures/positions.png)"
    return f"{format_table(header, rows)}\n\n{plot}\n\n{last}"


def bits_per_byte(run: Path, context: int) -> float | None:
    """Return a model's bits per byte with another context; None if it does not support it."""
    try:
        return evaluate(run, context=context)["bits_per_byte"]
    except GlassError:
        return None


def write_chinese(runs: Path, data: Path) -> str:
    folder, run = runs / "cmn-eng", runs / "chinese"
    if not folder.exists():
        chinese.split(data / "cmn-eng" / "train.tsv.gz", folder)
    if not (run / "README.md").exists():
        recipe, valid = RECIPES / "chinese.toml", [folder / "valid.tsv"]
        train(None, folder / "train.tsv", config=recipe, valid=valid, run=run)
    metrics = load_or_make(runs / "chinese.json", lambda: evaluate(run, (folder / "test.tsv",)))
    model = load(run)
    translations = model.translate(list(SENTENCES))
    alignment = model.align(SENTENCES[4], translations[4])
    figure = heat_map(alignment.pattern, alignment.target, alignment.source)
    figure.savefig(PLOTS / "chinese.svg")
    rows = [
        [name, *(f"{values[metric]:.1f}" for metric in ("bleu", "chrf")), f"{values['exact']:.1%}"]
        for name, values in (("translator", metrics), ("phrase table", metrics["baseline"]))
    ]
    lines = [f"- {zh} → {en}" for zh, en in zip(SENTENCES, translations, strict=True)]
    return "\n\n".join([
        format_table(["on the test split", "BLEU", "chrF", "exact match"], rows),
        "\n".join(lines),
        "![attention from each English token to the Chinese tokens](pictures/chinese.svg)",
        f"{metrics['examples']:,} pairs, greedy decoding; {metrics['bleu_signature']}.",
    ])  # fmt: skip


def write_summaries(runs: Path, data: Path) -> str:
    folder, run = data / "aeslc", runs / "summaries"
    if not (run / "README.md").exists():
        recipe, valid = RECIPES / "summarizer.toml", [folder / "dev.jsonl.gz"]
        train(None, folder / "train.jsonl.gz", config=recipe, valid=valid, run=run)
    test = folder / "test.jsonl.gz"
    metrics = load_or_make(runs / "summaries.json", lambda: evaluate(run, (test,)))
    names = ("rouge_1", "rouge_2", "rouge_l")
    rows = [
        [name, *(f"{values[metric]:.3f}" for metric in names)]
        for name, values in (("summarizer", metrics), ("lead sentence", metrics["baseline"]))
    ]
    low, high = metrics["rouge_l_interval"]
    return "\n\n".join([
        format_table(["on the test split", "ROUGE-1", "ROUGE-2", "ROUGE-L"], rows),
        f"{metrics['examples']:,} e-mails, greedy decoding; ROUGE-L of the summarizer: "
        f"{low:.3f} to {high:.3f} (95% interval).",
    ])  # fmt: skip


def write_bert(runs: Path, data: Path) -> str:
    reviews = data / "imdb" / "train.jsonl.gz"
    few = load_or_make(runs / "labels-1000.json", lambda: labels.measure(reviews, runs / "labels"))
    many = load_or_make(
        runs / "labels-22500.json", lambda: labels.measure(reviews, runs / "labels", 22_500, 1)
    )
    rows = [
        [
            BERT_ROWS.get(name, name),
            f"{sum(few[name]) / len(few[name]):.3f}",
            f"{many[name][0]:.3f}" if name in many else "",
        ]
        for name in few
    ]
    shutil.copy(runs / "labels" / "masked" / "plots" / "loss.png", PLOTS / "masked.png")
    header = [
        "model",
        "accuracy, 1,000 labels, mean of three seeds",
        "accuracy, 22,500 labels, one seed",
    ]
    return f"{format_table(header, rows)}\n\n![loss on the masked tokens](pictures/masked.png)"


def write_gpt2(runs: Path, data: Path) -> str:
    shutil.copy(runs / "generators" / "gpt2" / "plots" / "bits_per_byte.png", PLOTS / "gpt2.png")
    rows = []
    for recipe in sorted(RECIPES.glob("gpt2-*.toml"), key=count_parameters):
        model = read_recipe(recipe).model
        cells = [f"{model[name]:,}" for name in ("depth", "dim", "heads")]
        rows.append([f"`{recipe.stem}`", *cells, f"{count_parameters(recipe):,}"])
    header = ["recipe", "blocks", "dim", "heads", "parameters"]
    return f"{format_table(header, rows)}\n\n![bits per byte against steps](pictures/gpt2.png)"


def count_parameters(path: Path) -> int:
    """Count the parameters of a recipe's model without allocating them."""
    recipe = read_recipe(path)
    settings = {name: value for name, value in recipe.model.items() if name != "name"}
    kind = MODELS[recipe.model["name"]]
    with torch.device("meta"):
        network = kind(kind.Config(vocab=recipe.data["vocab"], **settings))
    return sum(p.numel() for p in network.parameters())


def shakespeare(data: Path) -> Path:
    return data / "tinyshakespeare" / "input.txt"


HEADER = """# Results of every model

This page compares the models of Glassformer, with metrics from real runs. It is generated by
`python bench/systems.py RUNS DATA`, which trains whatever is not yet in the folder RUNS and writes
the page from the results. All runs used {machine}; each
comparison states its data and date below its table. Metrics are measured on held-out validation
data unless a test split is named. Nothing was tuned on a test split.

"""
SECTIONS: dict[str, tuple[Callable[[Path, Path], str], str]] = {
    "N-gram counts": (
        write_counting,
        """`markov` predicts the next token from n-gram counts. Its order is the number of previous
        tokens it uses. If a context never occurred in the training text, it backs off to the next
        shorter one (Witten-Bell). With `skips`, each pair of the last token and an earlier token
        votes for the next token, regardless of how far apart the two are; with `masked`, pairs that
        predict no token with a probability above one half do not vote. This is the step from
        counting to attention. On characters, order 4 is best: longer contexts are too rare in a
        million characters.""",
    ),
    "Language models: n-grams, convolution, recurrence, attention": (
        write_generators,
        """All models are trained on the same text with the same time budget, each at its default
        size. `markov` counts n-grams; `convolutional` uses dilated convolutions whose windows
        double with each layer; `recurrent` is an LSTM; `generator` is the Transformer of the
        tutorials; `gpt2` is GPT-2; `llama` has rotary positions and a gated feed-forward layer. All
        are trained without a count prior. In this time the convolution beats the n-gram counts, and
        no Transformer does. With a prior, which is the default, training starts from the loss of
        the counts (see [measurements.md](measurements.md)).""",
    ),
    "Further, sparser, deeper: Transformer-XL, Sparse, Universal": (
        write_reach,
        """The language models that change how far attention reaches, on the same text, one minute
        each, without a count prior: `transformer_xl` reads segments with a memory of those before,
        `sparse` attends to a part of the earlier tokens, and `universal` applies one block as often
        as a token needs. On windows this short, the reach hardly matters; the positions do:
        `gpt2` learns a vector for each, `sparse` has rotary ones, `transformer_xl` relative ones.
        These runs used an AMD EPYC; see [long_context.md](long_context.md) for texts whose answer
        lies far back and for the cost of long contexts, and [depth.md](depth.md) for recurrence in
        depth.""",
    ),
    "Memory over distance, and parallelism": (
        write_recall,
        """Each text begins with one of ten letters, continues with noise and ends with a query
        token; the network must predict the letter. An LSTM has to carry the letter through every
        step, a convolution can use it only inside its window, and attention can read it directly.
        The networks are trained with up to 128 tokens of noise and tested with up to 1,024. The
        LSTM has enough memory for one letter; what it lacks is a gradient over long distances. If
        it is trained on short texts first, it carries the letter through 1,024 tokens; if it is
        trained on all lengths from the start (dotted), it learns nothing in the same number of
        steps. For the convolution, a training step on 4,096 tokens takes the same time however they
        are split into texts. The LSTM processes one token after another, so long texts are slow.
        The cost of attention grows with the length of the text.""",
    ),
    "Classifiers: NB-SVM, convolution, recurrence, attention": (
        write_classifiers,
        """Movie reviews (IMDb): 22,500 for training and 2,500 held out. `nb_svm` is NB-SVM on
        n-grams of up to three words, and it is the most accurate. All networks are trained without
        a prior; with one, which is the default, they start from NB-SVM (see
        [measurements.md](measurements.md)). Other jobs ran on the machine at the same time.""",
    ),
    "Translation: with and without attention": (
        write_translators,
        """Numbers and dates from Chinese to English; only an exact match counts as correct. Without
        attention, the whole source has to fit in the state of an LSTM; with dot-product or additive
        attention, each output token can look back at the source. The Transformer learns the task in
        a fraction of the time. Other jobs ran on the machine at the same time.""",
    ),
    "Attention scores": (
        write_scores,
        """The same Transformer with four ways to compare a query with a key and everything else
        equal: the dot product divided by the square root of the head dimension (`scaled`), the
        undivided dot product (`unscaled`), a small network over both (`additive`), and a comparison
        without any parameters (`plain`).""",
    ),
    "Position encodings": (
        write_positions,
        """The same Transformer with five position encodings, trained on windows of 64 characters
        and evaluated on windows of 64, 128 and 256 characters. Learned positions cannot be used
        beyond the length they were trained on.""",
    ),
    "Chinese to English": (
        write_chinese,
        """`translator`, the paper's Transformer, on everyday sentences from Tatoeba
        (`recipes/chinese.toml`), split so that no sentence appears in more than one part. The plot
        shows how much each English token attends to each Chinese token.""",
    ),
    "Summaries": (
        write_summaries,
        """`summarizer` reads document, separator and summary as one sequence (Liu et al., 2018):
        local attention and memory-compressed attention alternate, and a copy head repeats tokens of
        the document. Before training it is a rule that copies the document from its beginning; what
        to copy instead, and when to stop, is learned. Of a document that is longer than the
        context, tf-idf selects the sentences that are read. Subject lines of e-mails (AESLC), in
        lower case (`recipes/summarizer.toml`).""",
    ),
    "BERT": (
        write_bert,
        """A BERT pretrained on the texts of the reviews (`recipes/masked.toml`: masked tokens and
        next-sentence prediction) and then fine-tuned on labels, compared with the same BERT trained
        from scratch and with NB-SVM (`bench/labels.py`).""",
    ),
    "GPT-2": (
        write_gpt2,
        """The model sizes of the paper, as recipes; their parameters are counted without allocating
        the weights. The curve is that of the default size on tiny Shakespeare.""",
    ),
}


def main(runs: Path, data: Path, *titles: str) -> None:
    """Write the page; with titles, only the sections with these titles."""
    runs.mkdir(parents=True, exist_ok=True)
    PLOTS.mkdir(exist_ok=True)
    page = DOCS / "systems.md"
    header, *old = (page.read_text(encoding="utf-8") if titles else "").split("\n## ")
    sections = {section.partition("\n")[0]: f"## {section.strip()}" for section in old}
    for title in titles or SECTIONS:
        write_section, text = SECTIONS[title]
        paragraph = textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)
        sections[title] = f"## {title}\n\n{paragraph}\n\n{write_section(runs, data).strip()}"
    machine = f"{torch.get_num_threads()} cores of {processor()}, torch {torch.__version__}"
    first = header.strip() if titles else HEADER.format(machine=machine).strip()
    write_page(page, "\n\n".join([first, *(sections[title] for title in SECTIONS)]) + "\n")


def processor() -> str:
    """Return the name of the CPU (Linux only)."""
    with Path("/proc/cpuinfo").open() as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
