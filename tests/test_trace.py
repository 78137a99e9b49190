"""Tracing: names, edits, memory limit, threads, exceptions, compiled networks, no overhead."""

import copy
import threading

import pytest
import torch
from torch import nn

from cases import CASES, ids
from glassformer import MODELS, GlassError, Trace
from glassformer.models.network import Trait
from glassformer.trace import (
    Replace,
    Scale,
    Tap,
    Zero,
    list_values,
    parse_edit,
    select,
    tap,
    watched,
)

GPT2 = CASES["gpt2"].network


def test_values_are_named_by_module_path():
    with Trace(GPT2, "*.pattern") as trace:
        GPT2(ids())
    assert list(trace) == ["blocks.0.attention.pattern", "blocks.1.attention.pattern"]
    assert trace["blocks.1.attention.pattern"].shape == (3, 4, 12, 12)
    with Trace(GPT2, "blocks.?", "token", "output") as trace:
        logits = GPT2(ids())
    assert list(trace) == ["token", "blocks.0", "blocks.1", "output"]
    assert torch.equal(trace["output"], logits)


def test_tap_names_differ_from_module_and_parameter_names(monkeypatch):
    for case in CASES.values():
        reserved = {name for name, _ in case.network.named_modules()}
        reserved |= {name for name, _ in case.network.named_parameters()}
        tap_names = set()
        visit = Trace.visit

        def recording_visit(self, name, value, tap_names=tap_names, visit=visit):
            if name:
                tap_names.add(self._full_name(name))
            return visit(self, name, value)

        with monkeypatch.context() as patch, Trace(case.network):
            patch.setattr(Trace, "visit", recording_visit)
            case.network(**case.inputs())
        if case.has(Trait.ATTENTION):
            assert any(name.endswith("attention.pattern") for name in tap_names)
        assert not tap_names & reserved


def test_code_outside_the_network_is_not_traced():
    other, text = CASES["generator"].network, ids()
    expected = other(text)
    with Trace(GPT2.blocks[0], "*") as trace:
        GPT2(text)
        assert torch.equal(other(text), expected)
    assert len(trace.visits["attention.pattern"]) == 1
    assert trace["output"].shape == (3, 12, 32)
    trace = Trace(GPT2, edit={"*": torch.zeros_like})
    with pytest.warns(UserWarning, match="matched no value"), trace:
        assert torch.equal(other(text), expected)


def test_an_edit_that_matches_no_value_causes_a_warning():
    edits = {"blocks.1.attention.head_output": torch.zeros_like}
    warning = r"matched no value; did you mean .*attention.head_outputs"
    with pytest.warns(UserWarning, match=warning), Trace(GPT2, edit=edits):
        GPT2(ids())


def test_an_edit_must_return_a_tensor():
    trace = Trace(GPT2, edit={"blocks.0": lambda _: None})
    with pytest.raises(ValueError, match=r"blocks.0: expected a tensor, got None"), trace:
        GPT2(ids())


def test_every_visit_is_recorded():
    cache = GPT2.cache(12)
    with Trace(GPT2, "blocks.0.attention.pattern") as trace:
        for part in ids().split(4, dim=1):
            GPT2(part, cache=cache)
    visits = trace.visits["blocks.0.attention.pattern"]
    assert [tuple(v.shape[2:]) for v in visits] == [(4, 4), (4, 8), (4, 12)]
    assert trace["blocks.0.attention.pattern"] is visits[-1]


def test_recorded_values_do_not_change_when_the_cache_grows():
    cache = GPT2.cache(12)
    with Trace(GPT2, "*.k", "*.v", "*.head_outputs") as trace:
        GPT2(ids()[:, :6], cache=cache)
        copies = {name: trace[name].clone() for name in trace}
        recorded = dict(trace)
        GPT2(ids()[:, 6:], cache=cache)
    assert all(torch.equal(recorded[name], copies[name]) for name in copies)


def test_an_edit_can_ablate_a_block():
    text = ids()
    with Trace(GPT2, edit={"blocks.1": torch.zeros_like}):
        ablated = GPT2(text)
    torch.testing.assert_close(ablated, GPT2.norm(torch.zeros(3, 12, 32)) @ GPT2.token.weight.T)
    assert not torch.equal(GPT2(text), ablated)


def test_an_edit_can_patch_in_a_value_from_another_text():
    clean, corrupt = ids(), ids()
    with Trace(GPT2, "blocks.0") as trace:
        expected = GPT2(clean)
    with Trace(GPT2, edit={"blocks.0": trace["blocks.0"]}):
        assert torch.equal(GPT2(corrupt), expected)


