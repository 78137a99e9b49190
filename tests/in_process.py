"""Commands run in this process: starting one for each takes longer than most commands."""

import random
import shlex
from contextlib import contextmanager
from pydoc_data import topics

import numpy as np
import torch
from click.testing import CliRunner

from glassformer.cli import glass
from glassformer.core.i18n import language
from glassformer.data import image_sample, sample

SAMPLE_SIZES = {  # of functions whose first default is the size of a built-in sample
    sample.code_passages: 30,
    sample.number_pairs: 600,
    sample.reports: 300,
    image_sample.drawn_shapes: 300,
}


def shrink_samples(monkeypatch):
    """Make the built-in samples small, which take longer to read than a few steps of training."""
    for function, size in SAMPLE_SIZES.items():
        monkeypatch.setattr(function, "__defaults__", (size, *function.__defaults__[1:]))
    monkeypatch.setattr(sample, "VIEWERS", 60)
    names = {"for", "try", *sorted(topics.topics)[::6]}
    monkeypatch.setattr(topics, "topics", {name: topics.topics[name] for name in names})


@contextmanager
def preserve_process():
    """Restore what a command may change: threads, random states and the language."""
    threads, states, token = torch.get_num_threads(), random_states(), language.set("en")
    try:
        yield
    finally:
        language.reset(token)
        torch.set_num_threads(threads)
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def random_states():
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def run_command(*words):
    """Run `glass` without input; what went wrong, or an empty text."""
    with preserve_process():
        result = CliRunner().invoke(glass, list(words), env={"COLUMNS": "100"})
    if result.exit_code == 0:
        return ""
    return f"glass {shlex.join(words)}: {result.exception!r}\n{result.output[-500:]}"


def shorten(words, steps):
    """A command that trains for `steps` steps instead of minutes, or that exports a page."""
    if words[0] == "look" and "--export" not in words:  # a server would never end
        return [*words, "--export", "explorer.html", "--overwrite"]
    if words[0] not in ("train", "compare"):
        return words
    if "--minutes" in words:
        index = words.index("--minutes")
        words = [*words[:index], *words[index + 2 :]]
    settings = ("--set", "train.precision=float32", "--set", "train.eval_limit=200")
    return [*words, "--steps", str(steps), *settings]
