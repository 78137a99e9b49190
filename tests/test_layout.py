"""The layout of the package: import order, dependencies, names and the public API."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import glassformer

PACKAGE = Path(glassformer.__file__).parent
ROOT = PACKAGE.parents[1]
ORDER = [  # each stage imports only from itself and from earlier stages
    "core", "locale", "trace", "text", "data", "nn", "models", "baselines", "registry", "laws",
    "weights", "formats", "checkpoint", "export", "generate", "tasks", "predict", "training",
    "inspection",
    "lessons", "api", "serve", "sklearn", "cli",
]  # fmt: skip
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def imports(path: Path, *, top: bool = False):
    """Yield the modules that a file imports, with line numbers; with `top`, only at top level."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top else ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
            if node.module == "glassformer":
                names = [f"glassformer.{alias.name}" for alias in node.names]
        yield from ((name, node.lineno) for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_stages_import_only_from_earlier_stages(path):
    stage = ORDER.index(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    for name, line in imports(path):
        if name.startswith("glassformer.") and name != "glassformer.__version__":
            assert ORDER.index(name.split(".")[1]) <= stage, f"line {line}: {name}"


def test_nn_imports_neither_models_nor_config():
    for path in (PACKAGE / "nn").glob("*.py"):
        modules = {name for name, _ in imports(path)}
        assert not any(
            m.startswith(("glassformer.models", "glassformer.core.config")) for m in modules
        )


def test_package_imports_only_its_declared_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {d.split(">")[0].replace("-", "_") for d in project["dependencies"]}
    optional = project["optional-dependencies"]
    extra = {
        d.split(">")[0].replace("-", "_") for name in ("data", "export") for d in optional[name]
    } | {"sklearn", "PIL"}  # the names of scikit-learn, an extra, and of pillow in Python
    for path in FILES:
        for name, line in imports(path):
            package = name.split(".")[0]
            is_declared = package in required | extra | {"glassformer", "pydoc_data"}
            assert is_declared or package in sys.stdlib_module_names, f"{path}:{line}: {name}"


def test_training_runs_without_unix_modules(tmp_path):
    """As on Windows: without fcntl, resource and SIGHUP."""
    code = (
        "import signal, sys\n"
        "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "del signal.SIGHUP\n"
        "import glassformer.api, glassformer.cli\n"
        "from glassformer.training.resume import resume\n"
        "from glassformer.training.train import train\n"
        "sizes = ['model.dim=16', 'model.depth=1', 'model.heads=2', 'model.context=16']\n"
        "train('generate', 'book.txt', run='run', steps=2, settings=sizes, device='cpu',\n"
        "      precision='float32')\n"
        "from pathlib import Path\n"
        "print(resume(Path('run'), steps=3)['steps'])"
    )
    (tmp_path / "book.txt").write_text("the cat sat on the mat. " * 100)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.stdout == "3\n", result.stderr


def test_readme_lists_the_stages_in_order():
    readme = (ROOT / "README.md").read_text()
    listed = re.findall(
        r"^  ([a-z0-9_]+)(?:\.py|/)", readme.partition("src/glassformer/\n")[2], re.M
    )
    assert listed == sorted(listed, key=ORDER.index)
    assert {"data", "nn", "models", "training", "cli"} <= set(listed)


def test_every_entry_of_the_slow_list_matches_a_test(request):
    if request.config.args != request.config.getini("testpaths"):
        pytest.skip("only some of the tests were collected")
    assert request.config.unmatched == []


def test_no_file_has_a_generic_name():
    generic = {"utils", "util", "helpers", "common", "base", "manager", "misc"}
    assert not {path.stem for path in FILES} & generic


def test_public_names_can_be_imported_from_the_package():
    assert glassformer.__all__ == [
        "MODELS",
        "TOKENIZERS",
        "GlassError",
        "Model",
        "Trace",
        "compare",
        "evaluate",
        "load",
        "resume",
        "train",
    ]
    assert dir(glassformer) == sorted(glassformer.__all__)
    for name in glassformer.__all__:
        assert getattr(glassformer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        glassformer.nothing  # noqa: B018
    assert list(glassformer.MODELS) == [
        *("markov", "nb_svm", "phrase_table", "lead", "neighbors"),
        *("biases", "popularity"),
        *("recurrent", "recurrent_classifier", "recurrent_translator"),
        *("convolutional", "convolutional_classifier"),
        *("text_cnn", "classifier", "generator", "translator"),
        *("bert", "bert_classifier", "bert_encoder"),
        *("gpt2", "gpt2_classifier", "llama"),
        *("decoder", "post_norm_decoder", "unprojected_decoder"),
        *("transformer_xl", "sparse"),
        "summarizer",
        *("universal", "universal_classifier", "universal_translator"),
        *("factorization", "sasrec"),
        *("speedrun", "speedrun_translator"),
        *("logistic", "image_cnn", "vision", "sagan"),
    ]
    assert all(model.Config for model in glassformer.MODELS.values())


def test_package_uses_neither_pickle_nor_eval():
    for path in FILES:
        names = {name.split(".")[0] for name, _ in imports(path)}
        assert not names & {"pickle", "marshal", "shelve", "dill", "yaml"}
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        plain = {f.id for f in calls if isinstance(f, ast.Name)}
        dotted = {ast.unparse(f) for f in calls if isinstance(f, ast.Attribute)}
        assert not plain & {"eval", "exec", "compile"}
        assert not dotted & {"torch.load", "torch.save"}


def test_every_public_name_of_nn_and_trace_occurs_in_a_test():
    tests = "".join(p.read_text() for p in Path(__file__).parent.rglob("test_*.py"))
    words = set(re.findall(r"\w+", tests))
    for path in [*(PACKAGE / "nn").glob("*.py"), PACKAGE / "trace.py"]:
        for node in ast.parse(path.read_text()).body:
            is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if is_definition and not node.name.startswith("_"):
                assert node.name in words, f"{path.relative_to(PACKAGE)}: {node.name}"
