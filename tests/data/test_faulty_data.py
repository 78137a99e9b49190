"""Corrupted, hostile or sloppy data gives a one-line error, and no row is lost silently."""

import csv
import gzip
import io
import lzma
import os
import subprocess
import threading
import time

import pytest

from faults import COMMAND
from glassformer import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data import files
from glassformer.data.delimited import guess_separator
from glassformer.data.files import BadRowPolicy, IgnoreBadRows, read_lines, save_streams
from glassformer.data.labeled import guess_columns
from glassformer.data.request import DataOptions, DataRequest
from glassformer.data.tables import read_rows
from glassformer.tasks import TASKS
from glassformer.tasks.check import check
from glassformer.training.request import Request


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_texts(file, on_bad_row=None):
    return [row.values["text"] for row in read_rows(file, on_bad_row or BadRowPolicy())]


# --- corrupted files ------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_corrupted_compressed_file_is_rejected(tmp_path, compress):
    content = bytearray(compress(os.urandom(50_000) + b"\n"))
    for i in range(20_000, 20_050):
        content[i] ^= 0xFF
    name = "a.txt.gz" if compress is gzip.compress else "a.txt.xz"
    with pytest.raises(GlassError, match=f"{name}"):
        list(read_lines(write(tmp_path / name, bytes(content)), IgnoreBadRows()))


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_line_ends_of_every_system_are_supported(tmp_path, end):
    file = write(tmp_path / "a.csv", end.join(["text,label", "one,x", "two,y", ""]))
    assert read_texts(file) == ["one", "two"]
    assert [row.location for row in read_rows(file, BadRowPolicy())] == [f"{file}:2", f"{file}:3"]


def test_a_carriage_return_inside_a_line_does_not_end_it(tmp_path):
    """Otherwise aligned files could get out of step."""
    file = write(tmp_path / "a", "a\rb\nc\r\nd\n")
    assert [text for _, text in read_lines(file, BadRowPolicy())] == ["a\rb\n", "c\n", "d\n"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("[" * 200_000, "recursion"),
        ('{"text": ' + "9" * 10_000 + "}", "4300"),
    ],
    ids=["deep nesting", "long number"],
)
def test_invalid_json_is_a_bad_row(tmp_path, record, reason):
    file = write(tmp_path / "a.jsonl", '{"text": "one"}\n' + record + '\n{"text": "two"}\n')
    with pytest.raises(GlassError, match=rf"a\.jsonl:2: the line is not valid JSON \(.*{reason}"):
        read_texts(file)
    on_bad_row = BadRowPolicy(tmp_path / "skipped.jsonl")
    assert read_texts(file, on_bad_row) == ["one", "two"]
    assert on_bad_row.count == 1
    with pytest.raises(GlassError, match=rf"a\.json is not valid JSON: .*{reason}"):
        read_texts(write(tmp_path / "a.json", f"[{record}]"))


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "null"])
def test_a_label_that_is_null_or_not_finite_is_empty(tmp_path, value):
    rows = [f'{{"text": "t{i}", "label": {value if i == 3 else i % 2}}}' for i in range(9)]
    report = check("classify", DataRequest(files=(write(tmp_path / "a.jsonl", "\n".join(rows)),)))
    assert report["bad_reasons"] == {"the label is empty": 1}
    assert set(report["labels"]) == {"0", "1"}
    other = write(tmp_path / "b.json", f'[{{"text": "a", "label": "x", "score": {value}}}]')
    assert read_texts(other) == ["a"]


@pytest.mark.parametrize("separator", ["xx", "", "\n", '"'])
def test_a_separator_must_be_one_character(separator):
    with pytest.raises(GlassError, match="the separator must be one character"):
        DataOptions(separator=separator)
    assert DataOptions(separator=";").separator == ";"


# --- quotation marks ------------------------------------------------------------------------------


def make_table(n_before, bad_row, n_after):
    rows = [*(f"good {i},pos" for i in range(n_before)), bad_row]
    return "\n".join(["text,label", *rows, *(f"fine {i},neg" for i in range(n_after))]) + "\n"


