"""Exact values of the details of tasks: defaults, batches, special tokens, metrics, previews."""

import json
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cases import CASES
from glassformer import MODELS, GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.files import BadRowPolicy
from glassformer.data.request import DataRequest
from glassformer.data.store import Store, StoreWriter
from glassformer.models.network import Network, Trait
from glassformer.tasks import TASKS, check, find_task
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.classify import ClassifyCodec, ClassifyObjective
from glassformer.tasks.fill_mask import FillMaskCodec, FillMaskObjective, Masker
from glassformer.tasks.generate import GenerateCodec, text_metrics
from glassformer.tasks.label_metrics import LabelScores
from glassformer.tasks.task import Artifacts, Metric, Scores
from glassformer.tasks.text_pairs import collate, encode_pair, find_separator
from glassformer.tasks.translate import TranslateCodec
from glassformer.tasks.translation_metrics import compute_bleu
from glassformer.text.plain import Bytes, Characters, Words
from glassformer.text.subword import WordPiece


def open_task(name, request, folder, reporter=None):
    folder.mkdir(exist_ok=True)
    spec = TASKS[name]
    return spec.open(spec.prepare(request, folder, reporter or NullReporter()), folder)


def write_book(tmp_path, text="the cat sat on the mat and the dog sat on the log. " * 60):
    file = tmp_path / "book.txt"
    file.write_text(text)
    return file


def write_table(tmp_path, rows, head="text,label"):
    file = tmp_path / "rows.csv"
    file.write_text("\n".join([head, *rows]))
    return file


def open_labeled(tmp_path, count=60, **more):
    rows = [f"word {'very ' * (i % 5)}{i},{'ab'[i % 2]}" for i in range(count)]
    return open_task(
        "classify", DataRequest(files=(write_table(tmp_path, rows),), **more), tmp_path / "cache"
    )


def open_pairs(tmp_path, count=60, **more):
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(f"{'a ' * (i % 5)}{i}\t{'x ' * (i % 3)}{i} y" for i in range(count)))
    request = DataRequest(files=(file,), tokenizer="characters", **more)
    return open_task("translate", request, tmp_path / "cache")


class Uniform(Network):
    """Gives every token the same probability."""

    def __init__(self, vocab, context=None):
        super().__init__(SimpleNamespace(vocab=vocab, context=context))
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids):
        return torch.zeros(*ids.shape, self.config.vocab)


class RecordingModel(Network):
    """A fitted model that records the data it was fitted on."""

    traits = frozenset({Trait.FITTED})

    def __init__(self):
        super().__init__(SimpleNamespace(vocab=9))

    def fit(self, *data):
        self.data = data


# --- defaults -------------------------------------------------------------------------------------


def test_each_task_has_its_default_settings():
    expected = {
        "generate": ("speedrun", "bits_per_byte", "markov", 20_000, 400_000, False, "tokens",
                     {"batch_size": 16, "lr": 1.5e-3},
                     {"context": 128, "dim": 192, "depth": 4, "heads": 6, "dropout": 0.0}),
        "fill-mask": ("bert", "loss", "neighbors", 20_000, 400_000, False, "masks",
                      {"batch_size": 16, "lr": 1e-3},
                      {"context": 128, "dim": 192, "depth": 4, "heads": 6, "dropout": 0.0,
                       "position": "alibi"}),
        "classify": ("text_cnn", "accuracy", "nb_svm", 1000, None, True, "texts",
                     {"batch_tokens": 8192, "lr": 1.5e-3, "weight_decay": 0.05},
                     {"context": 512, "dim": 64, "depth": 1, "heads": 2, "dropout": 0.3}),
        "translate": ("speedrun_translator", "chrf", "phrase_table", 64, None, True, "tokens",
                      {"batch_tokens": 2048, "lr": 1e-3, "beta2": 0.98, "weight_decay": 0.01,
                       "warmup": 0.1},
                      {"dim": 192, "depth": 2, "heads": 4, "hidden": 768, "dropout": 0.1}),
        "classify-images": ("vision", "accuracy", "logistic", 2000, None, True, "images",
                            {"batch_size": 128, "lr": 2e-3, "weight_decay": 0.01}, {}),
        "summarize": ("summarizer", "rouge_l", "lead", 256, None, True, "tokens",
                      {"batch_tokens": 4096, "lr": 1e-3, "weight_decay": 0.01},
                      {"context": 512, "dim": 128, "depth": 2, "heads": 2, "dropout": 0.1}),
        "recommend": ("factorization", "rmse", "biases", 20_000, 1_000_000, True, "ratings",
                      {"batch_size": 1024, "lr": 5e-3, "weight_decay": 0.0, "max_epochs": 30.0},
                      {}),
        "recommend-next": ("sasrec", "ndcg_10", "popularity", 1000, None, True, "items",
                           {"batch_size": 32, "lr": 2e-3, "weight_decay": 0.0,
                            "best_metric": "ndcg_10"}, {}),
        "paint": ("sagan", "frechet", None, 1000, None, True, "images",
                  {"batch_size": 64, "lr": 3e-4, "beta1": 0.0, "beta2": 0.9, "weight_decay": 0.0,
                   "ema_decay": 0.999, "patience": 0}, {}),
    }  # fmt: skip
    for name, spec in TASKS.items():
        found = (spec.models[0], spec.metric.name, spec.baseline_model, spec.eval_limit,
                 spec.final_eval_limit, spec.is_table, spec.unit, dict(spec.train_settings),
                 dict(spec.model_settings))  # fmt: skip
        assert found == expected[name], name
        assert spec.name == name
        assert all(model in MODELS for model in spec.models)
    variants = {"gpt2": "gpt2_classifier", "bert": "bert_classifier"}
    variants |= {"universal": "universal_classifier"}
    assert TASKS["classify"].task_variants == variants | {"bert_encoder": "bert_classifier"}
    assert TASKS["fill-mask"].task_variants == {"bert_encoder": "bert"}


def test_an_unknown_task_is_rejected_with_a_suggestion():
    assert find_task("translate") is TASKS["translate"]
    with pytest.raises(GlassError, match=r"unknown task 'clasify'; did you mean 'classify'\?$"):
        find_task("clasify")
    with pytest.raises(GlassError, match=r"unknown task 'fly'; tasks: generate, classify, trans"):
        find_task("fly")


