"""Tracing: names, edits, budget, threads, exceptions, the compiler, and what it costs."""

import threading

import pytest
import torch
from torch import nn

from cases import CASES, ids
from glassformer import MODELS, Trace
from glassformer.models.network import Trait
from glassformer.trace import tap, watched

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
    edits = {"blocks.1.attention.head": torch.zeros_like}
    said = r"met no value; did you mean .*attention.heads"
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
    with Trace(GPT2, "*.k", "*.v", "*.heads") as trace:
        GPT2(ids()[:, :6], cache=cache)
        before = {name: trace[name].clone() for name in trace}
        kept = dict(trace)
        GPT2(ids()[:, 6:], cache=cache)
    assert all(torch.equal(kept[name], before[name]) for name in before)


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

    with Trace(GPT2, "*.heads", "*.v", edit={"*.pattern": only_itself}) as trace:
        GPT2(ids())
    torch.testing.assert_close(trace["blocks.0.attention.heads"], trace["blocks.0.attention.v"])


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

    trace = Trace(GPT2, "blocks.0.*", edit={"blocks.1.attention.heads": fail})
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


def test_only_one_trace_is_open():
    with Trace(GPT2), pytest.raises(RuntimeError, match="already open"), Trace(GPT2):
        pass


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
