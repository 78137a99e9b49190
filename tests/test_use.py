"""Trained models, used from Python and from the command line."""

import doctest
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer.api
from glassformer import MODELS, GlassError, Model, Trace, load
from glassformer.generate.decode import generate_until
from glassformer.generate.sampling import GREEDY
from glassformer.generate.stream import decode_stream, overlap
from glassformer.models.network import Network, Trait
from glassformer.tasks import TASKS, find_task
from glassformer.text.plain import Characters
from glassformer.text.subword import BPE, WordPiece
from glassformer.training.evaluate import evaluate
from glassformer.training.train import train

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "train.lr=3e-3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a small run of every task."""
    folder = tmp_path_factory.mktemp("use")
    (folder / "book.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    reviews = [("awful", "neg"), ("lovely", "pos")]
    rows = [f"{i} {reviews[i % 2][0]} film,{reviews[i % 2][1]}" for i in range(99)]
    (folder / "reviews.csv").write_text("text,label\n" + "\n".join(rows))
    english, german = "one two three".split(), "eins zwei drei".split()
    sentence = lambda words, i: f"{words[i % 3]} {words[i // 3 % 3]} {i}"
    pairs = [(sentence(english, i), sentence(german, i)) for i in range(99)]
    (folder / "pairs.tsv").write_text("\n".join("\t".join(pair) for pair in pairs))
    for task, file, steps, settings in (
        (
            "generate",
            "book.txt",
            300,
            ["model.context=32", "train.batch_size=8", "train.prior=false"],
        ),
        ("classify", "reviews.csv", 30, []),
        ("translate", "pairs.tsv", 30, ["model.hidden=64"]),
        ("fill-mask", "book.txt", 30, ["model.context=32", "train.batch_size=4"]),
    ):
        train(
            task, folder / file, run=folder / task, settings=[*TINY, *settings], steps=steps,
            model={"generate": "gpt2", "classify": "classifier"}.get(task),
            device="cpu", precision="float32",
        )  # fmt: skip
    for task, settings in (
        ("recommend", []),
        ("summarize", ["model.context=64", "model.dim=32", "model.depth=2", "model.heads=2"]),
        ("paint", ["model.dim=4"]),
    ):
        train(
            task, run=folder / task, settings=settings, steps=3, device="cpu", precision="float32"
        )
    return folder


def command(*args, code=0, text=None):
    line = [sys.executable, "-c", "from glassformer.cli import main; main()", *map(str, args)]
    result = subprocess.run(line, capture_output=True, text=True, input=text, check=False)
    assert code is None or result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr if code else result.stdout


def test_a_text_in_chinese_may_be_too_long_for_the_name_of_a_file(home):
    assert command("classify", home / "classify", "二" * 150).startswith(("neg", "pos", "unsure"))


# --- generate -------------------------------------------------------------------------------------


def test_stream_yields_the_text_of_generate(home):
    model = load(home / "generate")
    chunks = list(model.stream("the cat", max_new_tokens=40, seed=1))
    assert len(chunks) > 20
    assert "".join(chunks) == model.generate("the cat", max_new_tokens=40, seed=1)
    assert model.generate(["the", "a"], max_new_tokens=5, temperature=0.0) == [
        model.generate("the", max_new_tokens=5, temperature=0.0),
        model.generate("a", max_new_tokens=5, temperature=0.0),
    ]
    assert model.generate(max_new_tokens=5, seed=0)
    ids = model.tokenizer.encode("the cat")
    greedy = generate_until(model.network, torch.tensor([ids]), [30], sampling=GREEDY)[0]
    assert model.generate("the cat", max_new_tokens=30, temperature=0.0) == model.tokenizer.decode(
        greedy
    )


def test_generation_ends_before_a_stop_string(home):
    model = load(home / "generate")
    full = model.generate("the", max_new_tokens=60, temperature=0.0)
    stop = full[5:9]
    shortened = model.generate("the", max_new_tokens=60, temperature=0.0, stop=[stop])
    assert shortened == full[: full.index(stop)]
    assert (
        "".join(model.stream("the", max_new_tokens=60, temperature=0.0, stop=["never said"]))
        == full
    )
    assert overlap("abcde", "dex") == 2
    assert overlap("a\n\n", "\n\n\n") == 2  # the longest overlap
    assert overlap("abc", "xyz") == 0


def test_of_several_stop_strings_the_first_to_start_counts():
    tokenizer = Characters.train(["say User:"])
    ids = tokenizer.encode("say User: no")
    for stop in (["User:", " User:"], [" User:", "User:"]):
        assert "".join(decode_stream(ids, tokenizer, [], stop)) == "say"


def test_eos_ids_of_the_model_override_those_of_the_tokenizer(home):
    model = load(home / "generate")
    full = model.generate("the", max_new_tokens=40, temperature=0.0)
    *_, first, second = list(dict.fromkeys(full))[:6]
    model.tokenizer.special_tokens["</s>"] = model.tokenizer.encode(first)[0]
    assert model.generate("the", max_new_tokens=40, temperature=0.0) == full[: full.index(first)]
    model.task["eos"] = model.tokenizer.encode(second)
    assert model.generate("the", max_new_tokens=40, temperature=0.0) == full[: full.index(second)]


def test_stream_yields_only_complete_characters(home):
    from glassformer.api import Model
    from glassformer.text.plain import Bytes

    class FixedOutput(Network):
        """Generates the same bytes for every prompt."""

        traits = frozenset({Trait.CAUSAL_LM, Trait.CACHED})
        output = "é你😀!".encode()

        def __init__(self):
            super().__init__(load(home / "generate").config)
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.position = 0

        def cache(self, capacity):
            return load(home / "generate").network.cache(capacity)

        def forward(self, ids, keep=None, cache=None):
            logits = torch.zeros(1, ids.shape[1], 256)
            logits[:, -1, self.output[self.position % len(self.output)]] = 99
            self.position += 1
            return logits

    chunks = list(Model(FixedOutput(), Bytes()).stream("x", max_new_tokens=10, temperature=0.0))
    assert [chunk for chunk in chunks if chunk] == ["é", "你", "😀", "!"]


def test_unknown_options_and_unsupported_tasks_are_rejected(home):
    model = load(home / "generate")
    with pytest.raises(
        GlassError, match="unknown setting 'temprature'; did you mean 'temperature'"
    ):
        model.generate("x", temprature=1.0)
    use = "; it generates text: glass generate RUN"
    with pytest.raises(GlassError, match=f"not trained to classify{use}"):
        model.classify(["x"])
    with pytest.raises(GlassError, match=f"not trained to translate{use}"):
        model.translate(["x"])
    with pytest.raises(GlassError, match=f"not trained to fill masks: it has no .* head{use}"):
        model.fill_mask("x [MASK]")
    for name, use in (("translate", "translates"), ("fill-mask", "fills masks")):
        with pytest.raises(GlassError, match=f"not trained to generate; it {use}: glass {name} "):
            load(home / name).generate("x")
    model.tokenizer = None
    with pytest.raises(GlassError, match="has no tokenizer"):
        model.generate("x")


# --- classify, translate, fill-mask ---------------------------------------------------------------


def test_classify_returns_probabilities_in_descending_order(home):
    model = load(home / "classify")
    texts = ["a lovely film", "an awful film", "", "unheard words"] * 20
    predictions = model.classify(texts)
    assert len(predictions) == 80
    assert next(iter(predictions[0])) == "pos"
    assert next(iter(predictions[1])) == "neg"
    assert all(sum(row.values()) == pytest.approx(1, abs=1e-5) for row in predictions)
    assert all(list(row.values()) == sorted(row.values(), reverse=True) for row in predictions)
    single = model.classify(["a lovely film"])[0]
    assert single["pos"] == pytest.approx(predictions[0]["pos"], abs=1e-5)
    assert model.classify(["long " * 1000])
    with pytest.raises(GlassError, match=r"expects 1 text \(text\), got \('a pair', 'of texts'"):
        model.classify([("a pair", "of texts")])


def test_a_model_trained_on_pairs_classifies_pairs(home, tmp_path):
    rows = [f"{i},{i} one,{('zwei', 'eins')[i % 2]},{'ny'[i % 2]}" for i in range(120)]
    file = tmp_path / "pairs.csv"
    file.write_text("id,first,second,same\n" + "\n".join(rows))
    train(
        "classify", file, run=tmp_path / "run", text=("first", "second"), label="same", steps=1,
        model="classifier", settings=TINY, device="cpu", precision="float32", baseline=False,
    )  # fmt: skip
    model = load(tmp_path / "run")
    probs = model.classify([("one", "eins")])[0]
    assert sorted(probs) == ["n", "y"]
    with pytest.raises(GlassError, match=r"expects 2 texts \(first, second\), got \('one',"):
        model.classify("one")
    assert "expects 2 texts" in command("classify", tmp_path / "run", "one", "eins", "two", code=1)
    line = command("classify", tmp_path / "run", "one", "eins")
    assert line.endswith("one | eins\n")
    assert command("classify", tmp_path / "run", text="one\teins\n") == line


def test_a_single_string_gives_a_single_result(home):
    labels = load(home / "classify").classify("a lovely film")
    assert labels == load(home / "classify").classify(["a lovely film"])[0]
    model = load(home / "translate")
    assert model.translate("one two 5") == model.translate(["one two 5"])[0]
    assert model.translate(["one", " ", ""])[1:] == ["", ""]
    assert load(home / "generate").embed("the cat").shape == (32,)


def test_translations_do_not_depend_on_the_batch(home):
    model = load(home / "translate")
    texts = ["one two 5", "three", ""]
    greedy = model.translate(texts, beam=1)
    assert len(greedy) == 3
    assert model.translate(texts[:1], beam=1)[0] == greedy[0]
    assert len(model.translate(texts, beam=3)) == 3


def test_fill_mask_returns_tokens_for_each_mask(home):
    model = load(home / "fill-mask")
    masks = model.fill_mask("the [MASK] sat on the [MASK].", top=3)
    assert [len(row) for row in masks] == [3, 3]
    assert all(a >= b for row in masks for (_, a), (_, b) in pairwise(row))
    with pytest.raises(GlassError, match=r"no \[MASK\]"):
        model.fill_mask("nothing hidden")
    with pytest.raises(GlassError, match=r"write \[MASK\] for a hidden token, not <mask>"):
        model.fill_mask("the <mask> sat")


def test_examples_in_docstrings_run(home, tmp_path, monkeypatch):
    for task in TASKS:
        (tmp_path / "runs" / f"{task}-1").parent.mkdir(exist_ok=True)
        (tmp_path / "runs" / f"{task}-1").symlink_to(home / task)
    (tmp_path / "reviews.csv").write_bytes((home / "reviews.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(glassformer.api)
    assert result.failed == 0
    assert result.attempted > 10


def test_alignment_has_a_row_for_each_target_token(home):
    model = load(home / "translate")
    alignment = model.align("one two 5", "eins zwei 5")
    source_ids = model.tokenizer.encode("one two 5")
    assert alignment.source == [model.tokenizer.token(i) for i in source_ids]
    assert alignment.target[-1] == "<end>"
    torch.testing.assert_close(alignment.pattern.sum(dim=1), torch.ones(len(alignment.target)))
    output = command("translate", home / "translate", "one two 5", "--alignment", "--json")
    row = json.loads(output)
    assert len(row["alignment"]) == len(row["target"])
    assert len(row["alignment"][0]) == len(row["source"])
    output = command("translate", home / "translate", "one two 5", "--alignment")
    assert "<end>" in output


def test_notebook_shows_the_settings_and_escapes_html(home):
    model = load(home / "classify")
    assert "<td>dim</td><td>32</td>" in model._repr_html_()
    model.task["labels"] = ["<script>"]
    assert "<script>" not in model._repr_html_()


# --- evaluate -------------------------------------------------------------------------------------


def test_a_run_is_evaluated_on_its_validation_data_and_on_other_data(home):
    own = evaluate(home / "generate")
    last = json.loads((home / "generate" / "metrics.jsonl").read_text().splitlines()[-1])
    assert own["bits_per_byte"] <= last["bits_per_byte"] + 1e-6
    other = evaluate(home / "generate", (home / "book.txt",))
    assert other["bytes"] == (home / "book.txt").stat().st_size
    labels = evaluate(home / "classify", (home / "reviews.csv",))
    assert labels["examples"] == 99
    assert evaluate(home / "translate", (home / "pairs.tsv",))["bleu_signature"].startswith(
        "nrefs:1"
    )
    assert evaluate(home / "fill-mask", (home / "book.txt",))["tokens"] > 10
    (home / "odd.csv").write_text("text,label\nx,pos\ny,meh\n")
    with pytest.raises(GlassError, match=r"odd.csv:3: unknown label 'meh'"):
        evaluate(home / "classify", (home / "odd.csv",))
    skipped = evaluate(home / "classify", (home / "odd.csv",), skip_bad=True)
    assert (skipped["examples"], skipped["bad_rows"]) == (1, 1)


def test_a_saved_model_needs_data_to_be_evaluated(home, tmp_path):
    load(home / "generate").save(tmp_path / "saved")
    assert evaluate(tmp_path / "saved", (home / "book.txt",))["task"] == "generate"
    with pytest.raises(GlassError, match="specify the data to evaluate it on"):
        evaluate(tmp_path / "saved")


# --- commands -------------------------------------------------------------------------------------


def test_commands_print_results_in_input_order(home):
    lines = "a lovely film\nan awful film\n"
    output = command("classify", home / "classify", "--json", text=lines)
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["text"] for row in rows] == lines.splitlines()
    assert [row["label"] for row in rows] == ["pos", "neg"]
    table = command("classify", home / "classify", "a lovely, film", "--csv").splitlines()
    assert table[0] == "text,prediction,probability,p_neg,p_pos"
    assert table[1].startswith('"a lovely, film",pos,')
    output = command("translate", home / "translate", "one", "two", "--json")
    assert [json.loads(line)["text"] for line in output.splitlines()] == ["one", "two"]
    row = json.loads(command("fill-mask", home / "fill-mask", "the [MASK]", "--json"))
    assert len(row["masks"][0]) == 5
    run = ("generate", home / "generate")
    output = command(*run, "the", "-n", "8", "--seed", "1", "--samples", "2", "--json")
    assert len({json.loads(line)["text"] for line in output.splitlines()}) == 2
    assert command(*run, "-", "-n", "3", text="the cat").startswith("the cat")


def test_texts_are_read_from_a_file(home, tmp_path):
    output = command("classify", home / "classify", "--file", home / "reviews.csv", "--csv")
    rows = output.splitlines()
    assert len(rows) == 100
    correct = [line.split(",")[1] == ("pos" if "lovely" in line else "neg") for line in rows[1:]]
    assert sum(correct) > 90
    (tmp_path / "lines.txt").write_text("one\ntwo two\n")
    output = command("translate", home / "translate", "--file", tmp_path / "lines.txt", "--json")
    assert [json.loads(line)["text"] for line in output.splitlines()] == ["one", "two two"]
    error = command("classify", home / "classify", "x", "--file", home / "reviews.csv", code=2)
    assert "not both" in error
    error = command(
        "classify", home / "classify", "--file", home / "reviews.csv", "--text", "nope", code=1
    )
    assert "no column 'nope'; the columns are text, label" in error


@pytest.mark.parametrize("name", ["generate", "classify", "translate", "fill-mask"])
def test_embeddings_do_not_depend_on_the_batch(home, name):
    model = load(home / name)
    texts = ["the cat", "a much longer text than that one", ""]
    vectors = model.embed(texts)
    assert vectors.shape == (3, 32)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-5)
    assert not np.allclose(vectors[0], vectors[1])


def test_embedding_a_long_text_truncates_it_but_keeps_the_special_tokens():
    text, bert = "the cat sat on the mat and the dog", MODELS["bert"]
    tokenizer = WordPiece.train([text], vocab=60)
    sizes = {"vocab": tokenizer.vocab, "context": 8, "dim": 16, "depth": 1, "heads": 2}
    model = Model(bert(bert.Config(**sizes)), tokenizer)
    start = tokenizer.decode(tokenizer.encode(text)[:6])
    assert tokenizer.encode(start) == tokenizer.encode(text)[:6]
    np.testing.assert_allclose(model.embed(text), model.embed(start), atol=1e-6)


def test_embed_writes_npy_files_and_json(home, tmp_path):
    file = tmp_path / "v.npy"
    command("embed", home / "generate", "one", "two", "--out", file)
    assert np.load(file).shape == (2, 32)
    rows = [json.loads(x) for x in command("embed", home / "generate", "one").splitlines()]
    assert rows[0]["text"] == "one"
    np.testing.assert_allclose(rows[0]["vector"], np.load(file)[0], atol=1e-5)


def test_runs_and_evaluate_report_metrics(home):
    rows = [json.loads(line) for line in command("runs", home, "--json").splitlines()]
    assert {row["task"] for row in rows} == {
        *("generate", "classify", "translate", "fill-mask", "summarize", "recommend", "paint")
    }
    assert all(isinstance(row["value"], float) for row in rows)
    assert re.search(r"generate\s+gpt2\s+bits per byte \d", command("runs", home))
    metrics = json.loads(command("evaluate", home / "classify", home / "reviews.csv", "--json"))
    assert metrics.keys() >= {"task", "model", "examples", "loss", "accuracy", "f1", "seconds"}
    table = command("evaluate", home / "generate")
    assert re.match(r" +model +baseline\n", table)
    assert "perplexity" in table
    assert "\nbits per byte " in table
    assert "is neither a run folder nor a model folder" in command("evaluate", home, code=1)
    assert "only to tasks on running text" in command(
        "evaluate", home / "classify", "--context", 9, code=1
    )
    error = command("evaluate", home / "generate", "--context", 64, code=1)
    assert "64 tokens do not fit in a context of 32" in error


def test_train_reports_errors_with_exit_code_1_or_2(home):
    error = command("train", "generate", home / "book.txt", "--device", "gpu", code=1)
    assert "this machine has no device 'gpu'; available: cpu" in error
    pair = ("--source", home / "book.txt", "--target", home / "book.txt")
    error = command("train", "translate", *pair, "--valid", home / "book.txt", code=1)
    assert "give two line-aligned files" in error
    error = command("train", "classify", home / "reviews.csv", "--model", "clasifier", code=1)
    assert "did you mean 'classifier'" in error
    assert "'gpt2' is a model for generate, not for translate" in command(
        "train", "translate", "--model", "gpt2", code=1
    )
    assert "does not exist" in command("train", "generate", home / "nothing.txt", code=1)
    error = command("train", "translate", "--source", home / "book.txt", code=2)
    assert "give both --source and --target" in error
    assert "one budget" in command("train", "generate", "--steps", 3, "--minutes", 1, code=1)
    error = command("train", "generate", "--run", home / "generate", "--steps", "1", code=1)
    assert "already exists" in error


def test_check_data_reports_what_training_would_read(home, tmp_path):
    file = tmp_path / "reviews.csv"
    rows = [f"text {i},{'x' if i % 3 else 'y'}" for i in range(60)]
    rows += ["text 1,x", "text 2,y", "ragged"]
    file.write_text("text,label\n" + "\n".join(rows))
    report = json.loads(command("check-data", "classify", file, "--json", code=None))
    assert report["examples"] == 62
    assert report["labels"] == {"x": 41, "y": 21}
    assert (report["duplicates"], report["same_text_other_label"]) == (2, 1)
    assert report["bad_rows"] == 1
    assert report["first_bad"] == [f"{file}:64: expected 2 columns, got 1"]
    assert sum(report["split"].values()) == 62
    output = command("check-data", "classify", file, code=None)
    assert "1 bad row; to skip bad rows: --skip-bad" in output
    assert "66.1%" in output
    small = ("check-data", "generate", write(tmp_path, "a\nb\n\nb\nlast"), "--json")
    report = json.loads(command(*small, code=None))
    assert (report["examples"], report["bytes"], report["empty"]) == (5, 11, 1)
    assert "for a window" in report["error"]
    file.write_text("text,label\n" + "\n".join(f"text {i},same" for i in range(60)))
    output = command("check-data", "classify", file, code=None)
    assert "would fail: every text has the label 'same'" in output
    assert "example: text 0  ->  same" in output
    assert 'columns: text = "text", label = "label"' in command(
        "check-data", "classify", home / "reviews.csv"
    )
    assert "6,000 examples" in command("check-data", "translate")


def test_training_data_can_be_piped_in(home, tmp_path):
    options = [
        "--steps",
        2,
        "--set",
        "model.dim=12",
        "--run",
        tmp_path / "r",
    ]
    content = (home / "reviews.csv").read_text().replace("1 lovely", "1" + " lovely" * 300)
    command("train", "classify", "-", *options, text=content)
    assert load(tmp_path / "r").task["labels"] == ["neg", "pos"]
    jsonl = "\n".join(json.dumps({"text": f"t{i}", "label": i % 2}) for i in range(60))
    command("train", "classify", "-", *options, "--overwrite", text=jsonl)
    assert load(tmp_path / "r").task["labels"] == ["0", "1"]
    tabbed = "a\tline with a tab\n" * 200  # not read as a table
    command("train", "generate", "-", *options, "--overwrite", text=tabbed)
    assert load(tmp_path / "r").generate("a", max_new_tokens=4, seed=0)
    assert evaluate(tmp_path / "r")["bytes"] == len(tabbed) // 10


def test_a_recipe_sets_the_task_and_its_settings(home, tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(
        'task = "generate"\n[data]\ntokenizer = "bytes"\n[model]\nname = "llama"\ndim = 16\n'
        "heads = 2\nhidden = 32\ndepth = 1\ncontext = 16\n[train]\nsteps = 2\nbatch_size = 2\n"
    )
    run = ["--run", tmp_path / "r"]
    command("train", "--config", recipe, home / "book.txt", *run, "--set", "model.dim=32")
    model = load(tmp_path / "r")
    assert (model.name, model.config.dim, model.tokenizer.kind) == ("llama", 32, "bytes")
    for recipe_text, message in (
        ('task = "fly"', "unknown task 'fly'"),
        ('task = "generate"\n[data]\nfoo = 1', "unknown setting 'data.foo'"),
        ('task = "generate"\n[modle]\ndim = 1', "recipe entry 'modle'; did you mean 'model'"),
        ("steps = ", "is not valid TOML"),
    ):
        recipe.write_text(recipe_text)
        assert message in command("train", "--config", recipe, *run, "--overwrite", code=1)
    assert "TASK" in command("train", code=2)


def test_every_recipe_is_valid_and_documents_its_result():
    from glassformer.training.recipe import read_recipe
    from glassformer.training.request import split_options
    from glassformer.training.start import make_config

    recipes = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))
    trained = {name for task in TASKS.values() for name in task.models}
    assert {read_recipe(recipe).model["name"] for recipe in recipes} == trained
    for recipe in recipes:
        request, text = read_recipe(recipe), recipe.read_text()
        model_settings = dict(request.model)
        name = model_settings.pop("name")
        task = find_task(request.task, (), name)
        config = make_config(name, task, model_settings, [])
        settings, _ = split_options(task, request, {})
        is_fitted = Trait.FITTED in MODELS[name].traits
        assert settings.steps or is_fitted, "the metric in a recipe is for a number of steps"
        assert f"#   glass train --config recipes/{recipe.name}" in text
        head = text.split("\ntask =")[0].replace("\n# ", " ")
        assert re.search(r"20\d\d-\d\d-\d\d", head)
        assert re.search(r"\d cores|counted on the meta device", head)
        if counted := re.search(r"([\d,]+) parameters.* counted on the meta device", head):
            with torch.device("meta"):
                network = MODELS[name](replace(config, vocab=request.data["vocab"]))
            size = sum(p.numel() for p in network.parameters())
            assert f"{size:,}" == counted[1]