@pytest.mark.parametrize("tail", ["", 'last "one",pos\n', '"last",pos\n', 'x",pos\n'])
def test_a_stray_quotation_mark_makes_only_its_own_line_a_bad_row(tmp_path, tail):
    file = write(tmp_path / "a.csv", make_table(3, '"tis the season,pos', 40) + tail)
    with pytest.raises(GlassError, match=r"a\.csv:5: a quoted cell starts here"):
        read_texts(file)
    on_bad_row = BadRowPolicy(tmp_path / "skipped.jsonl")
    texts = read_texts(file, on_bad_row)
    assert texts[:43] == [f"good {i}" for i in range(3)] + [f"fine {i}" for i in range(40)]
    assert on_bad_row.count == 1
    assert check("classify", DataRequest(files=(file,)))["bad_rows"] == 1


def test_a_carriage_return_after_a_quoted_cell_makes_a_bad_row(tmp_path):
    file = write(tmp_path / "a.csv", make_table(3, '"a"\rb,pos', 4))
    with pytest.raises(GlassError, match=r"a\.csv:5: a quoted cell starts here"):
        read_texts(file)
    on_bad_row = BadRowPolicy(tmp_path / "skipped.jsonl")
    assert len(read_texts(file, on_bad_row)) == 7
    assert on_bad_row.count == 1


def test_a_stray_quotation_mark_closed_in_a_later_row_is_detected(tmp_path):
    rows = ['"good,pos', "fine,neg", "meh,neg", 'screen 5",pos', "so so,neg"]
    on_bad_row = BadRowPolicy(tmp_path / "skipped.jsonl")
    assert read_texts(write(tmp_path / "a.csv", "\n".join(["text,label", *rows])), on_bad_row) == [
        "fine", "meh", 'screen 5"', "so so",
    ]  # fmt: skip
    assert on_bad_row.count == 1


def test_a_quoted_text_of_several_lines_is_one_cell(tmp_path):
    poem = "\n".join(f"line {i}, of a poem, with commas" for i in range(30))
    letter = "Dear all,\nthanks.\n\nYours,\nme"
    out = io.StringIO()
    csv.writer(out).writerows([["text", "label"], [poem, "a"], [letter, "b"], ['say "hi"', "a"]])
    assert read_texts(write(tmp_path / "a.csv", out.getvalue())) == [poem, letter, 'say "hi"']


def test_a_quoted_text_whose_lines_look_like_rows_is_one_cell(tmp_path):
    plain = "\n".join(f"a line {i} without a comma" for i in range(8))
    for name, cells in (
        ("one column", [["text"], [plain], [plain]]),
        ("commas", [["text", "label"], ["Hello, you\nfine, day\nso, long", "a"], ["x", "b"]]),
        ("refrain", [["text", "label"], ["la, la\nla, la", "a"], ["la, la\nla, la", "a"]]),
    ):
        out = io.StringIO()
        csv.writer(out).writerows(cells)
        file = write(tmp_path / "a.csv", out.getvalue())
        assert read_texts(file) == [row[0] for row in cells[1:]], name


def test_quotation_marks_inside_a_text_need_not_be_doubled(tmp_path):
    file = write(tmp_path / "a.csv", 'text,label\n"He said "hi" to me",pos\n5" wide,neg\n')
    assert read_texts(file) == ['He said hi" to me"', '5" wide']
    spaced = write(tmp_path / "b.csv", '"text" ,label\none,x\n')
    assert read_texts(spaced) == ["one"]


def test_lines_without_quotation_marks_are_split_as_by_the_csv_module(tmp_path):
    content = "text,label\n a , b \nx,\n,y\n'q',z\n"
    expected = list(csv.reader(io.StringIO(content)))[1:]
    cells = [
        list(row.values.values())
        for row in read_rows(write(tmp_path / "a.csv", content), BadRowPolicy())
    ]
    assert cells == expected


def test_the_separator_is_guessed_in_spite_of_bad_rows(tmp_path):
    file = write(tmp_path / "a.csv", b"text;label\none;x\n\xff\xfe;y\ntwo;z\n")
    assert guess_separator(file) == ";"
    assert read_texts(file, BadRowPolicy(tmp_path / "skipped.jsonl")) == ["one", "two"]


