"""Exact values of the details of data: splits, batches, stores, columns, separators."""

import codecs
import hashlib
import io
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from glassformer import GlassError
from glassformer.core.reporter import NullReporter, ProgressBar
from glassformer.data import corpus, files, sample
from glassformer.data.batches import (
    Buckets,
    choose_examples,
    concatenate_texts,
    group_by_tokens,
    pad_rows,
    sample_windows,
    split_batch,
)
from glassformer.data.compression import file_type
from glassformer.data.delimited import guess_separator
from glassformer.data.examples import Example
from glassformer.data.files import BadRowPolicy, CountBadRows, IgnoreBadRows, Row, save_streams
from glassformer.data.format import FileFormat
from glassformer.data.inputs import read_inputs
from glassformer.data.labeled import (
    Columns,
    check_labels,
    choose_columns,
    find_unknown_labels,
    guess_columns,
    make_labeled_reader,
    peek_rows,
    read_table_rows,
)
from glassformer.data.memory import to_record
from glassformer.data.near_duplicates import NearDuplicateCounter
from glassformer.data.output import TableWriter, merge_columns
from glassformer.data.pairs import make_pair_reader, read_aligned_lines
from glassformer.data.request import DataOptions, DataRequest
from glassformer.data.split import LeakCounter, choose_held_out, hash_text, is_held_out
from glassformer.data.store import Store, StoreWriter
from glassformer.data.tables import read_rows
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.table_rows import summarize_examples
from glassformer.text.plain import Bytes, Characters, Words
from glassformer.text.subword import BPE


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def make_store(tmp_path, rows, vocab=100):
    writer = StoreWriter(tmp_path / "x.ids", vocab)
    for row in rows:
        writer.add(row)
    return writer.close()


# --- splits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "fraction"), [(0, 0.1), (3, 0.25)])
def test_a_split_is_decided_by_the_hash_of_seed_and_key(seed, fraction):
    """This keeps the split the same in all versions."""
    for i in range(300):
        key = f"Text {i} ä"
        digest = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=8).hexdigest()
        assert is_held_out(key, seed, fraction) == (int(digest, 16) / 2**64 < fraction)


@pytest.mark.parametrize("seed", range(4))
def test_a_group_is_held_out_if_that_brings_the_number_of_examples_closer_to_the_fraction(seed):
    sizes = {f"file {i}": size for i, size in enumerate((5, 40, 3, 17, 30, 8, 60, 2, 12, 23))}
    wanted, total, expected = 0.25 * sum(sizes.values()), 0, set()
    for group in sorted(sizes, key=lambda group: hash_text(f"{seed}:{group}")):
        if abs(total + sizes[group] - wanted) < abs(total - wanted):
            expected.add(group)
            total += sizes[group]
    assert choose_held_out(sizes, seed, 0.25) == expected


def test_the_smallest_group_is_held_out_if_all_are_too_large():
    assert choose_held_out({"a": 50, "b": 40, "c": 60}, 0, 0.1) == {"b"}


def test_a_request_splits_by_its_own_seed_and_fraction():
    keys = [f"text {i}" for i in range(200)]
    for seed, fraction in ((0, 0.1), (5, 0.1), (5, 0.5)):
        request = DataRequest(seed=seed, valid_fraction=fraction)
        found = [request.assign_split(key) for key in keys]
        assert found == ["valid" if is_held_out(key, seed, fraction) else "train" for key in keys]
    assert {
        DataRequest(valid_fraction=1.0, is_evaluation=True).assign_split(key) for key in keys
    } == {"valid"}
    assert DataRequest().valid_fraction == 0.1


def test_with_validation_files_the_others_are_not_split():
    a, b = (SimpleNamespace(), SimpleNamespace())
    assert DataRequest(files=(a,)).split_files() == (((a,), None),)
    assert DataRequest(files=(a,), valid=(b,)).split_files() == (((a,), "train"), ((b,), "valid"))


def test_a_leak_is_detected_by_its_group_or_by_all_of_its_texts():
    assert Example("", ("a", "b"), "train").key == "a\0b"
    assert Example("", ("a", "b"), "train", group="a").key == "a"
    assert Example("", ("a",), "train", group="").key == ""
    counter = LeakCounter()
    counter.add("train", "a")
    assert counter.count() == 0
    counter.add("valid", "b")
    assert counter.count() == 0


@pytest.mark.parametrize("wrong", [{"valid_fraction": 0.0}, {"valid_fraction": 1.5}, {"vocab": 0},
                                   {"separator": '"'}, {"separator": ", "}])  # fmt: skip
def test_invalid_options_are_rejected(wrong):
    with pytest.raises(GlassError):
        DataOptions(**wrong)
    assert DataOptions(separator="\t").separator == "\t"


# --- batches --------------------------------------------------------------------------------------


def test_groups_are_as_large_as_allowed():
    lengths = np.array([5, 1, 3, 100, 2])
    order = np.argsort(lengths)
    found = [group.tolist() for group in group_by_tokens(order, lengths, 10)]
    assert found == [[1, 4, 2], [0], [3]]
    even = np.full(5, 5)
    assert [len(group) for group in group_by_tokens(np.arange(5), even, 10)] == [2, 2, 1]
    assert [len(group) for group in group_by_tokens(np.arange(5), even, 9)] == [1] * 5
    decreasing = np.array([4, 1, 1, 1])  # the longest counts wherever it is
    assert [len(group) for group in group_by_tokens(np.arange(4), decreasing, 8)] == [2, 2]
    assert group_by_tokens(np.arange(0), even, 9) == []


