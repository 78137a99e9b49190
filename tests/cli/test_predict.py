"""Tables in, tables out: prediction commands keep all columns, and evaluation reports details."""

import csv
import json

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import glassformer
from glassformer import GlassError, load
from glassformer.cli import format_os_error, glass
from glassformer.data.files import BadRowPolicy
from glassformer.data.memory import save_data
from glassformer.data.tables import read_rows
from glassformer.tasks.check import RecordingReporter
from glassformer.training.train import train

GOOD, BAD = "what a lovely film, number {}", "an awful one, number {}"
ROWS = [{"id": str(i), "review": (GOOD, BAD)[i % 2].format(i), "verdict": ("pos", "neg")[i % 2]}
        for i in range(120)]  # fmt: skip


def write_csv(path, rows, encoding="utf-8", **options):
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, rows[0], **options)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A classifier with a header of its own, one with several labels, a translator."""
    folder = tmp_path_factory.mktemp("predict")
    write_csv(folder / "reviews.csv", ROWS)
    options = {"steps": 30, "settings": ["model.dim=16"], "device": "cpu", "precision": "float32"}
    train("classify", folder / "reviews.csv", run=folder / "labels", **options)
    topics = ["red", "round", "red|round", "round|red"]
    several = [
        {"text": f"a {' '.join(topics[i % 4].split('|'))} thing {i}", "label": topics[i % 4]}
        for i in range(160)
    ]
    write_csv(folder / "several.csv", several)
    train("classify", folder / "several.csv", run=folder / "several", multi_label=True, **options)
    pairs = [{"id": i, "source": f"one two {i}", "target": f"eins zwei {i}"} for i in range(80)]
    write_csv(folder / "pairs.csv", pairs)
    train("translate", folder / "pairs.csv", run=folder / "pairs", **options)
    return folder


def command(*args, code=0, text=None):
    runner = CliRunner()
    result = runner.invoke(glass, [*map(str, args)], env={"COLUMNS": "120"}, input=text)
    output = result.output + (str(result.exception) if result.exception else "")
    assert (result.exit_code == 0) == (code == 0), output
    return output


def read_table(path):
    return [row.values for row in read_rows(path, BadRowPolicy())]


# --- classify -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_classify_keeps_all_columns_in_every_format(home, tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    output = command("classify", home / "labels", "--file", home / "reviews.csv", "--out", out)
    assert f"wrote 120 rows to {out}" in output
    rows = read_table(out)
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]
    assert [*rows[0]] == ["id", "review", "verdict", "prediction", "probability", "p_neg", "p_pos"]
    correct = sum(row["prediction"] == row["verdict"] for row in rows)
    assert correct > 110
    first = rows[0]
    assert float(first["p_neg"]) + float(first["p_pos"]) == pytest.approx(1, abs=1e-4)
    assert "already exists" in command(
        "classify", home / "labels", "--file", home / "reviews.csv", "--out", out, code=2
    )


def test_classify_reads_excel_and_other_encodings(home, tmp_path):
    book = openpyxl.Workbook()
    for row in (["Kommentar"], ["what a lovely film"], ["an awful one"], ["a lovely one"]):
        book.active.append(row)
    book.save(tmp_path / "new.xlsx")
    output = command("classify", home / "labels", "--file", tmp_path / "new.xlsx")
    assert [line.split("\t")[0] for line in output.splitlines()[1:]] == ["pos", "neg", "pos"]
    rows = [{"nr": i, "meinung": "ein schöner lovely film für uns"} for i in range(5)]
    write_csv(tmp_path / "a.csv", rows, encoding="cp1252", delimiter=";")
    output = command("classify", home / "labels", "--file", tmp_path / "a.csv", "--csv")
    assert "is read as cp1252" in output
    assert "ein schöner lovely film für uns" in output


def test_a_model_reads_the_column_with_the_most_text_if_its_own_is_missing(home, tmp_path):
    rows = [{"n": "1", "other name": "what a lovely film"}, {"n": "2", "other name": "awful one"}]
    output = command("classify", home / "labels", "--file", write_csv(tmp_path / "a.csv", rows))
    assert "what a lovely film" in output
    error = command(
        "classify", home / "labels", "--file", tmp_path / "a.csv", "--text", "x", code=1
    )
    assert "no column 'x'; the columns are n, other name" in error


def test_a_low_probability_and_foreign_text_are_answered_with_unsure(home):
    args = ("classify", home / "labels", "lovely awful film", "--threshold")
    assert command(*args, "1").startswith("unsure\t")
    assert not command(*args, "0").startswith("unsure")
    assert command("classify", home / "labels", "这部电影很好").startswith("unsure\t0.")
    model = load(home / "labels")
    assert model.predict(["lovely film"], threshold=1.0) == [None]
    assert model.predict(["a lovely film", "an awful one"]) == ["pos", "neg"]


def test_empty_input_is_reported(home, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for args, message in (
        ((), "there is no input"),
        (("--file", tmp_path / "empty.txt"), "empty.txt has no texts"),
    ):
        assert message in command("classify", home / "labels", *args, text="")
    assert "there is no input" in command("search", home / "labels", home / "reviews.csv", text="")


def test_a_worksheet_of_a_model_without_blocks_has_no_layers_and_heads(home):
    for option, message in (("--layer", "there is no block 9"), ("--head", "there is no head 9")):
        output = command("walk", home / "labels", "a lovely film", option, 9, code=1)
        assert message in output


def test_bad_rows_are_left_out_on_request(home, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("id,review\n1,what a lovely film\n2\n3,an awful one\n")
    error = command("classify", home / "labels", "--file", file, code=1)
    assert "a.csv:3: expected 2 columns, got 1" in error
    out = tmp_path / "out.csv"
    output = command("classify", home / "labels", "--file", file, "--skip-bad", "--out", out)
    assert f"left out 1 bad row; the first: {file}:3: expected 2 columns, got 1" in output
    assert [row["id"] for row in read_table(out)] == ["1", "3"]


def test_several_labels_are_predicted_and_joined(home):
    model = load(home / "several")
    assert model.labels == ["red", "round"]
    assert model.predict(["a red round thing", "a red thing"]) == [["red", "round"], ["red"]]
    lines = command("classify", home / "several", "a red round thing", "a red thing").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["red|round", "red"]
    found = glassformer.evaluate(home / "several", home / "several.csv")
    assert found["accuracy"] > 0.9
    assert "confusion" not in found
    assert [row["label"] for row in found["classes"]] == ["red", "round"]


# --- translate, fill-mask, embed ------------------------------------------------------------------


def test_translate_keeps_all_columns(home, tmp_path):
    out = tmp_path / "out.csv"
    command("translate", home / "pairs", "--file", home / "pairs.csv", "--text", "source",
            "--out", out, "--beam", 1)  # fmt: skip
    rows = read_table(out)
    assert [*rows[0]] == ["id", "source", "target", "translation"]
    expected = load(home / "pairs").translate(rows[5]["source"], beam=1)
    assert rows[5]["translation"] == expected


def test_translations_are_sampled_with_a_seed_for_each_sample(home, tmp_path):
    def sample(*args):
        rows = command("translate", home / "pairs", *args, "--temperature", 3, "--json")
        return [(row["text"], row["translation"]) for row in map(json.loads, rows.splitlines())]

    texts = ("one two 3", "one two 4")
    samples = sample(*texts, "--samples", 3, "--seed", 5)
    assert [text for text, _ in samples] == [text for text in texts for _ in range(3)]
    assert len(set(samples)) > 4
    assert samples[2::3] == sample(*texts, "--seed", 7)
    assert samples[3:4] == sample(texts[1], "--seed", 5)  # whatever the other texts are
    model, codec = load(home / "pairs"), load(home / "pairs").codec
    greedy = codec.run(model.network, codec.encode([texts[0]]), beam_size=0)
    assert model.translate(texts[0], temperature=0) == codec.decode(greedy)[0]
    out = tmp_path / "out.jsonl"
    command("translate", home / "pairs", *texts, "--temperature", 3, "--samples", 3, "--seed", 5,
            "--out", out)  # fmt: skip
    columns = ("translation", "translation_2", "translation_3")
    written = [row[name] for row in read_table(out) for name in columns]
    assert written == [translation for _, translation in samples]


def test_options_of_sampling_and_of_beam_search_exclude_each_other(home):
    args = ("translate", home / "pairs", "one two 3")
    for extra in (["--samples", 2], ["--seed", 0]):
        assert "--samples and --seed need --temperature" in command(*args, *extra, code=2)
    error = command(*args, "--temperature", 1, "--beam", 4, code=2)
    assert "give --temperature, or --beam and --length-penalty, not both" in error


def test_evaluate_says_what_is_teacher_forced_and_what_is_free_running(home):
    output = command("evaluate", home / "pairs")
    metrics = glassformer.evaluate(home / "pairs")
    for label, name in (
        ("teacher-forced loss", "loss"),
        ("teacher-forced accuracy", "token_accuracy"),
        ("free-running exact match", "exact"),
    ):
        assert f"\n{label:<24} {metrics[name]:.4g}" in output


def test_embed_writes_tables_and_arrays_with_the_same_vectors(home, tmp_path):
    file = tmp_path / "a.csv"
    write_csv(file, [{"id": 7, "text": "a lovely film"}, {"id": 8, "text": "awful"}])
    table, array = tmp_path / "v.parquet", tmp_path / "v.npy"
    train("classify", home / "reviews.csv", run=tmp_path / "run", model="classifier", steps=1,
          settings=["model.dim=16", "model.heads=2"], device="cpu")  # fmt: skip
    command("embed", tmp_path / "run", "--file", file, "--out", table)
    command("embed", tmp_path / "run", "--file", file, "--out", array)
    rows = pq.read_table(table).to_pylist()
    assert [row["id"] for row in rows] == ["7", "8"]
    assert np.allclose([row["vector"] for row in rows], np.load(array), atol=1e-6)


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_prints_classes_confusion_intervals_and_writes_predictions(home, tmp_path):
    out = tmp_path / "predictions.csv"
    output = command("evaluate", home / "labels", home / "reviews.csv", "--predictions", out)
    for text in ("95% CI", "calibration error", "precision  recall", "confusion matrix"):
        assert text in output
    rows = read_table(out)
    assert [*rows[0]][:4] == ["location", "review", "verdict", "prediction"]
    assert rows[0]["location"] == f"{home / 'reviews.csv'}:2"
    metrics = glassformer.evaluate(home / "labels", home / "reviews.csv")
    correct = sum(row["prediction"] == row["verdict"] for row in rows)
    assert correct / len(rows) == pytest.approx(metrics["accuracy"])
    low, high = metrics["accuracy_interval"]
    assert low <= metrics["accuracy"] <= high
    assert sum(map(sum, metrics["confusion"])) == 120


def test_the_runs_own_validation_data_can_be_written_too(home, tmp_path):
    out = tmp_path / "p.jsonl"
    command("evaluate", home / "labels", "--predictions", out)
    rows = read_table(out)
    texts = {row["review"] for row in ROWS}
    assert rows
    assert all(row["review"] in texts for row in rows)
    command("evaluate", home / "pairs", "--predictions", tmp_path / "t.csv")
    assert [*read_table(tmp_path / "t.csv")[0]] == ["location", "source", "target", "translation"]
    error = command("evaluate", home / "labels", "--predictions", tmp_path / "x.doc", code=2)
    assert "--predictions: expected a file name ending in .csv" in error


def test_evaluate_finds_other_column_names_and_skips_bad_rows(home, tmp_path):
    rows = [{"stars": row["verdict"], "what they said": row["review"]} for row in ROWS]
    file = write_csv(tmp_path / "a.csv", rows)
    with file.open("a") as out:
        out.write("pos\n")
    error = command("evaluate", home / "labels", file, code=1)
    assert "a.csv:122: expected 2 columns, got 1" in error
    metrics = json.loads(
        command("evaluate", home / "labels", file, "--skip-bad", "--json").splitlines()[-1]
    )
    assert (metrics["examples"], metrics["bad_rows"]) == (120, 1)


def test_translations_have_an_interval_and_worst_examples(home):
    metrics = glassformer.evaluate(home / "pairs", home / "pairs.csv")
    low, high = metrics["chrf_interval"]
    assert low <= metrics["chrf"] <= high
    assert len(metrics["worst"]) == 5
    assert {"location", "text", "translation", "chrf"} <= metrics["worst"][0].keys()


# --- check-data -----------------------------------------------------------------------------------


def test_check_data_warns_of_what_one_may_regret(tmp_path):
    words = "the quick brown fox jumps over the lazy dog near the river bank today".split()
    rows = [{"text": " ".join([*words, str(i)]), "label": "Yes" if i % 20 else "no"}
            for i in range(300)]  # fmt: skip
    rows += [{"text": f"something else {i}", "label": "yes "} for i in range(3)]
    output = command("check-data", "classify", write_csv(tmp_path / "a.csv", rows))
    assert "almost equal: 'the quick brown fox" in output
    assert "warning: unbalanced: 94% of the texts have the same label" in output
    assert "warning: the labels 'Yes' and 'yes' differ only in case or spaces" in output
    assert "warning: few examples: the label 'yes' has only 3" in output
    assert "tokens: the|quick|brown|fox" in output


def test_check_data_splits_small_data_as_training_does(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2")
    output = command("check-data", "classify", tmp_path / "x.csv")
    assert "split: 1 train, 1 validation" in output
    warning = "too few examples for a reliable result: 1 for training, 1 for validation"
    assert f"warning: {warning}" in output
    reporter = RecordingReporter()
    train("classify", tmp_path / "x.csv", run=tmp_path / "run", reporter=reporter, model="nb_svm",
          device="cpu")  # fmt: skip
    assert "1 text for training, 1 for validation" in reporter.lines
    assert any(line.startswith(warning) for line in reporter.lines)


def test_check_data_fails_where_training_would(tmp_path):
    file = write_csv(tmp_path / "a.csv", [{"text": f"t {i}", "label": "x"} for i in range(30)])
    output = command("check-data", "classify", file, "--label", "label", code=1)
    assert "would fail: every text has the label 'x'" in output
    file.write_text(file.read_text() + "only one cell\n" + "b 1,y\nc 2,y\n" * 20)
    assert "1 bad row" in command("check-data", "classify", file, code=1)
    command("check-data", "classify", file, "--skip-bad")


# --- data in memory -------------------------------------------------------------------------------

OPTIONS = {"model": "nb_svm", "device": "cpu"}


def test_lists_and_data_frames_are_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuples = [(row["review"], row["verdict"]) for row in ROWS]
    frame = pd.DataFrame(ROWS)
    for number, data in enumerate(
        (tuples, ROWS, frame, pl.DataFrame(ROWS), frame.to_numpy()[:, 1:])
    ):
        model = glassformer.train("classify", data, run=tmp_path / str(number), **OPTIONS)
        assert model.predict(["what a lovely film", "an awful one"]) == ["pos", "neg"]
        assert glassformer.evaluate(model, data)["accuracy"] > 0.9
    model = glassformer.train("classify", tuples, valid=tuples[:20], run="with-valid", **OPTIONS)
    assert glassformer.evaluate(model)["examples"] == 20
    glassformer.train("translate", [(f"a {i}", f"b {i}") for i in range(40)], model="phrase_table",
                      run="pairs", device="cpu")  # fmt: skip
    text = glassformer.train("generate", ["a line of text"] * 200, model="markov", run="text")
    assert text.generate("a line", max_new_tokens=3)


def test_rows_that_do_not_fit_are_rejected(tmp_path):
    for data, message in (
        ([("good",)], r"row 1 of the data: expected a dict or \(text, label\)"),
        (["good"], "expected a dict or"),
        (3, "expected a file, a DataFrame or a list of rows, got int"),
        ({"a": 1}, "got dict"),
    ):
        with pytest.raises(GlassError, match=message):
            glassformer.train("classify", data, run=tmp_path / "run")
    model = glassformer.train("classify", [(r["review"], r["verdict"]) for r in ROWS],
                              run=tmp_path / "r", **OPTIONS)  # fmt: skip
    with pytest.raises(GlassError, match="this model expects 1 text"):
        model.classify([None])
    loaded = load(tmp_path / "r")
    with pytest.raises(GlassError, match="a loaded model has no validation data"):
        glassformer.evaluate(loaded)


def test_values_of_pandas_become_plain_text(tmp_path):
    frame = pd.DataFrame({
        "text": ["a", None, "c"], "n": [1.0, float("nan"), 2.5],
        "day": pd.to_datetime(["2024-01-02", None, None]), "k": np.array([1, 2, 3]),
    })  # fmt: skip
    save_data("classify", frame, tmp_path / "a.jsonl")
    rows = read_table(tmp_path / "a.jsonl")
    assert [row["n"] for row in rows] == ["1", "", "2.5"]
    assert [row["text"] for row in rows] == ["a", "", "c"]
    assert [row["k"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["day"].startswith("2024-01-02")
    assert rows[1]["day"] == ""


def test_resume_and_compare_are_functions_too(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"settings": ["model.dim=8"], "device": "cpu", "precision": "float32"}
    first = glassformer.train("classify", home / "reviews.csv", run="run", steps=2, **options)
    assert first.metrics["steps"] == 2
    assert glassformer.resume("run", steps=4).metrics["steps"] == 4
    rows = glassformer.compare("classify", ROWS, models=["nb_svm", "text_cnn"], steps=2,
                               run=tmp_path / "compared")  # fmt: skip
    assert {row["name"] for row in rows} == {"nb_svm", "text_cnn"}


def test_a_worksheet_ends_with_the_probabilities_of_classify(home, tmp_path):
    train("classify", home / "reviews.csv", run=tmp_path / "run", model="classifier", steps=20,
          settings=["model.dim=16", "model.heads=2"], prior=False, device="cpu")  # fmt: skip
    for path, formula in ((tmp_path / "run", "softmax(logits / "), (home / "several", "sigmoid(")):
        model = load(path)
        last = model.walk("a lovely red thing")[-1]
        assert last.formula.startswith(formula)
        table, probs = last.tables[0], model.classify("a lovely red thing")
        assert dict(zip(table.columns, table.values[0].tolist(), strict=True)) == pytest.approx(
            probs, abs=1e-5
        )


def test_a_translator_is_evaluated_on_two_aligned_files(home, tmp_path):
    (tmp_path / "a.en").write_text("one two 1\none two 2\n")
    (tmp_path / "a.de").write_text("eins zwei 1\neins zwei 2\n")
    files = ("--source", tmp_path / "a.en", "--target", tmp_path / "a.de")
    metrics = json.loads(command("evaluate", home / "pairs", *files, "--json").splitlines()[-1])
    assert metrics["examples"] == 2


def test_folders_that_cannot_be_used_are_named(home):
    output = command("resume", home / "labels" / "best", code=1)
    assert "best is not a run folder but a model" in output
    error = FileNotFoundError(2, "No such file or directory", "/proc/x")
    assert format_os_error(error) == "/proc/x: No such file or directory"
    assert format_os_error(OSError("odd")) == "odd"


# --- found in trials ------------------------------------------------------------------------------


def test_predict_reads_data_frames_and_rejects_a_single_text(home):
    model, frame = load(home / "labels"), pd.DataFrame(ROWS)
    expected = model.predict([row["review"] for row in ROWS])
    for data in (frame, frame[["review"]], frame["review"], pl.DataFrame(ROWS)):
        assert model.predict(data) == expected
    assert model.predict(pd.DataFrame({"other": frame["review"]})) == expected
    with pytest.raises(GlassError, match="no column 'review', which the model reads"):
        model.predict(frame[["id", "verdict"]])
    with pytest.raises(GlassError, match="put the text into a list"):
        model.predict("a lovely film")


def test_the_column_is_named_when_it_is_guessed(home, tmp_path):
    rows = [{"n": "1", "other": "what a lovely film"}, {"n": "2", "other": "an awful one, really"}]
    output = command("classify", home / "labels", "--file", write_csv(tmp_path / "a.csv", rows))
    assert 'column: text = "other"; --text chooses another one' in output


def test_a_table_of_its_own_can_be_read_again(home, tmp_path):
    rows = [{"id": "1", "review": 'a "lovely"\nfilm\twith tabs'}, {"id": "2", "review": ""}]
    for ending in ("tsv", "csv", "jsonl", "parquet"):
        out, again = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
        file = write_csv(tmp_path / "in.csv", rows)
        command("classify", home / "labels", "--file", file, "--out", out)
        command("classify", home / "labels", "--file", out, "--text", "review", "--out", again)
        assert [row["review"] for row in read_table(again)] == [row["review"] for row in rows]
        assert [row["prediction"] for row in read_table(again)][1] == "unsure"  # an empty text


def test_empty_cells_of_a_single_column_keep_their_place(home, tmp_path):
    file, out = tmp_path / "a.csv", tmp_path / "out.csv"
    file.write_text('review\na lovely film\n""\nan awful one\n')
    command("classify", home / "labels", "--file", file, "--out", out)
    assert [row["prediction"] for row in read_table(out)] == ["pos", "unsure", "neg"]


def test_a_failed_command_leaves_no_empty_file(home, tmp_path):
    file, out = tmp_path / "a.csv", tmp_path / "out.csv"
    file.write_text("id,review\n1\n")
    command("classify", home / "labels", "--file", file, "--out", out, code=1)
    assert not out.exists()


def test_a_model_that_is_its_prior_cannot_be_stripped(home):
    model = load(home / "labels")
    model.network.prior.weights[0] = 0.0
    with pytest.raises(GlassError, match="this model is its prior, NB-SVM"):
        model.strip_prior()


def test_options_of_python_take_one_name(home, tmp_path):
    model = glassformer.train("classify", ROWS, text="review", label="verdict",
                              run=tmp_path / "run", **OPTIONS)  # fmt: skip
    assert model.task["text"] == ["review"]
    found = glassformer.evaluate(model, ROWS, text="review", label="verdict")
    assert found["examples"] == 120
    with pytest.raises(GlassError, match="unknown option 'lable'; did you mean 'label'"):
        glassformer.evaluate(model, ROWS, lable="verdict")


def test_several_labels_are_compared_by_f1_with_a_fitted_threshold(home):
    model = load(home / "several")
    assert 0.1 <= model.task["threshold"] <= 0.95
    found = glassformer.evaluate(home / "several", home / "several.csv")
    low, high = found["f1_interval"]
    assert low <= found["f1"] <= high
    probs = {"red": 0.4, "round": 0.2}
    assert model.predict_label(probs, ("a red thing",), threshold=0.3) == ("red", 0.4)


def test_suspicious_labels_are_reported(tmp_path):
    for labels, message in (
        ([f"{i}" for i in range(120)], "120 labels for 120 texts: is 'label' the right column?"),
        (["a|b", "c|d"] * 60, "many labels contain |"),
    ):
        rows = [{"text": f"some text {i}", "label": labels[i]} for i in range(120)]
        reporter = RecordingReporter()
        train("classify", write_csv(tmp_path / "a.csv", rows), label="label", reporter=reporter,
              run=tmp_path / "run", overwrite=True, model="nb_svm", device="cpu")  # fmt: skip
        assert any(line.startswith(message) for line in reporter.lines)
    rows = [{"text": ("one", "two")[i % 2], "label": ("x", "y")[i % 2]} for i in range(40)]
    reporter = RecordingReporter()
    train("classify", write_csv(tmp_path / "b.csv", rows), reporter=reporter, model="nb_svm",
          run=tmp_path / "run2", device="cpu")  # fmt: skip
    assert any(line.startswith("no training text has the label") for line in reporter.lines)


def test_a_translator_reads_the_source_column_of_its_training_data(home, tmp_path):
    rows = [
        {"id": i, "de": f"eins zwei {i}", "en": f"one two {i}, a longer text"} for i in range(60)
    ]
    file = write_csv(tmp_path / "pairs.csv", rows)
    train("translate", file, run=tmp_path / "run", model="phrase_table", device="cpu")
    model = load(tmp_path / "run")
    assert (model.task["text"], model.task["target"]) == (["de"], "en")  # not the id
    output = command("translate", tmp_path / "run", "--file", file, "--beam", 1, "--json")
    assert [json.loads(line)["text"] for line in output.splitlines()][1] == "eins zwei 1"
    swapped = [{"en": row["en"], "de": row["de"]} for row in rows]
    found = glassformer.evaluate(tmp_path / "run", write_csv(tmp_path / "b.csv", swapped))
    assert found["worst"][0]["text"].startswith("eins zwei")


def test_a_finished_run_is_not_trained_further_without_a_budget(home, tmp_path):
    file, run = home / "reviews.csv", tmp_path / "run"
    first = train("classify", file, run=run, minutes=0.05, settings=["model.dim=8"], device="cpu")
    again = glassformer.resume(run).metrics
    assert again["steps"] == first["steps"]
    assert again["accuracy"] == pytest.approx(first["accuracy"])


def test_rows_without_a_prediction_are_bad_rows(home, tmp_path):
    rows = [{"source": "one two"}, {"source": "one " * 300}, {"source": "two"}]
    file, out = write_csv(tmp_path / "a.csv", rows), tmp_path / "out.csv"
    output = command("translate", home / "pairs", "--file", file, "--out", out, code=1)
    assert "a.csv:3: " in output
    assert "--skip-bad" in output
    assert not out.exists()
    output = command("translate", home / "pairs", "--file", file, "--out", out, "--skip-bad")
    assert "left out 1 bad row" in output
    assert [row["source"] for row in read_table(out)] == ["one two", "two"]
    output = command("translate", home / "pairs", "one " * 300, code=1)
    assert "skip-bad" not in output


def test_errors_in_memory_name_the_row_of_the_data(home):
    rows = [*ROWS[:9], {"review": "a text", "verdict": ""}]
    with pytest.raises(GlassError, match=r"^row 10 of the data in memory: the label is empty"):
        glassformer.evaluate(home / "labels", rows)


def test_a_model_without_a_task_is_rejected_with_a_message(home):
    model = load(home / "labels")
    model.task.pop("name")
    with pytest.raises(GlassError, match="has no known task"):
        glassformer.evaluate(model, home / "reviews.csv")
