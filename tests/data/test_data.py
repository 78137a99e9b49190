"""Files, stores, batches, splits and samples."""

import gzip
import json
import lzma

import numpy as np
import pytest
import torch

from glassformer import GlassError
from glassformer.core.reporter import NullReporter, ProgressBar
from glassformer.data import corpus, sample
from glassformer.data.batches import (
    Buckets,
    choose_examples,
    group_by_tokens,
    pad_rows,
    sample_windows,
)
from glassformer.data.compression import file_type
from glassformer.data.delimited import guess_separator
from glassformer.data.files import MAX_LINE_LENGTH, BadRowPolicy, IgnoreBadRows, read_lines
from glassformer.data.labeled import (
    check_labels,
    guess_columns,
    make_labeled_reader,
    peek_rows,
    read_table_rows,
)
from glassformer.data.pairs import read_aligned_lines
from glassformer.data.request import DataRequest
from glassformer.data.split import LeakCounter, is_held_out
from glassformer.data.store import Store, StoreWriter
from glassformer.data.tables import read_rows
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter, check
from glassformer.text.plain import Bytes


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- files ----------------------------------------------------------------------------------------


def test_byte_order_marks_and_windows_line_ends_are_removed(tmp_path):
    file = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\nthree")
    assert list(read_lines(file, BadRowPolicy())) == [
        (f"{file}:1", "one\n"),
        (f"{file}:2", "two\n"),
        (f"{file}:3", "three"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"good\nb\xffd\n",
            r"a.txt:2: the line is not valid UTF-8 \(for another encoding: --encoding\)",
        ),
        (b"good\nb\0d\n", r"a.txt:2: the line has a NUL character"),
        (
            b"x" * (MAX_LINE_LENGTH + 5) + b"\ngood\n",
            r"a.txt:1: the line is longer than 10 million",
        ),
    ],
    ids=["not UTF-8", "NUL character", "too long"],
)
def test_bad_lines_raise_an_error_or_are_logged(tmp_path, content, message):
    file, log = write(tmp_path / "a.txt", content), tmp_path / "skipped.jsonl"
    with pytest.raises(GlassError, match=message):
        list(read_lines(file, BadRowPolicy()))
    on_bad_row = BadRowPolicy(log)
    assert [text for _, text in read_lines(file, on_bad_row)] == ["good\n"]
    assert on_bad_row.count == 1
    entry = json.loads(log.read_text())
    assert entry["location"].startswith(str(file))
    assert [text for _, text in read_lines(file, IgnoreBadRows())] == ["good\n"]


def test_compressed_files_are_read_and_truncated_ones_are_rejected(tmp_path):
    text = "one\ntwo\n" * 1000
    write(tmp_path / "a.txt.gz", gzip.compress(text.encode()))
    write(tmp_path / "b.txt.xz", lzma.compress(text.encode()))
    for name in ("a.txt.gz", "b.txt.xz"):
        assert "".join(t for _, t in read_lines(tmp_path / name, BadRowPolicy())) == text
        content = (tmp_path / name).read_bytes()
        write(tmp_path / name, content[: len(content) // 2])
        with pytest.raises(GlassError, match=f"{name} is corrupted"):
            list(read_lines(tmp_path / name, BadRowPolicy()))
    assert file_type(tmp_path / "x.csv.gz") == ".csv"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"one, two",x\nthree,y\n'),
        ("b.csv", "text;label\none, two;x\nthree;y\n"),
        ("c.tsv", "text\tlabel\none, two\tx\nthree\ty\n"),
        ("d.jsonl", '{"text": "one, two", "label": "x"}\n\n{"text": "three", "label": "y"}\n'),
        ("e.json", '[{"text": "one, two", "label": "x"}, {"text": "three", "label": "y"}]'),
    ],
)
def test_every_table_format_gives_the_same_rows(tmp_path, name, content):
    rows = [row.values for row in read_rows(write(tmp_path / name, content), BadRowPolicy())]
    assert rows == [{"text": "one, two", "label": "x"}, {"text": "three", "label": "y"}]


def test_columns_of_a_table_without_header_are_numbered(tmp_path):
    file = write(tmp_path / "a.tsv", 'Hi.\t你好。\n"Quoted" text\t引用\n')
    rows = [row.values for row in read_rows(file, BadRowPolicy())]
    assert rows == [{"1": "Hi.", "2": "你好。"}, {"1": '"Quoted" text', "2": "引用"}]
    assert guess_separator(write(tmp_path / "b.csv", "a|b|c\nd|e|f\n")) == "|"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\na,b\nc\n", "a.csv:3: expected 2 columns, got 1"),
        ("a.jsonl", '{"a": 1}\n{"a": \n', r"a.jsonl:2: the line is not valid JSON"),
        ("a.jsonl", "[1]\n", "a.jsonl:1: the record is not a JSON object"),
        ("a.json", '{"a": 1}', "is not a list of objects"),
        ("a.json", "[1,", "is not valid JSON"),
    ],
)
def test_ragged_rows_and_invalid_json_are_rejected(tmp_path, name, content, message):
    with pytest.raises(GlassError, match=message):
        list(read_rows(write(tmp_path / name, content), BadRowPolicy()))