def test_buckets_depend_on_the_seed_and_continue_across_epochs():
    lengths = np.random.default_rng(0).integers(1, 60, 200)
    one, same, other = (Buckets(lengths, 256, seed) for seed in (3, 3, 4))
    steps = range(3 * len(one))
    batches = [one.at(step).tolist() for step in steps]
    assert batches == [same.at(step).tolist() for step in reversed(steps)][::-1]
    assert batches != [other.at(step).tolist() for step in steps]
    sizes = [len(g) for g in group_by_tokens(np.argsort(lengths, kind="stable"), lengths, 256)]
    assert len(one) == len(sizes)
    assert sorted(map(len, batches[: len(one)])) == sorted(sizes)
    assert batches[0] != batches[len(one)]


def test_the_examples_of_a_batch_have_similar_lengths():
    """Lengths are compared with 10% of noise."""
    lengths = np.random.default_rng(0).integers(20, 200, 600)
    buckets = Buckets(lengths, 1000, 0)
    batches = [lengths[buckets.at(step)] for step in range(len(buckets))]
    assert len(batches) > 50
    assert max(float(batch.max() / batch.min()) for batch in batches) < 2
    padded = sum(len(batch) * int(batch.max()) for batch in batches)
    assert padded < 1.2 * lengths.sum()


def test_batches_are_not_ordered_by_length():
    lengths = np.arange(1, 401)
    buckets = Buckets(lengths, 2000, 0)
    means = [float(lengths[buckets.at(i)].mean()) for i in range(len(buckets))]
    assert means != sorted(means)
    assert means != sorted(means, reverse=True)


def test_chosen_examples_are_in_order():
    part = choose_examples(100, 10).tolist()
    assert part == sorted(np.random.default_rng(0).permutation(100)[:10].tolist())
    assert choose_examples(4, 4).tolist() == [0, 1, 2, 3]
    assert len(choose_examples(4, 3)) == 3


