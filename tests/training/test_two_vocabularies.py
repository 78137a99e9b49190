"""Translators with a vocabulary for each language, from training to inspection."""

import random
from pathlib import Path

import pytest
import torch

import glassformer
from faults import stopping_after
from glassformer import GlassError, checkpoint, load
from glassformer.checkpoint import BEST, LAST
from glassformer.core.config import read_toml
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.predict import inputs_for
from glassformer.registry import build_model
from glassformer.tasks.check import RecordingReporter, check
from glassformer.tasks.translate import make_tokenizer
from glassformer.text import load as load_tokenizer
from glassformer.text.bilingual import Bilingual, source_tokenizer
from glassformer.text.plain import Words
from glassformer.training.resume import resume
from glassformer.training.train import train

WORDS = "one two three four five six seven eight nine two"  # 两 is two as well
NUMBERS = dict(zip("一二三四五六七八九两", WORDS.split(), strict=True))
SPECIAL = ("<start>", "<end>")
OPTIONS = {"settings": ["model.dim=16", "model.depth=1", "model.heads=2"], "batch_tokens": 128,
           "tokenizer": "words", "source_tokenizer": "characters", "device": "cpu"}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home, choose, rows = tmp_path_factory.mktemp("two"), random.Random(0), ["source\ttarget"]
    for _ in range(120):
        digits = choose.choices([*NUMBERS], k=choose.randint(1, 5))
        rows.append("".join(digits) + "\t" + " ".join(map(NUMBERS.get, digits)))
    (home / "pairs.tsv").write_text("\n".join(rows) + "\n")
    run_training(home, "run", reporter=RecordingReporter())
    return home


def run_training(home, name, steps=6, reporter=None, **options):
    options = {**OPTIONS, **options}
    return train("translate", home / "pairs.tsv", run=home / name, steps=steps,
                 reporter=reporter or NullReporter(), **options)  # fmt: skip


def test_each_language_has_its_own_tokenizer_and_embeddings(home):
    model = load(home / "run")
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, Bilingual)
    assert (tokenizer.source.kind, tokenizer.kind) == ("characters", "bilingual")
    assert {*NUMBERS} < {*tokenizer.source.tokens}
    assert {*NUMBERS.values()} < {*tokenizer.target.tokens}
    assert not {*NUMBERS} & {*tokenizer.target.tokens}
    assert model.network.source_token.weight.shape[0] == tokenizer.source.vocab
    assert model.network.config.vocab == tokenizer.target.vocab != tokenizer.source.vocab
    sizes = read_toml(home / "run/config.toml")["model"]
    assert (sizes["vocab"], sizes["source_vocab"]) == (12, 13)
    batch = model.codec.encode(["一二", ""])
    end = tokenizer.source.special_tokens["<end>"]
    assert batch["source"].tolist()[0] == tokenizer.source.encode("一二")
    assert batch["source"].tolist()[1][0] == end  # an empty source is the end of its own language


@pytest.mark.parametrize(
    ("options", "is_shared"),
    [({}, False), ({"vocab": 600}, True), ({"tokenizer": "characters"}, True),
     ({"tokenizer": "wordpiece"}, False), ({"source_vocab": 600}, False)],
)  # fmt: skip
def test_languages_with_few_common_characters_have_two_vocabularies(options, is_shared):
    sample = [text for _ in range(50) for text in ("这里一共有两本书", "there are two books here")]
    request, reporter = DataRequest(files=(Path("pairs.tsv"),), **options), RecordingReporter()
    tokenizer = make_tokenizer(request, sample, reporter)
    assert isinstance(tokenizer, Bilingual) != is_shared
    assert any("source tokens and" in line for line in reporter.lines) != is_shared
    similar = [text for _ in range(50) for text in ("es gibt zwei alte Bücher", sample[1])]
    other = make_tokenizer(request, similar, NullReporter())
    assert isinstance(other, Bilingual) == request.has_source_vocab


def test_the_tokenizer_is_read_back_as_it_was_written(home):
    tokenizer = load_tokenizer(home / "run/tokenizer.json")
    assert source_tokenizer(tokenizer).encode("九一") == tokenizer.source.encode("九一")
    text = "nine one"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    (home / "bad.json").write_text('{"kind": "bilingual", "source": {"kind": "x"}, "target": 1}')
    with pytest.raises(GlassError, match=r"bad\.json: it is not a tokenizer"):
        load_tokenizer(home / "bad.json")


def test_a_stopped_run_ends_with_the_same_weights(home, monkeypatch):
    with stopping_after(3, monkeypatch):
        run_training(home, "parts", save_every=1)
    resume(home / "parts", NullReporter())
    for part in (LAST, BEST):
        first, second = (
            checkpoint.load(home / run / part)[0].state_dict() for run in ("run", "parts")
        )
        assert "source_token.weight" in first
        assert first.keys() == second.keys()
        for name, value in first.items():
            assert torch.equal(value, second[name]), name


