"""Questions about several texts: which is nearest to a query, and does one follow another."""

import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from glassformer import TOKENIZERS, evaluate, load, train
from glassformer.api import Model
from glassformer.cli import glass
from glassformer.core.config import to_dict
from glassformer.predict import cosines
from glassformer.registry import build_model
from glassformer.text.tf_idf import compare_words

LINES = ["the cat sat on the mat", "", "a dog lay on the log", "rain fell all day long", "the cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    tokenizer = TOKENIZERS["characters"].train(LINES)
    sizes = {"vocab": tokenizer.vocab, "dim": 16, "depth": 1, "heads": 2, "context": 64}
    Model(build_model("gpt2", sizes), tokenizer).save(folder / "model")
    (folder / "lines.txt").write_text("\n".join(LINES))
    return folder


def command(*args, code=0, **options):
    result = CliRunner().invoke(glass, [*map(str, args)], **options)
    output = result.output + (str(result.exception) if result.exception else "")
    assert (result.exit_code == 0) == (code == 0), output
    return output


def test_tf_idf_similarity_equals_its_definition():
    texts, query = ["a b b", "b c", "d"], "b c x"
    idf = {word: math.log(4 / (1 + n)) + 1 for word, n in {"a": 1, "b": 2, "c": 1, "d": 1}.items()}
    for text, (found,) in zip(texts, compare_words(texts, [query]), strict=True):
        first, second = Counter(text.split()), Counter(query.split())
        product = sum(first[w] * second[w] * idf[w] ** 2 for w in idf)
        norms = [math.hypot(*(counts[w] * idf[w] for w in idf)) for counts in (first, second)]
        assert found == pytest.approx(product / math.prod(norms))


def test_cosines_equal_their_definition_and_a_zero_vector_has_none():
    a, b = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[4.0, 3.0]])
    assert cosines(a, b).tolist() == [[pytest.approx(24 / 25)], [0.0]]


def test_a_line_is_nearest_to_itself_and_both_lists_are_ordered(folder):
    output = command("search", folder / "model", folder / "lines.txt", "the cat", "rain", "--json")
    for line, query in zip(output.splitlines(), ("the cat", "rain"), strict=True):
        found = json.loads(line)
        assert found["query"] == query
        for rows in (found["vectors"], found["words"]):
            values = [row["cosine"] for row in rows]
            assert values == sorted(values, reverse=True) != []
    found = json.loads(output.splitlines()[0])
    location = f"{folder / 'lines.txt'}:5"
    for rows in (found["vectors"], found["words"]):
        assert rows[0] == {"cosine": 1.0, "location": location, "text": "the cat"}
    assert len(found["vectors"]) == 4  # the blank line is left out
    shared = [row["text"] for row in found["words"]]  # not "rain fell", which shares no word
    assert shared == ["the cat", "the cat sat on the mat", "a dog lay on the log"]


def test_vectors_are_those_of_embed(folder):
    output = command("search", folder / "model", folder / "lines.txt", "dog", "-n", 1, "--json")
    best = json.loads(output)["vectors"][0]
    model, texts = load(folder / "model"), [line for line in LINES if line]
    similarities = model.similarity(texts, ["dog"])[:, 0]
    assert best["text"] == texts[int(similarities.argmax())]
    assert best["cosine"] == pytest.approx(float(similarities.max()), abs=1e-4)


def test_tables_and_standard_input_are_read(folder):
    table = folder / "table.csv"
    table.write_text("id,note\n1,the cat sat\n2,a dog lay down\n")
    output = command("search", folder / "model", table, "--text", "note", input="dog\n")
    assert output.startswith("dog\n  vectors of the model\n")
    assert f"\t{table}:3\ta dog lay down" in output.partition("shared words")[2]
    assert "none" in command("search", folder / "model", table, "--text", "note", "zebra")


def test_errors_are_one_line(folder):
    empty = folder / "empty.txt"
    empty.write_text("\n\n")
    assert "has no texts" in command("search", folder / "model", empty, "cat", code=1)
    lines = folder / "lines.txt"
    assert "a query is empty" in command("search", folder / "model", lines, " ", code=1)