def test_a_batch_is_split_by_rows():
    batch = {"ids": torch.arange(10).reshape(5, 2), "targets": torch.arange(5)}
    parts = split_batch(batch, 3)
    assert [part["targets"].tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert [part["ids"].tolist() for part in parts][2] == [[8, 9]]
    assert len(split_batch(batch, 99)) == 5
    assert len(split_batch(batch, 1)) == 1


def test_texts_are_concatenated_with_separators(tmp_path):
    store = make_store(tmp_path, [[1, 2], [], [3]])
    assert concatenate_texts(store, np.array([2, 0])).tolist() == [3, -1, 1, 2]
    assert concatenate_texts(store, np.array([0, 1, 2])).tolist() == [1, 2, -1, -1, 3]
    assert concatenate_texts(store, np.array([2])).tolist() == [3]


def test_rows_are_padded_with_the_given_value():
    ids, keep = pad_rows([np.array([5]), np.array([6, 7, 8])], fill=-100)
    assert ids.tolist() == [[5, -100, -100], [6, 7, 8]]
    assert ids.dtype == torch.int64
    assert keep.sum(dim=1).tolist() == [1, 3]


def test_a_window_may_be_as_long_as_the_text_but_no_longer(tmp_path):
    store = make_store(tmp_path, [[1, 2], [3, 4]])
    assert sample_windows(store, 0, 0, 2, 4).tolist() == [[1, 2, 3, 4]] * 2
    with pytest.raises(GlassError, match=r"too few tokens \(4\) for a window of 5"):
        sample_windows(store, 0, 0, 2, 5)
    starts = np.random.default_rng((7, 9)).integers(0, 3, size=6)
    assert sample_windows(store, 7, 9, 6, 2)[:, 0].tolist() == (starts + 1).tolist()


# --- stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocab", "width"), [(2**16, 2), (2**16 + 1, 4)])
def test_ids_take_two_bytes_if_they_fit(tmp_path, vocab, width):
    store = make_store(tmp_path, [[0, vocab - 1]], vocab)
    assert (tmp_path / "x.ids").stat().st_size == 2 * width
    assert store[0].tolist() == [0, vocab - 1]
    assert store[0].dtype == np.int64
    assert store.size == 2


def test_a_store_may_be_empty(tmp_path):
    store = make_store(tmp_path, [])
    assert (len(store), store.size, store.flat.tolist()) == (0, 0, [])


def test_a_store_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.data.store.BLOCK_SIZE", 3)
    store = make_store(tmp_path, [range(7)])
    assert [part.tolist() for part in store.blocks()] == [[0, 1, 2], [3, 4, 5], [6]]
    with pytest.raises(GlassError, match="the id 6 is above 5"):
        Store(tmp_path / "x.ids", 6)
    Store(tmp_path / "x.ids", 7)


@pytest.mark.parametrize("starts", [[0, 3], [0, 5], [1, 4], [0, 5, 4], []])
def test_a_store_that_does_not_match_its_starts_is_rejected(tmp_path, starts):
    make_store(tmp_path, [[1, 2], [3, 4]])
    np.save(tmp_path / "x.starts.npy", np.array(starts, dtype=np.int64))
    with pytest.raises(GlassError, match="is corrupted"):
        Store(tmp_path / "x.ids", 100)


def test_starts_must_be_integers(tmp_path):
    make_store(tmp_path, [[1, 2]])
    np.save(tmp_path / "x.starts.npy", np.array([0.0, 2.0]))
    with pytest.raises(
        GlassError, match="expected an integer array with ndim=1, got float64 with ndim=1"
    ):
        Store(tmp_path / "x.ids", 100)


# --- running text ---------------------------------------------------------------------------------


def test_a_text_is_split_at_a_byte_across_its_chunks():
    found = list(corpus.split_at_byte(["abc", "def", "ghi"], 4))
    assert found == [("train", "abc"), ("train", "d"), ("valid", "ef"), ("valid", "ghi")]
    assert list(corpus.split_at_byte(["abc"], 0)) == [("valid", "abc")]
    assert list(corpus.split_at_byte(["abc"], 3)) == [("train", "abc")]
    assert list(corpus.split_at_byte(["aä", "b"], 2)) == [("train", "aä"), ("valid", "b")]


def test_the_limit_of_a_split_counts_the_bytes_of_all_chunks():
    found = list(corpus.split_at_byte(["ää", "öbcd", "e"], 6))  # 4, 5 and 1 bytes
    assert found == [("train", "ää"), ("train", "ö"), ("valid", "bcd"), ("valid", "e")]
    chunks = ["日本語\n"] * 10  # 10 bytes each
    parts = [part for part, _ in corpus.split_at_byte(chunks, 70)]
    assert parts == ["train"] * 7 + ["valid"] * 3


def test_lines_are_joined_into_chunks_of_a_minimum_size(monkeypatch):
    monkeypatch.setattr(corpus, "CHUNK_CHARACTERS", 5)
    assert list(corpus.join_lines(["ab", "cd", "e", "f"])) == ["abcde", "f"]
    assert list(corpus.join_lines(["abcdef", "g"])) == ["abcdef", "g"]
    assert list(corpus.join_lines([])) == []


def test_a_tokenizer_is_trained_on_the_beginning_of_a_long_text(monkeypatch):
    monkeypatch.setattr(corpus, "MAX_TOKENIZER_CHARACTERS", 5)
    found = corpus.summarize_corpus(["äbc", "def", "ghi"])
    assert (found.bytes, found.sample) == (10, ["äbc", "de"])
    assert corpus.summarize_corpus(["abcd", "efg", "h"]).sample == ["abcd", "e"]
    assert corpus.summarize_corpus(["abcde", "f"]).sample == ["abcde"]


@pytest.mark.parametrize(
    ("kind", "size", "vocab"),
    [
        ("bpe", 10, 512), ("bpe", 400 * 512, 512), ("bpe", 400 * 1024, 1024),
        ("bpe", 400 * 1500, 2048), ("wordpiece", 400 * 4096, 4096), ("bpe", 10**10, 8192),
        ("words", 400 * 1024, 1024), ("characters", 10**6, None), ("bytes", 10**6, None),
    ],
)  # fmt: skip
def test_larger_texts_get_a_larger_vocabulary(kind, size, vocab):
    assert corpus.default_vocab(kind, size) == vocab


def test_a_script_of_many_characters_gets_two_tokens_for_each_frequent_one():
    characters = [chr(0x4E00 + i) for i in range(1500)]
    frequent, rare = "".join(characters[:700]) * 10, "".join(characters[700:735])  # 99.5% and 0.5%
    assert corpus.count_frequent_characters([frequent, rare]) == 700
    assert corpus.default_vocab("bpe", 10_000, [frequent, rare]) == 2048  # from 1,400 upwards
    assert corpus.default_vocab("bpe", 400 * 4096, [frequent]) == 4096
    assert corpus.default_vocab("bpe", 10_000, ["plain English text"]) == 512
    assert corpus.default_vocab("characters", 10_000, [frequent]) is None
    assert corpus.default_vocab("bpe", 10_000, [""]) == 512


def test_a_tokenizer_has_its_own_special_tokens_and_those_of_the_task():
    texts = ["the cat sat on the mat"] * 5
    made = {
        kind: corpus.train_tokenizer(kind, texts, vocab=vocab, special_tokens=("<x>",))
        for kind, vocab in (
            ("characters", None), ("words", 5), ("bytes", None), ("bpe", 300), ("wordpiece", 40)
        )
    }  # fmt: skip
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<x>"]
    assert list(made["characters"].special_tokens) == ["<unk>", "<x>"]
    assert made["words"].vocab == 5
    assert made["bytes"].special_tokens == {"<x>": 256}
    assert list(made["bpe"].special_tokens) == ["<x>"]
    assert sorted(made["wordpiece"].special_tokens) == sorted(bert)
    assert made["wordpiece"].vocab <= 40
    plain = corpus.train_tokenizer("bpe", texts, vocab=300)
    assert list(plain.special_tokens) == ["<|endoftext|>"]
    with pytest.raises(GlassError, match="unknown tokenizer 'letters'"):
        corpus.train_tokenizer("letters", texts, vocab=None)


def test_unknown_tokens_are_reported_or_added():
    reporter, words = RecordingReporter(), Words.train(["a b"])
    found = corpus.reuse_tokenizer(words, ["a b a c"], extend=False, reporter=reporter)
    assert found is words
    assert reporter.lines == [
        "25.0% of the tokens are unknown to the model's tokenizer; --extend adds them"
    ]
    reporter.lines.clear()
    longer = corpus.reuse_tokenizer(words, ["a b c c d"], extend=True, reporter=reporter)
    assert reporter.lines == ["tokens added to the tokenizer: 2"]
    assert longer.encode("a b c d") == [*words.encode("a b"), 3, 4]
    reporter.lines.clear()
    corpus.reuse_tokenizer(words, ["a b " * 999 + "c"], extend=False, reporter=reporter)
    assert reporter.lines == []  # one unknown token in two thousand
    with pytest.raises(GlassError, match="a bytes tokenizer cannot be extended"):
        corpus.reuse_tokenizer(Bytes(), ["a"], extend=True, reporter=reporter)


def test_unknown_tokens_are_counted_in_all_of_the_sample():
    reporter, words = RecordingReporter(), Words.train(["a b"])
    corpus.reuse_tokenizer(words, ["a b", "c d"], extend=False, reporter=reporter)
    assert reporter.lines[0].startswith("50.0% of the tokens are unknown")


def test_the_named_encoding_is_used_for_files_and_for_files_in_folders(tmp_path):
    (tmp_path / "f").mkdir()
    file = write(tmp_path / "f" / "a.txt", "an é in UTF-8\n")
    for path in (file, tmp_path / "f"):
        found = corpus.read_texts((path,), BadRowPolicy(), None, FileFormat(encoding="cp1252"))
        assert "".join(found) == "an Ã© in UTF-8\n"


def test_bytes_and_tokens_are_counted_for_each_split(tmp_path):
    content = [("train", "äb"), ("train", "c"), ("valid", "cä")] * 50  # more than one batch
    bar = ProgressBar(NullReporter(), "", 6 * 50)
    words = Characters.train(["äbc"])
    counts = corpus.encode_corpus(iter(content), words, tmp_path, bar)
    assert counts == {
        "train_bytes": 200, "train_tokens": 150, "valid_bytes": 150, "valid_tokens": 100
    }  # fmt: skip
    assert bar.done == 350
    store = Store(tmp_path / "train.ids", words.vocab)
    assert words.decode(store.read(0, store.size).tolist()) == "äbc" * 50
    subwords = BPE.train(["ab ab ab"], vocab=260)
    assert corpus.encode_batch(subwords, ["ab", "b"]) == [
        subwords.encode("ab"),
        subwords.encode("b"),
    ]


def test_the_column_with_the_most_text_is_read(tmp_path):
    file = write(tmp_path / "a.csv", "id,title,text\n" + "1,short one,a much longer text\n" * 3)
    assert corpus.guess_column((file,)) == "text"
    assert corpus.guess_column((write(tmp_path / "b.txt", "x"),)) is None
    folder = tmp_path / "f"
    folder.mkdir()
    write(folder / "c.jsonl", '{"body": "some text", "id": 3}\n')
    assert corpus.guess_column((folder,)) == "body"
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(GlassError, match="empty has no text files"):
        list(corpus.read_texts((empty,), BadRowPolicy()))


# --- tables ---------------------------------------------------------------------------------------


def rows(*values):
    return [Row(f"x:{i}", value) for i, value in enumerate(values)]


def test_the_label_column_is_the_first_with_a_known_name():
    found = guess_columns(rows({"topic": "a", "Label": "b", "x": "long text"}), (), None)
    assert (found.label, found.text) == ("Label", ("x",))
    found = guess_columns(rows({"tag": "a", "category": "b", "x": "long text"}), (), None)
    assert found.label == "category"
    found = guess_columns(rows({"a": "1", "label": "2", "b": "3"}), ("a", "b"), "label")
    assert found.text == ("a", "b")


def test_a_column_with_few_values_is_a_label_and_one_with_many_is_not():
    values = [{"n": str(i), "few": str(i % 5), "text": f"text {i}"} for i in range(20)]
    assert guess_columns(rows(*values), (), None).label == "few"  # 5 of 20
    values = [{"n": str(i), "few": str(i % 6), "text": f"text {i}"} for i in range(20)]
    with pytest.raises(GlassError, match="no column looks like a label"):
        guess_columns(rows(*values), (), None)
    values = [{"one": "same", "text": f"text {i}"} for i in range(20)]
    with pytest.raises(GlassError, match="no column looks like a label"):
        guess_columns(rows(*values), (), None)


def test_a_column_with_empty_cells_is_guessed_as_the_label_only_if_there_is_no_other():
    values = [{"note": "x" * (i % 2), "kind": "abc"[i % 3], "text": f"text {i}"} for i in range(20)]
    assert guess_columns(rows(*values), (), None).label == "kind"
    values = [{"note": "x" * (i % 2), "text": f"text {i}"} for i in range(20)]
    assert guess_columns(rows(*values), (), None).label == "note"


def test_each_label_of_a_cell_must_be_known_to_the_model():
    several = DataRequest(labels=("a", "b"), multi_label=True)
    found = [find_unknown_labels(cell, several) for cell in ("a|b", " b ", "a|c| d")]
    assert found == [[], [], ["c", "d"]]
    assert find_unknown_labels("a|b", DataRequest(labels=("a", "b"))) == ["a|b"]
    assert find_unknown_labels("z", DataRequest()) == []


def test_a_column_of_text_is_not_guessed_as_the_label():
    values = [{"few": "ab"[i % 2], "more": "abc"[i % 3], "n": str(i)} for i in range(20)]
    assert guess_columns(rows(*values), (), None).label == "few"
    found = guess_columns(rows(*values), ("few",), None)
    assert (found.text, found.label) == (("few",), "more")
    with pytest.raises(GlassError, match="no column looks like a label"):
        guess_columns(rows(*values), ("few", "more"), None)


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        (("x",), None, "unknown column 'x'"),
        ((), "x", "unknown column 'x'"),
        (("label",), "label", "cannot be both the label and the text"),
    ],
)
def test_unknown_columns_are_reported(text, label, message):
    with pytest.raises(GlassError, match=message):
        guess_columns(rows({"label": "a", "text": "b"}), text, label)
    with pytest.raises(GlassError, match="there are no rows"):
        guess_columns([], (), None)
    with pytest.raises(GlassError, match="only one column"):
        guess_columns(rows({"label": "a"}), (), None)


