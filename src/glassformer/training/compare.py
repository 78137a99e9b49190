"""Compare several models on one task with the same budget: a table, a plot and a report."""

import json
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

from glassformer.checkpoint import CONFIG
from glassformer.core.config import override
from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.folder import read_json, write_file
from glassformer.core.reporter import Reporter, format_value
from glassformer.tasks import find_task
from glassformer.tasks.task import TaskSpec
from glassformer.training.plots import select_evaluations
from glassformer.training.request import BUDGETS, select_settings
from glassformer.training.run import Run, next_run
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings
from glassformer.training.setup import make_config, resolve_architecture

ARGUMENTS, RESULT, REPORT, PLOT = "compare.json", "result.json", "README.md", "compare.png"
CHILD_SCRIPT = """
import json, sys
from pathlib import Path
from glassformer.core.errors import GlassError
from glassformer.training.train import resume, train
try:
    options = json.load(sys.stdin)
    if path := options.pop("resume", None):
        result = resume(Path(path))
    else:
        result = train(options.pop("task"), *options.pop("data"), **options)
except (GlassError, OSError) as error:
    sys.exit(f"glass: {error}")
except KeyboardInterrupt:
    sys.exit(130)
print(json.dumps(result))
"""


@dataclass(frozen=True)
class Contender:
    """A model in a comparison: `gpt2`, or `gpt2:depth=2:dim=64` with its own settings.

    `prior` is a training setting: `gpt2:prior=false` is the network without its prior.
    """

    name: str

    @property
    def model(self) -> str:
        return self.name.partition(":")[0]

    @property
    def model_settings(self) -> list[str]:
        return [s for s in self.name.split(":")[1:] if not s.startswith("prior=")]

    @property
    def settings(self) -> list[str]:
        """All settings, in the format of `--set`."""
        prior = [s for s in self.name.split(":")[1:] if s.startswith("prior=")]
        return [f"train.{s}" for s in prior] + [f"model.{s}" for s in self.model_settings]

    @property
    def folder(self) -> str:
        return re.sub(r"[^A-Za-z0-9_.=-]+", "-", self.name)


def compare(
    task: str,
    *data: str | Path,
    models: Iterable[str],
    run: Path | None = None,
    reporter: Reporter,
    **options: Any,
) -> tuple[Path, list[dict[str, Any]]]:
    """Train each model in its own process; return the folder and a row per model, best first.

    Models that are already trained in the folder are not trained again. `options` are those of
    `train`.
    """
    spec, contenders = find_task(task), [Contender(name) for name in models]
    for contender in contenders:  # check all settings before training the first model
        architecture = resolve_architecture(contender.model, spec)
        make_config(architecture, spec, {}, contender.model_settings)
        train_settings = select_settings(contender.settings, "train.")
        override(TrainingSettings(), *train_settings, where="train.")
    if len({contender.folder for contender in contenders}) < max(len(contenders), 2):
        raise GlassError("expected at least two different models")
    if not any(options.get(budget) for budget in BUDGETS):
        options["minutes"] = DEFAULT_MINUTES
    arguments = {"task": task, "data": [str(Path(d).absolute()) for d in data], **options}
    arguments["models"] = [contender.name for contender in contenders]
    run = run or find_folder(arguments, Path("runs"))
    open_comparison(run, arguments)
    rows = []
    for number, contender in enumerate(contenders, start=1):
        reporter(f"--- {contender.name} ({number} of {len(contenders)})")
        result = train_contender(contender, run / contender.folder, arguments)
        rows.append({"name": contender.name, **result})
    sign = -1 if spec.metric.higher_is_better else 1
    rows.sort(key=lambda row: sign * row[spec.metric.name])
    paths = {contender.name: run / contender.folder for contender in contenders}
    plot_comparison(rows, paths, spec, run / PLOT)
    write_file(run / REPORT, format_report(rows, spec, arguments))
    return run, rows


def find_folder(arguments: dict[str, Any], runs: Path) -> Path:
    """Return the folder of the same unfinished comparison, or else the next free one."""
    for file in sorted(runs.glob(f"compare-*/{ARGUMENTS}")):
        if not (file.parent / REPORT).exists() and read_json(file) == json.loads(
            json.dumps(arguments)
        ):
            return file.parent
    return next_run(runs, "compare")


def open_comparison(run: Path, arguments: dict[str, Any]) -> None:
    """Create the folder of a comparison, or check that it contains the same comparison."""
    file = run / ARGUMENTS
    if file.exists():
        if read_json(file) != json.loads(json.dumps(arguments)):
            raise GlassError(f"{run} contains another comparison: choose another --run")
    elif run.exists() and any(run.iterdir()):
        raise GlassError(f"{run} already exists and is not a comparison: choose another --run")
    else:
        run.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(arguments))