# --- labeled texts and pairs ----------------------------------------------------------------------


def test_columns_are_guessed_by_name_and_by_content(tmp_path):
    body = "".join(f"{i},{'good' if i % 2 else 'bad'},text number {i} is long\n" for i in range(20))
    named = write(tmp_path / "a.csv", "id,sentiment,review\n" + body)
    guess = guess_columns(peek_rows((named,)), (), None)
    assert (guess.text, guess.label) == (("review",), "sentiment")
    without_header = write(tmp_path / "b.csv", body)
    guess = guess_columns(peek_rows((without_header,)), (), None)
    assert (guess.text, guess.label) == (("3",), "2")
    message = "unknown column 'txt'; the columns are id, sentiment, review"
    with pytest.raises(GlassError, match=message):
        guess_columns(peek_rows((named,)), ("txt",), None)
    pairs = write(
        tmp_path / "c.csv", "premise,hypothesis,label\n" + "a b,c d,yes\ne f,g h,no\n" * 4
    )
    assert guess_columns(peek_rows((pairs,)), (), None).text == ("premise", "hypothesis")


def test_the_column_with_the_fewest_values_is_guessed_as_label(tmp_path):
    body = "".join(f"{i % 5},{i % 2},some words and {i}\n" for i in range(40))
    file = write(tmp_path / "a.csv", "stars,kind,text\n" + body)
    guess = guess_columns(peek_rows((file,)), (), None)
    assert (guess.text, guess.label) == (("text",), "kind")


def test_the_subfolders_of_a_folder_are_its_labels(tmp_path):
    for part in ("train", "test"):
        for label in ("pos", "neg", "unsup"):
            folder = tmp_path / "acl" / part / label
            folder.mkdir(parents=True)
            write(folder / "1.txt", f"{part} {label}")
    rows = [row.values for row in read_table_rows((tmp_path / "acl",), BadRowPolicy())]
    assert rows == [
        {"text": "train neg", "label": "neg"},
        {"text": "train pos", "label": "pos"},
    ]


def test_aligned_files_must_have_the_same_number_of_lines(tmp_path):
    a, b = write(tmp_path / "a", "1\n2\n"), write(tmp_path / "b", "x\ny\n")
    assert [pair[1:] for pair in read_aligned_lines(a, b, BadRowPolicy())] == [
        ("1", "x"),
        ("2", "y"),
    ]
    write(b, "x\n")
    with pytest.raises(GlassError, match=r"b ends before .*a"):
        list(read_aligned_lines(a, b, BadRowPolicy()))


def test_too_few_or_too_many_labels_are_rejected():
    from collections import Counter

    assert check_labels(Counter(b=2, a=1)) == ["a", "b"]
    with pytest.raises(GlassError, match="every text has the label 'a'"):
        check_labels(Counter(a=9))
    with pytest.raises(GlassError, match="no valid row with a text and a label"):
        check_labels(Counter())
    with pytest.raises(GlassError, match="choose the label column with --label"):
        check_labels(Counter(map(str, range(2000))))


# --- stores and batches ---------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [100, 100_000])
def test_a_store_returns_the_written_sequences(tmp_path, vocab):
    writer = StoreWriter(tmp_path / "x.ids", vocab)
    sequences = [[1, 2, 3], [], [vocab - 1], list(range(50))]
    for ids in sequences:
        writer.add(ids)
    store = writer.close()
    assert [store[i].tolist() for i in range(len(store))] == sequences
    assert store.lengths.tolist() == [3, 0, 1, 50]
    assert store.flat.dtype == (np.uint16 if vocab <= 2**16 else np.uint32)
    assert Store(tmp_path / "x.ids", vocab).flat.tolist() == [i for ids in sequences for i in ids]
    assert store.read(1, 3).tolist() == store.flat[1:3].tolist()


