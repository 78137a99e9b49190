"""The claims of docs/architecture.md that can be checked against the code."""

import ast
import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest

import glassformer
from calls import Calls, record_calls
from glassformer.training.run import Run
from glassformer.training.train import train
from in_process import run_command
from test_layout import ORDER

PACKAGE = Path(glassformer.__file__).parent
ROOT = PACKAGE.parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DECISIONS = [path.read_text(encoding="utf-8") for path in (ROOT / "docs/decisions").glob("*.md")]
NODE = re.compile(r"^([│├└─ ]*)([\w/]+\.py: [\w.]+)(.*)$")
FUNCTION = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
SMALL = [
    *("model.context=16", "model.depth=1", "model.heads=2"),
    *("model.dim=16", "train.precision=float32"),
]
TASKS = ("generate", "classify", "translate")


# --- the page -------------------------------------------------------------------------------------


def section(title):
    match = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, title
    return match[1]


def table(text, first_cell):
    """Return the rows below the header of a table, as lists of cells."""
    rows = text.partition(f"| {first_cell} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert rows, first_cell
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]


def parse_diagram(text):
    """Return (depth, function, whether it runs only sometimes) for each line of a diagram."""
    nodes = [NODE.match(line) for line in text.splitlines()]
    assert all(nodes), text
    return [(len(node[1]) // 3, node[2], "(only " in node[3]) for node in nodes]


def find_diagrams():
    """Return the nodes of each diagram on the page, by the command at its root."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return {nodes[0][1]: nodes for nodes in map(parse_diagram, blocks)}


def find_differences(nodes, calls):
    """Return the calls of a diagram that did not occur, or occurred earlier than drawn.

    A function that is drawn twice below another must run again after what is drawn between.
    """
    path, times, names, problems = [], [], [], []  # one entry for each depth
    for depth, name, is_conditional in nodes:
        assert depth <= len(path), f"{name} is indented too far"
        for entries in (path, times, names):
            del entries[depth:]
        path.append((name, is_conditional))
        times.append(0)
        names.append(set())
        if depth == 0 or any(is_conditional for _, is_conditional in path):
            continue
        caller = path[depth - 1][0]
        first, last = calls.runs.get((caller, name), (None, None))
        is_repeated = name in names[depth - 1]
        names[depth - 1].add(name)
        if first is None:
            callers = sorted(str(a) for a, b in calls.runs if b == name)
            problems.append(f"{caller} does not call {name}; its callers: {callers}")
        elif (last if is_repeated else first) < times[depth - 1]:
            problems.append(f"{caller} calls {name} earlier than drawn")
        elif not is_repeated:
            times[depth - 1] = first
    return problems


DIAGRAMS = find_diagrams()
BATCH, PROMPT = "cli/train.py: train", "cli/use.py: generate"
TRANSLATION = "cli/predict.py: translate"
DRAWN = {tuple(node[1].split(": ")) for nodes in DIAGRAMS.values() for node in nodes}


# --- the code -------------------------------------------------------------------------------------


@cache
def definitions(file):
    """Return the functions, classes and variables of a file by dotted name."""
    names = set()

    def walk(body, prefix):
        for node in body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names.update(prefix + target.id for target in targets if isinstance(target, ast.Name))
            is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if is_definition:
                names.add(prefix + node.name)
            walk(getattr(node, "body", []), f"{prefix}{node.name}." if is_definition else prefix)

    walk(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return names


@cache
def all_definitions():
    return set().union(*map(definitions, PACKAGE.rglob("*.py")))


def find_file(name):
    """Return the file with a name as on the page: in the package, or in the repository."""
    return next((folder / name for folder in (PACKAGE, ROOT) if (folder / name).exists()), None)


def find_unknown_names(text):
    """Return the functions and classes named in a text that do not exist where it says."""
    pairs = {(file, name) for file, name in FUNCTION.findall(text)}
    for name, file in re.findall(r"`([\w.]+)`(?:\s+in\s+|\s+\()`([\w/]+\.py)`", text):
        pairs.add((file, name))
    for name in re.findall(r"\| `(test_\w+)` \|", text):
        pairs.add(("tests/test_how_to_add.py", name))
    unknown = {
        f"{file}: {name}"
        for file, name in pairs
        if not (path := find_file(file)) or name not in definitions(path)
    }
    methods = set(re.findall(r"`([A-Z]\w+\.[a-z_]+)(?:\(\))?`", text)) - {"README.md"}
    return unknown | (methods - all_definitions())


# --- small runs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of small runs that together write every file of a run, and their calls."""
    home, calls = tmp_path_factory.mktemp("runs"), {}
    book, labels, pairs = (home / name for name in ("book.txt", "labels.csv", "pairs.tsv"))
    book.write_text("the cat sat on the mat and the dog sat on the log. " * 100)
    rows = "".join(f"good {i} film,pos\nbad {i} film,neg\n" for i in range(40))
    labels.write_text(f"text,label\n{rows}x\n")
    words = {"one": "eins", "two": "zwei", "three": "drei"}
    sources = [*product(words, repeat=3), *product(words, repeat=2)]
    lines = [" ".join(source) + "\t" + " ".join(map(words.get, source)) for source in sources]
    pairs.write_text("\n".join(("source\ttarget", *lines)))

    def run(name, *command, settings=()):
        words = [word for setting in settings for word in ("--set", setting)]
        with record_calls() as calls[name]:
            problem = run_command(*map(str, command), *words)
        assert not problem

    options = {"device": "cpu", "threads": 1}
    train("generate", book, run=home / "minutes", minutes=0.02, settings=SMALL, **options)
    with record_calls() as calls["classify"]:
        options |= {"skip_bad": True, "settings": [*SMALL[-2:], "train.tensorboard=true"]}
        train("classify", labels, run=home / "table", steps=2, **options)
    budget = ("--steps", 2, "--device", "cpu", "--threads", 1)
    run("generate", "train", "generate", book, "--run", home / "steps", *budget, settings=SMALL)
    budget = ("--run", home / "pairs", *budget, "--tokenizer", "characters")
    run("translate", "train", "translate", pairs, *budget, settings=SMALL[1:])
    run(PROMPT, "generate", home / "steps", "the cat", "-n", 3, "--seed", 0)
    run(TRANSLATION, "translate", home / "pairs", "one two three", "--beam", 2)
    return home, calls | {BATCH: calls["generate"]}


@pytest.fixture(scope="module")
def runs(recorded):
    return [recorded[0] / name for name in ("steps", "minutes", "table", "pairs")]


@pytest.fixture(scope="module")
def calls(recorded):
    return recorded[1]


# --- the diagrams ---------------------------------------------------------------------------------


def test_diagrams_are_complete_from_first_to_last_file():
    assert DIAGRAMS.keys() == {BATCH, PROMPT, TRANSLATION}
    for root, last in (
        (BATCH, "weights.py"),
        (PROMPT, "generate/stream.py"),
        (TRANSLATION, "generate/beam.py"),
    ):
        files = [name.partition(":")[0] for _, name, _ in DIAGRAMS[root]]
        assert last in files
        assert len(files) > 20


@pytest.mark.parametrize(("file", "name"), sorted(DRAWN), ids=lambda part: part)
def test_every_function_in_the_diagrams_exists(file, name):
    assert name in definitions(PACKAGE / file)


@pytest.mark.parametrize("root", [BATCH, PROMPT, TRANSLATION])
def test_drawn_calls_occur_in_the_drawn_order(root, calls):
    assert any(callee == root for _, callee in calls[root].runs)
    assert find_differences(DIAGRAMS[root], calls[root]) == []


def test_few_functions_are_drawn_as_conditional():
    conditional = [name for nodes in DIAGRAMS.values() for _, name, is_only in nodes if is_only]
    assert len(conditional) <= 3


STEP = """
training/trainer.py: Trainer.loop
├─ training/trainer.py: Trainer.evaluate
├─ training/trainer.py: Trainer.take_step
│  ├─ training/settings.py: lr_at
│  └─ training/step.py: Step.__call__
│     ├─ training/optimizers.py: EMA.update (only with an average)
│     └─ training/muon.py: Muon.step
└─ training/trainer.py: Trainer.evaluate
""".strip()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", None),
        (
            "settings.py: lr_at",
            "step.py: Step.make_loss_generators",
            "take_step does not call training/step.py",
        ),
        ("(only with an average)", "of the weights", "Step.__call__ does not call"),
        ("muon.py: Muon.step", "muon.py: Muon.update_adamw", "callers: ['training/muon.py: Muon"),
        ("├─ training/trainer.py: Trainer.evaluate\n", "", "evaluate earlier than drawn"),
        ("Trainer.take_step\n", "Trainer.report\n", "Trainer.report does not call"),
        ("Trainer.evaluate\n", "Trainer.report\n", "take_step earlier than drawn"),
    ],
)
def test_a_wrong_call_in_a_diagram_is_detected(calls, old, new, problem):
    assert old in STEP
    found = find_differences(parse_diagram(STEP.replace(old, new)), calls[BATCH])
    assert bool(found) == bool(problem)
    assert not problem or problem in found[0]


