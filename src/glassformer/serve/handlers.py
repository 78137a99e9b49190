"""The requests that a page may send; a handler maps a session and a request to a response.

For a new kind of request, add a function and an entry here.
"""

from collections.abc import Callable

from glassformer.serve.flow import explain, read_values, run_pass
from glassformer.serve.looking import (
    ablate_head,
    apply_lens,
    compare_texts,
    describe_heads,
    show_reach,
)
from glassformer.serve.overview import describe_model
from glassformer.serve.pages import list_lessons, show_lesson, show_training, show_worksheet
from glassformer.serve.prediction import (
    compare_with_prior,
    list_outcomes,
    measure_change,
    predict_next,
    show_beam,
    tokenize,
)
from glassformer.serve.session import Request, Response, Session

HANDLERS: dict[str, Callable[[Session, Request], Response]] = {
    "model": describe_model,
    "pass": run_pass,
    "values": read_values,
    "why": explain,
    "outcomes": list_outcomes,
    "tokenize": tokenize,
    "next": predict_next,
    "change": measure_change,
    "prior": compare_with_prior,
    "heads": describe_heads,
    "ablation": ablate_head,
    "lens": apply_lens,
    "patch": compare_texts,
    "reach": show_reach,
    "beam": show_beam,
    "training": show_training,
    "lessons": list_lessons,
    "lesson": show_lesson,
    "worksheet": show_worksheet,
}