def write(folder, text):
    file = folder / "text.txt"
    file.write_text(text)
    return file


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert_encoder", "bert_classifier"])
def test_a_bert_without_a_masked_lm_head_does_not_fill_masks(tmp_path, name):
    network_class = MODELS[name]
    tokenizer = WordPiece.train(["the cat sat on the mat"] * 3, vocab=60)
    sizes = {"vocab": 60, "context": 16, "dim": 16, "depth": 1, "heads": 2}
    network = network_class(network_class.Config(**sizes))
    Model(network, tokenizer).save(tmp_path / "b", format="huggingface")
    model = load(tmp_path / "b")
    with pytest.raises(GlassError, match="not trained to fill masks: it has no masked-LM head"):
        model.fill_mask("the [MASK] sat")
    assert "no masked-LM head" in command("fill-mask", tmp_path / "b", "the [MASK] sat", code=1)
    bert = Model(MODELS["bert"](MODELS["bert"].Config(**sizes)), tokenizer)
    assert len(bert.fill_mask("the [MASK] sat")[0]) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m["generate"].generate("a", seed=2**65), "seed must be at least 0"),
        (
            lambda m: m["generate"].generate("a", max_new_tokens=1.5),
            "max_new_tokens must be an integer, got 1.5",
        ),
        (
            lambda m: m["generate"].generate("a", max_new_tokens=-1),
            "max_new_tokens must be at least 0",
        ),
        (lambda m: m["generate"].generate("a", temperature=-1.0), "temperature must be at least 0"),
        (
            lambda m: m["translate"].translate("a", length_penalty=1e9),
            "length_penalty must be at least",
        ),
        (lambda m: m["translate"].translate("a", beam=0), "beam must be at least 1"),
        (lambda m: m["translate"].translate("a", beam=10**7), "beam must be at least 1"),
        (lambda m: m["fill-mask"].fill_mask("[MASK]", top=-1), "top must be at least 1"),
        (lambda m: m["translate"].translate("one " * 5000), "at most 256 tokens, but .* 5,001"),
    ],
)
def test_options_out_of_range_are_rejected(home, call, message):
    models = {name: load(home / name) for name in ("generate", "translate", "fill-mask")}
    with pytest.raises(GlassError, match=message):
        call(models)


