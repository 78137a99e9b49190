"""The table of tutorials: every section has a row, and every command in it runs."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

import glassformer
from glassformer.cli import glass
from glassformer.core.errors import GlassError
from glassformer.core.i18n import language
from glassformer.inspection.plots import PLOTS
from glassformer.lessons.lesson import TEXTS, read_text
from glassformer.lessons.tutorials import list_runs, list_tutorials, read_table
from in_process import run_command, shorten, shrink_samples

ROOT = Path(glassformer.__file__).parents[2]

SECTIONS = {  # the sections and subsections of each tutorial, by its own numbers where it has any
    "rohrer": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 15.1 16 17 17.1 17.2 18 19 20 21 21.1",
    "bloem": "0 1 1.0 1.1 1.2 1.3 2 2.2 2.2.1 2.2.2 2.2.3 2.4 3 3.2 3.3 4 4.1 4.1.1 4.1.2 4.1.3 "
    "4.2 4.3 4.3.1 4.3.2 4.3.3 4.3.4 4.5 4.5.1 4.5.2 5 6 6.1 6.2 6.3 6.3.1 6.3.2 6.3.3 6.4 6.4.1 "
    "6.4.2 6.4.3 6.5 7 7.1 7.2 8 8.1 8.2 8.3 8.4 9 9.1 9.2 9.3 10",
    "khan": "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
    "lee": "1 2 3 3.1 4 5 6 7 8 8.1 9 9.1 9.2",
    "details": "1 2 2.1 2.2 2.3 3 4 4.0 4.1 4.2 4.3 4.3.0 4.3a 4.3b 4.4 4.5 4.6 4.7 5 "
    "6 6.1 6.2 6.3 6.4",
}
TINY = {  # settings of the training commands, by a word of the command
    "generate": "model.dim=48 model.depth=2 model.heads=6 model.context=32 train.prior=false",
    "words": "train.prior=true",
    "translate": "model.dim=48 model.depth=2 model.heads=6 train.batch_tokens=256",
    "fill-mask": "model.dim=48 model.depth=2 model.heads=6",
    "summarize": "model.dim=48 model.depth=2 model.heads=6 model.context=64 train.batch_tokens=64",
    "classify": "model.dim=48 model.depth=2 model.heads=6",
    "recommend": "model.dim=4",
    "paint": "model.dim=4",
    "recipes/bloem_enwik8.toml": "model.dim=48 model.depth=2 model.context=32",
    "recipes/bloem_imdb.toml": "model.dim=48 model.depth=2",
}


@pytest.fixture(autouse=True)
def restore_language():
    token = language.set("en")
    yield
    language.reset(token)


def list_entries():
    return [
        entry for tutorial in read_table()["tutorials"].values() for entry in tutorial["sections"]
    ]


def list_commands(kind):
    """The distinct commands of the rows: `run` for those that compute, or `draw`."""
    return sorted({command for entry in list_entries() for command in entry[kind]})


def shrink(words):
    """A command with a budget of two steps and a small model, if it trains."""
    if words[0] != "train":
        return shorten(words, 2)
    settings = {}
    if "--from" not in words:
        tiny = [s for word, settings in TINY.items() if word in words for s in settings.split()]
        settings = dict(setting.split("=") for setting in tiny)
    given = {word.partition("=")[0] for word in words}
    settings = [f"--set={k}={v}" for k, v in settings.items() if k not in given]
    return [*shorten(words, 2), "--no-baseline", *settings]


def write_users_files(folder):
    """Write the data and the recipes that the commands take for granted."""
    for name in ("a.txt", "b.txt", "mytext.txt", "corpus.txt", "enwik8-10MB.txt"):
        (folder / name).write_text("A cat sat on the mat.\nA dog lay on the log.\n" * 9)
    for name in ("texts-22500.jsonl", "held-out-22500.jsonl"):
        rows = [{"text": f"a film {i}", "label": ("pos", "neg")[i % 2]} for i in range(20)]
        (folder / name).write_text("\n".join(map(json.dumps, rows)))
    for name in ("it-train.tsv", "it-held-out.tsv"):
        pairs = [f"the {a} and it\tthe {a} and the {a}" for a in ("cat", "dog", "rabbit", "square")]
        (folder / name).write_text("\n".join(pairs))
    (folder / "recipes").symlink_to(ROOT / "recipes")


# --- the table ------------------------------------------------------------------------------------


def test_every_section_of_every_tutorial_has_a_row():
    rows = {d.id: [section.number for section in d.sections] for d in list_tutorials()}
    assert rows == {name: numbers.split() for name, numbers in SECTIONS.items()}
    for entry in list_entries():
        assert entry["run"], entry
        assert entry["en"] != "" != entry["zh"]


def test_every_correction_is_part_of_a_section():
    used = {name for entry in list_entries() for name in entry.get("errata", ())}
    chapters = [p.name.split(".")[0] for p in TEXTS.glob("errata_*.en.toml")]
    assert len(chapters) == 6
    steps = {
        f"{chapter.removeprefix('errata_')}.{key}"
        for chapter in chapters
        for key in read_text(chapter, "en")["steps"]
    }
    assert used == steps - {"rohrer.about"}


def test_every_plot_is_in_the_table():
    drawn = {command.split()[1] for entry in list_entries() for command in entry["draw"]}
    assert drawn == set(PLOTS)


def test_every_run_of_the_commands_can_be_trained():
    commands = [shlex.split(c) for kind in ("run", "draw") for c in list_commands(kind)]
    used = {word for words in commands if words[0] != "train" for word in words}
    used |= {words[words.index("--from") + 1] for words in commands if "--from" in words}
    used = {word for word in used if word.startswith("runs/")}
    assert used == set(list_runs())


def test_every_page_of_the_rows_exists():
    names = {name for entry in list_entries() for name in entry.get("pages", ())}
    assert names
    assert all((ROOT / "docs" / f"{name}.md").exists() for name in names)


# --- the commands ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*Noto Sans CJK:UserWarning")
def test_every_command_and_picture_of_the_tutorials_can_be_made(tmp_path, monkeypatch):
    """In one folder, with small models: the commands, the pictures, and each variant in Chinese."""
    monkeypatch.chdir(tmp_path)
    shrink_samples(monkeypatch)
    monkeypatch.setattr("glassformer.inspection.pictures.skips.STEPS", 20)
    monkeypatch.setattr("glassformer.inspection.pictures.skips.OFFSETS", [-1, 0, 1])
    monkeypatch.setattr("glassformer.inspection.draw.DPI", 50)
    monkeypatch.setattr("glassformer.inspection.draw.ANIMATION_DPI", 40)
    monkeypatch.setattr("glassformer.training.report.draw_plots", lambda *_: None)
    write_users_files(tmp_path)
    failures = []
    for folder, command in list_runs().items():
        words = shrink(shlex.split(command)[1:])
        failures.append(run_command(*words, *(() if "--run" in words else ("--run", folder))))
    done = {command.removeprefix("glass ") for command in list_runs().values()}
    # bench/soak.py runs comparisons, which take longer
    commands = [c for c in list_commands("run") if c not in done and not c.startswith("compare ")]
    assert len(commands) > 30
    failures += [run_command(*shrink(shlex.split(command))) for command in commands]
    pictures = [shlex.split(command) for command in list_commands("draw")]
    assert len(pictures) > 30
    variants = {find_variant(words): words for words in pictures}
    for number, words in enumerate(pictures):
        suffix = "gif" if PLOTS[words[1]].is_animation else "png"
        for code in ("en", "zh") if words in variants.values() else ("en",):
            file = f"{number}-{code}.{suffix}"
            failure = run_command(*words, "--out", file, "--lang", code)
            failures.append(failure or check_picture(file))
    assert not list(filter(None, failures)), "\n".join(filter(None, failures))


def find_variant(words):
    """What decides the texts of a picture: the plot, and its part or kind."""
    return words[1], *(words[i + 1] for i, w in enumerate(words) if w in ("--part", "--kind"))


def check_picture(file):
    with Image.open(file) as picture:
        darkest, brightest = picture.convert("L").getextrema()
        is_empty = brightest - darkest < 100 or min(picture.size) < 40
    return f"{file} is empty" if is_empty else ""


# --- the command and the pages --------------------------------------------------------------------


@pytest.mark.parametrize("code", ["en", "zh"])
def test_the_page_is_up_to_date(code):
    name = "tutorials.md" if code == "en" else "tutorials.zh.md"
    result = CliRunner().invoke(glass, ["lessons", "--markdown", "--lang", code])
    assert result.exit_code == 0
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == result.output


def test_lessons_lists_the_sections_of_a_tutorial():
    everything = CliRunner().invoke(glass, ["lessons"]).output
    one = CliRunner().invoke(glass, ["lessons", "--tutorial", "khan"]).output
    assert "glass walk ratings" in everything
    assert "glass walk ratings" not in one
    assert "correction: Khan, step 5: the positional encoding" in one
    assert CliRunner().invoke(glass, ["lessons", "--tutorial", "002"]).output == one
    chinese = CliRunner().invoke(glass, ["lessons", "--tutorial", "khan", "--lang", "zh"]).output
    assert "更正：Khan 第 5 步：位置编码" in chinese


def test_lessons_prints_json():
    lines = CliRunner().invoke(glass, ["lessons", "--tutorial", "lee", "--json"]).output
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["number"] for row in rows] == SECTIONS["lee"].split()
    assert rows[2]["commands"] == ["glass walk attention"]
    assert rows[2]["corrections"] == ["Lee, self-attention: hiding a word with a score of 0"]


def test_an_unknown_tutorial_is_an_error():
    with pytest.raises(GlassError, match="unknown tutorial 'kahn'; did you mean 'khan'"):
        list_tutorials(["kahn"])
    assert CliRunner().invoke(glass, ["lessons", "--markdown", "--json"]).exit_code == 2