def test_a_wrong_order_in_a_diagram_is_detected():
    calls = Calls()
    calls.runs = {("a.py: f", "a.py: g"): (1, 5), ("a.py: f", "a.py: h"): (2, 3)}

    def check(*names):
        return find_differences([(0, "a.py: f", False), *((1, n, False) for n in names)], calls)

    assert not check("a.py: g", "a.py: h", "a.py: g")
    assert check("a.py: h", "a.py: g") == ["a.py: f calls a.py: g earlier than drawn"]
    calls.runs["a.py: f", "a.py: g"] = (1, 1)
    assert check("a.py: g", "a.py: h", "a.py: g") == ["a.py: f calls a.py: g earlier than drawn"]


def test_calls_through_generators_and_lambdas_belong_to_the_function_that_runs_them():
    from glassformer.data.corpus import batched, split_at_byte

    with record_calls() as calls:
        items = batched(split_at_byte(["text"], 2), 64)
        assert not calls.runs
        list(items)
    edge = ("data/corpus.py: batched", "data/corpus.py: split_at_byte")
    assert [callee for _, callee in calls.runs] == [edge[0], edge[1]]
    assert edge in calls.runs


def test_every_jump_in_the_diagram_is_explained():
    text = section("The path of a batch")
    jumps = set(re.findall(r"\(jump (\d)\)", text))
    assert jumps == set(re.findall(r"^(\d)\. \*\*", text, re.MULTILINE))
    assert jumps


