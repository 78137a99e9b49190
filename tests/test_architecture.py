"""The claims of docs/architecture.md that can be checked against the code."""

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
CALLED_AS = {  # name in the caller, if it differs from that of the function
    "LanguageModel.forward": "network",
    "CountPrior.forward": "prior",
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
    match = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, title
    return match[1]


def diagram(title):
    """Return (depth, file, function) for each line of the diagram in a section."""
    lines = re.search(r"^```\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)[1].splitlines()
    nodes = [NODE.match(line) for line in lines]
    assert all(nodes), [line for line, node in zip(lines, nodes, strict=True) if not node]
    return [(len(node[1]) // 3, node[2], node[3]) for node in nodes]


def arrows(title):
    """Return (caller, callee) for each function that has a caller in the diagram."""
    path, calls = [], []
    for depth, file, name in diagram(title):
        assert depth <= len(path), f"{file}: {name} is indented too far"
        if depth:
            calls.append((path[depth - 1], (file, name)))
        path[depth:] = [(file, name)]
    return calls


@cache
def definitions(file):
    """Return the functions and classes of a file by dotted name."""
    nodes = {}

    def walk(body, prefix):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                nodes[prefix + node.name] = node
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{prefix}{node.name}.")

    walk(ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body, "")
    return nodes


def list_names(node):
    """Return the variables, attributes and imports that a definition mentions."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            names.add(inner.attr)
        elif isinstance(inner, ast.alias):
            names.add(inner.name)
    return names


TITLES = ("The path of a batch", "The path of a prompt")
NODES = {(file, name) for title in TITLES for _, file, name in diagram(title)}
ARROWS = [arrow for title in TITLES for arrow in arrows(title)]


def test_both_diagrams_are_complete_from_first_to_last_file():
    for title, first, last in (
        (TITLES[0], "cli/train.py", "weights.py"),
        (TITLES[1], "cli/use.py", "generate/stream.py"),
    ):
        files = [file for _, file, _ in diagram(title)]
        assert files[0] == first
        assert last in files
        assert len(files) > 20


@pytest.mark.parametrize(("file", "name"), sorted(NODES), ids=lambda part: part)
def test_every_function_in_the_diagrams_exists(file, name):
    assert name in definitions(file)


@pytest.mark.parametrize(("caller", "callee"), ARROWS, ids=[f"{a[1]}-{b[1]}" for a, b in ARROWS])
def test_every_caller_in_the_diagrams_mentions_its_callee(caller, callee):
    file, name = caller
    nodes = definitions(file)
    node = nodes[name]
    if isinstance(node, ast.ClassDef):  # its calls are those of its constructor
        node = nodes[f"{name}.__init__"]
    expected = CALLED_AS.get(callee[1], callee[1].rpartition(".")[2])
    assert expected in list_names(node), f"{file}: {name} does not mention {expected}"


def test_a_call_that_does_not_exist_is_detected():
    node = definitions("training/trainer.py")["Trainer.take_step"]
    assert "lr_at" in list_names(node)
    assert "save_best" not in list_names(node)


def test_every_entry_of_called_as_is_in_the_diagrams():
    assert set(CALLED_AS) <= {name for _, name in NODES}


def test_all_stages_are_listed_in_order():
    listed = re.findall(r"^\| `(\w+)` \|", section("Stages"), re.MULTILINE)
    assert listed == ORDER
    stages = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert stages - {"__init__", "__pycache__", "py", "shipped_model"} <= set(listed)


def test_every_jump_in_the_diagram_is_explained():
    text = section("The path of a batch")
    jumps = set(re.findall(r"\(jump (\d)\)", text))
    assert jumps == set(re.findall(r"^(\d)\. \*\*", text, re.MULTILINE))
    assert jumps


def test_every_file_named_on_the_page_exists():
    names = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|md))`", PAGE))
    assert len(names) > 20
    for name in names - {"README.md"}:
        paths = (PACKAGE / name, ROOT / name, *PACKAGE.rglob(name))
        assert any(path.exists() for path in paths), name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs that together write every file that a run can write."""
    home = tmp_path_factory.mktemp("runs")
    book, table = home / "book.txt", home / "table.csv"
    book.write_text("the cat sat on the mat and the dog sat on the log. " * 100)
    rows = "".join(f"good {i} film,pos\nbad {i} film,neg\n" for i in range(40))
    table.write_text(f"text,label\n{rows}x\n")
    options = {"settings": SMALL, "device": "cpu", "threads": 1}
    train("generate", book, run=home / "steps", steps=2, **options)
    train("generate", book, run=home / "minutes", minutes=0.02, **options)
    options |= {"settings": [*SMALL, "train.tensorboard=true"]}
    train(
        "classify", table, run=home / "table", model="classifier", steps=2, skip_bad=True, **options
    )
    return [home / name for name in ("steps", "minutes", "table")]


def listed_files(run):
    """Yield the files of a run as the page lists them, with one entry for each subfolder."""
    for path in run.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(run).parts):
            top, *rest = path.relative_to(run).parts
            if not rest:
                yield top
            elif top in ("best", "last", "baseline"):
                yield f"{top}/"
            else:
                yield f"{top}/*{path.suffix if top == 'plots' else ''}"


def test_run_folder_contains_the_files_listed_on_the_page(runs):
    listed = re.findall(r"^\| `([\w.*/]+)` \|", section("The run folder"), re.MULTILINE)
    listed = [name for name in listed if "." in name or "/" in name]
    written = {name for run in runs for name in listed_files(run)}
    assert set(listed) == written
    assert len(listed) == len(set(listed))


def test_page_lists_every_file_of_a_model_folder(runs):
    text = section("The run folder")
    for run in runs:
        for folder in ("best", "last", "baseline"):
            names = {path.name for path in (run / folder).iterdir()}
            assert "manifest.json" in names
            assert all(f"`{name}`" in text for name in names)


def test_every_kind_of_metrics_line_is_described(runs):
    table = section("The run folder").partition("| kind |")[2]
    described = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    written = {line["kind"] for run in runs for line in Run(run).metrics()}
    assert {"train", "validation", "final"} <= written <= set(described)
    logged = [
        call.args[0].value
        for path in (PACKAGE / "training").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("run.log_metrics")
    ]
    assert set(described) == set(logged)