def test_windows_are_contiguous_and_depend_only_on_seed_and_step(tmp_path):
    writer = StoreWriter(tmp_path / "x.ids", 1000)
    writer.add(range(500))
    store = writer.close()
    windows = sample_windows(store, seed=1, step=7, batch_size=20, length=9)
    assert torch.equal(windows[:, 1:], windows[:, :-1] + 1)
    assert torch.equal(windows, sample_windows(store, 1, 7, 20, 9))
    assert not torch.equal(windows, sample_windows(store, 1, 8, 20, 9))
    assert not torch.equal(windows, sample_windows(store, 2, 7, 20, 9))
    starts = torch.cat([sample_windows(store, 0, s, 50, 9)[:, 0] for s in range(100)])
    assert (starts.min(), starts.max()) == (0, 491)


def test_every_example_occurs_once_per_epoch():
    lengths = np.random.default_rng(0).integers(1, 60, 500)
    buckets = Buckets(lengths, 512, seed=3)
    for epoch in range(3):
        steps = range(epoch * len(buckets), (epoch + 1) * len(buckets))
        seen = np.concatenate([buckets.at(step) for step in steps])
        assert sorted(seen) == list(range(500))
    first = [buckets.at(i).tolist() for i in range(len(buckets))]
    second = [buckets.at(i).tolist() for i in range(len(buckets), 2 * len(buckets))]
    assert sorted(map(sorted, first)) != sorted(map(sorted, second))
    tokens = sum(int(lengths[b].sum()) for b in first)
    padded = sum(int(lengths[b].max() * len(b)) for b in first)
    assert tokens / padded > 0.85


def test_groups_do_not_exceed_the_token_limit():
    lengths = np.array([5, 1, 3, 100, 2])
    for batch in group_by_tokens(np.argsort(lengths), lengths, 10):
        assert len(batch) == 1 or lengths[batch].max() * len(batch) <= 10


def test_chosen_examples_are_always_the_same_and_spread_over_the_data():
    chosen = choose_examples(1000, 100)
    assert len(set(chosen.tolist())) == 100
    assert chosen.min() < 100
    assert chosen.max() > 900
    assert chosen.tolist() == choose_examples(1000, 100).tolist()
    assert choose_examples(5, None).tolist() == choose_examples(5, 9).tolist() == [0, 1, 2, 3, 4]


def test_keep_is_false_at_padding():
    ids, keep = pad_rows([np.array([1, 2]), np.array([3])])
    assert ids.tolist() == [[1, 2], [3, 0]]
    assert keep.tolist() == [[True, True], [True, False]]


def test_the_split_depends_only_on_text_and_seed():
    held_out = [is_held_out(f"text {i}", seed=0) for i in range(5000)]
    assert 0.08 < np.mean(held_out) < 0.12
    assert held_out == [is_held_out(f"text {i}", seed=0) for i in range(5000)]
    assert held_out != [is_held_out(f"text {i}", seed=1) for i in range(5000)]


# --- corpus ---------------------------------------------------------------------------------------


def test_the_last_tenth_is_held_out_and_no_character_is_split(tmp_path):
    text = "机器学习 and 😀 more\n" * 400
    file = write(tmp_path / "a.txt", text)
    read = lambda: corpus.read_texts((file,), BadRowPolicy())
    summary = corpus.summarize_corpus(read())
    assert summary.bytes == len(text.encode())
    tokenizer = Bytes()
    chunks = corpus.split_at_byte(read(), round(summary.bytes * 0.9))
    counts = corpus.encode_corpus(
        chunks, tokenizer, tmp_path, ProgressBar(NullReporter(), "", summary.bytes)
    )
    train, valid = (Store(tmp_path / f"{name}.ids", 256) for name in ("train", "valid"))
    decoded = [tokenizer.decode(store.flat.tolist()) for store in (train, valid)]
    assert "".join(decoded) == text
    assert counts["valid_bytes"] == pytest.approx(summary.bytes / 10, abs=4)
    assert counts["valid_tokens"] == len(valid.flat)