# --- calls of later stages, and differences between tasks -----------------------------------------


def test_every_call_of_a_later_stage_is_explained(calls):
    def stage(name):
        return ORDER.index(name.partition(":")[0].partition("/")[0].removesuffix(".py"))

    rows = table(section("Stages"), "function")
    made = {edge for trace in calls.values() for edge in trace.runs if edge[0]}
    made = {(a, b) for a, b in made if not a.startswith("__init__") and stage(a) < stage(b)}
    explained = {tuple(cell.strip("`") for cell in row[:2]) for row in rows}
    callees = {callee for caller, callee in explained if ":" not in caller}  # with several callers
    left = {
        (caller, callee)
        for caller, callee in made - explained
        if callee not in callees and not callee.endswith(".__post_init__")
    }
    assert not left
    assert {edge for edge in explained if all(".py: " in name for name in edge)} <= made
    assert callees <= {callee for _, callee in made}


@pytest.mark.parametrize("task", TASKS)
def test_functions_in_the_table_of_tasks_run_for_their_task(task, calls):
    rows = table(section("The path of a batch"), "| `generate` | `classify` | `translate`")
    cells = [row[1 + TASKS.index(task)] for row in rows]
    named = {": ".join(pair) for cell in cells for pair in FUNCTION.findall(cell)}
    assert len(named) > 6
    assert named <= calls[task].functions


@pytest.mark.parametrize("text", [PAGE, *DECISIONS], ids=lambda text: text.splitlines()[0])
def test_every_function_and_method_that_is_named_exists(text):
    assert not find_unknown_names(text)


def test_a_name_that_does_not_exist_is_detected():
    assert not find_unknown_names("`Run.lock`, `lr_at` in `training/settings.py`")
    text = "`Run.forget`, `plot_it` in\n`tasks/task.py`, `NAMES` (`export.py`), `cli/use.py: Use`"
    assert find_unknown_names(text) == {
        *("Run.forget", "tasks/task.py: plot_it", "export.py: NAMES", "cli/use.py: Use")
    }


# --- stages, files and metrics --------------------------------------------------------------------


def test_all_stages_are_listed_in_order():
    listed = re.findall(r"^\| `(\w+)` \|", section("Stages"), re.MULTILINE)
    assert listed == ORDER
    stages = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or p.is_dir()}
    assert stages - {"__init__", "__pycache__", "py", "shipped_model"} <= set(listed)


def test_every_file_named_on_the_page_exists():
    names = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.(?:py|md))`", PAGE))
    assert len(names) > 20
    for name in names - {"README.md"}:
        paths = (PACKAGE / name, ROOT / name, *PACKAGE.rglob(name))
        assert any(path.exists() for path in paths), name


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