# --- columns --------------------------------------------------------------------------------------


def test_a_column_cannot_be_both_text_and_label(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\n" + "a,x\nb,y\n" * 9)
    first = list(read_rows(file, BadRowPolicy()))
    with pytest.raises(GlassError, match="'text' cannot be both the label and the text"):
        guess_columns(first, ("text",), "text")


def test_duplicate_column_names_are_rejected(tmp_path):
    file = write(tmp_path / "a.csv", "text,label,text\na,x,b\n")
    with pytest.raises(GlassError, match="two columns are named 'text'"):
        read_texts(file)
    exported = write(tmp_path / "b.csv", "text,label,,\ngood,pos,,\n")  # as from a spreadsheet
    assert [row.values for row in read_rows(exported, BadRowPolicy())] == [
        {"text": "good", "label": "pos", "3": "", "4": ""}
    ]


def test_empty_texts_are_bad_rows(tmp_path):
    body = "".join(f"a {i},x\nc {i},y\n" for i in range(20))
    file = write(tmp_path / "a.csv", f"text,label\n{body}  ,x\n")
    with pytest.raises(GlassError, match=r"a\.csv:42: the text is empty"):
        TASKS["classify"].prepare(DataRequest(files=(file,)), tmp_path, NullReporter())
    request = DataRequest(files=(file,), on_bad_row=BadRowPolicy(tmp_path / "skipped.jsonl"))
    artifacts = TASKS["classify"].prepare(request, tmp_path, NullReporter())
    texts = TASKS["classify"].open(artifacts, tmp_path).dataset.texts
    assert len(texts["train"]) + len(texts["valid"]) == 40


# --- pipes ----------------------------------------------------------------------------------------


def test_a_pipe_is_copied_to_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content = "text,label\n" + "a b,x\nc d,y\n" * 5000
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(content))
    writer.start()
    (copy,) = save_streams((tmp_path / "pipe",), tmp_path)
    writer.join()
    assert (copy.suffix, copy.read_text()) == (".txt", content)


def test_a_pipe_without_a_writer_times_out(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_TIMEOUT", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GlassError, match=r"is a pipe, and no data arrived within 0.05 seconds"):
        save_streams((tmp_path / "pipe",), tmp_path)
    with pytest.raises(GlassError, match="data is read more than once"):
        list(read_lines(tmp_path / "pipe", BadRowPolicy()))
    with pytest.raises(GlassError, match="nothing does not exist"):
        list(read_lines(tmp_path / "nothing", BadRowPolicy()))


def test_a_pipe_with_a_slow_writer_does_not_time_out(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_TIMEOUT", 0.05)
    os.mkfifo(tmp_path / "pipe")

    def write_late():
        with (tmp_path / "pipe").open("w") as pipe:
            time.sleep(0.5)
            pipe.write("late\n")

    writer = threading.Thread(target=write_late)
    writer.start()
    (copy,) = save_streams((tmp_path / "pipe",), tmp_path)
    writer.join()
    assert copy.read_text() == "late\n"


def test_commands_read_process_substitutions(tmp_path):
    write(tmp_path / "book.txt", "the cat sat on the mat and the dog sat on the log. " * 200)
    settings = "--set model.dim=16 --set model.depth=1 --set model.heads=2 --set model.context=16"
    glass = " ".join(f"'{part}'" for part in COMMAND)
    script = (
        f"{glass} train generate <(cat book.txt) --run run --steps 2 {settings} &&"
        f" {glass} check-data generate <(cat book.txt) && {glass} evaluate run <(cat book.txt)"
    )
    process = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "9,180 tokens for training" in process.stderr
    assert "10,200 bytes" in process.stdout


def test_standard_input_can_be_used_only_once(tmp_path):
    book = write(tmp_path / "book.txt", "text")
    Request.of("generate", [book], None, (), {"valid": ["-"]}).check(from_scratch=True)
    with pytest.raises(GlassError, match="standard input can be read only once"):
        Request.of("generate", ["-"], None, (), {"valid": ["-"]}).check(from_scratch=True)
