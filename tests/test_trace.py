"""Tracing: names, edits, budget, threads, exceptions, the compiler, and what it costs."""

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


def test_values_are_named_by_the_module_tree():
    with Trace(GPT2, "*.pattern") as trace:
        GPT2(ids())
    assert list(trace) == ["blocks.0.attention.pattern", "blocks.1.attention.pattern"]
    assert trace["blocks.1.attention.pattern"].shape == (3, 4, 12, 12)
    with Trace(GPT2, "blocks.?", "token", "output") as trace:
        logits = GPT2(ids())
    assert list(trace) == ["token", "blocks.0", "blocks.1", "output"]
    assert torch.equal(trace["output"], logits)


def test_names_of_values_are_no_names_of_parts(monkeypatch):
    for case in CASES.values():
        parts = {name for name, _ in case.network.named_modules()}
        parts |= {name for name, _ in case.network.named_parameters()}
        tapped = set()
        visit = Trace.visit

        def note(self, name, value, tapped=tapped, visit=visit):
            if name:
                tapped.add(self._full(name))
            return visit(self, name, value)

        with monkeypatch.context() as patch, Trace(case.network):
            patch.setattr(Trace, "visit", note)
            case(ids())
        if case.has(Trait.ATTENTION):
            assert any(name.endswith("attention.pattern") for name in tapped)
        assert not tapped & parts


def test_what_runs_outside_of_the_network_is_not_seen():
    other, text = CASES["generator"].network, ids()
    plain = other(text)
    with Trace(GPT2.blocks[0], "*") as trace:
        GPT2(text)
        assert torch.equal(other(text), plain)
    assert len(trace.visits["attention.pattern"]) == 1
    assert trace["output"].shape == (3, 12, 32)
    with pytest.warns(UserWarning, match="met no value"), Trace(GPT2, edit={"*": torch.zeros_like}):
        assert torch.equal(other(text), plain)


def test_an_edit_that_meets_no_value_is_no_finding():
    edits = {"blocks.1.attention.head_output": torch.zeros_like}
    said = r"met no value; did you mean .*attention.head_outputs"
    with pytest.warns(UserWarning, match=said), Trace(GPT2, edit=edits):
        GPT2(ids())


def test_an_edit_must_give_a_tensor():
    trace = Trace(GPT2, edit={"blocks.0": lambda _: None})
    with pytest.raises(ValueError, match="gives None, not a tensor"), trace:
        GPT2(ids())


def test_every_visit_is_kept():
    cache = GPT2.cache(12)
    with Trace(GPT2, "blocks.0.attention.pattern") as trace:
        for part in ids().split(4, dim=1):
            GPT2(part, cache=cache)
    visits = trace.visits["blocks.0.attention.pattern"]
    assert [tuple(v.shape[2:]) for v in visits] == [(4, 4), (4, 8), (4, 12)]
    assert trace["blocks.0.attention.pattern"] is visits[-1]


def test_what_was_recorded_does_not_change_when_the_cache_grows():
    cache = GPT2.cache(12)
    with Trace(GPT2, "*.k", "*.v", "*.head_outputs") as trace:
        GPT2(ids()[:, :6], cache=cache)
        previous_ids = {name: trace[name].clone() for name in trace}
        kept = dict(trace)
        GPT2(ids()[:, 6:], cache=cache)
    assert all(torch.equal(kept[name], previous_ids[name]) for name in previous_ids)


def test_an_edit_ablates():
    text = ids()
    with Trace(GPT2, edit={"blocks.1": torch.zeros_like}):
        ablated = GPT2(text)
    torch.testing.assert_close(ablated, GPT2.norm(torch.zeros(3, 12, 32)) @ GPT2.token.weight.T)
    assert not torch.equal(GPT2(text), ablated)


def test_an_edit_patches_a_value_from_another_text():
    clean, corrupt = ids(), ids()
    with Trace(GPT2, "blocks.0") as trace:
        expected = GPT2(clean)
    with Trace(GPT2, edit={"blocks.0": trace["blocks.0"]}):
        assert torch.equal(GPT2(corrupt), expected)


