"""A small run of every task, and sessions and servers for them."""

import os
import threading
import time

import pytest

from examples import write_examples
from glassformer.serve.app import HOST, bind, make_server
from glassformer.serve.session import Session
from glassformer.training.train import train

SIZES = ["model.dim=16", "model.depth=2", "model.heads=2"]
RUNS = {  # name of the run: task or command, model, settings
    "generate": ("generate", "gpt2", [*SIZES, "model.context=32", "train.prior=false"]),
    "prior": ("generate", "speedrun", [*SIZES, "model.context=32"]),
    "xl": ("generate", "transformer_xl", [*SIZES, "model.context=8", "train.prior=false"]),
    "universal": ("generate", "universal", [*SIZES, "model.context=32", "train.prior=false"]),
    "markov": ("generate", "markov", []),
    "classify": ("classify", "classifier", SIZES),
    "translate": ("translate", "translator", [*SIZES, "model.hidden=32"]),
    "fill-mask": ("fill-mask", "bert", [*SIZES, "model.context=32"]),
    "summarize": ("summarize", "summarizer", [*SIZES, "model.context=64"]),
    "recommend": ("recommend", "factorization", ["model.dim=4"]),
    "recommend-next": ("recommend", "sasrec", [*SIZES, "model.context=8"]),
    "classify-images": ("classify", "vision", [*SIZES, "model.patch=2"]),
    "paint": ("paint", "sagan", ["model.dim=4"]),
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """The folder of a run for every entry of `RUNS`; one process makes it for all."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "explorer"
    done = folder / "done"
    try:
        folder.mkdir()
    except FileExistsError:
        while not done.exists():
            time.sleep(0.1)
        return folder
    try:
        make_runs(folder)
    finally:
        done.touch()
    return folder


def make_runs(folder):
    files = write_examples(folder)
    for name, (task, model, settings) in RUNS.items():
        data = files[name if name in files else task]
        budget = {} if name == "markov" else {"steps": 3}
        train(
            task, data, run=folder / name, model=model, settings=settings, device="cpu",
            precision="float32", **budget,
        )  # fmt: skip


@pytest.fixture(scope="session")
def session(runs):
    """Opens the session of a run by its name; each run is loaded once."""
    opened = {}

    def open_session(name):
        if name not in opened:
            opened[name] = Session.open(runs / name)
        return opened[name]

    return open_session


@pytest.fixture(scope="session")
def start_server():
    """Starts a server for a session in a thread and returns its address."""
    servers = []

    def start(session):
        listener = bind(None)
        port = listener.getsockname()[1]
        server = make_server(session, "secret", listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return f"http://{HOST}:{port}/secret/"

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(timeout=60)
