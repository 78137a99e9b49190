"""Several models, one task, an equal budget: one table, one picture, one report."""

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
from glassformer.core.errors import GlassError
from glassformer.core.figures import subplots
from glassformer.core.folder import read_json, write_file
from glassformer.core.reporter import Reporter, format_value
from glassformer.tasks import find_task
from glassformer.tasks.task import TaskSpec
from glassformer.training.plots import select_evaluations
from glassformer.training.run import Run, next_run
from glassformer.training.setup import make_config, resolve

ARGUMENTS_FILE, RESULT, REPORT, PICTURE = "compare.json", "result.json", "README.md", "compare.png"
ALONE = """
import json, sys
from pathlib import Path
from glassformer.core.errors import GlassError
from glassformer.training.train import resume, train
try:
    asked = json.load(sys.stdin)
    path = asked.pop("resume", None)
    result = resume(Path(path)) if path else train(asked.pop("task"), *asked.pop("data"), **asked)
except (GlassError, OSError) as error:
    sys.exit(f"glass: {error}")
except KeyboardInterrupt:
    sys.exit(130)
print(json.dumps(result))
"""


@dataclass(frozen=True)
class Contender:
    """A model as it was named: `gpt2`, or `gpt2:depth=2:dim=64` with settings of its own."""

    name: str

    @property
    def model(self) -> str:
        return self.name.partition(":")[0]

    @property
    def settings(self) -> list[str]:
        return self.name.split(":")[1:]

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
    """Train each model in a process of its own; give the folder and a row for each, best first.

    What is done already in the folder is not done again. Options are those of `train`.
    """
    spec, contenders = find_task(task), [Contender(name) for name in models]
    for one in contenders:  # what is wrong with the last is said before the first has learnt
        make_config(resolve(one.model, spec), spec, {}, one.settings)
    if len({one.folder for one in contenders}) < max(len(contenders), 2):
        raise GlassError("name at least two different models")
    arguments = {"task": task, "data": [str(Path(d).absolute()) for d in data], **options}
    arguments["models"] = [one.name for one in contenders]
    run = run or find_folder(arguments, Path("runs"))
    open_comparison(run, arguments)
    rows = []
    for number, one in enumerate(contenders, start=1):
        reporter(f"--- {one.name} ({number} of {len(contenders)})")
        result = train_contender(one, run / one.folder, arguments)
        rows.append({"name": one.name, **result})
    sign = -1 if spec.metric.higher_is_better else 1
    rows.sort(key=lambda row: sign * row[spec.metric.name])
    paths = {one.name: run / one.folder for one in contenders}
    draw(rows, paths, spec, run / PICTURE)
    write_file(run / REPORT, report(rows, spec, arguments))
    return run, rows


def find_folder(arguments: dict[str, Any], runs: Path) -> Path:
    """Where the same comparison was begun and not ended, or else the next free folder."""
    for file in sorted(runs.glob(f"compare-*/{ARGUMENTS_FILE}")):
        if not (file.parent / REPORT).exists() and read_json(file) == json.loads(
            json.dumps(arguments)
        ):
            return file.parent
    return next_run(runs, "compare")


def open_comparison(run: Path, arguments: dict[str, Any]) -> None:
    """A folder for this comparison: a new one, or one where the same was begun."""
    file = run / ARGUMENTS_FILE
    if file.exists():
        if read_json(file) != json.loads(json.dumps(arguments)):
            raise GlassError(f"{run} holds another comparison: choose another --run")
    elif run.exists() and any(run.iterdir()):
        raise GlassError(f"{run} exists already and is no comparison: choose another --run")
    else:
        run.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(arguments))