def test_editing_the_pattern_bypasses_the_fused_kernel():
    def identity(pattern):
        return torch.eye(12).expand_as(pattern)

    with Trace(GPT2, "*.head_outputs", "*.v", edit={"*.pattern": identity}) as trace:
        GPT2(ids())
    torch.testing.assert_close(
        trace["blocks.0.attention.head_outputs"], trace["blocks.0.attention.v"]
    )


def test_an_edit_that_changes_the_shape_is_rejected():
    with (
        pytest.raises(
            ValueError, match=r"blocks.0: expected the shape \(3, 12, 32\), got \(3, 1, 32\)"
        ),
        Trace(GPT2, edit={"blocks.0": lambda x: x[:, :1]}),
    ):
        GPT2(ids())
    assert not watched("pattern")


def test_a_full_trace_warns_and_keeps_earlier_values():
    with (
        Trace(GPT2, "blocks.*.pattern", megabytes=0.01) as trace,
        pytest.warns(UserWarning, match=r"trace is full: blocks.1.attention.pattern \(0.0 MB\)"),
    ):
        GPT2(ids())
    assert list(trace) == ["blocks.0.attention.pattern"]
    assert trace.is_full
    assert trace.used_bytes <= 10_000
    with pytest.raises(KeyError, match="was computed after the trace was full"):
        trace["blocks.1.attention.pattern"]


def test_an_unknown_name_is_rejected_with_a_suggestion():
    with Trace(GPT2, "*.pattern") as trace:
        GPT2(ids())
    with pytest.raises(KeyError, match=r"did you mean .*blocks.0.attention.pattern"):
        trace["blocks.0.attention.patern"]
    with pytest.raises(KeyError, match="was not recorded"):
        trace["blocks.0.attention.q"]


def test_an_exception_inside_the_model_leaves_no_hooks():
    def fail(_):
        raise ArithmeticError("expected")

    trace = Trace(GPT2, "blocks.0.*", edit={"blocks.1.attention.head_outputs": fail})
    with trace, pytest.raises(ArithmeticError):
        GPT2(ids())
    with trace:
        trace.edits.clear()
        GPT2(ids())
    assert {name.split(".")[1] for name in trace} == {"0"}
    assert not any(module._forward_hooks for module in GPT2.modules())
    assert not any(module._forward_pre_hooks for module in GPT2.modules())


def test_an_open_trace_still_works_after_an_exception_inside_the_model():
    with Trace(GPT2, "*.q", "output") as trace:
        with pytest.raises(IndexError):
            GPT2(ids() + 1000)
        GPT2(ids())
    assert list(trace) == ["blocks.0.attention.q", "blocks.1.attention.q", "output"]


def test_nested_traces_record_the_same_forward_pass():
    text = ids()
    outer, inner = (
        Trace(GPT2, "*.pattern"),
        Trace(GPT2, "blocks.?", edit={"token": torch.zeros_like}),
    )
    with outer:
        before = GPT2(text)
        with inner:
            edited = GPT2(text)
        after = GPT2(text)
    assert [len(v) for v in outer.visits.values()] == [3, 3]
    assert [len(v) for v in inner.visits.values()] == [1, 1]
    assert torch.equal(before, after)
    assert not torch.equal(before, edited)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in GPT2.modules())


def test_several_threads_can_trace_one_network_at_once():
    """Each thread gets its own values and edits, and none while it has no open trace."""
    network, failures = CASES["gpt2"].network, []
    texts = [ids(1, 4 + i) for i in range(4)]
    unedited = [network(text) for text in texts]
    edited = []
    for i, text in enumerate(texts):
        with Trace(network, edit={"blocks.0.attention.head_outputs": Zero(head=i)}):
            edited.append(network(text))

    def work(i):
        for _ in range(25):
            edit = {"blocks.0.attention.head_outputs": Zero(head=i)}
            with Trace(network, "*.pattern", "output", edit=edit) as trace:
                network(texts[i])
            has_own_edit = torch.allclose(trace["output"], edited[i], atol=1e-6)
            is_untouched = torch.allclose(network(texts[i]), unedited[i], atol=1e-6)
            has_own_values = [len(v) for v in trace.visits.values()] == [1, 1, 1]
            if not (has_own_edit and is_untouched and has_own_values):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())


def test_a_pattern_that_matches_no_value_causes_a_warning():
    warning = r"the pattern '\*\.hiden' matched no value; did you mean 'hidden'"
    with pytest.warns(UserWarning, match=warning), Trace(GPT2, "*.hiden"):
        GPT2(ids())
    with Trace(GPT2, "*.hiden", allow_missing=True) as trace:
        GPT2(ids())
    assert not trace


# --- edits as data --------------------------------------------------------------------------------