def test_metrics_have_a_direction_and_a_label():
    assert Metric("bits_per_byte").label == "bits per byte"
    assert Metric("loss").is_better(1.0, 2.0)
    assert not Metric("loss").is_better(2.0, 2.0)
    assert Metric("f1", higher_is_better=True).is_better(2.0, 1.0)
    assert not Metric("f1", higher_is_better=True).is_better(1.0, 1.0)


def test_scores_add_up_by_name_and_rows_stay_in_order():
    total = Scores({"a": 1}, [{"n": 1}])
    total.add(Scores({"a": 2, "b": np.array([1, 2])}, [{"n": 2}]))
    total.add(Scores({"b": np.array([3, 4])}, [{"n": 3}]))
    assert total.sums["a"] == 3
    assert total.sums["b"].tolist() == [4, 6]
    assert [row["n"] for row in total.rows] == [1, 2, 3]


# --- running text ---------------------------------------------------------------------------------


def test_every_token_is_evaluated_once_in_windows_of_the_context(tmp_path):
    task = open_task("generate", DataRequest(files=(write_book(tmp_path),)), tmp_path / "cache")
    valid = task.dataset.valid
    text = valid.read(0, valid.size).tolist()
    network = Uniform(30, context=6)
    for limit in (None, 47):
        first, *rest = task.dataset.eval_batches(network, limit)
        size = len(text) if limit is None else limit + 1
        assert first["unpredicted"].tolist() == text[:1]
        ids = [i for batch in rest for i in batch["ids"].flatten().tolist()]
        targets = [i for batch in rest for i in batch["targets"].flatten().tolist()]
        assert ids == text[: size - 1]
        assert targets == text[1:size]
        lengths = [len(row) for batch in rest for row in batch["ids"]]
        assert lengths[:-1] == [6] * (len(lengths) - 1)
        assert lengths[-1] == (size - 1) % 6 or 6
    (_, only) = task.dataset.eval_batches(network, 47, context=50)
    assert only["ids"].shape == (1, 47)


def test_several_windows_are_evaluated_in_one_batch(tmp_path):
    text = write_book(tmp_path, "abcdefgh" * 5000)
    task = open_task("generate", DataRequest(files=(text,)), tmp_path / "cache")
    batches = list(task.dataset.eval_batches(Uniform(30, context=500)))
    assert [tuple(batch["ids"].shape) for batch in batches[1:3]] == [(4, 500), (3, 500)]
    batches = list(task.dataset.eval_batches(Uniform(30, context=3000)))
    assert tuple(batches[1]["ids"].shape) == (1, 3000)
    batches = list(task.dataset.eval_batches(Uniform(30)))  # unlimited context
    assert tuple(batches[1]["ids"].shape) == (2, 1024)


def test_a_uniform_guess_costs_the_logarithm_of_the_vocabulary_size(tmp_path):
    task = open_task("generate", DataRequest(files=(write_book(tmp_path),)), tmp_path / "cache")
    network = Uniform(32, context=6)
    for limit, tokens in ((None, task.dataset.valid.size), (10, 11)):
        found, _ = task.evaluate(network, limit)
        assert found["loss"] == pytest.approx(math.log(32), rel=1e-5)
        assert found["bits_per_byte"] == pytest.approx(5.0, rel=1e-5)  # here each token is one byte
        assert (found["tokens"], found["bytes"]) == (tokens, tokens)


def test_bits_are_counted_per_byte_and_not_per_character(tmp_path):
    text = write_book(tmp_path, "äöüß" * 1000)
    task = open_task("generate", DataRequest(files=(text,)), tmp_path / "cache")
    found, _ = task.evaluate(Uniform(32, context=6), 99)
    assert (found["tokens"], found["bytes"]) == (100, 200)
    assert found["bits_per_byte"] == pytest.approx(2.5, rel=1e-5)


def test_text_metrics_follow_their_formulas():
    found = text_metrics(nats=8 * math.log(2), tokens=4, n_bytes=2.0)
    assert found["loss"] == pytest.approx(2 * math.log(2))
    assert found["perplexity"] == pytest.approx(4.0)
    assert found["bits_per_byte"] == pytest.approx(4.0)
    assert text_metrics(1e6, 1, 1.0)["perplexity"] == pytest.approx(math.exp(50))
    assert text_metrics(0.0, 0, 0.0)["loss"] == 0


def test_an_epoch_reads_as_many_tokens_as_the_text_has(tmp_path):
    for name, vocab in (("generate", None), ("fill-mask", 60)):
        task = open_task(
            name, DataRequest(files=(write_book(tmp_path),), vocab=vocab), tmp_path / name
        )
        size = task.dataset.train.size
        assert task.dataset.n_targets == task.dataset.size == size
        assert task.dataset.eval_size == task.dataset.valid.size
        assert task.dataset.train_batches(4, 16, 0).per_epoch == size // 64
        assert task.dataset.train_batches(4000, 16, 0).per_epoch == 1
        assert task.dataset.train_batches(4, 16, 0).truncated == 0
        assert task.dataset.train_batches(3, 16, 0).at(1)["ids"].shape == (3, 16)
        assert task.dataset.sizes() == {"vocab": task.artifacts.tokenizer.vocab}


def test_a_network_with_unlimited_context_trains_on_long_windows(tmp_path):
    task = open_task("generate", DataRequest(files=(write_book(tmp_path),)), tmp_path / "g")
    assert task.dataset.train_batches(1, None, 0).at(0)["ids"].shape == (1, 1024)
    file = write_book(tmp_path, "the cat sat on a mat and ran. " * 400)
    task = open_task("fill-mask", DataRequest(files=(file,), vocab=60), tmp_path / "f")
    assert task.dataset.train_batches(2, None, 0).at(0)["ids"].shape == (2, 128)


def test_a_fraction_of_a_text_is_its_beginning(tmp_path):
    task = open_task("generate", DataRequest(files=(write_book(tmp_path),)), tmp_path / "cache")
    network, size = RecordingModel(), task.dataset.train.size
    assert task.dataset.fit(network, 0.25) == 0.25
    (ids,) = network.data
    assert ids.tolist() == [task.dataset.train.read(0, round(size / 4)).tolist()]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("the cat sat. " * 200, "characters"),
        ("".join(map(chr, range(0x4E00, 0x4F40))) * 20, "bytes"),
    ],
)
def test_the_size_of_the_alphabet_decides_the_tokenizer(tmp_path, text, kind):
    task = open_task(
        "generate", DataRequest(files=(write_book(tmp_path, text),)), tmp_path / "cache"
    )
    assert task.artifacts.tokenizer.kind == kind


