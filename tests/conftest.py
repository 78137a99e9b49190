import os
import sys
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the tests run two at a time
os.environ.setdefault("HF_HUB_OFFLINE", "1")


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
    before = fingerprint()
    yield
    assert fingerprint() == before, "this test changes a network in CASES: take a copy"


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