def test_embed_prints_the_similarity_of_each_two_texts(folder):
    texts = ("the cat", "a dog", "the cat")
    rows = command("embed", folder / "model", *texts, "--similarity").splitlines()
    expected = load(folder / "model").similarity(texts)
    for row, values, text in zip(rows, expected, texts, strict=True):
        assert row.split("\t") == [*(f"{value:.3f}" for value in values), text]
    assert expected[0, 2] == pytest.approx(1)
    output = command("embed", folder / "model", "--similarity", input="")
    assert output == "there is no input: standard input is empty\n"
    out = folder / "v.npy"
    error = command("embed", folder / "model", "a", "--similarity", "--out", out, code=2)
    assert "give --out or --similarity, not both" in error


# --- does B follow A? -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of fill-mask on a text that changes its topic every forty words."""
    folder = tmp_path_factory.mktemp("follows")
    topics = ["cat dog cow pig", "red blue pink gray", "one two six ten", "sun rain snow wind"]
    (folder / "topics.txt").write_text(
        " ".join(topics[i % 4] + " " + topics[i % 4] for i in range(200))
    )
    settings = ["model.dim=16", "model.depth=1", "model.heads=2", "model.context=16"]
    train("fill-mask", folder / "topics.txt", run=folder / "run", vocab=60, steps=3, device="cpu",
          settings=settings, baseline=False)  # fmt: skip
    return folder / "run"


@torch.no_grad()
def test_pairs_are_asked_as_in_training(run):
    model = load(run)
    pairs = [("cat dog", "cow pig"), ("cat dog cow pig cat dog", "red"), ("one", "two")]
    special = model.tokenizer.special_tokens
    cls, sep = special["[CLS]"], special["[SEP]"]
    for pair, prob in zip(pairs, model.follows(pairs), strict=True):
        first, second = map(model.tokenizer.encode, pair)
        ids = torch.tensor([[cls, *first, sep, *second, sep]])
        segments = torch.tensor([[0] * (len(first) + 2) + [1] * (len(second) + 1)])
        hidden = model.network.features(ids, None, segments)
        logits = model.network.head(model.network.pooler(hidden))[0]
        assert prob == pytest.approx(float(logits.softmax(dim=0)[0]), abs=1e-5)


def test_follows_prints_probabilities_and_the_accuracy_on_held_out_pairs(run, tmp_path):
    texts = ("cat dog", "cow pig", "one", "two")
    output = command("fill-mask", run, "--follows", *texts)
    metrics = evaluate(run)
    accuracy = f"{metrics['next_accuracy']:.1%}"
    assert f"on {metrics['pairs']} held-out pairs: {accuracy}" in output
    expected = load(run).follows([texts[:2], texts[2:]])
    assert f"{expected[0]:.3f}\tcat dog | cow pig\n{expected[1]:.3f}\tone | two\n" in output
    output = command("fill-mask", run, "--follows", "--json", input="cat dog\tcow pig\n")
    found = json.loads(output.splitlines()[-1])
    assert found == {"texts": ["cat dog", "cow pig"], "probability": pytest.approx(expected[0])}
    table, out = tmp_path / "pairs.csv", tmp_path / "out.csv"
    table.write_text("a,b\ncat dog,cow pig\n")
    command(
        "fill-mask", run, "--follows", "--file", table, "--text", "a", "--text", "b", "--out", out
    )
    assert float(out.read_text().split(",")[-1]) == pytest.approx(expected[0], abs=1e-4)


def test_errors_of_follows_say_what_is_expected(run, folder, tmp_path):
    assert "expects 2 texts" in command("fill-mask", run, "--follows", "one text", code=1)
    assert "a text is empty" in command("fill-mask", run, "--follows", "one", " ", code=1)
    model = load(run)
    settings = {**to_dict(model.config), "next_sentence": False}
    Model(build_model("bert", settings), model.tokenizer).save(tmp_path / "plain")
    error = command("fill-mask", tmp_path / "plain", "--follows", "one", "two", code=1)
    assert "trained without next-sentence prediction" in error