def test_the_vocabulary_size_is_as_requested_or_suits_the_text(tmp_path):
    text = write_book(tmp_path, " ".join(f"w{i}" for i in range(3000)) * 2)
    for vocab, expected in ((300, 300), (None, 512)):
        request = DataRequest(files=(text,), tokenizer="bpe", vocab=vocab)
        task = open_task("generate", request, tmp_path / f"cache{vocab}")
        assert task.artifacts.tokenizer.vocab == expected


def test_an_alphabet_of_256_characters_is_tokenized_by_character(tmp_path):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 256))) * 20
    task = open_task(
        "generate", DataRequest(files=(write_book(tmp_path, text),)), tmp_path / "cache"
    )
    assert task.artifacts.tokenizer.vocab == 257  # with <unk>
    assert isinstance(task.artifacts.tokenizer, Characters)


def test_with_validation_files_all_text_is_for_training(tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("a cat and a dog sat. " * 10)
    reporter = RecordingReporter()
    request = DataRequest(files=(write_book(tmp_path),), valid=(other,))
    task = open_task("generate", request, tmp_path / "cache", reporter)
    decode = task.artifacts.tokenizer.decode
    sides = [decode(s.read(0, s.size).tolist()) for s in (task.dataset.train, task.dataset.valid)]
    assert sides == [(tmp_path / "book.txt").read_text(), other.read_text()]
    assert task.artifacts.metadata["valid_bytes"] == 210
    assert reporter.lines[-1].endswith("210 for validation (from other files)")


def test_bad_lines_of_training_and_validation_files_are_reported_once_each(tmp_path):
    files = {}
    for name in ("train", "valid"):
        files[name] = tmp_path / f"{name}.txt"
        lines = [f"line {i} of a text for {name}".encode() for i in range(30)]
        lines[4 if name == "train" else 6] = b"\xff\xfe"
        files[name].write_bytes(b"\n".join(lines))
    policy = BadRowPolicy(tmp_path / "skipped.jsonl")
    request = DataRequest(files=(files["train"],), valid=(files["valid"],), on_bad_row=policy)
    open_task("generate", request, tmp_path / "cache")
    found = [json.loads(line)["location"] for line in policy.log.read_text().splitlines()]
    assert found == [f"{files['train']}:5", f"{files['valid']}:7"]


def test_the_sizes_of_both_splits_are_reported(tmp_path):
    reporter = RecordingReporter()
    request = DataRequest(files=(write_book(tmp_path, "abcd" * 250),), valid_fraction=0.2)
    open_task("generate", request, tmp_path / "cache", reporter)
    assert reporter.lines == [
        "1,000 bytes of text",
        "vocabulary of 5 tokens; 800 tokens for training, 200 for validation (the last 20%)",
    ]


def test_example_lines_have_their_split(tmp_path):
    file = write_book(tmp_path, "one\n" * 10)
    spec = TASKS["generate"]
    request = DataRequest(files=(file,), valid_fraction=0.3)
    found = list(spec.examples(request, BadRowPolicy(), NullReporter()))
    assert [example.split for example in found] == ["train"] * 7 + ["valid"] * 3
    assert {example.texts for example in found} == {("one\n",)}


# --- generation -----------------------------------------------------------------------------------


def test_a_prompt_follows_the_prefix_of_the_tokenizer():
    words = Characters.train(["ab\n"])
    codec = GenerateCodec(Artifacts(tokenizer=words))
    assert codec.encode(["ab"])["ids"].tolist() == [words.encode("ab")]
    assert codec.encode([""])["ids"].tolist() == [words.encode("\n")]
    words.prefix = [2]
    assert codec.encode(["ab"])["ids"].tolist() == [[2, *words.encode("ab")]]
    assert codec.encode([""])["ids"].tolist() == [[2]]
    blank = Words.train(["a b"])  # has no token for a newline
    assert GenerateCodec(Artifacts(tokenizer=blank)).encode([""])["ids"].tolist() == [[0]]


def test_a_text_ends_at_end_tokens_of_its_model_or_its_tokenizer():
    words = Words.train(["a b"], special_tokens=("<unk>", "</s>", "<s>", "<sep>"))
    assert GenerateCodec(Artifacts(tokenizer=words)).eos == {1, 2}
    assert GenerateCodec(Artifacts({"eos": [4]}, words)).eos == {4}
    assert GenerateCodec(Artifacts({"eos": []}, words)).eos == {1, 2}


def test_a_preview_continues_the_text_the_same_way_each_time(tmp_path):
    task = open_task("generate", DataRequest(files=(write_book(tmp_path),)), tmp_path / "cache")
    vocab = task.artifacts.tokenizer.vocab
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=vocab, context=16, dim=8, depth=1, heads=1)).eval()
    found = task.preview(network)
    torch.rand(3)
    assert task.preview(network) == found
    decode = task.artifacts.tokenizer.decode
    assert found.startswith(decode(task.dataset.valid.read(0, 8).tolist()))
    assert len(found.replace("<unk>", "?")) == 8 + 80


# --- labels ---------------------------------------------------------------------------------------


def test_batches_are_truncated_to_the_context_and_truncated_texts_are_counted(tmp_path):
    rows = [f"{'word ' * (9 if i % 3 == 0 else 2)}{i},{'ab'[i % 2]}" for i in range(90)]
    task = open_task(
        "classify", DataRequest(files=(write_table(tmp_path, rows),)), tmp_path / "cache"
    )
    lengths = task.dataset.texts["train"].lengths
    batches = task.dataset.train_batches(40, 5, 0)
    assert batches.truncated == int((lengths > 5).sum()) > 5
    found = [batches.at(step) for step in range(batches.per_epoch)]
    assert max(batch["ids"].shape[1] for batch in found) == 5
    assert sum(len(batch["targets"]) for batch in found) == len(lengths)
    whole = task.dataset.train_batches(40, None, 0)
    assert whole.truncated == 0
    longest = max(whole.at(step)["ids"].shape[1] for step in range(whole.per_epoch))
    assert longest == 10
    assert task.dataset.train_batches(40, 10, 0).truncated == 0  # the longest text just fits