@torch.no_grad()
def test_edits_as_data_equal_edits_as_functions():
    text, name = ids(), "blocks.1.attention.head_outputs"

    def ablate_head(x):
        x = x.clone()
        x[:, 2] = 0
        return x

    def double_token(x):
        x = x.clone()
        x[:, 1, 3] *= 2
        return x

    other = torch.randn(3, 4, 12, 8)
    for data, function in (
        (Zero(head=2), ablate_head),
        (Zero(), torch.zeros_like),
        (Scale(2.0, head=1, token=3), double_token),
        (Scale(0.5), lambda x: x * 0.5),
        (Replace(other), lambda _: other),
        (Replace(other[:, :, 0], token=5), lambda x: torch.cat(
            (x[:, :, :5], other[:, :, :1], x[:, :, 6:]), dim=2)),
    ):  # fmt: skip
        results = []
        for edit in (data, function):
            with Trace(GPT2, edit={name: edit}):
                results.append(GPT2(text))
        assert torch.equal(*results), data
        assert not torch.equal(results[0], GPT2(text)), data


def test_edits_are_parsed_from_data_and_invalid_ones_are_rejected():
    assert parse_edit({"kind": "zero", "head": 2}) == Zero(head=2)
    assert parse_edit({"kind": "scale", "factor": 2, "token": 1}) == Scale(2.0, token=1)
    assert parse_edit({"kind": "replace", "value": 0.5}) == Replace(0.5)
    assert parse_edit({"kind": "replace", "value": [1, 2]}).value.tolist() == [1, 2]
    for invalid, message in (
        ({"kind": "explode"}, "one of zero, scale, replace"),
        ({}, "one of zero, scale, replace"),
        ({"kind": "zero", "heads": 2}, "unknown setting 'edit.heads'"),
        ({"kind": "zero", "head": "two"}, "head must be an integer"),
        ({"kind": "scale"}, "'edit.factor' is missing"),
        ({"kind": "replace"}, "replace needs a value"),
        ({"kind": "replace", "value": "x"}, "must consist of numbers"),
        ({"kind": "replace", "value": 1, "dim": 2}, "replace needs a value"),
    ):
        with pytest.raises(GlassError, match=message):
            parse_edit(invalid)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "blocks.0.attention.head_outputs",
            Zero(head=9),
            "out of range: the head axis has size 4",
        ),
        ("embedded", Zero(head=1), "no head axis; its axes are 'b t d'"),
        ("blocks.0", Zero(head=1), "axes are 'unknown'"),
        ("embedded", Replace(torch.zeros(3)), "expected the shape"),
    ],
)
def test_an_edit_that_does_not_fit_its_value_is_rejected(name, edit, message):
    with pytest.raises(ValueError, match=f"the edit of {name}.*{message}"), \
         Trace(GPT2, edit={name: edit}):  # fmt: skip
        GPT2(ids())


# --- names, axes, formulas ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_every_value_is_declared_with_the_right_number_of_axes(name):
    """Also, no tap has the name of a child module or a parameter of its module."""
    case = CASES[name]
    declarations = list_values(case.network)
    with torch.no_grad(), Trace(case.network) as trace:
        case.network(**case.inputs())
    assert trace.names <= declarations.keys()
    for value, declaration in declarations.items():
        if declaration is None or value not in trace:
            continue
        assert trace.axes(value) == declaration.axes
        assert all(v.ndim == len(declaration.axes.split()) for v in trace.visits[value]), value
    modules = dict(case.network.named_modules())
    for path, module in modules.items():
        reserved = {*dict(module.named_children()), *dict(module.named_parameters(recurse=False))}
        assert not reserved & {*getattr(module, "taps", {})}, path


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "translator", "classifier"])
@torch.no_grad()
def test_each_name_is_visited_once_per_forward_pass(name):
    """Except for values that the source and the target of a translator share."""
    case = CASES[name]
    with Trace(case.network) as trace:
        case(ids())
    repeated = {n for n, visits in trace.visits.items() if len(visits) > 1}
    assert repeated <= {"token", "position", "embedded"}
    assert name == "translator" or not repeated


def test_taps_are_listed_with_their_declarations():
    assert list_values(GPT2)["embedded"] == Tap("b t d", "E[id] + P")
    assert list_values(GPT2)["blocks.0.attention"] is None  # a module's output
    assert select(torch.zeros(2, 4, 3), "b h t", 1, -1) == (slice(None), 1, -1)


