"""Trained models in use, from Python and from the command line."""

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
from glassformer.generate.pieces import overlap, pieces
from glassformer.generate.sampling import GREEDY
from glassformer.models.network import Network, Trait
from glassformer.tasks import TASKS
from glassformer.text.plain import Characters
from glassformer.text.subword import BPE, WordPiece
from glassformer.training.evaluate import evaluate
from glassformer.training.train import train

TINY = ["model.dim=32", "model.depth=1", "model.heads=2", "train.lr=3e-3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A small run of every task."""
    folder = tmp_path_factory.mktemp("use")
    (folder / "book.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    distinct = [("awful", "neg"), ("lovely", "pos")]
    rows = [f"{i} {distinct[i % 2][0]} film,{distinct[i % 2][1]}" for i in range(99)]
    (folder / "reviews.csv").write_text("text,label\n" + "\n".join(rows))
    words, other = "one two three".split(), "eins zwei drei".split()
    said = lambda names, i: f"{names[i % 3]} {names[i // 3 % 3]} {i}"
    pairs = [(said(words, i), said(other, i)) for i in range(99)]
    (folder / "pairs.tsv").write_text("\n".join("\t".join(pair) for pair in pairs))
    for task, file, steps, more in (
        ("generate", "book.txt", 300, ["model.context=32", "train.batch_size=8"]),
        ("classify", "reviews.csv", 30, []),
        ("translate", "pairs.tsv", 30, ["model.hidden=64"]),
        ("fill-mask", "book.txt", 30, ["model.context=32", "train.batch_size=4"]),
    ):
        train(
            task, folder / file, run=folder / task, settings=[*TINY, *more], steps=steps,
            device="cpu", precision="float32",
        )  # fmt: skip
    return folder


def command(*args, code=0, text=None):
    line = [sys.executable, "-c", "from glassformer.cli import main; main()", *map(str, args)]
    done = subprocess.run(line, capture_output=True, text=True, input=text, check=False)
    assert code is None or done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


# --- generate -------------------------------------------------------------------------------------


def test_pieces_of_a_stream_are_the_whole_text(home):
    model = load(home / "generate")
    pieces = list(model.stream("the cat", max_new_tokens=40, seed=1))
    assert len(pieces) > 20
    assert "".join(pieces) == model.generate("the cat", max_new_tokens=40, seed=1)
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


def test_a_text_stops_before_a_word(home):
    model = load(home / "generate")
    whole = model.generate("the", max_new_tokens=60, temperature=0.0)
    word = whole[5:9]
    cut = model.generate("the", max_new_tokens=60, temperature=0.0, stop=[word])
    assert cut == whole[: whole.index(word)]
    assert (
        "".join(model.stream("the", max_new_tokens=60, temperature=0.0, stop=["never said"]))
        == whole
    )
    assert overlap("abcde", "dex") == 2
    assert overlap("a\n\n", "\n\n\n") == 2  # the longest one
    assert overlap("abc", "xyz") == 0


def test_of_several_stops_the_one_that_begins_first_counts():
    tokenizer = Characters.train(["say User:"])
    ids = tokenizer.encode("say User: no")
    for stop in (["User:", " User:"], [" User:", "User:"]):
        assert "".join(pieces(ids, tokenizer, [], stop)) == "say"


def test_the_ends_of_a_model_take_the_place_of_its_tokenizers(home):
    model = load(home / "generate")
    whole = model.generate("the", max_new_tokens=40, temperature=0.0)
    *_, sooner, later = list(dict.fromkeys(whole))[:6]
    model.tokenizer.special_tokens["</s>"] = model.tokenizer.encode(sooner)[0]
    assert model.generate("the", max_new_tokens=40, temperature=0.0) == whole[: whole.index(sooner)]
    model.task["eos"] = model.tokenizer.encode(later)
    assert model.generate("the", max_new_tokens=40, temperature=0.0) == whole[: whole.index(later)]


def test_half_a_character_waits_for_the_other_half(home):
    from glassformer.api import Model
    from glassformer.text.plain import Bytes

    class Parrot(Network):
        traits = frozenset({Trait.CAUSAL_LM, Trait.CACHED})

        """Says one text, whatever it hears."""

        said = "é你😀!".encode()

        def __init__(self):
            super().__init__(load(home / "generate").config)
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.at = 0

        def cache(self, capacity):
            return load(home / "generate").network.cache(capacity)

        def forward(self, ids, keep=None, cache=None):
            logits = torch.zeros(1, ids.shape[1], 256)
            logits[:, -1, self.said[self.at % len(self.said)]] = 99
            self.at += 1
            return logits

    pieces = list(Model(Parrot(), Bytes()).stream("x", max_new_tokens=10, temperature=0.0))
    assert [p for p in pieces if p] == ["é", "你", "😀", "!"]


def test_wrong_words_for_sampling_are_named(home):
    model = load(home / "generate")
    with pytest.raises(
        GlassError, match="unknown setting 'temprature'; did you mean 'temperature'"
    ):
        model.generate("x", temprature=1.0)
    with pytest.raises(GlassError, match="not trained to classify"):
        model.classify(["x"])
    with pytest.raises(GlassError, match="not trained to translate"):
        model.translate(["x"])
    with pytest.raises(GlassError, match="not trained to fill masks"):
        model.fill_mask("x [MASK]")
    model.tokenizer = None
    with pytest.raises(GlassError, match="has no tokenizer"):
        model.generate("x")


# --- classify, translate, fill-mask ---------------------------------------------------------------


def test_labels_come_with_their_probabilities_in_order(home):
    model = load(home / "classify")
    texts = ["a lovely film", "an awful film", "", "unheard words"] * 20
    said = model.classify(texts)
    assert len(said) == 80
    assert next(iter(said[0])) == "pos"
    assert next(iter(said[1])) == "neg"
    assert all(sum(row.values()) == pytest.approx(1, abs=1e-5) for row in said)
    assert all(list(row.values()) == sorted(row.values(), reverse=True) for row in said)
    alone = model.classify(["a lovely film"])[0]
    assert alone["pos"] == pytest.approx(said[0]["pos"], abs=1e-5)
    assert model.classify(["long " * 1000])
    with pytest.raises(GlassError, match=r"reads one text at a time \(text\), not \('a pair', 'of"):
        model.classify([("a pair", "of texts")])


def test_a_pair_is_judged_together(home, tmp_path):
    rows = [f"{i},{i} one,{('zwei', 'eins')[i % 2]},{'ny'[i % 2]}" for i in range(120)]
    file = tmp_path / "pairs.csv"
    file.write_text("id,first,second,same\n" + "\n".join(rows))
    train(
        "classify", file, run=tmp_path / "run", text=("first", "second"), label="same", steps=1,
        settings=TINY, device="cpu", precision="float32", baseline=False,
    )  # fmt: skip
    model = load(tmp_path / "run")
    said = model.classify([("one", "eins")])[0]
    assert sorted(said) == ["n", "y"]
    with pytest.raises(GlassError, match=r"reads 2 texts together \(first, second\), not \('one',"):
        model.classify("one")
    assert "2 texts together" in command("classify", tmp_path / "run", "one", "eins", "two", code=1)
    line = command("classify", tmp_path / "run", "one", "eins")
    assert line.endswith("one | eins\n")
    assert command("classify", tmp_path / "run", text="one\teins\n") == line


def test_one_text_has_one_answer(home):
    """Not one for each of its letters."""
    labels = load(home / "classify").classify("a lovely film")
    assert labels == load(home / "classify").classify(["a lovely film"])[0]
    model = load(home / "translate")
    assert model.translate("one two 5") == model.translate(["one two 5"])[0]
    assert model.translate(["one", " ", ""])[1:] == ["", ""]
    assert load(home / "generate").embed("the cat").shape == (32,)


def test_a_beam_of_one_is_what_greedy_says(home):
    model = load(home / "translate")
    texts = ["one two 5", "three", ""]
    greedy = model.translate(texts, beam=1)
    assert len(greedy) == 3
    assert model.translate(texts[:1], beam=1)[0] == greedy[0]
    assert len(model.translate(texts, beam=3)) == 3


def test_masks_are_guessed_where_they_stand(home):
    model = load(home / "fill-mask")
    guesses = model.fill_mask("the [MASK] sat on the [MASK].", top=3)
    assert [len(row) for row in guesses] == [3, 3]
    assert all(a >= b for row in guesses for (_, a), (_, b) in pairwise(row))
    with pytest.raises(GlassError, match=r"no \[MASK\]"):
        model.fill_mask("nothing hidden")


def test_examples_in_docstrings_run(home, tmp_path, monkeypatch):
    for task in TASKS:
        (tmp_path / "runs" / f"{task}-1").parent.mkdir(exist_ok=True)
        (tmp_path / "runs" / f"{task}-1").symlink_to(home / task)
    (tmp_path / "reviews.csv").write_bytes((home / "reviews.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(glassformer.api)
    assert result.failed == 0
    assert result.attempted > 10


def test_a_translation_shows_what_it_read(home):
    model = load(home / "translate")
    read = model.align("one two 5", "eins zwei 5")
    assert read.source == [model.tokenizer.token(i) for i in model.tokenizer.encode("one two 5")]
    assert read.target[-1] == "<end>"
    torch.testing.assert_close(read.pattern.sum(dim=1), torch.ones(len(read.target)))
    answer = command("translate", home / "translate", "one two 5", "--alignment", "--json")
    said = json.loads(answer)
    assert len(said["alignment"]) == len(said["target"])
    assert len(said["alignment"][0]) == len(said["source"])
    shown = command("translate", home / "translate", "one two 5", "--alignment")
    assert "<end>" in shown


def test_a_notebook_shows_what_a_model_is(home):
    model = load(home / "classify")
    assert "<td>dim</td><td>32</td>" in model._repr_html_()
    model.task["labels"] = ["<script>"]
    assert "<script>" not in model._repr_html_()


# --- evaluate -------------------------------------------------------------------------------------


def test_a_run_is_measured_on_its_own_part_and_on_other_data(home):
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
    with pytest.raises(GlassError, match="does not know the label 'meh'"):
        evaluate(home / "classify", (home / "odd.csv",))


def test_a_folder_that_is_given_away_is_measured_on_data_only(home, tmp_path):
    load(home / "generate").save(tmp_path / "given")
    assert evaluate(tmp_path / "given", (home / "book.txt",))["task"] == "generate"
    with pytest.raises(GlassError, match="name the data"):
        evaluate(tmp_path / "given")


# --- commands -------------------------------------------------------------------------------------


def test_commands_answer_in_the_order_of_the_input(home):
    lines = "a lovely film\nan awful film\n"
    answer = command("classify", home / "classify", "--json", text=lines)
    said = [json.loads(line) for line in answer.splitlines()]
    assert [s["text"] for s in said] == lines.splitlines()
    assert [s["label"] for s in said] == ["pos", "neg"]
    table = command("classify", home / "classify", "a lovely, film", "--csv").splitlines()
    assert table[0] == "text,label,neg,pos"
    assert table[1].startswith('"a lovely, film",pos,0.')
    answer = command("translate", home / "translate", "one", "two", "--json")
    assert [json.loads(s)["text"] for s in answer.splitlines()] == ["one", "two"]
    said = json.loads(command("fill-mask", home / "fill-mask", "the [MASK]", "--json"))
    assert len(said["masks"][0]) == 5
    run = ("generate", home / "generate")
    answer = command(*run, "the", "-n", "8", "--seed", "1", "--samples", "2", "--json")
    assert len({json.loads(s)["text"] for s in answer.splitlines()}) == 2
    assert command(*run, "-", "-n", "3", text="the cat").startswith("the cat")


def test_a_file_goes_in_and_a_table_comes_out(home, tmp_path):
    answer = command("classify", home / "classify", "--file", home / "reviews.csv", "--csv")
    rows = answer.splitlines()
    assert len(rows) == 100
    right = [line.split(",")[1] == ("pos" if "lovely" in line else "neg") for line in rows[1:]]
    assert sum(right) > 90
    (tmp_path / "lines.txt").write_text("one\ntwo two\n")
    answer = command("translate", home / "translate", "--file", tmp_path / "lines.txt", "--json")
    assert [json.loads(s)["text"] for s in answer.splitlines()] == ["one", "two two"]
    both = command("classify", home / "classify", "x", "--file", home / "reviews.csv", code=2)
    assert "not both" in both
    error = command(
        "classify", home / "classify", "--file", home / "reviews.csv", "--text", "nope", code=1
    )
    assert "there is no 'nope'; have ['text', 'label']" in error


@pytest.mark.parametrize("name", ["generate", "classify", "translate", "fill-mask"])
def test_a_text_has_one_vector_whatever_stands_beside_it(home, name):
    model = load(home / name)
    texts = ["the cat", "a much longer text than that one", ""]
    together = model.embed(texts)
    assert together.shape == (3, 32)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(model.embed([text])[0], vector, atol=1e-5)
    assert not np.allclose(together[0], together[1])


def test_a_vector_of_a_long_text_is_that_of_its_beginning_between_the_marks():
    words, kind = WordPiece.train(["the cat sat on the mat and the dog"], vocab=60), MODELS["bert"]
    shape = {"vocab": words.vocab, "context": 8, "dim": 16, "depth": 1, "heads": 2}
    model = Model(kind(kind.Config(**shape)), words)
    text = "the cat sat on the mat and the dog"
    start = words.decode(words.encode(text)[:6])
    assert words.encode(start) == words.encode(text)[:6]
    np.testing.assert_allclose(model.embed(text), model.embed(start), atol=1e-6)


def test_vectors_are_written_for_other_programs(home, tmp_path):
    file = tmp_path / "v.npy"
    command("embed", home / "generate", "one", "two", "--out", file)
    assert np.load(file).shape == (2, 32)
    rows = [json.loads(x) for x in command("embed", home / "generate", "one").splitlines()]
    assert rows[0]["text"] == "one"
    np.testing.assert_allclose(rows[0]["vector"], np.load(file)[0], atol=1e-5)


def test_commands_list_runs_models_and_figures(home):
    rows = [json.loads(line) for line in command("runs", home, "--json").splitlines()]
    assert {row["task"] for row in rows} == {"generate", "classify", "translate", "fill-mask"}
    assert all(isinstance(row["value"], float) for row in rows)
    assert re.search(r"generate\s+gpt2\s+bits_per_byte \d", command("runs", home))
    models = {m["model"]: m for m in map(json.loads, command("models", "--json").splitlines())}
    assert models["gpt2"]["tasks"] == ["generate"]
    assert models["gpt2"]["settings"]["dim"] == 768
    figures = json.loads(command("evaluate", home / "classify", home / "reviews.csv", "--json"))
    assert figures.keys() >= {"task", "model", "examples", "loss", "accuracy", "f1", "seconds"}
    assert "perplexity" in command("evaluate", home / "generate")
    assert "is no run" in command("evaluate", home, code=1)
    assert "only running text" in command("evaluate", home / "classify", "--context", 9, code=1)
    longer = command("evaluate", home / "generate", "--context", 64, code=1)
    assert "64 tokens do not fit into a context of 32" in longer


def test_train_says_what_is_wrong_with_exit_code_1_or_2(home):
    wrong = command("train", "generate", home / "book.txt", "--device", "gpu", code=1)
    assert "there is no device 'gpu' here; there is" in wrong
    pair = ("--source", home / "book.txt", "--target", home / "book.txt")
    wrong = command("train", "translate", *pair, "--valid", home / "book.txt", code=1)
    assert "is no table: name two files" in wrong
    wrong = command("train", "classify", home / "reviews.csv", "--model", "clasifier", code=1)
    assert "did you mean 'classifier'" in wrong
    assert "not by 'gpt2', which does generate" in command(
        "train", "translate", "--model", "gpt2", code=1
    )
    assert "there is no file" in command("train", "generate", home / "nothing.txt", code=1)
    assert "go together" in command("train", "translate", "--source", home / "book.txt", code=2)
    assert "one budget" in command("train", "generate", "--steps", 3, "--minutes", 1, code=1)
    error = command("train", "generate", "--run", home / "generate", "--steps", "1", code=1)
    assert "exists already" in error


def test_data_is_looked_at_before_it_is_trained_on(home, tmp_path):
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
    told = command("check-data", "classify", file, code=None)
    assert "1 bad rows; --skip-bad passes over them" in told
    assert "66.1%" in told
    small = ("check-data", "generate", write(tmp_path, "a\nb\n\nb\nlast"), "--json")
    report = json.loads(command(*small, code=None))
    assert (report["examples"], report["bytes"], report["empty"]) == (5, 11, 1)
    assert "too few for a window" in report["refused"]
    file.write_text("text,label\n" + "\n".join(f"text {i},same" for i in range(60)))
    done = command("check-data", "classify", file, code=None)
    assert "would refuse this: every text has the label 'same'" in done
    assert "read as: text 0  ->  same" in done
    assert "text: text; label: label" in command("check-data", "classify", home / "reviews.csv")
    assert "6,000 examples" in command("check-data", "translate")


def test_a_table_can_come_through_a_pipe(home, tmp_path):
    small = [
        "--steps",
        2,
        "--set",
        "model.dim=8",
        "--set",
        "model.heads=1",
        "--run",
        tmp_path / "r",
    ]
    content = (home / "reviews.csv").read_text().replace("1 lovely", "1" + " lovely" * 300)
    command("train", "classify", "-", *small, text=content)
    assert load(tmp_path / "r").task["labels"] == ["neg", "pos"]
    jsonl = "\n".join(json.dumps({"text": f"t{i}", "label": i % 2}) for i in range(60))
    command("train", "classify", "-", *small, "--overwrite", text=jsonl)
    assert load(tmp_path / "r").task["labels"] == ["0", "1"]
    tabbed = "a\tline with a tab\n" * 200  # running text stays running text
    command("train", "generate", "-", *small, "--overwrite", text=tabbed)
    assert load(tmp_path / "r").generate("a", max_new_tokens=4, seed=0)
    assert evaluate(tmp_path / "r")["bytes"] == len(tabbed) // 10


def test_a_recipe_is_a_file(home, tmp_path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(
        'task = "generate"\n[data]\ntokenizer = "bytes"\n[model]\nname = "llama"\ndim = 16\n'
        "heads = 2\nhidden = 32\ndepth = 1\ncontext = 16\n[train]\nsteps = 2\nbatch = 2\n"
    )
    run = ["--run", tmp_path / "r"]
    command("train", "--config", recipe, home / "book.txt", *run, "--set", "model.dim=32")
    model = load(tmp_path / "r")
    assert (model.name, model.config.dim, model.tokenizer.kind) == ("llama", 32, "bytes")
    for wrong, message in (
        ('task = "fly"', "there is no task 'fly'"),
        ('task = "generate"\n[data]\nfoo = 1', "unknown setting 'data.foo'"),
        ('task = "generate"\n[modle]\ndim = 1', "no 'modle' in a recipe; did you mean 'model'"),
        ("steps = ", "is not valid TOML"),
    ):
        recipe.write_text(wrong)
        assert message in command("train", "--config", recipe, *run, "--overwrite", code=1)
    assert "TASK" in command("train", code=2)


def test_every_recipe_of_ours_can_be_read():
    from glassformer.training.recipe import read_recipe
    from glassformer.training.request import sort_options
    from glassformer.training.setup import make_config

    recipes = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))
    trained = {name for task in TASKS.values() for name in task.models}
    assert {read_recipe(recipe).model["name"] for recipe in recipes} == trained
    for recipe in recipes:
        read, text = read_recipe(recipe), recipe.read_text()
        kind, table = TASKS[read.task], dict(read.model)
        name = table.pop("name")
        shape = make_config(name, kind, table, [])
        learning, _ = sort_options(kind, read, {})
        at_once = Trait.FITTED in MODELS[name].traits
        assert learning.steps or at_once, "a recipe's figure is that of its steps"
        assert f"#   glass train --config recipes/{recipe.name}" in text
        head = text.split("\ntask =")[0].replace("\n# ", " ")
        assert re.search(r"20\d\d-\d\d-\d\d", head)
        assert re.search(r"\d cores|counted on the meta device", head)
        if counted := re.search(r"([\d,]+) parameters.* counted on the meta device", head):
            with torch.device("meta"):
                network = MODELS[name](replace(shape, vocab=read.data["vocab"]))
            size = sum(p.numel() for p in network.parameters())
            assert f"{size:,}" == counted[1]


def write(folder, text):
    file = folder / "text.txt"
    file.write_text(text)
    return file


# --- what a model cannot do -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert_encoder", "bert_classifier"])
def test_a_bert_without_the_head_for_it_does_not_fill_masks(tmp_path, name):
    kind = MODELS[name]
    tokenizer = WordPiece.train(["the cat sat on the mat"] * 3, vocab=60)
    shape = {"vocab": 60, "context": 16, "dim": 16, "depth": 1, "heads": 2}
    Model(kind(kind.Config(**shape)), tokenizer).save(tmp_path / "b", format="huggingface")
    model = load(tmp_path / "b")
    with pytest.raises(GlassError, match="not trained to fill masks: it has no head"):
        model.fill_mask("the [MASK] sat")
    assert "no head" in command("fill-mask", tmp_path / "b", "the [MASK] sat", code=1)
    full = Model(MODELS["bert"](MODELS["bert"].Config(**shape)), tokenizer)
    assert len(full.fill_mask("the [MASK] sat")[0]) == 5


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
        (lambda m: m["translate"].translate("a", length_penalty=1e9), "penalty must be at least"),
        (lambda m: m["translate"].translate("a", beam=0), "beam must be at least 1"),
        (lambda m: m["translate"].translate("a", beam=10**7), "beam must be at least 1"),
        (lambda m: m["fill-mask"].fill_mask("[MASK]", top=-1), "top must be at least 1"),
        (lambda m: m["translate"].translate("one " * 5000), "at most 256 tokens, and .* 5,001"),
    ],
)
def test_options_out_of_range_are_named(home, call, message):
    models = {name: load(home / name) for name in ("generate", "translate", "fill-mask")}
    with pytest.raises(GlassError, match=message):
        call(models)


def test_numbers_of_numpy_are_numbers(home):
    model = load(home / "generate")
    options = {"new": np.int64(4), "temperature": np.float64(0.0), "seed": np.int32(1)}
    assert model.generate("the", **options) == model.generate(
        "the", max_new_tokens=4, temperature=0.0
    )


def test_a_file_of_texts_may_be_a_pipe(home):
    script = f"{sys.executable} -c 'from glassformer.cli import main; main()' classify"
    line = f"{script} {home / 'classify'} --file <(printf 'a lovely film\\nan awful one\\n')"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert [row.split("\t")[2] for row in done.stdout.splitlines()] == [
        "a lovely film", "an awful one",
    ], done.stderr  # fmt: skip


def test_options_of_commands_out_of_range_are_one_line(home):
    for line in (
        ("generate", home / "generate", "the", "--seed", 2**65),
        ("translate", home / "translate", "one", "--penalty", 1e9),
    ):
        said = command(*line, code=1)
        assert said.count("\n") == 1
        assert "must be at least" in said


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-7])
def test_a_temperature_of_almost_nothing_takes_the_best(home, temperature):
    model = load(home / "generate")
    assert model.generate("the", max_new_tokens=9, temperature=temperature) == model.generate(
        "the", max_new_tokens=9, temperature=0.0
    )


