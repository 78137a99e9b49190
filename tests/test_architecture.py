"""docs/architecture.md says what the code does: each of its claims that can be checked is."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import glassformer
from glassformer.training.run import Run
from glassformer.training.train import train
from test_layout import ORDER

PACKAGE = Path(glassformer.__file__).parent
ROOT = PACKAGE.parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NODE = re.compile(r"^([│├└─ ]*)([\w/]+\.py): ([\w.]+)")
CALLED_AS = {  # where a caller does not say the callee's own name
    "GPT2.forward": "network",
    "Block.forward": "block",
    "Attention.forward": "attention",
    "FeedForward.forward": "feedforward",
    "Step.__call__": "step",
    "GenerateDataset": "dataset",
}
SMALL = [
    *("model.dim=16", "model.depth=1", "model.heads=2", "model.context=16"),
    "train.precision=float32",
]


def section(title):
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def diagram(title):
    """The (depth, file, function) of each line of the diagram in a section."""
    lines = re.search(r"^```\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)[1].splitlines()
    found = [NODE.match(line) for line in lines]
    assert all(found), [line for line, node in zip(lines, found, strict=True) if not node]
    return [(len(node[1]) // 3, node[2], node[3]) for node in found]


def arrows(title):
    """Each line's function with the one above it that calls it."""
    path, found = [], []
    for depth, file, name in diagram(title):
        assert depth <= len(path), f"{file}: {name} hangs from nothing"
        if depth:
            found.append((path[depth - 1], (file, name)))
        path[depth:] = [(file, name)]
    return found


@cache
def definitions(file):
    """Every function and class of a file by its dotted name."""
    found = {}

    def walk(body, prefix):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[prefix + node.name] = node
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{prefix}{node.name}.")

    walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body, "")
    return found


def list_names(node):
    """Every name that a definition mentions: variables, attributes, and what it imports."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            found.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            found.add(inner.attr)
        elif isinstance(inner, ast.alias):
            found.add(inner.name)
    return found


TITLES = ("The path of a batch", "The path of a prompt")
NODES = {(file, name) for title in TITLES for _, file, name in diagram(title)}
ARROWS = [arrow for title in TITLES for arrow in arrows(title)]


def test_both_paths_are_drawn_from_end_to_end():
    for title, first, last in (
        (TITLES[0], "cli/train.py", "weights.py"),
        (TITLES[1], "cli/use.py", "generate/pieces.py"),
    ):
        files = [file for _, file, _ in diagram(title)]
        assert files[0] == first
        assert last in files
        assert len(files) > 20


@pytest.mark.parametrize(("file", "name"), sorted(NODES), ids=lambda part: part)
def test_every_function_in_the_diagrams_exists(file, name):
    assert name in definitions(file)


@pytest.mark.parametrize(("caller", "callee"), ARROWS, ids=[f"{a[1]}-{b[1]}" for a, b in ARROWS])
def test_every_arrow_is_a_call(caller, callee):
    file, name = caller
    known = definitions(file)
    node = known[name]
    if isinstance(node, ast.ClassDef):  # a class calls what it is made with
        node = known[f"{name}.__init__"]
    wanted = CALLED_AS.get(callee[1], callee[1].rpartition(".")[2])
    assert wanted in list_names(node), f"{file}: {name} does not mention {wanted}"


def test_an_arrow_that_is_no_call_is_found():
    node = definitions("training/trainer.py")["Trainer.take_step"]
    assert "lr_at" in list_names(node)
    assert "save_best" not in list_names(node)


def test_names_that_are_called_otherwise_are_in_the_diagrams():
    assert set(CALLED_AS) <= {name for _, name in NODES}


def test_all_stages_are_listed_in_their_order():
    listed = re.findall(r"^\| `(\w+)` \|", section("Stages"), re.MULTILINE)
    assert listed == ORDER
    there = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert there - {"__init__", "__pycache__", "py"} <= set(listed)


def test_every_jump_in_the_diagram_is_explained():
    text = section("The path of a batch")
    marked = set(re.findall(r"\(jump (\d)\)", text))
    assert marked == set(re.findall(r"^(\d)\. \*\*", text, re.MULTILINE))
    assert marked


def test_every_file_that_the_page_names_exists():
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|md))`", PAGE))
    assert len(named) > 20
    for name in named - {"README.md"}:
        places = (PACKAGE / name, ROOT / name, *PACKAGE.rglob(name))
        assert any(path.exists() for path in places), name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Tiny runs that together write everything that a run can write."""
    home = tmp_path_factory.mktemp("runs")
    book, table = home / "book.txt", home / "table.csv"
    book.write_text("the cat sat on the mat and the dog sat on the log. " * 100)
    rows = "".join(f"good {i} film,pos\nbad {i} film,neg\n" for i in range(40))
    table.write_text(f"text,label\n{rows}x\n")
    common = {"settings": SMALL, "device": "cpu", "threads": 1}
    train("generate", book, run=home / "steps", steps=2, **common)
    train("generate", book, run=home / "minutes", minutes=0.02, **common)
    extra = {**common, "settings": [*SMALL, "train.tensorboard=true"]}
    train("classify", table, run=home / "table", steps=2, skip_bad=True, **extra)
    return [home / name for name in ("steps", "minutes", "table")]


def files_of(run):
    """The files of a run as the page's table names them: folders of a model and of data as one."""
    for path in run.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(run).parts):
            top, *rest = path.relative_to(run).parts
            if not rest:
                yield top
            elif top in ("best", "last", "baseline"):
                yield f"{top}/"
            else:
                yield f"{top}/*{path.suffix if top == 'plots' else ''}"


def test_the_run_folder_holds_what_the_page_lists(runs):
    listed = re.findall(r"^\| `([\w.*/]+)` \|", section("The run folder"), re.MULTILINE)
    listed = [name for name in listed if "." in name or "/" in name]
    written = {name for run in runs for name in files_of(run)}
    assert set(listed) == written
    assert len(listed) == len(set(listed))


def test_the_page_names_every_file_of_a_models_folder(runs):
    text = section("The run folder")
    for run in runs:
        for folder in ("best", "last", "baseline"):
            found = {path.name for path in (run / folder).iterdir()}
            assert "manifest.json" in found
            assert all(f"`{name}`" in text for name in found)


def test_every_kind_of_metrics_line_is_described(runs):
    table = section("The run folder").partition("| kind |")[2]
    described = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    distinct = {line["kind"] for run in runs for line in Run(run).metrics()}
    assert {"train", "validation", "final"} <= distinct <= set(described)
    calls = [
        call.args[0].value
        for path in (PACKAGE / "training").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("run.log_metrics")
    ]
    assert set(described) == set(calls)