def test_an_edit_of_a_pattern_leaves_the_fused_kernel():
    def only_itself(pattern):
        return torch.eye(12).expand_as(pattern)

    with Trace(GPT2, "*.head_outputs", "*.v", edit={"*.pattern": only_itself}) as trace:
        GPT2(ids())
    torch.testing.assert_close(
        trace["blocks.0.attention.head_outputs"], trace["blocks.0.attention.v"]
    )


def test_an_edit_that_changes_the_shape_is_refused():
    with (
        pytest.raises(ValueError, match=r"blocks.0 gives the shape \(3, 1, 32\) in place of"),
        Trace(GPT2, edit={"blocks.0": lambda x: x[:, :1]}),
    ):
        GPT2(ids())
    assert not watched("pattern")


def test_a_full_trace_says_so_and_keeps_what_it_has():
    with (
        Trace(GPT2, "blocks.*.pattern", megabytes=0.01) as trace,
        pytest.warns(UserWarning, match=r"trace is full: blocks.1.attention.pattern \(0.0 MB\)"),
    ):
        GPT2(ids())
    assert list(trace) == ["blocks.0.attention.pattern"]
    assert trace.full
    assert trace.used <= 10_000
    with pytest.raises(KeyError, match="came after the trace was full"):
        trace["blocks.1.attention.pattern"]


def test_a_wrong_name_is_met_with_the_nearest():
    with Trace(GPT2, "*.pattern") as trace:
        GPT2(ids())
    with pytest.raises(KeyError, match=r"did you mean .*blocks.0.attention.pattern"):
        trace["blocks.0.attention.patern"]
    with pytest.raises(KeyError, match="was not asked for"):
        trace["blocks.0.attention.q"]


def test_an_exception_inside_the_model_leaves_no_trace():
    def fail(_):
        raise ArithmeticError("as planned")

    trace = Trace(GPT2, "blocks.0.*", edit={"blocks.1.attention.head_outputs": fail})
    with trace, pytest.raises(ArithmeticError):
        GPT2(ids())
    with trace:
        trace.edits.clear()
        GPT2(ids())
    assert {name.split(".")[1] for name in trace} == {"0"}
    assert not any(module._forward_hooks for module in GPT2.modules())
    assert not any(module._forward_pre_hooks for module in GPT2.modules())


def test_an_exception_inside_is_survived_while_the_trace_stays_open():
    with Trace(GPT2, "*.q", "output") as trace:
        with pytest.raises(IndexError):
            GPT2(ids() + 1000)
        GPT2(ids())
    assert list(trace) == ["blocks.0.attention.q", "blocks.1.attention.q", "output"]


def test_several_traces_see_the_same_pass():
    text = ids()
    outer, inner = (
        Trace(GPT2, "*.pattern"),
        Trace(GPT2, "blocks.?", edit={"token": torch.zeros_like}),
    )
    with outer:
        plain = GPT2(text)
        with inner:
            changed = GPT2(text)
        again = GPT2(text)
    assert [len(v) for v in outer.visits.values()] == [3, 3]
    assert [len(v) for v in inner.visits.values()] == [1, 1]
    assert torch.equal(plain, again)
    assert not torch.equal(plain, changed)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in GPT2.modules())


def test_many_threads_trace_one_network_at_once():
    """Each sees its own text and its own edit, and those that look at nothing are left alone."""
    network, failures = CASES["gpt2"].network, []
    texts = [ids(1, 4 + i) for i in range(4)]
    plain = [network(text) for text in texts]
    edited = []
    for i, text in enumerate(texts):
        with Trace(network, edit={"blocks.0.attention.head_outputs": Zero(head=i)}):
            edited.append(network(text))

    def work(i):
        for _ in range(25):
            edit = {"blocks.0.attention.head_outputs": Zero(head=i)}
            with Trace(network, "*.pattern", "output", edit=edit) as trace:
                network(texts[i])
            same = torch.allclose(trace["output"], edited[i], atol=1e-6)
            alone = torch.allclose(network(texts[i]), plain[i], atol=1e-6)
            seen = [len(v) for v in trace.visits.values()] == [1, 1, 1]
            if not (same and alone and seen):
                failures.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())