def train_contender(contender: Contender, path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result for one model: read it from its folder, or train or resume the model."""
    if (path / RESULT).exists():
        saved: dict[str, Any] = read_json(path / RESULT)
        return saved
    settings = [*arguments.get("settings", []), *contender.settings]
    rest = {name: value for name, value in arguments.items() if name != "models"}
    request = {**rest, "model": contender.model, "settings": settings, "run": str(path)}
    request |= {"baseline": False, "overwrite": path.exists()}
    if (path / CONFIG).exists():
        request = {"resume": str(path)}
    code, output = run_in_process(json.dumps(request))
    result: dict[str, Any] = json.loads(output) if code == 0 else {}
    if code not in (0, 130):
        raise GlassError(f"{contender.name} could not be trained: see the error above")
    if "seconds" not in result:
        raise GlassError(f"{contender.name} was stopped; run the same command again to continue")
    write_file(path / RESULT, json.dumps(result))
    Run(path).write_checksums()
    return result


def run_in_process(request: str) -> tuple[int, str]:
    """Train in a child process; return its exit code and standard output.

    Ctrl-C also reaches the child, which gets time to save.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", CHILD_SCRIPT], **pipes) as child:  # type: ignore[call-overload]
        try:
            output, _ = child.communicate(request)
        except KeyboardInterrupt:
            output, _ = child.communicate()  # a second Ctrl-C ends both at once
    return child.returncode, output


def choose_columns(spec: TaskSpec, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Choose the columns of the table, as keys of the rows: up to three metrics, then the costs."""
    metrics = [spec.metric.name, "perplexity", "f1", "bleu", "exact", "accuracy", "loss"]
    common = [m for m in dict.fromkeys(metrics) if all(m in row for row in rows)][:3]
    return [*common, "parameters", "steps", "speed", "memory", "seconds"]


def format_table(spec: TaskSpec, rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the cells of a table as text; the first row is the header."""
    columns = choose_columns(spec, rows)
    units = {"speed": f"{spec.unit}/s", "memory": "GB", "bits_per_byte": "bits per byte"}
    header = ["model", *(units.get(column, column) for column in columns)]
    return [header, *([row["name"], *(format_value(row[c]) for c in columns)] for row in rows)]


def format_report(rows: Sequence[dict[str, Any]], spec: TaskSpec, arguments: dict[str, Any]) -> str:
    """Return the README.md of a comparison."""
    header, *body = format_table(spec, rows)
    lines = ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *body)]
    name = next(budget for budget in BUDGETS if arguments.get(budget))
    budget = f"{arguments[name]} {name.removesuffix('s') if arguments[name] == 1 else name}"
    if arguments.get("parameters"):
        budget += f" and about {arguments['parameters']:,} parameters"
    data = " ".join(shlex.quote(Path(d).name) for d in arguments["data"]) or "the built-in sample"
    machine = f"{torch.get_num_threads()} threads, {platform.processor() or platform.machine()}"
    return (
        f"# {spec.name}: {len(rows)} models, {budget} each\n\n"
        + "\n".join(lines)
        + f"\n\n![{spec.metric.label} against time]({PLOT})\n\n"
        f"Data: {data}; metrics on held-out validation data; seed {arguments.get('seed', 0)}; "
        f"torch {torch.__version__}, {machine}; {date.today()}. Speed is training speed; memory "
        "is the peak memory of the process.\n"
    )


def plot_comparison(
    rows: Sequence[dict[str, Any]], paths: dict[str, Path], spec: TaskSpec, file: Path
) -> None:
    """Plot the task's metric against time, one curve per model.

    Models that are fitted in one pass get a horizontal line; if all are, the plot is a bar chart.
    """
    figure, axes = subplots(figsize=(8, 4.8))
    name, label = spec.metric.name, spec.metric.label
    finals = [row[name] for row in rows]
    curves = [select_evaluations(Run(paths[row["name"]]).metrics(), name) for row in rows]
    if all(len(curve) < 2 for curve in curves):
        bars = axes.barh([row["name"] for row in rows], finals, color="C0")
        axes.bar_label(bars, [f"{final:.4g}" for final in finals], padding=3)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_xlabel(label)
    else:
        for i, (row, curve) in enumerate(zip(rows, curves, strict=True)):
            legend = f"{row['name']}  {row[name]:.4g}"
            times, values = [m["seconds"] for m in curve], [m[name] for m in curve]
            if len(curve) > 1:
                axes.plot(times, values, color=f"C{i}", marker="o", markersize=3, label=legend)
            else:
                axes.axhline(row[name], linestyle="--", color=f"C{i}", label=legend)
        axes.set(xlabel="seconds of training", ylabel=label)
        if name == "bits_per_byte":
            axes.set_ylim(0.95 * min(finals), 1.2 * max(finals))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(file, dpi=110)