def test_every_validation_text_is_evaluated_once_with_its_own_label(tmp_path):
    task = open_labeled(tmp_path, 300)
    data = task.dataset
    expected = {
        tuple(data.texts["valid"][i]): int(data.targets["valid"][i]) for i in range(data.eval_size)
    }
    network = Uniform(9, context=100)
    found = Counter()
    for batch in data.eval_batches(network, context=2):  # applies only to running text
        for row, keep, target in zip(batch["ids"], batch["keep"], batch["targets"], strict=True):
            text = tuple(row[keep].tolist())
            assert expected[text] == int(target)
            found[text] += 1
    assert found == Counter(expected.keys())
    some = [len(batch["targets"]) for batch in data.eval_batches(network, 7)]
    assert sum(some) == 7
    assert data.preview_batch(100)["ids"].shape[0] == 3
    assert data.sizes() == {"vocab": task.artifacts.tokenizer.vocab, "classes": 2}
    assert data.n_targets == len(data.texts["train"]) == 300 - data.eval_size


def test_a_fraction_of_the_texts_is_fitted_with_their_own_labels(tmp_path):
    task = open_labeled(tmp_path, 100)
    network, data = RecordingModel(), task.dataset
    fraction = data.fit(network, 0.5)
    ids, labels, class_weights = network.data
    assert class_weights is None
    rows = [[int(i) for i in row.split()] for row in " ".join(map(str, ids.tolist())).split("-1")]
    assert fraction == len(rows) / len(data.texts["train"]) == pytest.approx(0.5, abs=0.02)
    expected = {
        tuple(data.texts["train"][i]): int(data.targets["train"][i]) for i in range(data.n_targets)
    }
    assert [expected[tuple(row)] for row in rows] == labels.tolist()
    assert data.fit(network, 0.0) == 1 / data.n_targets


def test_an_empty_text_becomes_one_unknown_token():
    words = Words.train(["a b"], special_tokens=("<unk>", "<sep>"))
    batch = ClassifyCodec(Artifacts({"labels": ["x", "y"]}, words)).encode(["", "a b"])
    assert batch["ids"].tolist() == [[0, 0], words.encode("a b")]
    assert batch["keep"].tolist() == [[True, False], [True, True]]
    assert "segments" not in batch


def test_segments_are_0_up_to_the_first_separator_and_1_after_it():
    pieces = WordPiece.train(["a b c"] * 3, vocab=30)
    first, last = pieces.special_tokens["[CLS]"], pieces.special_tokens["[SEP]"]
    rows = [np.array([first, 9, last, 8, last, 7, last]), np.array([first, 9, last])]
    batch = collate(pieces, rows, None)
    assert batch["segments"].tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]]
    assert collate(pieces, rows, 5)["ids"].shape == (2, 5)


def test_the_separator_is_a_special_token_of_the_tokenizer():
    assert find_separator(Words.train(["a"], special_tokens=("<unk>", "<sep>"))) == 1
    assert find_separator(Bytes(("<|endoftext|>",))) == 256
    assert find_separator(Bytes(("<|endoftext|>", "<sep>", "[SEP]"))) == 258
    assert find_separator(Bytes()) == -1
    with pytest.raises(GlassError, match=r"separate two texts; it needs one of .*<\|endoftext\|>"):
        encode_pair(Bytes(), ("a", "b"))
    assert encode_pair(Bytes(), ("a",)) == [97]


@pytest.mark.parametrize(
    ("options", "kind", "special_tokens", "vocab"),
    [
        ({}, "words", ["<unk>", "<sep>"], 7),
        ({"vocab": 5}, "words", ["<unk>", "<sep>"], 5),
        ({"tokenizer": "characters", "vocab": 4}, "characters", ["<unk>", "<sep>"], 8),
        ({"tokenizer": "bytes"}, "bytes", ["<sep>"], 257),
        ({"model": "bert_classifier"}, "wordpiece",
         ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], None),
        ({"model": "bert_classifier", "tokenizer": "words"}, "words",
         ["<unk>", "[CLS]", "[SEP]"], 8),
    ],
)  # fmt: skip
def test_a_tokenizer_has_the_special_tokens_that_its_model_needs(
    tmp_path, options, kind, special_tokens, vocab
):
    rows = [f"{'aa bb' if i % 2 else 'cc dd'},{'xy'[i % 2]}" for i in range(4)]
    rows += [f"{'ee' if i % 2 else 'aa dd'},{'xy'[i % 2]}" for i in range(30)]
    file = write_table(tmp_path, rows)
    task = open_task(
        "classify", DataRequest(files=(file,), valid=(file,), **options), tmp_path / "cache"
    )
    tokenizer = task.artifacts.tokenizer
    assert tokenizer.kind == kind
    assert sorted(tokenizer.special_tokens) == sorted(special_tokens)
    if vocab:
        assert tokenizer.vocab == vocab


def test_labels_and_columns_are_recorded_in_the_metadata(tmp_path):
    rows = [f"n{i % 7},{'pos ' if i % 3 else 'neg'},text {i}" for i in range(60)]
    reporter = RecordingReporter()
    request = DataRequest(files=(write_table(tmp_path, rows, "who,label,text"),), group="who")
    task = open_task("classify", request, tmp_path / "cache", reporter)
    assert task.metadata == {
        "name": "classify", "text": ["text"], "label": "label", "labels": ["neg", "pos"]
    }  # fmt: skip
    assert reporter.lines[0] == 'columns: text = "text", label = "label"'
    assert reporter.lines[1] == "2 labels (pos 40, neg 20)"


