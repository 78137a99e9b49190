import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

torch.set_num_threads(1)  # two test processes run at a time
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so do the processes that tests start
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell script
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or Ctrl-C tests would hang

SLOW = (  # substrings of the ids of tests that `make quick` skips
    *("tests/training/", "tests/cli/", "tests/tasks/", "tests/test_use.py", "tests/test_bench.py"),
    "tests/formats/test_onnx.py",
    *("tests/test_fuzz.py", "tests/test_hostile.py", "tests/test_bugs.py"),
    *("tests/test_how_to_add.py", "[compiles to one graph-"),
    *("[one batch can be learned-", "::test_training_runs_without_unix_modules"),
    "::test_gradients_reach_the_first_layer_only_with_skips",
    "::test_commands_read_process_substitutions",
    *("::test_run_folder_contains_the_files", "::test_page_lists_every_file_of_a_model_folder"),
    *("::test_every_kind_of_metrics_line", "::test_loading_runs_no_code_and_uses_no_pickle"),
    *("::test_drawn_calls_occur", "::test_a_wrong_call_in_a_diagram"),
    *("::test_every_call_of_a_later_stage", "::test_functions_in_the_table_of_tasks"),
    "::test_laws_hold_for_networks_of_other_sizes",
    "::test_the_name_of_a_term_refers_to_its_value",
    "::test_every_command_and_picture_of_the_tutorials",
)


def pytest_collection_modifyitems(config, items):
    config.unmatched = [name for name in SLOW if not any(name in item.nodeid for item in items)]
    items.sort(key=lambda item: "documentation_run" not in item.nodeid)  # the slowest test first
    for item in items:
        if any(name in item.nodeid for name in SLOW):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def float32_precision(monkeypatch):
    """Make training choose float32 on every machine instead of timing the precisions."""
    monkeypatch.setattr("glassformer.training.autotune.bfloat16_ratio", lambda _network: 9.0)


@pytest.fixture(autouse=True)
def shared_networks_are_unchanged():
    """Fail a test that modifies a network of `cases.py`, which all tests share."""
    before = fingerprint_networks()
    yield
    assert fingerprint_networks() == before, "this test modified a network in CASES: use a copy"


def fingerprint_networks():
    cases = sys.modules["cases"].CASES if "cases" in sys.modules else {}
    return {
        name: [(p.data_ptr(), p.dtype, p._version) for p in case.network.parameters()]
        + [case.network.training]
        for name, case in cases.items()
    }


@pytest.fixture
def set_clock(monkeypatch):
    """Give modules of the package another clock.

    Patching `time.monotonic` itself would also stop the event loops of servers that other tests
    started in this process.
    """

    def set_clock(clock, *modules):
        for module in modules:
            monkeypatch.setattr(f"glassformer.{module}.time", SimpleNamespace(monotonic=clock))

    return set_clock


@pytest.fixture(scope="session")
def data():
    """The folder of shared datasets; tests that need it are skipped if there is none."""
    folder = Path(os.environ.get("GLASSFORMER_DATA", ""))
    if not os.environ.get("GLASSFORMER_DATA") or not folder.is_dir():
        pytest.skip("GLASSFORMER_DATA is not set to a folder of datasets")
    return folder