def test_pairs_are_guessed_by_name_and_other_texts_by_length():
    found = guess_columns(
        rows({"Question1": "a", "question2": "b", "y": "c", "z": "d" * 9}), (), None
    )
    assert (found.text, found.label) == (("Question1", "question2"), "y")
    found = guess_columns(rows({"short": "aa", "long": "bbb", "label": "c" * 9}), (), None)
    assert found.text == ("long",)


def read_pairs(*files, **options):
    request = DataRequest(files=files, **options)
    reader, metadata = make_pair_reader(request, NullReporter())
    return list(reader(BadRowPolicy())), metadata


def test_source_and_target_are_the_first_columns_with_letters_in_most_rows(tmp_path):
    rows = [f"{'n1' if i == 0 else i},ein {i},one {i}" for i in range(6)]
    file = write(tmp_path / "a.csv", "\n".join(["key,de,en", *rows]))
    examples, metadata = read_pairs(file)
    assert metadata == {"text": ["de"], "target": "en"}
    assert examples[1].texts == ("ein 1", "one 1")
    trained = {"trained_text": ("en",), "trained_target": "de"}
    examples, metadata = read_pairs(file, **trained)
    assert (examples[1].texts, metadata) == (("one 1", "ein 1"), {"text": ["en"], "target": "de"})
    examples, _ = read_pairs(file, **trained, text=("key", "en"))  # what the user says counts
    assert examples[1].texts == ("1", "one 1")