def test_every_use_reads_the_source_with_its_own_tokenizer(home):
    model, text = load(home / "run"), "三一"
    traced = model.trace(text, "encoder.*", target="three one").traced
    assert traced.source == ["三", "一"]
    assert traced.tokens == ["<start>", "three", "one"]
    alignment = model.align(text, "three one")
    assert (alignment.source, alignment.target) == (["三", "一"], ["three", "one", "<end>"])
    result = model.patch("三一", "三二")
    assert (result.clean, result.corrupt) == (["三", "一"], ["三", "二"])
    why = model.why(text, "encoder.0.attention.scores[0,0,1,0]", target="three")
    assert "Query '一', key '三'" in str(why.steps()[0])
    why = model.why(text, "decoder.0.cross.scores[0,0,1,0]", target="three")
    assert "Query 'three', key '三'" in str(why.steps()[0])
    ids = inputs_for(model.network, model.tokenizer, text, "one")["source"]
    vector = model.network.features(ids).mean(dim=1)[0]
    assert torch.allclose(torch.from_numpy(model.embed(text)), vector, atol=1e-6)
    assert "not in the vocabulary" not in str(model.walk(text, target="one")[0])
    assert "1 of the tokens is not" in str(model.walk("三x", target="one")[0].text)


def test_evaluation_fine_tuning_and_averaging_keep_both_vocabularies(home):
    again = glassformer.evaluate(home / "run", home / "pairs.tsv")
    assert again["examples"] == 120
    options = {"tokenizer": None, "source_tokenizer": None, "settings": []}
    run_training(home, "tuned", steps=1, base=home / "run", **options)
    assert load(home / "tuned").tokenizer.to_json() == load(home / "run").tokenizer.to_json()
    checkpoint.average([home / "run", home / "run"], home / "mean")
    assert isinstance(load(home / "mean").tokenizer, Bilingual)
    for bad in ({**options, "source_tokenizer": "words"}, {**options, "source_vocab": 20}):
        with pytest.raises(GlassError, match="has a tokenizer: leave out"):
            run_training(home, "bad", steps=1, base=home / "run", **bad)


def test_the_phrase_table_copies_no_word_into_another_vocabulary(home):
    baseline, tokenizer, _ = checkpoint.load(home / "run/baseline")
    assert baseline.config.source_vocab == tokenizer.source.vocab
    known = {tuple(row) for row in baseline.phrases.keys[0][:, None].tolist()}
    unknown = tokenizer.source.special_tokens["<unk>"]
    assert (unknown,) not in known
    ids = torch.tensor([[*tokenizer.source.encode("三"), unknown]])
    assert tokenizer.decode(baseline.translate(ids)[0].tolist()).split()[:2] == ["three", "<end>"]


@pytest.mark.parametrize("name", ["recurrent_translator", "translator", "universal_translator"])
def test_every_translator_can_have_two_vocabularies(name):
    sizes = {"vocab": 10, "source_vocab": 30, "dim": 8, "depth": 1}
    network = build_model(name, sizes if "recurrent" in name else {**sizes, "heads": 2})
    assert network.vocab == 10
    source = torch.tensor([[29, 3]])
    with torch.no_grad():
        assert network(torch.tensor([[1, 2, 3]]), source).shape == (1, 3, 10)


def test_the_vocabulary_of_the_source_alone_can_be_limited(home):
    reporter = RecordingReporter()
    run_training(home, "words", steps=1, source_tokenizer=None, source_vocab=6, reporter=reporter)
    tokenizer = load(home / "words").tokenizer
    assert tokenizer.source.kind == "words"
    assert tokenizer.source.vocab == 6
    assert "vocabularies of 6 source tokens and 12 target tokens" in reporter.lines


def test_errors_name_what_does_not_fit(home, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("a text " * 300)
    with pytest.raises(GlassError, match="--source-vocab are not for generate"):
        train("generate", text, run=tmp_path / "run", source_vocab=9, steps=1)
    model = load(home / "run")
    plain = build_model(
        "translator", {"vocab": model.tokenizer.vocab, "dim": 8, "depth": 1, "heads": 2}
    )
    checkpoint.save(tmp_path / "plain", plain, model.tokenizer)
    with pytest.raises(GlassError, match="has two tokenizers, but its network has one vocabulary"):
        load(tmp_path / "plain")
    large = Words.train(["a b c d e f g h i j k l m n o p"], special_tokens=("<unk>", *SPECIAL))
    checkpoint.save(tmp_path / "large", model.network, Bilingual(large, model.tokenizer.target))
    with pytest.raises(GlassError, match="the tokenizer has 19 tokens, the network only 13"):
        load(tmp_path / "large")


def test_check_data_shows_the_tokens_of_each_language(home):
    request = DataRequest(files=(home / "pairs.tsv",), tokenizer="words",
                          source_tokenizer="characters")  # fmt: skip
    source, target = check("translate", request)["samples"][0]["tokens"]
    assert {*source} <= {*NUMBERS}
    assert {*target} <= {*NUMBERS.values()}