def test_an_evaluated_model_keeps_the_order_of_its_labels(tmp_path):
    task = open_labeled(tmp_path, labels=("b", "z", "a"))
    assert task.artifacts.metadata["labels"] == ["b", "z", "a"]
    data = task.dataset
    numbers = [
        int(task.artifacts.tokenizer.decode(data.texts["train"][i]).split()[-1]) for i in range(9)
    ]
    assert data.targets["train"][:9].tolist() == [0 if n % 2 else 2 for n in numbers]
    with pytest.raises(GlassError, match="unknown label 'b': the model was trained with"):
        open_labeled(tmp_path, labels=("a", "z"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [("text 9, ", "the label is empty"), (" ,a", "the text is empty")],
)
def test_rows_without_text_or_label_are_bad(tmp_path, row, reason):
    rows = [f"text {i},{'ab'[i % 2]}" for i in range(50)]
    file = write_table(tmp_path, [*rows, row])
    with pytest.raises(GlassError, match=rf"rows\.csv:52: {reason}"):
        open_task("classify", DataRequest(files=(file,)), tmp_path / "cache")
    policy = BadRowPolicy(tmp_path / "skipped.jsonl")
    task = open_task("classify", DataRequest(files=(file,), on_bad_row=policy), tmp_path / "cache")
    assert policy.reasons == {reason: 1}
    assert sum(map(len, task.dataset.texts.values())) == 50


def test_the_confusion_matrix_is_indexed_by_true_then_predicted_label():
    artifacts = Artifacts({"labels": ["x", "y", "z"]})
    objective = ClassifyObjective(artifacts)
    logits = torch.tensor([[0.0, 5.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 5.0]])

    class Fixed(Uniform):
        def forward(self):
            return logits

    scores = objective.scores(
        Fixed(9), {"targets": torch.tensor([0, 1, 2]), "index": torch.arange(3)}
    )
    labels = LabelScores(scores, artifacts)
    assert labels.confusion().tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]
    found = objective.metrics(scores)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx((0 + 2 / 3 + 1) / 3)
    assert found["examples"] == 3
    nats = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2]))
    assert found["loss"] == pytest.approx(float(nats))


def test_predictions_are_sorted_by_probability_and_labeled():
    codec = ClassifyCodec(Artifacts({"labels": ["x", "y", "z"]}, Bytes()))
    (found,) = codec.decode(torch.tensor([[0.2, 0.5, 0.3]]))
    assert list(found) == ["y", "z", "x"]
    assert found["y"] == pytest.approx(0.5)
    nameless = ClassifyCodec(Artifacts({}, Bytes()))
    assert list(nameless.decode(torch.tensor([[0.2, 0.8]]))[0]) == ["1", "0"]


def test_a_preview_shows_the_predicted_and_the_true_label():
    codec = ClassifyCodec(Artifacts({"labels": ["no", "yes"]}, Bytes()))

    class Fixed(Uniform):
        def forward(self, ids, keep=None):
            return torch.tensor([[0.25, 0.75], [0.25, 0.75]]).log()

    batch = codec.encode(["abcdefghijklmnop", "abc"]) | {"targets": torch.tensor([0, 1])}
    assert batch["keep"].sum(dim=1).tolist() == [16, 3]
    assert codec.preview(Fixed(9), batch).splitlines() == [
        f"{'yes (75%)':<24} true: {'no':<16} abcdefghijkl ...",
        f"{'yes (75%)':<24} true: {'yes':<16} abc",
    ]


# --- masks ----------------------------------------------------------------------------------------


def test_a_text_without_masked_tokens_is_masked_at_its_first_token():
    masker = Masker(cls=1, sep=2, mask=3, vocab=50)

    class NeverMask:
        """Random numbers that mask nothing."""

        def random(self, shape):
            return np.full(shape, 0.95)

        def integers(self, low, high, shape):
            return np.full(shape, 40)

    ids = torch.tensor([[1, 10, 11, 2, 12, 2]])
    batch = masker.mask_tokens(ids, torch.zeros_like(ids), torch.ones(1), NeverMask())
    assert batch["targets"].tolist() == [[-100, 10, -100, -100, -100, -100]]
    assert batch["ids"].tolist() == [[1, 40, 11, 2, 12, 2]]  # a tenth is replaced at random


@pytest.mark.parametrize(
    ("draw", "shown"), [(0.0, 3), (0.79, 3), (0.81, 10), (0.89, 10), (0.91, 40)]
)
def test_a_masked_token_is_shown_as_a_mask_as_itself_or_as_another(draw, shown):
    masker = Masker(cls=1, sep=2, mask=3, vocab=50)
    draws = iter([0.1, draw])

    class FixedDraws:
        def random(self, shape):
            return np.full(shape, next(draws))

        def integers(self, low, high, shape):
            assert (low, high) == (0, 50)
            return np.full(shape, 40)

    ids = torch.tensor([[1, 10, 2, 10, 2]])
    batch = masker.mask_tokens(ids, torch.zeros_like(ids), torch.ones(1), FixedDraws())
    assert batch["ids"].tolist() == [[1, shown, 2, shown, 2]]
    assert batch["targets"].tolist() == [[-100, 10, -100, 10, -100]]


@pytest.mark.parametrize(("fixed", "cut"), [("low", 4), ("high", 12)])
def test_windows_are_split_between_one_and_three_quarters(fixed, cut):
    masker = Masker(cls=1, sep=2, mask=3, vocab=50)

    class Extreme:
        def random(self, shape):
            return np.full(shape, 0.5)  # not below 0.5: another text follows

        def integers(self, low, high, shape):
            return np.full(shape, low if fixed == "low" else high - 1)

    ids = torch.arange(10, 26)[None]
    text, segments, is_next = masker.make_pairs(ids, ids + 20, Extreme())
    assert text[0].tolist() == [1, *range(10, 10 + cut), 2, *range(30 + cut, 46), 2]
    assert segments[0].tolist() == [0] * (cut + 2) + [1] * (17 - cut)
    assert is_next.tolist() == [0]


def test_masked_windows_depend_only_on_seed_and_step(tmp_path):
    task = open_task(
        "fill-mask", DataRequest(files=(write_book(tmp_path),), vocab=60), tmp_path / "cache"
    )
    batches = task.dataset.train_batches(4, 16, 3)
    for name, value in batches.at(5).items():
        assert torch.equal(value, batches.at(5)[name])
        assert value.shape[0] == 4
    assert not torch.equal(batches.at(5)["ids"], batches.at(6)["ids"])
    other = task.dataset.train_batches(4, 16, 4).at(5)["ids"]
    assert not torch.equal(batches.at(5)["ids"], other)


