import os
import sys
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the tests run two at a time
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SLOW = (  # what trains, compiles, starts processes or takes seconds: not in `make quick`
    *("tests/training/", "tests/cli/", "tests/tasks/", "tests/test_use.py", "tests/test_bench.py"),
    *("tests/test_fuzz.py", "tests/test_hostile.py", "tests/test_bugs.py"),
    *("tests/test_how_to_add.py", "[compiler takes it whole-"),
    *("[one batch can be learned-", "::test_it_runs_where_python_has_no_unix_modules"),
    *("diagram_can_be_drawn[skips]", "::test_gradients_reach_the_first_layer_only_with_skips"),
    "::test_training_and_checking_read_what_another_command_writes",
    *("::test_the_run_folder_holds", "::test_the_page_names_every_file_of_a_models_folder"),
    *("::test_every_kind_of_metrics_line", "::test_loading_runs_no_code_and_uses_no_pickle"),
    "::test_laws_hold_for_networks_of_other_sizes",
    "::test_the_name_of_a_term_refers_to_its_value",
)


def pytest_collection_modifyitems(config, items):
    config.unmatched = [name for name in SLOW if not any(name in item.nodeid for item in items)]
    for item in items:
        if any(name in item.nodeid for name in SLOW):
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def one_precision(monkeypatch):
    """What is chosen by measuring would differ from machine to machine: here it is float32."""
    monkeypatch.setattr("glassformer.training.autotune.bfloat16_ratio", lambda _network: 9.0)


@pytest.fixture(autouse=True)
def shared_networks_stay_as_they_are():
    """The networks of `cases.py` serve all tests: one that changes them must take a copy."""
    previous_ids = fingerprint()
    yield
    assert fingerprint() == previous_ids, "this test changes a network in CASES: take a copy"


def fingerprint():
    cases = sys.modules["cases"].CASES if "cases" in sys.modules else {}
    return {
        name: [(p.data_ptr(), p.dtype, p._version) for p in case.network.parameters()]
        + [case.network.training]
        for name, case in cases.items()
    }


@pytest.fixture(scope="session")
def data():
    """The folder of shared data sets; tests that need one skip without it."""
    folder = Path(os.environ.get("GLASSFORMER_DATA", ""))
    if not os.environ.get("GLASSFORMER_DATA") or not folder.is_dir():
        pytest.skip("GLASSFORMER_DATA names no folder of data sets")
    return folder
