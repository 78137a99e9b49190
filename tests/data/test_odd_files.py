"""Tables as people have them: every file below is read as its owner would expect."""

import io
import json
import zipfile

import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassformer import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.data.corpus import list_texts, read_texts
from glassformer.data.encoding import detect_bytes, detect_encoding
from glassformer.data.files import BadRowPolicy, CountBadRows, read_lines
from glassformer.data.format import FileFormat
from glassformer.data.labeled import make_labeled_reader
from glassformer.data.pairs import make_pair_reader
from glassformer.data.request import DataRequest
from glassformer.data.tables import describe_formats, find_records, is_table, read_rows

GOOD, BAD = "a lovely film, really", "an awful one; never again"
ROWS = [(GOOD, "pos"), (BAD, "neg")] * 4


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def quote(cell):
    return '"' + cell.replace('"', '""') + '"'


def table(separator=",", header="text,label", rows=ROWS, quoted=True, end="\n"):
    lines = [header.replace(",", separator)] if header else []
    show = quote if quoted else str
    return end.join([*lines, *(separator.join(map(show, row)) for row in rows), ""])


def excel(rows, title="Sheet1", empty_first=False):
    book, buffer = openpyxl.Workbook(), io.BytesIO()
    sheet = book.active
    if empty_first:
        sheet = book.create_sheet(title)
    for row in rows:
        sheet.append(row)
    book.save(buffer)
    return buffer.getvalue()


GERMAN = [("schöner Film für Größe", "gut"), ("übles Stück, schade", "schlecht")] * 4
RUSSIAN = [("очень хороший фильм", "хорошо"), ("ужасный фильм, скучно", "плохо")] * 4
CHINESE = [("这部电影非常好看", "好"), ("很无聊的一部电影", "差")] * 4
FILES = {
    # name: (file name, content, (text, label) of each row)
    "comma": ("a.csv", table(), ROWS),
    "semicolon, commas in the text": ("a.csv", table(";", rows=GERMAN, quoted=False), GERMAN),
    "semicolon, quoted": ("a.csv", table(";"), ROWS),
    "tab in .csv": ("a.csv", table("\t", quoted=False), ROWS),
    "pipe": ("a.csv", table("|", quoted=False), ROWS),
    "tab in .txt": ("a.txt", table("\t", quoted=False), ROWS),
    "no extension": ("SMSCollection", table("\t", quoted=False), ROWS),
    "upper-case extension": ("A.CSV", table(), ROWS),
    ".tab": ("a.tab", table("\t", quoted=False), ROWS),
    "Excel's sep= line": ("a.csv", "sep=;\r\n" + table(";", end="\r\n"), ROWS),
    "Excel's CSV, UTF-8 with BOM": ("a.csv", table(end="\r\n").encode("utf-8-sig"), ROWS),
    "Excel's Unicode text, UTF-16": ("a.txt", table("\t", quoted=False).encode("utf-16"), ROWS),
    "UTF-16 big-endian with BOM": ("a.csv", b"\xfe\xff" + table().encode("utf-16-be"), ROWS),
    "UTF-16 without BOM": ("a.csv", table().encode("utf-16-le"), ROWS),
    "UTF-32": ("a.csv", table().encode("utf-32"), ROWS),
    "Windows-1252": ("a.csv", table(";", rows=GERMAN).encode("cp1252"), GERMAN),
    "Windows-1251": ("a.csv", table(rows=RUSSIAN).encode("cp1251"), RUSSIAN),
    "GB18030": ("a.csv", table(rows=CHINESE).encode("gb18030"), CHINESE),
    "old Mac line ends": ("a.csv", table(end="\r"), ROWS),
    "compressed, upper case": ("a.csv.gz", None, ROWS),
    "empty lines at the end": ("a.csv", table() + "\n\n\n", ROWS),
    "empty rows of a spreadsheet": ("a.csv", table() + ",\n,\n", ROWS),
    "trailing separators": (
        "a.csv", "text,label,,\n" + "".join(f'"{t}",{y},,\n' for t, y in ROWS), ROWS,
    ),
    "empty cells beyond the header": (
        "a.csv", "text,label\n" + "".join(f'"{t}",{y},,\n' for t, y in ROWS), ROWS,
    ),
    "line breaks in cells": (
        "a.csv", table(rows=[("one\ntwo", "x"), ("three\n\nfour", "y")] * 4),
        [("one\ntwo", "x"), ("three\n\nfour", "y")] * 4,
    ),
    "quotation marks in cells": (
        "a.csv", table(rows=[('5" wide', "x"), ('say "hi"', "y")] * 4),
        [('5" wide', "x"), ('say "hi"', "y")] * 4,
    ),
    "HTML in cells": (
        "a.csv", table(rows=[("<p>a, <b>b</b></p>", "x"), ('<a href="u">c</a>', "y")] * 4),
        [("<p>a, <b>b</b></p>", "x"), ('<a href="u">c</a>', "y")] * 4,
    ),
    "emoji": (
        "a.csv", table(rows=[("great 😀👍🏽", "x"), ("oh no 😢", "y")] * 4),
        [("great 😀👍🏽", "x"), ("oh no 😢", "y")] * 4,
    ),
    "tabs in the text": (
        "a.csv", table(rows=[("a\tb", "x"), ("c\td", "y")] * 4),
        [("a\tb", "x"), ("c\td", "y")] * 4,
    ),
    "numbers as labels": (
        "a.csv", table(rows=[(GOOD, "5"), (BAD, "1")] * 4), [(GOOD, "5"), (BAD, "1")] * 4,
    ),
    "spaces around names": ("a.csv", table(header=" Text , Label "), ROWS),
    "header in another language": (
        "a.csv", table(";", header="Kundenkommentar,Urteil (1-3)"), ROWS,
    ),
    "no header": ("a.csv", table(header=""), ROWS),
    "no header, numbers as labels": (
        "a.csv", table(header="", rows=[(GOOD, "5"), (BAD, "1")] * 4),
        [(GOOD, "5"), (BAD, "1")] * 4,
    ),
    "an id and other columns": (
        "a.csv",
        "id,date,comment,verdict\n"
        + "".join(f'{i},2024-01-{i + 10},"{t}",{y}\n' for i, (t, y) in enumerate(ROWS)),
        ROWS,
    ),
    "JSON list": ("a.json", json.dumps([{"text": t, "label": y} for t, y in ROWS]), ROWS),
    "JSON of pandas": (
        "a.json", pd.DataFrame(ROWS, columns=["text", "label"]).to_json(), ROWS,
    ),
    "JSON with the list inside": (
        "a.json", json.dumps({"version": 1, "data": [{"text": t, "label": y} for t, y in ROWS]}),
        ROWS,
    ),
    "JSON lines, .ndjson": (
        "a.ndjson", "\n".join(json.dumps({"text": t, "label": y}) for t, y in ROWS), ROWS,
    ),
    "JSON lines, .txt": (
        "a.txt", "\n".join(json.dumps({"text": t, "label": y}) for t, y in ROWS), ROWS,
    ),
    "Excel": ("a.xlsx", excel([("text", "label"), *ROWS]), ROWS),
    "Excel, empty first sheet, header of one's own": (
        "a.xlsx", excel([("Kommentar", "Urteil"), *ROWS], "Daten", empty_first=True), ROWS,
    ),
    "Excel, numbers and empty rows": (
        "a.xlsx", excel([("text", "label"), (GOOD, 5), (None, None), (BAD, 1), (GOOD, 5)]),
        [(GOOD, "5"), (BAD, "1"), (GOOD, "5")],
    ),
    "Parquet": ("a.parquet", None, ROWS),
}  # fmt: skip