def test_numpy_numbers_are_accepted_as_options(home):
    model = load(home / "generate")
    options = {"max_new_tokens": np.int64(4), "temperature": np.float64(0.0), "seed": np.int32(1)}
    assert model.generate("the", **options) == model.generate(
        "the", max_new_tokens=4, temperature=0.0
    )


def test_the_file_option_accepts_a_pipe(home):
    script = f"{sys.executable} -c 'from glassformer.cli import main; main()' classify"
    line = f"{script} {home / 'classify'} --file <(printf 'a lovely film\\nan awful one\\n')"
    result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert [row.split("\t")[2] for row in result.stdout.splitlines()] == [
        "a lovely film", "an awful one",
    ], result.stderr  # fmt: skip


def test_command_options_out_of_range_are_reported_in_one_line(home):
    for line in (
        ("generate", home / "generate", "the", "--seed", 2**65),
        ("translate", home / "translate", "one", "--length-penalty", 1e9),
    ):
        error = command(*line, code=1)
        assert error.count("\n") == 1
        assert "must be at least" in error


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-7])
def test_a_tiny_temperature_is_greedy(home, temperature):
    model = load(home / "generate")
    assert model.generate("the", max_new_tokens=9, temperature=temperature) == model.generate(
        "the", max_new_tokens=9, temperature=0.0
    )