def test_masking_needs_enough_context_and_text(tmp_path):
    task = open_task(
        "fill-mask", DataRequest(files=(write_book(tmp_path),), vocab=60), tmp_path / "cache"
    )
    task.dataset.train_batches(1, 8, 0).at(0)
    with pytest.raises(GlassError, match="needs a context of at least 8 tokens, got 7"):
        task.dataset.train_batches(1, 7, 0)
    size = task.dataset.valid.size
    task.dataset.train_batches(1, size + 3, 0)
    with pytest.raises(GlassError, match="too few validation tokens"):
        task.dataset.train_batches(1, size + 4, 0)
    network = SimpleNamespace(context=13)
    batches = list(task.dataset.eval_batches(network, 25))
    assert sum(len(batch["ids"]) for batch in batches) == 2  # windows of ten tokens
    assert len(list(task.dataset.eval_batches(network, 10))) == 1
    with pytest.raises(GlassError, match=r"too few validation tokens \(9\)"):
        list(task.dataset.eval_batches(network, 9))


def test_a_preview_of_masked_tokens_depends_on_the_segments():
    class PredictSegment(Uniform):
        """Predicts a in the first segment and b in the second."""

        forward_inputs = ("ids", "segments")

        def forward(self, ids, *, segments=None):
            segments = torch.zeros_like(ids) if segments is None else segments
            return F.one_hot(ord("a") + segments, self.config.vocab)

    batch = {
        "ids": torch.tensor([[0, 0, 0, 0]]),
        "targets": torch.tensor([[-100, 1, 1, -100]]),
        "segments": torch.tensor([[0, 0, 1, 1]]),
    }
    assert FillMaskCodec(Artifacts({}, Bytes())).preview(PredictSegment(256), batch) == "ab"


def test_next_sentence_prediction_weighs_as_much_as_the_masked_tokens():
    objective = FillMaskObjective(Artifacts())
    network = CASES["bert"].network
    ids = torch.randint(5, 50, (2, 13))
    targets = torch.full_like(ids, -100)
    targets[0, 3], targets[1, 4] = 7, 8
    segments = (torch.arange(13) > 6).long().expand(2, -1)
    batch = {"ids": ids, "targets": targets, "segments": segments, "is_next": torch.tensor([0, 1])}
    with torch.no_grad():
        (loss,) = objective.losses(network, batch)
        found = network.masked_logits(ids, targets >= 0, segments)
        tokens = F.cross_entropy(found.tokens, torch.tensor([7, 8]), reduction="sum")
        is_next = F.cross_entropy(found.is_next, 1 - batch["is_next"], reduction="sum")
    assert float(loss) == pytest.approx(float(tokens + 0.15 * 10 * is_next), rel=1e-5)
    assert objective.count(batch) == 2


def test_fill_mask_metrics_are_means():
    objective = FillMaskObjective(Artifacts())
    sums = {"nats": 6.0, "tokens": 4, "correct": 3, "is_next": 1, "pairs": 2}
    assert objective.metrics(Scores(sums)) == {
        "loss": 1.5, "tokens": 4, "accuracy": 0.75, "next_accuracy": 0.5, "pairs": 2
    }  # fmt: skip
    assert objective.metrics(Scores({"nats": 6.0, "tokens": 4})) == {"loss": 1.5, "tokens": 4}


def test_each_mask_gets_its_most_probable_tokens_with_their_probabilities():
    pieces = WordPiece.train(["the cat sat on the mat"] * 3, vocab=40)
    codec = FillMaskCodec(Artifacts(tokenizer=pieces))
    vocab = pieces.vocab
    probs = torch.arange(1.0, vocab + 1) / sum(range(1, vocab + 1))

    class Fixed(Uniform):
        def forward(self, ids, keep=None):
            return probs.log().expand(*ids.shape, vocab)

    batch = codec.encode(["the [MASK] sat [MASK]", "the cat"])
    found = codec.run(Fixed(vocab), batch, top=2)
    assert [len(text) for text in found] == [2, 0]
    for mask in found[0]:
        assert [i for i, _ in mask] == [vocab - 1, vocab - 2]
        assert [p for _, p in mask] == pytest.approx(probs[[-1, -2]].tolist())
    assert len(codec.run(Fixed(vocab), batch)[0][0]) == 5
    assert len(codec.run(Fixed(vocab), batch, top=999)[0][0]) == vocab
    named = codec.decode(found)
    assert named[0][0][0][0] == pieces.token(vocab - 1)


# --- translations ---------------------------------------------------------------------------------


def test_pairs_with_the_same_source_are_in_the_same_split(tmp_path):
    file = tmp_path / "pairs.tsv"
    lines = [f"source {i}\ttarget {i} {k}" for i in range(50) for k in range(4)]
    file.write_text("\n".join(["source\ttarget", *lines]))
    reporter = RecordingReporter()
    request = DataRequest(files=(file,), tokenizer="characters", valid_fraction=0.5)
    task = open_task("translate", request, tmp_path / "cache", reporter)
    train, valid = ([tuple(s[i]) for i in range(len(s))] for s, _ in task.dataset.pairs.values())
    assert len(train) + len(valid) == 200
    assert set(Counter(train).values()) == set(Counter(valid).values()) == {4}
    assert not any("leak" in line for line in reporter.lines)


def test_pair_sizes_include_both_sides_and_the_special_tokens(tmp_path):
    task = open_pairs(tmp_path)
    data = task.dataset
    source, target = data.pairs["train"]
    assert data.size == source.size + target.size
    assert data.n_targets == target.size + len(target)
    assert data.eval_size == len(data.pairs["valid"][0])
    assert data.eval_size + len(target) == 60
    sizes = [len(source[i]) + len(target[i]) + 2 for i in range(len(target))]
    assert data.lengths("train").tolist() == sizes
    assert data.sizes() == {"vocab": task.artifacts.tokenizer.vocab, "eos": data.eos}
    batch = data.gather("train", np.arange(5))
    assert batch["targets"].min() == -100  # ignored by the loss
    assert (batch["targets"] == -100).sum() == (batch["targets"] < 0).sum() > 0
    special_tokens = task.artifacts.tokenizer.special_tokens
    assert (data.bos, data.eos) == (special_tokens["<start>"], special_tokens["<end>"])


