"""Compare several models on one task with the same budget, with one seed or several."""

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.checkpoint import CONFIG
from glassformer.core.config import override
from glassformer.core.errors import GlassError
from glassformer.core.folder import read_json, write_file
from glassformer.core.i18n import language
from glassformer.core.reporter import Reporter
from glassformer.tasks import find_task
from glassformer.tasks.task import TaskSpec
from glassformer.training.compare_report import PLOT, format_report, plot_comparison
from glassformer.training.request import BUDGETS, Request, select_settings
from glassformer.training.run import Run, next_run
from glassformer.training.settings import DEFAULT_MINUTES, TrainingSettings
from glassformer.training.start import make_config, resolve_architecture

ARGUMENTS = "compare.json"
RESULT = "result.json"
REPORT = "README.md"
CHILD_SCRIPT = """
import json, sys
from pathlib import Path
from glassformer.core.errors import GlassError
from glassformer.core.i18n import language, localize
from glassformer.training.resume import resume
from glassformer.training.train import train
language.set(sys.argv[1])
try:
    options = json.load(sys.stdin)
    if path := options.pop("resume", None):
        result = resume(Path(path))
    else:
        result = train(options.pop("task"), *options.pop("data"), **options)
except (GlassError, OSError) as error:
    sys.exit(f"glass: {localize(str(error))}")
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
    seeds: int | None = None,
    run: Path | None = None,
    reporter: Reporter,
    **options: Any,
) -> tuple[Path, list[dict[str, Any]]]:
    """Train each model in its own process; return the folder and a row per model, best first.

    With `seeds`, each model is trained with the seeds 0 to `seeds` - 1, and its row has the means,
    as in `summarize_seeds`. Models that are already trained in the folder are not trained again.
    `options` are those of `train`.
    """
    contenders = [Contender(name) for name in models]
    spec = find_task(task, [*map(Path, data)], contenders[0].model if contenders else None)
    check_contenders(contenders, spec)
    check_seeds(seeds, options)
    training = read_settings(task, data, options)
    if not any(getattr(training, budget) for budget in BUDGETS):
        options["minutes"] = DEFAULT_MINUTES
    arguments = {"task": task, "data": [str(Path(d).absolute()) for d in data], **options}
    arguments["models"] = [contender.name for contender in contenders]
    if seeds is not None:
        arguments["seeds"] = seeds
    run = run or find_folder(arguments, Path("runs"))
    open_comparison(run, arguments)
    rows, paths = [], dict[str, list[Path]]()
    for number, contender in enumerate(contenders, start=1):
        reporter(f"--- {contender.name} ({number} of {len(contenders)})")
        folder = run / contender.folder
        if seeds is None:
            paths[contender.name] = [folder]
            result = train_contender(contender, folder, arguments)
        else:
            paths[contender.name] = [folder / f"seed-{seed}" for seed in range(seeds)]
            result = train_seeds(contender, paths[contender.name], arguments, reporter)
        rows.append({"name": contender.name, **result})
    sign = -1 if spec.metric.higher_is_better else 1
    rows.sort(key=lambda row: sign * row[spec.metric.name])
    plot_comparison(rows, paths, spec, run / PLOT)
    write_file(run / REPORT, format_report(rows, spec, data, training))
    return run, rows


def check_contenders(contenders: Sequence[Contender], spec: TaskSpec) -> None:
    """Check the settings of all models, before the first is trained."""
    for contender in contenders:
        architecture = resolve_architecture(contender.model, spec)
        make_config(architecture, spec, {}, contender.model_settings)
        train_settings = select_settings(contender.settings, "train.")
        override(TrainingSettings(), *train_settings, where="train.")
    if len({contender.folder for contender in contenders}) < max(len(contenders), 2):
        raise GlassError("expected at least two different models")


def check_seeds(seeds: int | None, options: dict[str, Any]) -> None:
    if seeds is None:
        return
    if seeds < 2:
        raise GlassError(f"expected at least 2 seeds, got {seeds}")
    is_set = any(s.startswith("train.seed=") for s in options.get("settings", ()))
    if is_set or options.get("seed") is not None:
        raise GlassError(f"the seeds are 0 to {seeds - 1}: leave out --seed and train.seed")


def read_settings(
    task: str, data: Sequence[str | Path], options: dict[str, Any]
) -> TrainingSettings:
    """Return the training settings that the models share, such as the budget."""
    names = ("settings", "config", "base", "skip_bad")  # arguments of `train`, not settings
    others = {name: value for name, value in options.items() if name not in names}
    settings = options.get("settings", ())
    return Request.of(task, data, options.get("config"), settings, others).training


def train_seeds(
    contender: Contender, paths: Sequence[Path], arguments: dict[str, Any], reporter: Reporter
) -> dict[str, Any]:
    """Train a model with one seed in each folder; return the summary of the results."""
    results = []
    for seed, path in enumerate(paths):
        reporter(f"seed {seed} ({seed + 1} of {len(paths)})")
        results.append(train_contender(contender, path, {**arguments, "seed": seed}))
    return summarize_seeds(results)


def summarize_seeds(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each number over the seeds.

    `std` has their sample standard deviations, and `runs` the results themselves.
    """
    numbers = {
        name: [result[name] for result in results]
        for name, value in results[0].items()
        if isinstance(value, int | float)
    }
    return {
        **{name: statistics.fmean(values) for name, values in numbers.items()},
        "std": {name: statistics.stdev(values) for name, values in numbers.items()},
        "runs": list(results),
    }


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
    rest = {n: value for n, value in arguments.items() if n not in ("models", "seeds")}
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
    command = [sys.executable, "-c", CHILD_SCRIPT, language.get()]
    with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
        try:
            output, _ = child.communicate(request)
        except KeyboardInterrupt:
            output, _ = child.communicate()  # a second Ctrl-C ends both at once
    return child.returncode, output
