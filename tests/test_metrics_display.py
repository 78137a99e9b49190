"""Metrics that display themselves, and progress in notebooks."""

import sys
from io import StringIO
from types import ModuleType

from glassformer.core.metrics import Metrics
from glassformer.core.reporter import Reporter

METRICS = Metrics(
    accuracy=0.91234, accuracy_interval=(0.9, 0.92), examples=1200, none=None,
    baseline={"accuracy": 0.88, "model": "nb_svm"},
    classes=[{"label": "<b>", "f1": 0.5, "probabilities": {}}],
)  # fmt: skip


def test_metrics_are_a_dict_that_prints_as_a_table():
    assert METRICS["accuracy"] == 0.91234
    assert repr(METRICS).splitlines() == [
        "accuracy           0.9123  (95% CI 0.9 to 0.92)",
        "examples           1,200",
        "baseline accuracy  0.88",
    ]
    assert repr(Metrics()) == ""


def test_metrics_are_html_tables_in_notebooks():
    page = METRICS._repr_html_()
    assert "<tr><td>examples</td><td>1,200</td></tr>" in page
    assert "<tr><th>label</th><th>f1</th></tr><tr><td>&lt;b&gt;</td><td>0.5</td></tr>" in page


def test_scores_that_are_undefined_are_dashes_in_notebooks():
    page = Metrics(classes=[{"label": "a", "recall": None}])._repr_html_()
    assert "<td>a</td><td>-</td>" in page


def test_progress_is_overwritten_in_notebooks(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr(sys, "stderr", StringIO())
    reporter = Reporter()
    reporter.last_status = 0.0
    reporter.status("step 1")
    reporter("done")
    written = reporter.stream.getvalue()
    assert "\x1b" not in written
    assert written.split("\r")[2] == "step 1"
    assert written.endswith("\rdone\n")