def test_an_evaluation_with_a_limit_is_on_examples_from_all_of_the_validation_split(tmp_path):
    """On the same random examples each time, whatever their lengths."""
    (tmp_path / "pairs").mkdir()
    data = open_labeled(tmp_path, 300).dataset
    texts = data.texts["valid"]
    chosen = np.random.default_rng(0).permutation(len(texts))[:9]
    batches = list(data.eval_batches(Uniform(9, context=100), 9))
    rows = [row[keep] for b in batches for row, keep in zip(b["ids"], b["keep"], strict=True)]
    assert sorted(row.tolist() for row in rows) == sorted(texts[i].tolist() for i in chosen)

    pairs = open_pairs(tmp_path / "pairs", 200).dataset
    sources, _ = pairs.pairs["valid"]
    chosen = np.random.default_rng(0).permutation(len(sources))[:9]
    batches = list(pairs.eval_batches(CASES["translator"].network, 9))
    rows = [
        row[keep] for b in batches for row, keep in zip(b["source"], b["source_keep"], strict=True)
    ]
    assert sorted(row.tolist() for row in rows) == sorted(sources[i].tolist() for i in chosen)


def test_every_validation_pair_is_evaluated_once(tmp_path):
    task = open_pairs(tmp_path, 200)
    data = task.dataset
    source, target = data.pairs["valid"]
    expected = {tuple(source[i]): target[i].tolist() for i in range(data.eval_size)}
    seen = []
    for batch in data.eval_batches(CASES["translator"].network):
        for row, keep, answer in zip(
            batch["source"], batch["source_keep"], batch["targets"], strict=True
        ):
            text = tuple(row[keep].tolist())
            assert answer[answer >= 0].tolist() == [*expected[text], data.eos]
            seen.append(text)
    assert sorted(seen) == sorted(expected)
    some = [len(batch["ids"]) for batch in data.eval_batches(CASES["translator"].network, 5)]
    assert sum(some) == 5
    assert len(data.preview_batch(None)["ids"]) == 4


def test_a_phrase_table_is_fitted_on_a_limited_number_of_token_pairs(tmp_path, monkeypatch):
    task = open_pairs(tmp_path)
    network, data = RecordingModel(), task.dataset
    source, target = data.pairs["train"]
    assert data.fit(network, 1.0) == 1
    joined = [-1]
    for i in range(len(source)):
        joined += [*source[i].tolist(), -1]
    assert network.data[0].tolist() == joined[1:-1]
    assert int((network.data[1] == -1).sum()) == len(target) - 1
    token_pairs = sum((len(source[i]) + 1) * (len(target[i]) + 1) for i in range(len(source)))
    monkeypatch.setattr("glassformer.tasks.translate.MAX_TOKEN_PAIRS", token_pairs / 4)
    assert data.fit(network, 1.0) == pytest.approx(0.25, abs=0.02)
    assert data.fit(network, 0.1) == pytest.approx(0.1, abs=0.02)


def test_a_source_that_is_too_long_to_translate_is_rejected():
    words = Characters.train(["ab"], special_tokens=("<unk>", "<start>", "<end>"))
    codec = TranslateCodec(Artifacts(tokenizer=words))
    assert len(codec.encode_source("a" * 256)) == 256
    with pytest.raises(GlassError, match=r"may have at most 256 tokens, but 'a+' \.\.\. has 257"):
        codec.encode_source("a" * 257)
    batch = codec.encode(["", "ab"])
    assert batch["source"].tolist() == [[2, 0], words.encode("ab")]
    assert batch["source_keep"].tolist() == [[True, False], [True, True]]
    with pytest.raises(
        GlassError, match="needs a tokenizer with the special tokens <start> and <end>"
    ):
        TranslateCodec(Artifacts(tokenizer=Characters.train(["ab"])))


@pytest.mark.parametrize(
    ("search_options", "called"),
    [({}, (4, 0.6)), ({"beam_size": 2, "length_penalty": 1.5}, (2, 1.5))],
)
def test_beam_search_gets_its_beam_size_length_penalty_and_limits(
    monkeypatch, search_options, called
):
    words = Characters.train(["ab"], special_tokens=("<unk>", "<start>", "<end>"))
    codec, seen = TranslateCodec(Artifacts(tokenizer=words)), {}

    def search(network, ids, limits, **options):
        seen.update(options, ids=ids.tolist(), limits=limits)
        return [[(-1.0, [3]), (-2.0, [4])]] * len(ids)

    monkeypatch.setattr("glassformer.tasks.translate.beam_search", search)
    batch = codec.encode(["ab", "a"])
    assert codec.run(None, batch, **search_options) == [[3], [3]]
    assert (seen["beam_size"], seen["length_penalty"]) == called
    assert (seen["ids"], seen["eos"], seen["limits"]) == ([[1], [1]], 2, [38, 34])
    assert torch.equal(seen["source"], batch["source"])
    assert torch.equal(seen["source_keep"], batch["source_keep"])


def test_a_preview_shows_the_source_and_its_translation(monkeypatch):
    words = Characters.train(["ab"], special_tokens=("<unk>", "<start>", "<end>"))
    codec = TranslateCodec(Artifacts(tokenizer=words))
    monkeypatch.setattr(
        "glassformer.tasks.translate.generate_until",
        lambda network, ids, limits, **options: [words.encode("b"), words.encode("ba")],
    )
    assert codec.preview(None, codec.encode(["ab", "a"])) == "ab  ->  b\na  ->  ba"


def test_bleu_tokenizes_chinese_by_character():
    assert "tok:zh" in compute_bleu(["你好吗"], ["你好吗"])["bleu_signature"]
    assert "tok:13a" in compute_bleu(["how are you"], ["how are you"])["bleu_signature"]
    assert (
        "tok:13a"
        in compute_bleu(["the sign 好 is good"], ["the sign 好 is good"])["bleu_signature"]
    )
    found = compute_bleu(["the cat sat on the mat"], ["the cat sat on the mat"])
    assert (found["bleu"], found["chrf"]) == (pytest.approx(100), pytest.approx(100))
    assert compute_bleu(["a b c d e f"], ["a b c d x f"])["bleu"] < 70