def test_a_pattern_that_meets_no_value_is_warned_of():
    said = r"the pattern '\*\.patern' met no value; did you mean"
    with pytest.warns(UserWarning, match=said), Trace(GPT2, "*.patern"):
        GPT2(ids())
    with Trace(GPT2, "*.patern", allow_missing=True) as trace:
        GPT2(ids())
    assert not trace


# --- edits as data --------------------------------------------------------------------------------


@torch.no_grad()
def test_edits_as_data_do_what_functions_do():
    text, name = ids(), "blocks.1.attention.head_outputs"

    def silent(x):
        x = x.clone()
        x[:, 2] = 0
        return x

    def doubled(x):
        x = x.clone()
        x[:, 1, 3] *= 2
        return x

    other = torch.randn(3, 4, 12, 8)
    for data, function in (
        (Zero(head=2), silent),
        (Zero(), torch.zeros_like),
        (Scale(2.0, head=1, token=3), doubled),
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


def test_edits_are_read_from_data_and_wrong_ones_are_named():
    assert parse_edit({"kind": "zero", "head": 2}) == Zero(head=2)
    assert parse_edit({"kind": "scale", "factor": 2, "token": 1}) == Scale(2.0, token=1)
    assert parse_edit({"kind": "replace", "value": 0.5}) == Replace(0.5)
    assert parse_edit({"kind": "replace", "value": [1, 2]}).value.tolist() == [1, 2]
    for wrong, message in (
        ({"kind": "explode"}, "one of zero, scale, replace"),
        ({}, "one of zero, scale, replace"),
        ({"kind": "zero", "heads": 2}, "no setting 'edit.heads'"),
        ({"kind": "zero", "head": "two"}, "head must be a whole number"),
        ({"kind": "scale"}, "'edit.factor' is missing"),
        ({"kind": "replace"}, "replace takes a value"),
        ({"kind": "replace", "value": "x"}, "must be numbers"),
        ({"kind": "replace", "value": 1, "dim": 2}, "replace takes a value"),
    ):
        with pytest.raises(GlassError, match=message):
            parse_edit(wrong)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("blocks.0.attention.head_outputs", Zero(head=9), "there is no h 9 among 4"),
        ("embedded", Zero(head=1), "no heads in a value whose axes are 'b t d'"),
        ("blocks.0", Zero(head=1), "axes are 'unknown'"),
        ("embedded", Replace(torch.zeros(3)), "gives the shape"),
    ],
)
def test_an_edit_that_has_no_place_is_named(name, edit, message):
    with pytest.raises(ValueError, match=f"the edit of {name}.*{message}"), \
         Trace(GPT2, edit={name: edit}):  # fmt: skip
        GPT2(ids())


# --- names, axes, formulas ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_every_value_is_declared_with_its_axes_before_it_comes_by(name):
    """And nothing is declared that has another number of axes, or the name of a child."""
    case = CASES[name]
    listed = list_values(case.network)
    with torch.no_grad(), Trace(case.network) as trace:
        case(ids())
    assert trace.names <= listed.keys()
    for value, known in listed.items():
        if known is None or value not in trace:
            continue
        assert trace.axes(value) == known.axes
        assert all(v.ndim == len(known.axes.split()) for v in trace.visits[value]), value
    modules = dict(case.network.named_modules())
    for path, module in modules.items():
        own = {*dict(module.named_children()), *dict(module.named_parameters(recurse=False))}
        assert not own & {*getattr(module, "taps", {})}, path


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "translator", "classifier"])
@torch.no_grad()
def test_one_name_means_one_value(name):
    """But for what serves both sides of a translator."""
    case = CASES[name]
    with Trace(case.network) as trace:
        case(ids())
    often = {n for n, visits in trace.visits.items() if len(visits) > 1}
    assert often <= {"token", "position", "embedded"}
    assert name == "translator" or not often


def test_a_tap_is_listed_with_what_its_module_declares():
    assert list_values(GPT2)["embedded"] == Tap("b t d", "E[id] + P")
    assert list_values(GPT2)["blocks.0.attention"] is None  # what a module returns
    assert select(torch.zeros(2, 4, 3), "b h t", 1, -1) == (slice(None), 1, -1)


