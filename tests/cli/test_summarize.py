"""glass summarize: articles in, a summary each or one of them all out."""

import csv
import json

import pytest
from click.testing import CliRunner

from glassformer import train
from glassformer.cli import glass


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A summarizer of the built-in shape of data, with a short context; two articles."""
    folder = tmp_path_factory.mktemp("summarize")
    rows = [{"document": f"A letter. Ship {i} sails.", "summary": f"Ship {i}"} for i in range(60)]
    settings = ["model.dim=16", "model.depth=2", "model.heads=1", "model.context=24"]
    train("summarize", rows, run=folder / "run", steps=4, settings=settings, device="cpu")
    (folder / "a.txt").write_text("A letter. Ship 7 sails.\nIt is blue.")
    (folder / "b.txt").write_text("The port opens. " * 40 + "Ship 8 sails.")
    (folder / "empty.txt").write_text(" \n")
    with (folder / "mails.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "document"], [1, "Ship 1 sails."], [2, "Ship 2 waits."]])
    return folder


def command(*args, text=None):
    return CliRunner().invoke(glass, [*map(str, args)], input=text)


def test_each_article_gets_a_summary_and_what_was_left_out_is_reported(home):
    result = command("summarize", home / "run", home / "a.txt", home / "b.txt", "--json")
    assert result.exit_code == 0, result.output
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["tokens"] == first["tokens_read"]
    assert second["tokens"] > 24 > second["tokens_read"]
    assert second["sentences"] == 41 > second["sentences_read"]
    assert '"The port opens. The port' in result.stderr
    assert "A letter" not in result.stderr


def test_with_a_title_there_is_one_summary_of_all_articles(home):
    files = (home / "a.txt", home / "b.txt")
    result = command("summarize", home / "run", *files, "--title", "Ship 8", "--json")
    (row,) = (json.loads(line) for line in result.stdout.splitlines())
    assert row["sentences"] == 44
    assert "left out" in result.stderr


def test_a_document_can_be_standard_input_or_a_row_of_a_table(home):
    result = command("summarize", home / "run", "--beam", 1, text="Ship 9 sails.\nSoon.")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1
    out = home / "subjects.csv"
    result = command("summarize", home / "run", "--file", home / "mails.csv", "--out", out)
    assert result.exit_code == 0, result.output
    with out.open(encoding="utf-8-sig") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["1", "2"]
    assert "summary" in out.read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["empty.txt"], "the document is empty"),
        (["missing.txt"], "does not exist"),
        (["a.txt", "--file", "mails.csv"], "not both"),
        (["--title", "T", "--file", "mails.csv"], "not both"),
    ],
)
def test_bad_input_gets_one_message(home, monkeypatch, arguments, message):
    monkeypatch.chdir(home)
    result = command("summarize", "run", *arguments)
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_other_commands_name_this_one(home):
    result = command("classify", home / "run", "a text")
    assert "glass summarize" in result.output + str(result.exception)


def test_evaluate_prints_rouge_and_the_worst_summaries(home):
    test = home / "test.jsonl"
    rows = [{"document": f"Ship {i} sails.", "summary": f"Ship {i}"} for i in range(5)]
    test.write_text("\n".join(map(json.dumps, rows)))
    result = command("evaluate", home / "run", test, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    metrics = report.get("metrics", report)
    assert {"rouge_1", "rouge_2", "rouge_l"} <= metrics.keys()
    assert "ROUGE-L" in command("evaluate", home / "run", test).output


def test_check_data_reads_pairs_of_document_and_summary(home):
    rows = home / "bad.jsonl"
    good = [{"document": f"Ship {i} sails.", "summary": f"Ship {i}"} for i in range(20)]
    rows.write_text("\n".join(map(json.dumps, [*good, {"document": "x", "summary": ""}])))
    result = command("check-data", "summarize", rows)
    assert "the document or summary is empty" in result.output + str(result.exception)
