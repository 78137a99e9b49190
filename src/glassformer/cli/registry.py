"""The commands of `glass`, with the module and the help text of each.

To add a command, write a function in its group's file and add an entry here. A command's module is
imported only when the command is used, so `glass --help` imports none.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import NamedTuple

import click

from glassformer.cli import options
from glassformer.cli.help import LocalizedContext


class Entry(NamedTuple):
    """Where a command is defined and how `glass --help` lists it."""

    module: str  # in glassformer.cli; its function is named like the command, with _ for -
    group: str  # the title it is listed under
    help: str  # the first sentence of the command's own help text


# fmt: off
COMMANDS = {
    "check-data": Entry("report", "Train",
        "Report the size, labels, duplicates and bad rows of DATA before training for TASK."),
    "train": Entry("train", "Train",
        "Train a model for TASK on DATA."),
    "resume": Entry("train", "Train",
        "Resume the training run in the folder RUN."),
    "evaluate": Entry("report", "Train",
        "Evaluate the model in RUN on DATA or on its own validation data."),
    "compare": Entry("train", "Train",
        "Train several models for TASK on DATA with the same budget and compare them."),
    "runs": Entry("runs", "Train",
        "List the runs in FOLDER with task, model, metric and age."),
    "generate": Entry("use", "Use a model",
        "Generate a continuation of PROMPT with the model in RUN."),
    "classify": Entry("predict", "Use a model",
        "Classify TEXTS with the model in RUN."),
    "translate": Entry("predict", "Use a model",
        "Translate TEXTS with the model in RUN."),
    "summarize": Entry("summarize", "Use a model",
        "Summarize DOCUMENTS with the model in RUN."),
    "fill-mask": Entry("predict", "Use a model",
        "Predict the token at each [MASK] in TEXTS with the model in RUN."),
    "paint": Entry("paint", "Use a model",
        "Paint N new images with the model in RUN and write them in one image grid."),
    "recommend": Entry("recommend", "Use a model",
        "Recommend items to a user with the model in RUN, or list similar items."),
    "embed": Entry("predict", "Use a model",
        "Compute an embedding vector for each of TEXTS with the model in RUN."),
    "search": Entry("search", "Use a model",
        "Find the texts of FILE that are nearest to each of QUERIES, according to the model in "
        "RUN."),
    "look": Entry("explorer", "Look inside",
        "Open a local web page that looks inside the model in RUN."),
    "demo": Entry("walk", "Look inside",
        "Run TEXT through a small trained model and print every step."),
    "walk": Entry("walk", "Look inside",
        "Print a worksheet: a lesson, or TEXT traced through the model in RUN, step by step."),
    "lessons": Entry("lessons", "Look inside",
        "List five tutorials, section by section, with the commands that show each section."),
    "draw": Entry("look", "Look inside",
        "Draw the plot NAME and save it to a file."),
    "heads": Entry("look", "Look inside",
        "Measure what each attention head in RUN attends to, and what ablating it costs."),
    "patch": Entry("look", "Look inside",
        "Find the activations in RUN that account for the difference between two texts."),
    "check": Entry("models", "Manage models",
        "Verify that the files of the run or model in FOLDER are intact."),
    "average": Entry("models", "Manage models",
        "Average the weights of RUNS into a new model."),
    "convert": Entry("models", "Manage models",
        "Convert the model in SOURCE to another format and write it to the folder TARGET."),
    "models": Entry("models", "Manage models",
        "List the models with their sizes and the settings that training would use."),
    "info": Entry("info", "Manage models",
        "Show what training the model in RUN costs; without RUN, describe this machine."),
}
# fmt: on


class LazyCommands(Mapping[str, click.Command]):
    """The registered commands by name, each imported on first use."""

    def __getitem__(self, name: str) -> click.Command:
        module = import_module(f"glassformer.cli.{COMMANDS[name].module}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        if command.context_class is not LocalizedContext:  # on first use
            command.context_class = LocalizedContext
            options.lang(command)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)