def make_file(folder, name):
    file_name, content, _ = FILES[name]
    path = folder / file_name
    if file_name.endswith(".gz"):
        import gzip

        return write(path, gzip.compress(table().encode()))
    if file_name.endswith(".parquet"):
        texts, labels = zip(*ROWS, strict=True)
        pq.write_table(pa.table({"text": texts, "label": labels}), path)
        return path
    return write(path, content)


def test_there_are_at_least_forty_files():
    assert len(FILES) >= 40


@pytest.mark.parametrize("name", FILES)
def test_a_table_is_read_as_its_owner_expects(tmp_path, name):
    file, (_, _, expected) = make_file(tmp_path, name), FILES[name]
    read, _ = make_labeled_reader(DataRequest(files=(file,)), NullReporter())
    assert [(*e.texts, e.label) for e in read(BadRowPolicy())] == expected


# --- the user's word wins -------------------------------------------------------------------------


def test_a_first_row_with_a_named_column_is_a_header(tmp_path):
    rows = [("gut", "1"), ("naja", "2"), ("gut", "1"), ("übel", "3")]
    file = write(tmp_path / "a.csv", table(header="customer comment,verdict", rows=rows))
    assert [*next(read_rows(file, BadRowPolicy())).values] == ["customer comment", "verdict"]
    unclear = write(tmp_path / "b.csv", "hund,dog\nkatze,cat\nmaus,mouse\n")
    assert [*next(read_rows(unclear, BadRowPolicy())).values] == ["1", "2"]
    named = FileFormat(columns=("hund",))
    assert next(row.values for row in read_rows(unclear, BadRowPolicy(), named)) == {
        "hund": "katze", "dog": "cat"
    }  # fmt: skip