def test_the_options_of_a_translation_reach_the_search(home, monkeypatch):
    asked = {}

    def search(network, first, limits, *, end, width, length_penalty, **_more):
        asked.update(width=width, length_penalty=length_penalty)
        return [[(0.0, [])] for _ in limits]

    monkeypatch.setattr("glassformer.tasks.translate.beam_search", search)
    load(home / "translate").translate(["one", "two"], beam=3, length_penalty=1.5)
    assert asked == {"width": 3, "penalty": 1.5}


# --- the token before a text ----------------------------------------------------------------------


def llama_folder(path, *, template=True, **told):
    """A small Llama as Hugging Face writes it, whose tokenizer puts <s> first."""
    words = BPE.train(["the cat sat on the mat"] * 9, vocab=280, special_tokens=("<s>", "</s>"))
    words = words.with_prefix("<s>") if template else words
    kind = MODELS["llama"]
    shape = {"vocab": 280, "context": 32, "dim": 16, "depth": 1, "heads": 2, "hidden": 24}
    torch.manual_seed(0)
    Model(kind(kind.Config(**shape)), words, {"eos": [5]}).save(path, format="huggingface")
    (path / "tokenizer_config.json").write_text(json.dumps(told))
    return path


@pytest.mark.parametrize(
    ("template", "told", "first"),
    [
        (True, {}, True),
        (False, {}, False),
        (False, {"add_bos_token": True, "bos_token": "<s>"}, True),
        (False, {"add_bos_token": True, "bos_token": {"content": "<s>"}}, True),
        (True, {"add_bos_token": False, "bos_token": "<s>"}, False),
    ],
)
def test_the_token_that_a_model_expects_first_is_put_there(tmp_path, template, told, first):
    folder = llama_folder(tmp_path / "llama", template=template, **told)
    seen = []
    for path in (folder, tmp_path / "ours"):
        model = load(path)
        assert model.tokenizer.prefix == ([model.tokenizer.special_tokens["<s>"]] if first else [])
        with Trace(model.network, "token") as trace:
            model.generate("the cat", max_new_tokens=1, temperature=0.0)
        seen.append(trace["token"].shape[1])
        assert model.trace("the cat", "token")["token"].shape[1] == seen[-1]
        if path == folder:
            model.save(tmp_path / "ours")
    assert seen == [len(load(folder).tokenizer.encode("the cat")) + first] * 2