def train_contender(one: Contender, path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
    """What came of one model: found in its folder, or trained, or trained on, alone."""
    if (path / RESULT).exists():
        found: dict[str, Any] = read_json(path / RESULT)
        return found
    settings = [
        *arguments.get("settings", []),
        *(f"model.{setting}" for setting in one.settings),
    ]
    rest = {name: value for name, value in arguments.items() if name != "models"}
    request = {**rest, "model": one.model, "settings": settings, "run": str(path)}
    request |= {"baseline": False, "overwrite": path.exists()}
    if (path / CONFIG).exists():
        request = {"resume": str(path)}
    code, said = run_in_process(json.dumps(request))
    result: dict[str, Any] = json.loads(said) if code == 0 else {}
    if code not in (0, 130):
        raise GlassError(f"{one.name} could not be trained")
    if "seconds" not in result:
        raise GlassError(f"{one.name} was stopped; the same command goes on with it")
    write_file(path / RESULT, json.dumps(result))
    Run(path).seal()
    return result


def run_in_process(request: str) -> tuple[int, str]:
    """Train in a process of its own, which hears Ctrl-C too and is given time to save."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", ALONE], **pipes) as child:  # type: ignore[call-overload]
        try:
            said, _ = child.communicate(request)
        except KeyboardInterrupt:
            said, _ = child.communicate()  # once more to leave at once
    return child.returncode, said


def columns(spec: TaskSpec, rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a table of these rows shows: figures, then costs."""
    figures = [spec.metric.name, "perplexity", "f1", "bleu", "exact", "accuracy", "loss"]
    shown = [f for f in dict.fromkeys(figures) if all(f in row for row in rows)][:3]
    return [*shown, "parameters", "steps", "speed", "memory", "seconds"]


def table(spec: TaskSpec, rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows of text, a head first."""
    names = columns(spec, rows)
    units = {"speed": f"{spec.unit}/s", "memory": "GB", "bits_per_byte": "bits per byte"}
    head = ["model", *(units.get(name, name) for name in names)]
    return [head, *([row["name"], *(format_value(row[name]) for name in names)] for row in rows)]


def report(rows: Sequence[dict[str, Any]], spec: TaskSpec, arguments: dict[str, Any]) -> str:
    head, *body = table(spec, rows)
    lines = ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]
    budget = next(f"{arguments[b]} {b}" for b in ("minutes", "steps", "epochs") if arguments.get(b))
    if arguments.get("parameters"):
        budget += f" and about {arguments['parameters']:,} parameters"
    given = " ".join(shlex.quote(Path(d).name) for d in arguments["data"]) or "the built-in sample"
    where = f"{torch.get_num_threads()} threads, {platform.processor() or platform.machine()}"
    return (
        f"# {spec.name}: {len(rows)} models, {budget} each\n\n"
        + "\n".join(lines)
        + f"\n\n![{spec.metric.name} against time]({PICTURE})\n\n"
        f"Data: {given}; metrics on what was kept for validation; seed {arguments.get('seed', 0)}; "
        f"torch {torch.__version__}, {where}; {date.today()}. Speed is that of training; memory is "
        "the most that a process held.\n"
    )


def draw(
    rows: Sequence[dict[str, Any]], paths: dict[str, Path], spec: TaskSpec, file: Path
) -> None:
    """Quality against time, a line for each model; level for one that learns in one go."""
    chart, axes = subplots(figsize=(8, 4.8))
    figure, ends = spec.metric.label, [row[spec.metric.name] for row in rows]
    lines = [select_evaluations(Run(paths[row["name"]]).metrics(), spec.metric.name) for row in rows]
    if all(len(line) < 2 for line in lines):
        bars = axes.barh([row["name"] for row in rows], ends, color="C0")
        axes.bar_label(bars, [f"{end:.4g}" for end in ends], padding=3)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_xlabel(figure)
    else:
        for i, (row, line) in enumerate(zip(rows, lines, strict=True)):
            name, end = f"{row['name']}  {row[spec.metric.name]:.4g}", row[spec.metric.name]
            times, values = [m["seconds"] for m in line], [m[spec.metric.name] for m in line]
            if len(line) > 1:
                axes.plot(times, values, color=f"C{i}", marker="o", markersize=3, label=name)
            else:
                axes.axhline(end, linestyle="--", color=f"C{i}", label=name)
        axes.set(xlabel="seconds of training", ylabel=figure)
        if spec.metric.name == "bits_per_byte":
            axes.set_ylim(0.95 * min(ends), 1.2 * max(ends))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    chart.savefig(file, dpi=110)