def test_text_is_read_from_folders_and_columns(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    write(folder / "b.txt", "second\n")
    write(folder / "a.txt", "first\n")
    assert "".join(corpus.read_texts((folder,), BadRowPolicy())) == "first\nsecond\n"
    table = write(tmp_path / "t.jsonl", '{"id": "1", "text": "a long text"}\n')
    assert corpus.guess_column((folder, table)) == "text"
    assert "".join(corpus.read_texts((table,), BadRowPolicy(), "text")) == "a long text\n"
    with pytest.raises(GlassError, match="unknown column 'x'; the columns are id, text"):
        list(corpus.read_texts((table,), BadRowPolicy(), "x"))
    with pytest.raises(GlassError, match="the files are empty"):
        corpus.summarize_corpus(corpus.read_texts((write(tmp_path / "e.txt", ""),), BadRowPolicy()))


# --- samples --------------------------------------------------------------------------------------


def test_numbers_are_written_correctly_in_chinese_and_english():
    expected = {
        0: ("零", "zero"),
        10: ("十", "ten"),
        15: ("十五", "fifteen"),
        21: ("二十一", "twenty-one"),
        101: ("一百零一", "one hundred one"),
        110: ("一百一十", "one hundred ten"),
        1010: ("一千零一十", "one thousand ten"),
        10_015: ("一万零一十五", "ten thousand fifteen"),
        20_300: ("二万零三百", "twenty thousand three hundred"),
        100_000: ("十万", "one hundred thousand"),
        340_021: ("三十四万零二十一", "three hundred forty thousand twenty-one"),
    }
    for n, pair in expected.items():
        assert (sample.chinese(n), sample.english(n)) == pair
    for n in range(0, 100_000, 7):
        assert parse_chinese(sample.chinese(n)) == n


def parse_chinese(text):
    total = section = digit = 0
    for character in text:
        if character in sample.DIGITS:
            digit = sample.DIGITS.index(character)
        elif character == "万":
            total, section, digit = (total + section + digit) * 10_000, 0, 0
        else:
            section += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[character]
            digit = 0
    return total + section + digit


def test_samples_are_deterministic_and_pairs_are_distinct():
    pairs = list(sample.number_pairs(500))
    assert len(set(pairs)) == 500
    assert pairs == list(sample.number_pairs(500))
    code_passages = list(sample.code_passages(20))
    assert code_passages == list(sample.code_passages(20))
    labels = [label for _, label, _ in code_passages]
    assert all(labels.count(package) == 20 for package in sample.PACKAGES)
    distinct = {text.strip() for text, _, _ in sample.code_passages()}
    assert len(distinct - {""}) == 300 * len(sample.PACKAGES)
    assert all(3 <= text.count("\n") + 1 <= 8 for text, _, _ in code_passages)


def test_no_paragraph_of_the_documentation_is_repeated():
    text = "".join(sample.python_documentation())
    paragraphs = [p for p in text.split("\n\n") if p]
    assert len(paragraphs) == len(set(paragraphs))
    assert 300_000 < len(text) < 600_000


def test_parquet_files_are_read_as_tables(tmp_path):
    import pyarrow as arrow
    from pyarrow import parquet

    file = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["one", None, "三"], "label": [1, 0, 1]}), file)
    assert [row.values for row in read_rows(file, BadRowPolicy())] == [
        {"text": "one", "label": "1"}, {"text": "", "label": "0"}, {"text": "三", "label": "1"}
    ]  # fmt: skip
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(GlassError, match=r"a\.parquet is corrupted"):
        list(read_rows(file, BadRowPolicy()))


def test_validation_texts_that_are_also_training_texts_are_counted():
    leaks = LeakCounter()
    for part, text in (
        ("train", "a"),
        ("train", "b"),
        ("valid", "a"),
        ("valid", "c"),
        ("valid", "a"),
    ):
        leaks.add(part, text)
    assert leaks.count() == 2


@pytest.mark.parametrize("seed", range(3))
def test_every_label_of_the_built_in_code_has_validation_examples(seed):
    read, _ = make_labeled_reader(DataRequest(seed=seed), NullReporter())
    examples = list(read(BadRowPolicy()))
    held_out = [example for example in examples if example.split == "valid"]
    assert {example.label for example in held_out} == set(sample.PACKAGES)
    assert 0.08 < len(held_out) / len(examples) < 0.13
    files = {text: file for text, _, file in sample.code_passages()}
    splits = {(files[example.texts[0]], example.split) for example in examples}
    assert len(splits) == len(set(files.values()))  # each file is in one split


def test_an_evaluation_holds_out_all_of_the_built_in_code():
    read, _ = make_labeled_reader(DataRequest(valid_fraction=1, is_evaluation=True), NullReporter())
    assert all(example.split == "valid" for example in read(BadRowPolicy()))


def test_labels_without_validation_examples_are_named(tmp_path):
    file, valid = tmp_path / "train.csv", tmp_path / "valid.csv"
    file.write_text("text,label\n" + "".join(f"text {i},{'abc'[i % 3]}\n" for i in range(90)))
    valid.write_text("text,label\nnew,a\n")
    warning = "labels without validation examples: b, c (2 of 3), so their scores are undefined"
    request = DataRequest(files=(file,), valid=(valid,))
    report = check("classify", request)
    assert report["labels_without_validation"] == ["b", "c"]
    assert any(line.startswith(warning) for line in report["warnings"])
    reporter = RecordingReporter()
    TASKS["classify"].prepare(request, tmp_path, reporter)
    assert any(line.startswith(warning) for line in reporter.lines)