def test_axes_have_the_sizes_that_their_letters_say():
    with torch.no_grad(), Trace(GPT2) as trace:
        GPT2(ids())
    sizes = {"b": 3, "t": 12, "s": 12, "h": 4, "g": 4, "e": 8, "d": 32, "f": 128, "1": 1}
    seen = 0
    for name, known in list_values(GPT2).items():
        if known is not None:
            seen += 1
            assert trace[name].shape == tuple(sizes[axis] for axis in known.axes.split()), name
            assert known.formula, name
    assert seen > 20


# --- gradients ------------------------------------------------------------------------------------


def test_gradients_come_to_recorded_values():
    network, text = copy.deepcopy(GPT2).requires_grad_(True), ids()
    leaves = []

    def leaf(x):
        leaves.append(x.detach().requires_grad_())
        return leaves[-1]

    with Trace(network, "blocks.0", "*.pattern", gradients=True) as trace:
        network(text).square().sum().backward()
    with Trace(network, edit={"blocks.0": leaf}):
        network(text).square().sum().backward()
    torch.testing.assert_close(trace.gradient("blocks.0"), leaves[0].grad, atol=1e-4, rtol=1e-4)
    assert trace.gradient("blocks.1.attention.pattern").shape == (3, 4, 12, 12)
    assert not trace["blocks.0"].requires_grad
    with Trace(network, "blocks.0", gradients=True) as previous_ids:
        loss = network(text).sum()
    with pytest.raises(KeyError, match="call backward first"):
        previous_ids.gradient("blocks.0")
    loss.backward()  # after the trace was closed
    assert previous_ids.gradient("blocks.0").abs().sum() > 0
    with Trace(network, "blocks.0") as without:
        network(text)
    with pytest.raises(KeyError, match="gradients=True"):
        without.gradient("blocks.0")
    with pytest.raises(KeyError, match=r"no value is named 'block\.0'; did you mean"):
        without.gradient("block.0")


def test_a_second_thread_does_not_mix_in():
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
            ) as t:
                GPT2(text[:, :5])
            assert [len(v) for v in t.visits.values()] == [1, 1, 1]
            assert t["output"].shape == (3, 5, 50)
    finally:
        stop.set()
        thread.join()
    assert len(results) > 5
    assert all(results)


def test_a_trace_looks_at_the_code_of_a_compiled_model():
    network, text = MODELS["gpt2"](GPT2.config).eval(), ids()
    network.compile(backend="eager", fullgraph=True)
    plain = network(text)
    with Trace(network, "*.pattern") as trace:
        torch.testing.assert_close(network(text), plain)
    assert list(trace) == ["blocks.0.attention.pattern", "blocks.1.attention.pattern"]
    assert torch.equal(network(text), plain)
    assert not any("_orig_mod" in name for name in network.state_dict())
    torch._dynamo.reset()


def test_a_trace_looks_through_a_wrapper_that_compiles():
    compiled, text = torch.compile(GPT2, backend="eager", fullgraph=True), ids()
    plain = compiled(text)
    with Trace(GPT2, "*.pattern") as trace:
        torch.testing.assert_close(compiled(text), plain)
    assert len(trace) == 2
    torch._dynamo.reset()


def test_a_method_called_directly_is_traced_too():
    translator = CASES["translator"].network
    with Trace(translator, "encoder.?") as trace:
        translator.encode(ids())
    assert list(trace) == ["encoder.0", "encoder.1"]


def test_what_a_module_gives_that_is_no_tensor_passes_by():
    lstm = nn.LSTM(4, 4, batch_first=True)
    with Trace(lstm) as trace:
        lstm(torch.randn(1, 3, 4))
    assert not trace.visits


def test_without_a_trace_a_tap_gives_back_its_argument():
    value = torch.ones(1)
    assert tap("x", value) is value
    assert not watched("x")


def test_a_closed_trace_leaves_nothing_behind(monkeypatch):
    """No hook on any module, and no tap that does more than give back its value."""
    network = CASES["gpt2"].network
    with Trace(network, "*", edit={"blocks.0": lambda x: x}):
        network(ids())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    visits = []
    monkeypatch.setattr(Trace, "visit", lambda *args: visits.append(args))
    network(ids())
    assert visits == []