def test_the_columns_of_the_training_data_are_recorded_rather_than_those_for_validation(tmp_path):
    file = write(tmp_path / "a.csv", "source,target\na,b\n")
    other = write(tmp_path / "b.csv", "src,tgt\nc,d\n")
    examples, metadata = read_pairs(file, valid=(other,))
    assert [(e.texts, e.split) for e in examples] == [(("a", "b"), "train"), (("c", "d"), "valid")]
    assert metadata == {"text": ["source"], "target": "target"}


def test_the_named_encoding_is_used_for_aligned_files(tmp_path):
    files = (write(tmp_path / "a.txt", "é\n"), write(tmp_path / "b.txt", "e\n"))
    (example,), _ = read_pairs(*files, encoding="cp1252")
    assert example.texts == ("Ã©", "e")


def test_the_pairs_of_the_sample_are_split_by_their_source():
    request = DataRequest(seed=3, valid_fraction=0.3)
    examples = list(make_pair_reader(request, NullReporter())[0](BadRowPolicy()))
    assert len(examples) == 6000
    assert all(e.split == request.assign_split(e.texts[0]) for e in examples)
    assert {e.split for e in examples} == {"train", "valid"}


def test_aligned_lines_have_the_location_of_the_source_and_the_shorter_file_is_reported(tmp_path):
    one, other = write(tmp_path / "a", "1\n2\n"), write(tmp_path / "b", "x\ny\n")
    assert list(read_aligned_lines(one, other, BadRowPolicy())) == [
        (f"{one}:1", "1", "x"), (f"{one}:2", "2", "y")
    ]  # fmt: skip
    write(one, "1\n")
    with pytest.raises(GlassError, match=rf"^{one} ends before {other}"):
        list(read_aligned_lines(one, other, BadRowPolicy()))
    write(one, "1\n2\n3\n")
    with pytest.raises(GlassError, match=rf"^{other} ends before {one}"):
        list(read_aligned_lines(one, other, BadRowPolicy()))


def test_the_column_of_the_groups_is_guessed_neither_as_the_text_nor_as_the_label():
    values = [
        {"short": f"text {i}", "kind": "abcd"[i % 4], "who": "one person" if i % 2 else "another"}
        for i in range(40)
    ]
    choose = lambda **options: choose_columns(rows(*values), DataRequest(**options))
    assert choose() == Columns(("short",), "who")  # it has the fewest values
    assert choose(group="who") == Columns(("short",), "kind")
    assert choose(group="who", label="who") == Columns(("short",), "who")
    assert choose(group="who", text=("who",)) == Columns(("who",), "kind")
    names = [{"who": f"a long name {i}", "label": "ab"[i % 2], "text": str(i)} for i in range(40)]
    found = choose_columns(rows(*names), DataRequest(group="who"))
    assert found == Columns(("text",), "label")
    two = [{"who": f"name {i}", "label": "ab"[i % 2]} for i in range(40)]
    assert choose_columns(rows(*two), DataRequest(group="who")) == Columns(("who",), "label")


def test_named_columns_are_preferred_to_those_of_the_training_data():
    names = rows({"a": "text", "b": "text", "x": "1", "y": "2"})
    trained = {"trained_text": ("a",), "trained_label": "x"}
    assert choose_columns(names, DataRequest(**trained)) == Columns(("a",), "x")
    found = choose_columns(names, DataRequest(**trained, text=("b",), label="y"))
    assert found == Columns(("b",), "y")