def test_a_text_ends_where_the_model_says(tmp_path):
    folder = llama_folder(tmp_path / "llama")
    model = load(folder)
    assert model.task["eos"] == [5]
    free = model.generate("the", max_new_tokens=20, temperature=0.0)
    ids = model.tokenizer.prefix + model.tokenizer.encode("the")
    said = generate_until(model.network, torch.tensor([ids]), [20], sampling=GREEDY)[0]
    end = said[7]
    assert end not in (5, *said[:7])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 10**9]}))
    model = load(folder)
    assert model.task["eos"] == [end]
    cut = model.generate("the", max_new_tokens=20, temperature=0.0)
    assert cut == model.tokenizer.decode(said[:7])
    assert free.startswith(cut)
    model.save(tmp_path / "again", format="huggingface")
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (written["bos_token_id"], written["eos_token_id"]) == (model.tokenizer.prefix[0], end)


def test_what_ends_a_text_stays_so_when_a_model_is_trained_on(tmp_path, home):
    folder = llama_folder(tmp_path / "llama")
    train(
        "generate", home / "book.txt", base=folder, run=tmp_path / "run", steps=1, device="cpu",
        baseline=False,
    )  # fmt: skip
    model = load(tmp_path / "run")
    assert model.task["eos"] == [5]
    assert model.tokenizer.prefix == load(folder).tokenizer.prefix != []


def test_a_context_of_one_token_can_be_written_with(tmp_path, home):
    train(
        "generate", home / "book.txt", run=tmp_path / "run", steps=2, device="cpu",
        settings=[*TINY, "model.context=1"],
    )  # fmt: skip
    assert len(load(tmp_path / "run").generate("the", max_new_tokens=5, temperature=0.0)) == 5