def test_translate_passes_its_options_to_beam_search(home, monkeypatch):
    options = {}

    def search(network, ids, limits, *, eos, beam_size, length_penalty, **_inputs):
        options.update(beam_size=beam_size, length_penalty=length_penalty)
        return [[(0.0, [])] for _ in limits]

    monkeypatch.setattr("glassformer.tasks.translate.beam_search", search)
    load(home / "translate").translate(["one", "two"], beam=3, length_penalty=1.5)
    assert options == {"beam_size": 3, "length_penalty": 1.5}


# --- BOS and EOS tokens ---------------------------------------------------------------------------


def save_llama(path, *, template=True, **tokenizer_config):
    """Save a small Llama as a Hugging Face folder, by default with a tokenizer that adds <s>."""
    texts = ["the cat sat on the mat"] * 9
    tokenizer = BPE.train(texts, vocab=280, special_tokens=("<s>", "</s>"))
    tokenizer = tokenizer.with_prefix("<s>") if template else tokenizer
    llama = MODELS["llama"]
    sizes = {"vocab": 280, "context": 32, "dim": 16, "depth": 1, "heads": 2, "hidden": 24}
    torch.manual_seed(0)
    Model(llama(llama.Config(**sizes)), tokenizer, {"eos": [5]}).save(path, format="huggingface")
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return path