def test_labels_are_read_without_spaces_and_one_text_of_a_pair_may_be_empty(tmp_path):
    file = write(tmp_path / "a.csv", "text1,text2,label\none,two, x \n,three,y\nfour,,x\n , ,x\n")
    policy = BadRowPolicy(tmp_path / "log.jsonl")
    read, metadata = make_labeled_reader(DataRequest(files=(file,)), NullReporter())
    found = [(example.texts, example.label) for example in read(policy)]
    assert found == [(("one", "two"), "x"), (("", "three"), "y"), (("four", ""), "x")]
    assert metadata == {"text": ["text1", "text2"], "label": "label"}
    assert policy.reasons == {"the text is empty": 1}


def test_at_most_a_thousand_labels_are_allowed():
    from collections import Counter

    assert len(check_labels(Counter(f"{i:04}" for i in range(1000)))) == 1000
    with pytest.raises(GlassError, match="there are 1,001 different labels"):
        check_labels(Counter(map(str, range(1001))))


def test_peeking_at_rows_stops_at_the_limit(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\n" + "".join(f"t{i},x\n" for i in range(30)))
    assert len(peek_rows((file,), limit=7)) == 7
    assert len(peek_rows((file,))) == 30


def test_a_folder_of_labels_has_one_subfolder_per_label(tmp_path):
    (tmp_path / "f" / "b" / "deep").mkdir(parents=True)
    (tmp_path / "f" / "a").mkdir()
    write(tmp_path / "f" / "b" / "deep" / "1.txt", "one\ntwo\n")
    write(tmp_path / "f" / "a" / "2.txt", "three")
    found = list(read_table_rows((tmp_path / "f",), BadRowPolicy()))
    assert [row.values for row in found] == [
        {"text": "three", "label": "a"}, {"text": "one\ntwo\n", "label": "b"}
    ]  # fmt: skip
    with pytest.raises(GlassError, match="has no subfolders"):
        list(read_table_rows((tmp_path / "f" / "a",), BadRowPolicy()))


@pytest.mark.parametrize(
    ("content", "separator"),
    [
        ("a,b;c\nd;e\n", ";"),  # the comma is not in every line
        ("a,b,c;d\ne,f,g;h\n", ";"),
        ("a\tb\nc\td\n", "\t"),
        ("a|b|c\nd|e|f,g\n", "|"),
        ("abc\ndef\n", ","),
    ],
)
def test_a_separator_occurs_in_every_line(tmp_path, content, separator):
    assert guess_separator(write(tmp_path / "a.csv", content)) == separator
    assert guess_separator(write(tmp_path / "a.tsv", content)) == "\t"


def test_a_table_without_cells_in_a_row_or_beyond_its_columns_is_read(tmp_path):
    """Spreadsheets end rows with empty cells, and tables with empty rows."""
    file = write(tmp_path / "a.csv", "text,label\none,x,,\n,\ntwo,y,\n,,\n")
    found = [row.values for row in read_rows(file, BadRowPolicy())]
    assert found == [{"text": "one", "label": "x"}, {"text": "two", "label": "y"}]


def test_the_column_of_the_groups_and_the_header_option_say_whether_there_is_a_header(tmp_path):
    file = write(tmp_path / "a.csv", "aa,bb\ncc,dd\n")
    for options, count in (
        ({}, 2),
        ({"group": "bb"}, 1),
        ({"label": "aa"}, 1),
        ({"header": True}, 1),
        ({"text": ("aa",), "header": False}, 2),
    ):
        found = list(read_rows(file, BadRowPolicy(), DataOptions(**options).format))
        assert len(found) == count, options


def test_a_column_without_a_name_is_numbered(tmp_path):
    file = write(tmp_path / "a.csv", " Text ,,label\none,two,three\n")
    (row,) = read_rows(file, BadRowPolicy())
    assert row.values == {"Text": "one", "2": "two", "label": "three"}
    assert row.location == f"{file}:2"
    file = write(tmp_path / "b.csv", "one,two\nthree,four\n")
    first = next(iter(read_rows(file, BadRowPolicy())))
    assert first.values == {"1": "one", "2": "two"}


def test_a_given_separator_is_preferred(tmp_path):
    file = write(tmp_path / "a.csv", "text,x;label\none,y;two\n")
    (row,) = read_rows(file, BadRowPolicy(), FileFormat(separator=";"))
    assert row.values == {"text,x": "one,y", "label": "two"}


def test_bad_rows_are_counted_by_reason_and_logged_in_short(tmp_path):
    policy = BadRowPolicy(tmp_path / "log.jsonl")
    policy("a:1", "wrong", "ä" * 5000)
    policy("a:2", "wrong")
    policy("a:3", "worse", "x")
    assert (policy.count, policy.reasons) == (3, {"wrong": 2, "worse": 1})
    logged = [json.loads(line) for line in policy.log.read_text().splitlines()]
    assert logged[0] == {"location": "a:1", "reason": "wrong", "content": "ä" * 1000}
    assert [entry["location"] for entry in logged] == ["a:1", "a:2", "a:3"]
    silent = IgnoreBadRows()
    silent("a:1", "wrong")
    assert silent.count == 0


def test_bad_rows_are_counted_and_the_first_ten_are_kept():
    policy = CountBadRows()
    for i in range(12):
        policy(f"a:{i}", "odd" if i % 2 else "even")
    assert (policy.count, policy.reasons) == (12, {"even": 6, "odd": 6})
    assert policy.first == [f"a:{i}: {'odd' if i % 2 else 'even'}" for i in range(10)]


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)  # fmt: skip
def test_a_byte_order_mark_names_the_encoding(tmp_path, mark, encoding):
    file = write(tmp_path / "a.txt", mark + "añ\n二".encode(encoding))
    assert [line for _, line in files.read_lines(file, BadRowPolicy())] == ["añ\n", "二"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.csv", ".csv"), ("a.csv.gz", ".csv"), ("a.jsonl.xz", ".jsonl"), ("a.gz", ""),
     ("a.b.txt", ".txt")],
)  # fmt: skip
def test_the_type_of_a_file_is_its_extension(tmp_path, name, kind):
    assert file_type(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b' {"a": 1}\n', [{"a": "1"}]),
        (b"text\tb,c\nx\ty\n", [{"text": "x", "b,c": "y"}]),
        (b"text,b\nx,y\n", [{"text": "x", "b": "y"}]),
        (b"", []),
    ],
)
def test_the_format_of_a_stream_of_rows_is_guessed_from_its_content(
    tmp_path, monkeypatch, content, rows
):
    monkeypatch.setattr(files.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    other = write(tmp_path / "a.csv", "x")
    found = save_streams((other, type(other)("-")), tmp_path)
    assert found[0] == other
    assert found[1] == tmp_path / "input-1.txt"
    assert found[1].read_bytes() == content
    assert [row.values for row in read_rows(found[1], BadRowPolicy())] == rows


def test_a_stream_of_text_is_saved_as_text(tmp_path, monkeypatch):
    monkeypatch.setattr(files.sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"a": 1}\n')))
    found = save_streams((type(tmp_path)("-"),), tmp_path, name="valid")
    assert found == (tmp_path / "valid-0.txt",)


def test_missing_values_become_empty_strings(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"a": null, "b": NaN, "c": 0, "d": 1.5, "e": false}\n')
    (row,) = read_rows(file, BadRowPolicy())
    assert row.values == {"a": "", "b": "", "c": "0", "d": "1.5", "e": "False"}
    file = write(tmp_path / "b.json", '[{"a": 1}, {"a": Infinity}]')
    found = list(read_rows(file, BadRowPolicy()))
    assert [row.values["a"] for row in found] == ["1", ""]
    assert found[1].location == f"{file}, record 2"


def test_a_summary_counts_all_examples_and_keeps_a_sample(monkeypatch):
    monkeypatch.setattr("glassformer.tasks.table_rows.MAX_TOKENIZER_CHARACTERS", 6)
    found = summarize_examples([
        Example("", ("ab", "c"), "train", "x"), Example("", ("de",), "train", "y"),
        Example("", ("f",), "valid", "x"), Example("", ("g",), "valid"),
    ])  # fmt: skip
    assert (found.count, dict(found.labels)) == (4, {"x": 2, "y": 1})
    assert found.sample == ["ab", "c", "de", "f"]


def test_the_sample_of_a_first_example_longer_than_the_limit_is_its_beginning(monkeypatch):
    monkeypatch.setattr("glassformer.tasks.table_rows.MAX_TOKENIZER_CHARACTERS", 5)
    long = Example("", ("abcdef", "g"), "train")
    assert summarize_examples([long, Example("", ("h",), "train")]).sample == ["abcde"]
    assert summarize_examples([Example("", ("abcd", "efg"), "train")]).sample == ["abcd", "e"]


def test_a_csv_file_has_a_byte_order_mark_and_floats_of_six_digits(tmp_path):
    row = {"a": "é", "p": 0.123456789, "n": 7, "list": [1, "ü"]}
    for name in ("a.csv", "a.tsv"):
        with TableWriter(tmp_path / name) as writer:
            writer.write(row)
    text = 'é,0.123457,7,"[1, ""ü""]"'
    assert (tmp_path / "a.csv").read_bytes() == f"\ufeffa,p,n,list\r\n{text}\r\n".encode()
    assert (tmp_path / "a.tsv").read_bytes().startswith(b"a\tp\tn\tlist\r\n")


@pytest.mark.parametrize("count", [0, 2, 3, 7])
def test_all_rows_are_written_to_the_groups_of_a_parquet_file(tmp_path, monkeypatch, count):
    monkeypatch.setattr("glassformer.data.output.ROWS_PER_GROUP", 3)
    with TableWriter(tmp_path / "a.parquet") as writer:
        for i in range(count):
            writer.write({"n": i})
    found = [row.values["n"] for row in read_rows(tmp_path / "a.parquet", BadRowPolicy())]
    assert found == [str(i) for i in range(count)]
    assert writer.count == count


def test_a_result_never_replaces_a_column_of_the_input():
    columns = {"label": "mine", "new_label": "mine too", "text": "a"}
    found = merge_columns(columns, {"label": "x", "score": 1.0})
    assert found == {**columns, "new_new_label": "x", "score": 1.0}


@pytest.mark.parametrize(
    ("task", "row", "record"),
    [
        ("classify", ("a", "x"), {"text": "a", "label": "x"}),
        ("classify", ("a", "b", "x"), {"text_1": "a", "text_2": "b", "label": "x"}),
        ("translate", ("a", "b"), {"source": "a", "target": "b"}),
        ("summarize", ["a", "b"], {"document": "a", "summary": "b"}),
        ("recommend", (1, "i", 2.5), {"user": "1", "item": "i", "rating": "2.5"}),
        ("recommend", (1, 2, 3.0, 4), {"user": "1", "item": "2", "rating": "3", "time": "4"}),
        ("recommend-next", (1, 2, 9), {"user": "1", "item": "2", "time": "9"}),
        ("recommend-next", (1, 2, 3, 9), {"user": "1", "item": "2", "rating": "3", "time": "9"}),
        ("generate", "a text", {"text": "a text"}),
    ],
)
def test_the_columns_of_tuples_depend_on_the_task(task, row, record):
    assert to_record(task, row, 1) == record


def test_near_duplicates_differ_in_few_words_whatever_the_case():
    words = "the quick brown fox jumps over the lazy dog near the old river bank in late May"
    counter = NearDuplicateCounter()
    counter.add("train", words)
    for text in (words, words.upper(), words.replace("late", "early"), words[::-1], "the fox"):
        counter.add("valid", text)
    assert counter.find() == [(words.upper(), words), (words.replace("late", "early"), words)]


def test_near_duplicates_may_differ_at_the_end_of_a_long_text():
    words = [f"word{i}" for i in range(100)]
    counter = NearDuplicateCounter()
    counter.add("train", " ".join(words))
    counter.add("valid", " ".join([*words[:-1], "changed"]))
    counter.add("valid", " ".join(words))
    assert len(counter.find()) == 1


def test_holding_out_all_of_the_training_data_is_rejected():
    with pytest.raises(GlassError, match="valid_fraction must be below 1"):
        DataRequest(valid_fraction=1.0)


def test_a_missing_second_column_of_a_pair_is_named(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"a": "x", "b": "y"}\n{"a": "z", "c": "w"}\n')
    found = read_inputs(file, BadRowPolicy(), FileFormat(), ("a", "b"))
    assert next(found).value == ("x", "y")
    with pytest.raises(GlassError, match=r"a\.jsonl:2: no column 'b'; the columns are a, c"):
        next(found)


# --- samples --------------------------------------------------------------------------------------


def test_numbers_and_dates_are_paired():
    pairs = list(sample.number_pairs(400))
    dates = [pair for pair in pairs if "年" in pair[0]]
    assert 100 < len(dates) < 300
    for chinese, english in dates:
        month, day, year = english.replace(",", "").split()
        digits = "".join("零一二三四五六七八九"[int(d)] for d in year)
        number = sample.MONTHS.index(month) + 1
        assert chinese == f"{digits}年{sample.chinese(number)}月{sample.chinese(int(day))}日"
        assert 1900 <= int(year) <= 2099
        assert 1 <= int(day) <= 28
    words = {sample.english(n): sample.chinese(n) for n in range(1000)}
    small = [(english, chinese) for chinese, english in pairs if english in words]
    assert len(small) > 50
    assert all(words[english] == chinese for english, chinese in small)
    assert list(sample.number_pairs(20, seed=1)) != list(sample.number_pairs(20, seed=0))


def test_a_passage_occurs_in_its_file():
    from importlib.util import find_spec
    from pathlib import Path

    for text, package, name in sample.code_passages(40):
        folder = Path(find_spec(package).submodule_search_locations[0])
        assert name.split("/")[0] == package
        assert 3 <= len(text.split("\n")) <= 8
        assert text in (folder.parent / name).read_text("utf-8")


def test_progress_shows_the_percentage_and_the_time_left(set_clock):
    lines, clock = [], SimpleNamespace(now=0.0)
    set_clock(lambda: clock.now, "core.reporter")
    bar = ProgressBar(SimpleNamespace(status=lines.append), "encoding", 200)
    clock.now = 10.0
    bar.add(50)
    bar.add(1000)
    assert lines[0] == "encoding " + "█" * 6 + "░" * 18 + "  25%  0:30 left"
    assert lines[1] == "encoding " + "█" * 24 + " 100%  0:00 left"
    assert math.isclose(bar.done, 1050)


def test_spaces_around_a_source_do_not_move_a_pair_to_the_other_split(tmp_path):
    """Equal sources, apart from spaces, are a leak if they are in both splits."""
    pairs = [f"text {i // 3}{' ' * (i % 3)}\ttext" for i in range(600)]
    file = write(tmp_path / "pairs.tsv", "source\ttarget\n" + "\n".join(pairs))
    examples = TASKS["translate"].examples(
        DataRequest(files=(file,)), BadRowPolicy(), NullReporter()
    )
    splits = {}
    for example in examples:
        splits.setdefault(example.key, set()).add(example.split)
    assert len(splits) == 200
    assert {part for parts in splits.values() for part in parts} == {"train", "valid"}
    assert all(len(parts) == 1 for parts in splits.values())


def test_a_text_column_is_never_guessed_as_the_label():
    rows = [Row("", {"topic": f"a text about {i}", "kind": "ab"[i % 2]}) for i in range(40)]
    columns = guess_columns(rows, ("topic",), None)
    assert (columns.text, columns.label) == (("topic",), "kind")


def test_lines_after_an_overlong_line_are_read_whatever_the_line_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_LENGTH", 10)
    policy = BadRowPolicy(tmp_path / "skipped.jsonl")
    for end in ("\n", "\r"):
        path = write(tmp_path / "a.txt", "")
        path.write_bytes(end.join(["one", "x" * 35, "two", "three"]).encode())
        assert [line.strip() for _, line in files.read_lines(path, policy)] == [
            "one",
            "two",
            "three",
        ]
    assert policy.count == 2
