"""The commands of `glass`: where each is found, and what help says about it.

A new command is a function in its group's file and one entry here. A command's module is imported
only when the command is asked for, so `glass --help` imports none.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """Where a command is, and how help lists it."""

    module: str  # in glassformer.cli; the function has the command's name, with _ for -
    group: str  # the heading it stands under
    help: str  # the first sentence of the command's own help


# fmt: off
COMMANDS = {
    "check-data": Entry("report", "Train",
        "Report sizes, lengths, labels, duplicates and bad rows of DATA, and what TASK "
        "makes of it."),
    "train": Entry("train", "Train",
        "Train a model for TASK on DATA; without DATA, on a sample that needs no download."),
    "resume": Entry("train", "Train",
        "Go on with the training in the folder RUN; with a new budget also beyond its end."),
    "evaluate": Entry("report", "Train",
        "Measure the model in RUN on DATA, or on what its run kept for validation."),
    "compare": Entry("train", "Train",
        "Train several models for TASK on DATA under an equal budget; show which is best "
        "at what cost."),
    "runs": Entry("report", "Train",
        "List the runs in FOLDER with task, model, best figure and age."),
    "generate": Entry("use", "Use",
        "Continue PROMPT, or standard input if it is -, with the model in RUN."),
    "classify": Entry("use", "Use",
        "Label TEXTS, a file, or the lines of standard input, with the model in RUN."),
    "translate": Entry("use", "Use",
        "Translate TEXTS, a file, or the lines of standard input, with the model in RUN."),
    "fill-mask": Entry("use", "Use",
        "Guess each [MASK] in TEXTS, a file, or lines of standard input, with the model in RUN."),
    "embed": Entry("use", "Use",
        "Give a vector for each of TEXTS, or lines of a file or standard input, with the "
        "model in RUN."),
    "demo": Entry("walk", "Look inside",
        "Send TEXT through a small model and print its worksheet."),
    "walk": Entry("walk", "Look inside",
        "Tell a worked example: thrones, markov, attention, position or norm; or RUN's own."),
    "draw": Entry("look", "Look inside",
        "Draw NAME into a file: .png, .svg or .pdf, and .gif for what moves (unfolding)."),
    "heads": Entry("look", "Look inside",
        "Measure where every head of RUN looks while it reads TEXT, and what its silence costs."),
    "patch": Entry("look", "Look inside",
        "Put values of the CLEAN text, one at a time, into RUN's reading of the CORRUPT one."),
    "check": Entry("models", "Keep",
        "Compare every file of a run or model in FOLDER with what was written; name what "
        "is damaged."),
    "average": Entry("models", "Keep",
        "Write a model whose weights are the mean of the last weights of RUNS."),
    "convert": Entry("models", "Keep",
        "Write the model in SOURCE as the folder TARGET."),
    "models": Entry("models", "Keep",
        "List the models, the tasks that each can do, and their settings with defaults."),
    "info": Entry("models", "Keep",
        "Versions, threads, CPU features, and how fast each precision is here."),
}
# fmt: on


class LazyCommands(Mapping[str, click.Command]):
    """The registered commands by name, each imported when it is asked for."""

    def __getitem__(self, name: str) -> click.Command:
        module = import_module(f"glassformer.cli.{COMMANDS[name].module}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)