@pytest.mark.parametrize(
    ("template", "tokenizer_config", "has_bos"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"add_bos_token": True, "bos_token": "<s>"}, True),
        (False, {"add_bos_token": True, "bos_token": {"content": "<s>"}}, True),
        (True, {"add_bos_token": False, "bos_token": "<s>"}, False),
    ],
)
def test_bos_token_is_added_if_the_model_expects_it(tmp_path, template, tokenizer_config, has_bos):
    folder = save_llama(tmp_path / "llama", template=template, **tokenizer_config)
    lengths = []
    for path in (folder, tmp_path / "saved"):
        model = load(path)
        bos = [model.tokenizer.special_tokens["<s>"]]
        assert model.tokenizer.prefix == (bos if has_bos else [])
        with Trace(model.network, "token") as trace:
            model.generate("the cat", max_new_tokens=1, temperature=0.0)
        lengths.append(trace["token"].shape[1])
        assert model.trace("the cat", "token")["token"].shape[1] == lengths[-1]
        if path == folder:
            model.save(tmp_path / "saved")
    assert lengths == [len(load(folder).tokenizer.encode("the cat")) + has_bos] * 2


def test_generation_ends_at_the_eos_ids_of_the_generation_config(tmp_path):
    folder = save_llama(tmp_path / "llama")
    model = load(folder)
    assert model.task["eos"] == [5]
    full = model.generate("the", max_new_tokens=20, temperature=0.0)
    ids = model.tokenizer.prefix + model.tokenizer.encode("the")
    generated = generate_until(model.network, torch.tensor([ids]), [20], sampling=GREEDY)[0]
    eos = generated[7]
    assert eos not in (5, *generated[:7])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos, 10**9]}))
    model = load(folder)
    assert model.task["eos"] == [eos]
    shortened = model.generate("the", max_new_tokens=20, temperature=0.0)
    assert shortened == model.tokenizer.decode(generated[:7])
    assert full.startswith(shortened)
    model.save(tmp_path / "again", format="huggingface")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (model.tokenizer.prefix[0], eos)


def test_fine_tuning_keeps_the_bos_and_eos_tokens(tmp_path, home):
    folder = save_llama(tmp_path / "llama")
    train(
        "generate", home / "book.txt", base=folder, run=tmp_path / "run", steps=1, device="cpu",
        baseline=False,
    )  # fmt: skip
    model = load(tmp_path / "run")
    assert model.task["eos"] == [5]
    assert model.tokenizer.prefix == load(folder).tokenizer.prefix != []


def test_generation_works_with_a_context_of_one_token(tmp_path, home):
    train(
        "generate", home / "book.txt", run=tmp_path / "run", steps=2, device="cpu",
        settings=[*TINY, "model.context=1"],
    )  # fmt: skip
    assert len(load(tmp_path / "run").generate("the", max_new_tokens=5, temperature=0.0)) == 5