def test_header_options_override_the_guess(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\none,x\n")
    rows = list(read_rows(file, BadRowPolicy(), FileFormat(header=False)))
    assert rows[0].values == {"1": "text", "2": "label"}
    file = write(tmp_path / "b.csv", "5,1\n4,2\n")
    rows = list(read_rows(file, BadRowPolicy(), FileFormat(header=True)))
    assert [row.values for row in rows] == [{"5": "4", "1": "2"}]


def test_a_given_encoding_overrides_the_guess(tmp_path):
    file = write(tmp_path / "a.txt", "Größe\n".encode("cp1252"))
    assert [text for _, text in read_lines(file, BadRowPolicy(), "cp1252")] == ["Größe\n"]
    assert [text for _, text in read_lines(file, BadRowPolicy(), "cp437")] != ["Größe\n"]
    with pytest.raises(GlassError, match=r"a.txt:1: the line is not valid ascii"):
        list(read_lines(file, BadRowPolicy(), "ascii"))
    for name in ("utf8x", "rot13", "base64"):
        with pytest.raises(GlassError, match=f"unknown encoding '{name}'; common ones are utf-8"):
            DataRequest(encoding=name)


# --- encodings ------------------------------------------------------------------------------------


def test_text_with_a_few_broken_bytes_stays_utf8():
    assert detect_bytes("schöner Film\n".encode() * 9 + b"kaputt \xe4\n") == "utf-8-sig"
    assert detect_bytes(b"plain\n\xff\xfe\n") == "utf-8-sig"
    assert detect_bytes(b"") == detect_bytes(b"ascii") == "utf-8-sig"
    assert detect_bytes("é".encode()[:1]) == "utf-8-sig"  # cut inside a character
    assert detect_bytes(bytes(range(256)) * 4) == "utf-8-sig"  # binary


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Très bon produit, j'ai été déçu par la qualité", "cp1252"),
        ("El niño comió mañana, qué rápido", "cp1252"),
        ("It’s a “great” film – really", "cp1252"),
        ("Bardzo dobry film, żółć gęślą jaźń", "cp1250"),
        ("Очень хороший фильм", "cp1251"),
        ("Πολύ καλή ταινία, μου άρεσε", "cp1253"),
        ("とても良い映画でした。もう一度見たい", "cp932"),
        ("아주 좋은 영화였습니다", "cp949"),
        ("這部電影非常好看，我很喜歡", "big5"),
    ],
)
def test_the_encodings_of_windows_are_detected(tmp_path, text, encoding):
    file = write(tmp_path / "a.txt", f"a good film,pos\n{text},neg\n".encode(encoding))
    assert "".join(line for _, line in read_lines(file, BadRowPolicy())).split("\n")[1] == (
        f"{text},neg"
    )
    (line,) = describe_formats((file,), FileFormat())
    assert line == (
        f"{file} is read as {detect_encoding(file)}; if letters look wrong, name the encoding with "
        "--encoding"
    )
    assert not list(describe_formats((file,), FileFormat(encoding=encoding)))


# --- Hugging Face datasets ------------------------------------------------------------------------


def save_dataset(folder, rows):
    folder.mkdir(parents=True)
    texts, labels = zip(*rows, strict=True)
    values = pa.table({"text": texts, "label": labels})
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", values.schema) as out:
        out.write_table(values)
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
    }
    write(folder / "dataset_info.json", json.dumps({"features": features}))


def test_a_saved_hugging_face_dataset_is_a_table_with_named_labels(tmp_path):
    rows = [(GOOD, 1), (BAD, 0)] * 4
    save_dataset(tmp_path / "set" / "train", rows)
    save_dataset(tmp_path / "set" / "test", rows[:2])
    write(tmp_path / "set" / "dataset_dict.json", '{"splits": ["train", "test"]}')
    for folder, expected in (("set", ROWS), ("set/train", ROWS), ("set/test", ROWS[:2])):
        assert is_table(tmp_path / folder)
        request = DataRequest(files=(tmp_path / folder,))
        read, _ = make_labeled_reader(request, NullReporter())
        assert [(*e.texts, e.label) for e in read(BadRowPolicy())] == expected
    (tmp_path / "set" / "train" / "data-00000-of-00001.arrow").write_bytes(b"broken")
    with pytest.raises(GlassError, match="is corrupted"):
        list(read_rows(tmp_path / "set", BadRowPolicy()))
    (tmp_path / "set" / "train").rename(tmp_path / "set" / "validation")
    with pytest.raises(GlassError, match=r"has no split `train`; .*: test, validation"):
        list(read_rows(tmp_path / "set", BadRowPolicy()))


def test_a_label_without_a_name_in_a_hugging_face_dataset_stays_a_number(tmp_path):
    save_dataset(tmp_path / "set", [(GOOD, 1), (BAD, -1), (GOOD, 2)])
    labels = [row.values["label"] for row in read_rows(tmp_path / "set", BadRowPolicy())]
    assert labels == ["pos", "-1", "2"]