def test_axes_have_the_sizes_that_their_letters_stand_for():
    with torch.no_grad(), Trace(GPT2) as trace:
        GPT2(ids())
    sizes = {"b": 3, "t": 12, "s": 12, "h": 4, "g": 4, "e": 8, "d": 32, "f": 128, "1": 1}
    count = 0
    for name, declaration in list_values(GPT2).items():
        if declaration is not None:
            count += 1
            assert trace[name].shape == tuple(sizes[axis] for axis in declaration.axes.split()), (
                name
            )
            assert declaration.formula, name
    assert count > 20


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_of_recorded_values_are_available():
    network, text = copy.deepcopy(GPT2).requires_grad_(True), ids()
    leaves = []

    def make_leaf(x):
        leaves.append(x.detach().requires_grad_())
        return leaves[-1]

    with Trace(network, "blocks.0", "*.pattern", gradients=True) as trace:
        network(text).square().sum().backward()
    with Trace(network, edit={"blocks.0": make_leaf}):
        network(text).square().sum().backward()
    torch.testing.assert_close(trace.gradient("blocks.0"), leaves[0].grad, atol=1e-4, rtol=1e-4)
    assert trace.gradient("blocks.1.attention.pattern").shape == (3, 4, 12, 12)
    assert not trace["blocks.0"].requires_grad
    with Trace(network, "blocks.0", gradients=True) as trace:
        loss = network(text).sum()
    with pytest.raises(KeyError, match="call backward first"):
        trace.gradient("blocks.0")
    loss.backward()  # after the trace was closed
    assert trace.gradient("blocks.0").abs().sum() > 0
    with Trace(network, "blocks.0") as trace_without_gradients:
        network(text)
    with pytest.raises(KeyError, match="gradients=True"):
        trace_without_gradients.gradient("blocks.0")
    with pytest.raises(KeyError, match=r"no value is named 'block\.0'; did you mean"):
        trace_without_gradients.gradient("block.0")


def test_forward_passes_of_another_thread_are_not_traced():
    text, results, stop = ids(), [], threading.Event()
    expected = GPT2(text)

    def run():
        while not stop.is_set():
            results.append(torch.equal(GPT2(text), expected))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(20):
            with Trace(
                GPT2, "*.attention.pattern", "output", edit={"blocks.0": torch.zeros_like}
            ) as trace:
                GPT2(text[:, :5])
            assert [len(v) for v in trace.visits.values()] == [1, 1, 1]
            assert trace["output"].shape == (3, 5, 50)
    finally:
        stop.set()
        thread.join()
    assert len(results) > 5
    assert all(results)


def test_a_compiled_network_can_be_traced():
    network, text = MODELS["gpt2"](GPT2.config).eval(), ids()
    network.compile(backend="eager", fullgraph=True)
    untraced = network(text)
    with Trace(network, "*.pattern") as trace:
        torch.testing.assert_close(network(text), untraced)
    assert list(trace) == ["blocks.0.attention.pattern", "blocks.1.attention.pattern"]
    assert torch.equal(network(text), untraced)
    assert not any("_orig_mod" in name for name in network.state_dict())
    torch._dynamo.reset()


def test_a_network_inside_a_compiling_wrapper_can_be_traced():
    compiled, text = torch.compile(GPT2, backend="eager", fullgraph=True), ids()
    untraced = compiled(text)
    with Trace(GPT2, "*.pattern") as trace:
        torch.testing.assert_close(compiled(text), untraced)
    assert len(trace) == 2
    torch._dynamo.reset()


def test_a_method_other_than_forward_is_traced():
    translator = CASES["translator"].network
    with Trace(translator, "encoder.?") as trace:
        translator.encode(ids())
    assert list(trace) == ["encoder.0", "encoder.1"]


def test_outputs_that_are_not_tensors_are_not_recorded():
    lstm = nn.LSTM(4, 4, batch_first=True)
    with Trace(lstm) as trace:
        lstm(torch.randn(1, 3, 4))
    assert not trace.visits


def test_without_a_trace_a_tap_returns_its_argument():
    value = torch.ones(1)
    assert tap("x", value) is value
    assert not watched("x")


def test_a_closed_trace_leaves_no_hooks_and_no_active_taps(monkeypatch):
    network = CASES["gpt2"].network
    with Trace(network, "*", edit={"blocks.0": lambda x: x}):
        network(ids())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    visits = []
    monkeypatch.setattr(Trace, "visit", lambda *args: visits.append(args))
    network(ids())
    assert visits == []


def test_a_network_may_change_while_a_trace_is_open() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    removed = network[1]
    with Trace(network) as trace:
        network[1] = nn.Linear(2, 3)
        network(torch.zeros(1, 2))
    assert trace["0"].shape == (1, 2)
    assert not removed._forward_hooks
    assert not network[1]._forward_hooks
    assert not network[0]._forward_hooks