@pytest.mark.parametrize(
    ("text", "first"),
    [((), ("1 x", "1 y")), (("de", "en"), ("1 z", "1 x"))],
)
def test_two_columns_are_a_source_and_a_target(tmp_path, text, first):
    rows = [f"{i} x,{i} y, {i} z " for i in range(1, 40)]
    file = write_table(tmp_path, rows, "en,zh,de")
    request = DataRequest(files=(file,), text=text)
    reporter = RecordingReporter()
    found = list(TASKS["translate"].examples(request, BadRowPolicy(), reporter))
    assert found[0].texts == first
    assert found[0].key == first[0]
    wanted = text or ("en", "zh")
    line = f'columns: source = "{wanted[0]}", target = "{wanted[1]}"'
    assert reporter.lines == [line]
    both, reporter = DataRequest(files=(file,), valid=(file,), text=text), RecordingReporter()
    assert len(list(TASKS["translate"].examples(both, BadRowPolicy(), reporter))) == 2 * len(rows)
    assert reporter.lines == [line]


def test_two_aligned_files_are_pairs_and_an_empty_side_is_a_bad_row(tmp_path):
    one, other = tmp_path / "a.txt", tmp_path / "b.txt"
    one.write_text("one\ntwo\n\n")
    other.write_text("eins\nzwei\ndrei\n")
    request = DataRequest(files=(one, other))
    policy = BadRowPolicy(tmp_path / "skipped.jsonl")
    found = list(TASKS["translate"].examples(request, policy, NullReporter()))
    assert [example.texts for example in found] == [("one", "eins"), ("two", "zwei")]
    assert policy.reasons == {"the source or target is empty": 1}
    assert json.loads(policy.log.read_text())["location"] == f"{one}:3"
    with pytest.raises(GlassError, match=r"has only one column: .*give two line-aligned files"):
        list(TASKS["translate"].examples(DataRequest(files=(one,)), policy, NullReporter()))


# --- checks of data -------------------------------------------------------------------------------


def test_check_counts_duplicates_conflicts_labels_and_leaks(tmp_path):
    rows = [f"text number {i},{'xy'[i % 2]}" for i in range(40)]
    rows += ["text number 0,x", "text number 1,x", "text number 3,y"]
    file = write_table(tmp_path, rows)
    found = check.check("classify", DataRequest(files=(file,)))
    assert (found["examples"], found["duplicates"], found["same_text_other_label"]) == (43, 3, 1)
    assert found["labels"] == {"x": 22, "y": 21}
    assert sum(found["split"].values()) == 43
    assert (found["leaks"], found["empty"], found["bad_rows"]) == (0, 0, 0)
    assert found["bytes"] == sum(len(row) - 2 for row in rows)
    assert found["samples"][0] == {
        "texts": ("text number 0",), "label": "x", "tokens": [["text", "number", "0"]]
    }  # fmt: skip
    assert len(found["samples"]) == 3
    assert (found["model"], found["error"]) == ("text_cnn", None)
    both = check.check("classify", DataRequest(files=(file,), valid=(file,)))
    assert both["split"] == {"train": 43, "valid": 43}
    assert both["leaks"] == 43


def test_check_lists_the_first_bad_rows(tmp_path):
    rows = [f"text {i},{'xy'[i % 2]}" for i in range(20)] + [f"text {i}," for i in range(12)]
    found = check.check("classify", DataRequest(files=(write_table(tmp_path, rows),)))
    assert found["bad_rows"] == 12
    assert found["bad_reasons"] == {"the label is empty": 12}
    assert len(found["first_bad"]) == 10
    assert found["first_bad"][0].endswith("rows.csv:22: the label is empty")
    assert found["examples"] == 20


def test_check_reports_why_training_would_fail(tmp_path):
    rows = [f"text {i},x" for i in range(20)]
    found = check.check(
        "classify", DataRequest(files=(write_table(tmp_path, rows),), label="label")
    )
    assert found["error"] == "every text has the label 'x': at least two labels are needed"


def test_lengths_are_summarized_with_a_histogram():
    assert check.summarize_lengths([]) == {}
    found = check.summarize_lengths([1, 2, 3, 10], bins=5)
    assert (found["min"], found["median"], found["p99"], found["max"]) == (1, 2.5, 10, 10)
    assert found["histogram"] == "█▄  ▄"  # 1, 2 in the first bin; 3 in the second; 10 in the last
    outlier = check.summarize_lengths([5] * 200 + [1000])
    assert (outlier["p99"], outlier["max"]) == (5, 1000)


# --- rows of tables -------------------------------------------------------------------------------


def test_texts_in_both_splits_are_reported_as_a_leak(tmp_path):
    rows = [f"text {i},{'xy'[i % 2]}" for i in range(30)]
    train = write_table(tmp_path, rows)
    valid = tmp_path / "valid.csv"
    valid.write_text("\n".join(["text,label", *rows[:4], "new text,x"]))
    reporter = RecordingReporter()
    open_task("classify", DataRequest(files=(train,), valid=(valid,)), tmp_path / "cache", reporter)
    assert reporter.lines[-2:] == [
        "30 texts for training, 5 for validation",
        "data leak: 4 of the validation texts also appear in the training data; "
        "the score will be optimistic",
    ]


def test_labels_that_do_not_match_the_texts_are_rejected(tmp_path):
    task = open_labeled(tmp_path)
    file = tmp_path / "cache" / "train.labels.npy"
    good = np.load(file)
    for wrong in (good[:-1], np.where(np.arange(len(good)) == 3, 2, good), good - 1):
        np.save(file, wrong)
        with pytest.raises(
            GlassError, match="is corrupted: expected one valid label for each text"
        ):
            TASKS["classify"].open(task.artifacts, tmp_path / "cache")
    np.save(file, good)
    TASKS["classify"].open(task.artifacts, tmp_path / "cache")


def test_the_stores_of_both_splits_contain_their_ids(tmp_path):
    task = open_labeled(tmp_path)
    vocab = task.artifacts.tokenizer.vocab
    for part in ("train", "valid"):
        store = Store(tmp_path / "cache" / f"{part}.ids", vocab)
        assert [row.tolist() for row in map(store.__getitem__, range(len(store)))] == [
            task.dataset.texts[part][i].tolist() for i in range(len(store))
        ]
    writer = StoreWriter(tmp_path / "x.ids", vocab)
    writer.add([vocab])
    with pytest.raises(GlassError, match=f"the id {vocab} is above {vocab - 1}"):
        writer.close()