# --- other cases ----------------------------------------------------------------------------------


def test_nested_objects_are_columns_and_lists_are_joined(tmp_path):
    record = {"translation": {"de": "Hund", "en": "dog"}, "tags": ["a", "b"], "n": None}
    file = write(tmp_path / "a.jsonl", json.dumps(record))
    (row,) = read_rows(file, BadRowPolicy())
    assert row.values == {
        "translation.de": "Hund", "translation.en": "dog", "tags": "a|b", "n": ""
    }  # fmt: skip


def test_json_without_records_is_rejected():
    assert find_records({"a": 1}) is None
    assert find_records({"a": [1], "b": [1, 2]}) is None
    assert find_records({}) is None
    assert find_records("x") is None
    assert find_records({"a": [1, 2], "b": [3, 4]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]


def test_a_broken_or_huge_excel_file_is_rejected(tmp_path, monkeypatch):
    file = write(tmp_path / "a.xlsx", b"not a zip archive")
    with pytest.raises(GlassError, match=r"a.xlsx is not an .xlsx file"):
        list(read_rows(file, BadRowPolicy()))
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as archive:
        archive.writestr("x.txt", "not a workbook")
    with pytest.raises(GlassError, match=r"b.xlsx is corrupted"):
        list(read_rows(tmp_path / "b.xlsx", BadRowPolicy()))
    monkeypatch.setattr("glassformer.data.tables.MAX_EXCEL_BYTES", 100)
    file = write(tmp_path / "c.xlsx", excel([("text", "label"), *ROWS]))
    with pytest.raises(GlassError, match=r"bytes when unpacked; save the table as .csv"):
        list(read_rows(file, BadRowPolicy()))


def test_a_stray_quotation_mark_is_reported_with_its_line(tmp_path):
    lines = ["text,label", *(f"fine {i},pos" for i in range(5)), 'broken" here,"neg', "ok,pos"]
    file, policy = write(tmp_path / "a.csv", "\n".join(lines) + "\n"), CountBadRows()
    rows = list(read_rows(file, policy))
    assert len(rows) + policy.count == 7
    assert rows[-1].values == {"text": "ok", "label": "pos"}


def test_pairs_in_one_text_file_are_a_table(tmp_path):
    content = "Go.\tGeh.\tCC-BY 1\nHi.\tHallo!\tCC-BY 2\n"
    file = write(tmp_path / "deu.txt", content)
    read, _ = make_pair_reader(DataRequest(files=(file,)), NullReporter())
    assert [e.texts for e in read(BadRowPolicy())] == [("Go.", "Geh."), ("Hi.", "Hallo!")]
    lines = write(tmp_path / "lines.txt", "one\ntwo\n")
    with pytest.raises(GlassError, match=r"has only one column: .*--source and --target"):
        make_pair_reader(DataRequest(files=(lines,)), NullReporter())


def test_columns_named_source_and_target_are_used_in_this_order(tmp_path):
    file = write(tmp_path / "a.csv", "id,Target,Source\n1,Hund,dog\n2,Katze,cat\n")
    read, _ = make_pair_reader(DataRequest(files=(file,)), NullReporter())
    assert [e.texts for e in read(BadRowPolicy())] == [("dog", "Hund"), ("cat", "Katze")]


def test_rows_in_another_encoding_are_skipped_on_request(tmp_path):
    content = "text;label\nschöner Film;gut\n".encode() + "übler Film;schlecht\n".encode("cp1252")
    file, policy = write(tmp_path / "a.csv", content + b"ok;gut\n"), CountBadRows()
    assert [row.values["text"] for row in read_rows(file, policy)] == ["schöner Film", "ok"]
    assert policy.first == [
        f"{file}:3: the line is not valid UTF-8 (for another encoding: --encoding)"
    ]


def test_a_folder_of_texts_leaves_out_runs_models_hidden_and_binary_files(tmp_path):
    write(tmp_path / "a.txt", "one\n")
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "b.md", "two\n")
    write(tmp_path / "picture.png", b"\x89PNG\0\0\0")
    write(tmp_path / ".hidden", "no")
    for name, marker in (("run", "config.toml"), ("model", "manifest.json")):
        (tmp_path / name).mkdir()
        write(tmp_path / name / marker, "")
        write(tmp_path / name / "README.md", "no")
    assert [path.name for path in list_texts(tmp_path)] == ["a.txt", "b.md"]
    write(tmp_path / "c.txt", "drei ü\n".encode("utf-16"))
    assert "".join(read_texts((tmp_path,), BadRowPolicy())) == "one\ndrei ü\ntwo\n"
