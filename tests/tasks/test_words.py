"""Language models of words: unknown words, and what can be compared."""

import math

import pytest
import torch
from click.testing import CliRunner

from glassformer import evaluate, load
from glassformer.cli import glass
from glassformer.core.i18n import language, localize
from glassformer.core.reporter import NullReporter
from glassformer.text.plain import Words
from glassformer.training.train import train


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("words")
    text = "the cat sat on the mat .\n" * 300
    (home / "book.txt").write_text(text + "the cat saw a zebra and the mat .\n" * 30)
    settings = ["model.dim=16", "model.depth=1", "model.heads=2", "model.context=16"]
    train("generate", home / "book.txt", run=home / "run", tokenizer="words", vocab=10, steps=5,
          settings=settings, device="cpu", reporter=NullReporter())  # fmt: skip
    return home


def test_words_are_generated_with_spaces_between_them(home):
    model = load(home / "run")
    assert isinstance(model.tokenizer, Words)
    text = model.generate("the cat", max_new_tokens=5, temperature=0.0)
    assert text == " " + " ".join(text.split())
    assert {*text.split()} <= {"<unk>", "the", "cat", "sat", "on", "mat", "."}
    output = (
        CliRunner().invoke(glass, ["generate", str(home / "run"), "the zebra", "-n", "3"]).output
    )
    assert "warning: 1 token of the prompt is not in the vocabulary" in output


def test_evaluate_says_how_many_words_are_unknown_and_what_cannot_be_compared(home):
    metrics = evaluate(home / "run")
    model = load(home / "run")
    words = " ".join((home / "book.txt").read_text().split()).split()
    valid = model.tokenizer.encode(" ".join(words[-metrics["tokens"] :]))
    share = valid.count(model.tokenizer.unknown) / len(valid)
    assert 0.1 < share < 0.5
    assert metrics["unknown_tokens"] == pytest.approx(share)
    output = CliRunner().invoke(glass, ["evaluate", str(home / "run")]).output
    note = "bits per byte cannot be compared with other tokenizers: spaces and line breaks are not "
    assert f"{note}predicted; {share:.1%} of the tokens are unknown" in output
    assert "note " not in output
    token = language.set("zh")
    try:
        assert localize(metrics["note"]).startswith(
            "每字节比特数不能与其他分词器相比：不预测空格和换行；"
        )
    finally:
        language.reset(token)


def test_an_unknown_word_costs_as_much_as_a_random_character(home):
    metrics = evaluate(home / "run")
    model, nats, start = load(home / "run"), 0.0, 0
    words = " ".join((home / "book.txt").read_text().split()).split()
    ids = torch.tensor(model.tokenizer.encode(" ".join(words)))
    valid, past = ids[-metrics["tokens"] :], model.network.prior.order - 1
    with torch.no_grad():
        for start in range(0, len(valid) - 1, 16):
            window = valid[None, start : start + 17]
            before = valid[None, max(start - past, 0) : start]
            before = torch.nn.functional.pad(before, (past - before.shape[1], 0), value=-1)
            logits = model.network(window[:, :-1], past_ids=before)[0]
            nats -= float(logits.log_softmax(-1).gather(1, window[0, 1:, None]).sum())
    nats += math.log(model.network.vocab) + float((valid == 0).sum()) * math.log(0x110000)
    assert metrics["loss"] == pytest.approx(nats / len(valid), rel=1e-4)


def test_a_tokenizer_that_represents_everything_needs_no_note(home):
    settings = ["model.dim=16", "model.depth=1", "model.heads=2", "model.context=16"]
    train("generate", home / "book.txt", run=home / "bytes", tokenizer="bytes", steps=1,
          settings=settings, device="cpu", reporter=NullReporter(), baseline=False)  # fmt: skip
    metrics = evaluate(home / "bytes")
    assert "note" not in metrics
    assert "unknown_tokens" not in metrics
