"""What a page requests, for a model of every task: the responses equal what torch computes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from glassformer import GlassError, Trace
from glassformer.generate.beam import beam_search
from glassformer.inspection.heads import measure_heads
from glassformer.models.network import Trait
from glassformer.serve import passes
from glassformer.serve.envelope import pack, unpack
from glassformer.serve.export import first_input
from glassformer.serve.handlers import HANDLERS
from glassformer.serve.passes import REMOVABLE_PARTS, PassCache
from glassformer.serve.subject import read_subject
from glassformer.tasks.translate import LENGTH_PENALTY
from glassformer.trace import Zero
from serve.conftest import RUNS

TEXT = {"text": "the cat sat on the mat"}


def ask(session, handler, **request):
    """The response as a page receives it."""
    return unpack(pack(HANDLERS[handler](session, request)))


def first_request(session):
    return {"input": first_input(HANDLERS["model"](session, {}))}


@pytest.mark.parametrize("name", RUNS)
def test_every_value_of_a_pass_equals_that_of_a_trace(session, name):
    opened = session(name)
    request = first_request(opened)
    response = ask(opened, "pass", **request)
    subject = read_subject(opened.model, request["input"])
    with torch.no_grad(), Trace(opened.model.network) as trace:
        output = opened.model.network(**subject.inputs)
    assert len(response["stages"]) >= 5
    assert {stage["name"].partition("#")[0] for stage in response["stages"]} <= set(trace)
    for stage in response["stages"]:
        base, _, visit = stage["name"].partition("#")
        expected = trace.visits[base][int(visit or 0) - 1]
        found = ask(opened, "values", name=stage["name"], **request)
        assert torch.equal(found["values"], expected.float())
        assert stage["shape"] == list(expected.shape)
        finite = expected[expected.isfinite()].float()
        assert stage["stats"]["max"] == pytest.approx(float(finite.max()))
        assert stage["name"] == "output" or stage["source"]["line"] > 0
        for axis, label in ((-2, stage["rows"]), (-1, stage["columns"])):
            if label in ("tokens", "source"):
                assert stage["shape"][axis] == len(response["names"][label])
    if response["prediction"]["kind"] == "outcomes":
        probs = response["prediction"]["probs"]
        assert 0 < probs.sum() <= 1.0001
        assert probs.tolist() == sorted(probs.tolist(), reverse=True)
        assert len(response["prediction"]["names"]) == len(probs)
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("name", RUNS)
def test_answers_are_json_and_every_view_has_what_it_asks_for(session, name):
    opened = session(name)
    model = ask(opened, "model")
    assert json.loads(json.dumps(model)) == model
    assert model["views"][0] == "flow"
    assert ("attention" in model["views"]) == bool(
        ask(opened, "pass", **first_request(opened))["layers"]
    ) or name == "paint"
    request = first_request(opened)
    needs = {"next": "beam" if model["reads"] == "pair" else "next", "lens": "lens"}
    for view, handler in needs.items():
        if view in model["views"]:
            assert ask(opened, handler, **request)


def test_the_line_of_code_is_the_one_that_computes_the_value(session):
    response = ask(session("generate"), "pass", input=TEXT)
    (stage,) = (s for s in response["stages"] if s["name"] == "blocks.0.attention.pattern")
    lines = stage["source"]["code"].splitlines()
    line = lines[stage["source"]["line"] - stage["source"]["first"]]
    assert 'tap("pattern", scores.softmax(dim=-1)' in line
    assert stage["source"]["file"] == "nn/attention.py"


def test_terms_of_a_number_add_up_to_it(session):
    opened = session("generate")
    queue, seen = [("output[0,2,3]", [])], 0
    while queue and seen < 40:
        entry, path = queue.pop(0)
        why = ask(opened, "why", input=TEXT, entry=entry, path=path)
        value, recomputed = why["value"].tolist()
        assert recomputed == pytest.approx(value, abs=1e-5)
        if any(operation.startswith("row × column") for operation in why["operations"]):
            assert why["values"][:, -1].sum() == pytest.approx(value, abs=1e-5)
        seen += 1
        for i, (names, follows) in enumerate(
            zip(why["terms"][:2], why["can_follow"], strict=False)
        ):
            for j, (name, can_follow) in enumerate(zip(names, follows, strict=True)):
                if can_follow:
                    queue.append((name, []) if name else (entry, [*why["path"], [i, j]]))
    assert seen == 40


def test_edits_equal_those_of_a_trace(session):
    opened = session("generate")
    name = "blocks.0.attention.head_outputs"
    edits = [{"name": name, "kind": "zero", "head": 0}, {"name": name, "kind": "zero", "head": 1}]
    edited = ask(opened, "values", input=TEXT, edits=edits, name="output")["values"]
    plain = ask(opened, "values", input=TEXT, name="output")["values"]
    network, subject = opened.model.network, read_subject(opened.model, TEXT)
    with torch.no_grad(), Trace(network, edit={name: Zero()}):
        expected = network(**subject.inputs)
    torch.testing.assert_close(edited, expected)  # the trace of everything leaves the fused kernel
    assert (edited - plain).abs().max() > 1e-3


def test_without_a_mask_tokens_see_later_ones_and_without_positions_order_does_not_matter(session):
    opened = session("generate")
    ids = read_subject(opened.model, TEXT).inputs["ids"][0].tolist()
    shuffled = [ids[2], ids[1], ids[0], *ids[3:]]
    other_end = [*ids[:-1], (ids[-1] + 1) % opened.model.network.vocab]

    def output(ids, *without):
        request = {"input": {"ids": ids}, "without": list(without), "name": "output"}
        return ask(opened, "values", **request)["values"][0]

    assert torch.equal(output(ids)[0], output(other_end)[0])
    assert not torch.equal(output(ids, "mask")[0], output(other_end, "mask")[0])
    kwargs = {"rtol": 1e-4, "atol": 1e-5}
    assert not torch.allclose(output(ids)[-1], output(shuffled)[-1], **kwargs)
    torch.testing.assert_close(
        output(ids, *REMOVABLE_PARTS)[-1], output(shuffled, *REMOVABLE_PARTS)[-1], **kwargs
    )
    assert torch.equal(output(ids)[0], output(other_end)[0]), "the twin changed the network"


def test_values_that_are_not_kept_are_computed_again(session, monkeypatch):
    opened = session("universal")
    request = {"input": TEXT}
    response = ask(opened, "pass", **request)
    values = [
        ask(opened, "values", name=s["name"], **request)["values"] for s in response["stages"]
    ]
    monkeypatch.setattr(passes, "KEPT_MEGABYTES", 0.002)
    monkeypatch.setattr(opened, "passes", PassCache())
    assert any(visit.value is None for visit in opened.find_pass(request).visits.values())
    again = ask(opened, "pass", **request)
    assert [s["name"] for s in again["stages"]] == [s["name"] for s in response["stages"]]
    for stage, value in zip(again["stages"], values, strict=True):
        assert torch.equal(ask(opened, "values", name=stage["name"], **request)["values"], value)


def test_roles_and_the_effect_of_a_head_equal_those_of_the_report(session):
    opened = session("generate")
    inputs = read_subject(opened.model, TEXT).inputs
    layers = {layer["value"]: layer["name"] for layer in ask(opened, "pass", input=TEXT)["layers"]}
    rows = ask(opened, "heads", input=TEXT)["heads"]
    rows = [{"name": layers[row.pop("value")], **row} for row in rows]
    report = measure_heads(opened.model.network, inputs)
    assert len(rows) == len(report) == 4
    for row, head in zip(rows, report, strict=True):
        expected = head.row()
        cost = expected.pop("cost")
        assert row == pytest.approx(expected)
        place = {"layer": head.name, "head": head.head}
        assert ask(opened, "ablation", input=TEXT, **place)["cost"][0] == pytest.approx(
            cost, abs=1e-5
        )


def test_small_pictures_show_the_largest_weight_of_each_cell(session):
    opened = session("generate")
    request = {"input": TEXT, "name": "blocks.0.attention.pattern", "index": [0]}
    whole = ask(opened, "values", **request)["values"]
    small = ask(opened, "values", pool=4, **request)["values"]
    assert small.shape == (2, 4, 4)
    assert small.amax(dim=(1, 2)).tolist() == whole.amax(dim=(1, 2)).tolist()


def test_each_offered_switch_changes_a_value(session):
    offered = {}
    for name in RUNS:
        opened = session(name)
        request = first_request(opened)
        offered[name] = ask(opened, "pass", **request)["removable"]
        if name == "translate":  # a mask needs several tokens
            request["input"]["target"] = "eins zwei drei"
        stats = [visit.stats for visit in opened.find_pass(request).visits.values()]
        for part in offered[name]:
            changed = opened.find_pass(request | {"without": [part]}).visits.values()
            assert [visit.stats for visit in changed] != stats, (name, part)
    assert offered["generate"] == offered["universal"] == ["positions", "mask"]
    assert offered["classify"] == ["positions"]
    assert offered["recommend"] == offered["markov"] == []


def test_changes_are_measured_between_two_passes(session):
    opened = session("generate")
    other = {"input": TEXT, "edits": [{"name": "blocks.1.feedforward", "kind": "zero"}]}
    change = ask(opened, "change", input=TEXT, other=other)
    before, after = (
        ask(opened, "values", name="output", **request)["values"][0].log_softmax(dim=-1)
        for request in ({"input": TEXT}, other)
    )
    expected = (before.exp() * (before - after)).sum(dim=-1)
    torch.testing.assert_close(change["divergence"], expected, atol=1e-5, rtol=1e-3)
    names = ask(opened, "outcomes")["names"]
    best = names[int(before[-1].argmax())]
    assert change["before"][change["names"].index(best)] == pytest.approx(
        float(before[-1].exp().max())
    )
    none = ask(opened, "change", input=TEXT, other={"input": TEXT})
    assert none["divergence"].abs().max() == 0


def test_counts_and_network_are_shown_for_the_next_token(session):
    opened = session("prior")
    ids = ask(opened, "tokenize", input=TEXT)["ids"]
    response = ask(opened, "next", input={"ids": ids})
    with torch.no_grad():
        expected = opened.model.network(torch.tensor([ids]))[0, -1]
    assert torch.equal(response["logits"], expected)
    torch.testing.assert_close(response["counts"] + response["network"], response["logits"])
    longer = ask(opened, "next", input={"ids": ids * 9})
    assert torch.equal(
        longer["logits"], ask(opened, "next", input={"ids": (ids * 9)[-32:]})["logits"]
    )


def test_each_token_of_a_text_is_predicted_by_the_prior_by_the_network_and_by_both(session):
    opened = session("prior")
    probs = ask(opened, "prior", input=TEXT)["probs"]
    ids = read_subject(opened.model, TEXT).inputs["ids"]
    with torch.no_grad():
        both = opened.model.network(ids)[0].softmax(dim=-1)
    expected = both[:-1].gather(1, ids[0, 1:, None])[:, 0]
    torch.testing.assert_close(probs[2], expected)
    assert probs.shape == (3, ids.shape[1] - 1)
    with pytest.raises(GlassError, match="no prior that predicts tokens"):
        ask(session("generate"), "prior", input=TEXT)


def test_the_tree_of_beam_search_has_its_hypotheses(session):
    opened = session("translate")
    model = opened.model
    response = ask(opened, "beam", input={"text": "one two 3"}, beam=3)
    codec = model.codec
    batch = codec.encode(["one two 3"])
    start = torch.full_like(batch["source"][:, :1], codec.bos)
    limit = 2 * batch["source"].shape[1] + 10
    (expected,) = beam_search(
        model.network, start, [limit], eos=codec.eos, beam_size=3, length_penalty=LENGTH_PENALTY,
        source=batch["source"],
    )  # fmt: skip
    assert response["texts"] == [model.tokenizer.decode(ids) for _, ids in expected]
    nodes = response["nodes"]
    for i, node in enumerate(nodes):
        assert node["parent"] < i
        assert node["parent"] < 0 or nodes[node["parent"]]["state"] == "beam"
        if node["parent"] >= 0:
            assert response["log_probs"][i] <= response["log_probs"][node["parent"]] + 1e-5


def test_steps_and_memory_are_shown_where_a_model_has_them(session):
    universal = ask(session("universal"), "reach", input=TEXT)
    (loop,) = universal["halting"]
    torch.testing.assert_close(loop["weights"].sum(dim=0), torch.ones(loop["weights"].shape[1]))
    text = {"text": "the cat sat on the mat"}
    assert session("xl").model.network.has(Trait.SEGMENT_MEMORY)
    memory = ask(session("xl"), "reach", input=text)["memory"]
    assert len(memory) == 2
    assert ask(session("generate"), "reach", input=TEXT) == {"halting": [], "memory": []}


def test_training_shows_the_metrics_of_this_run_and_of_those_beside_it(session):
    opened = session("generate")
    assert opened.list_runs()[0] == "generate"
    assert {"classify", "translate"} <= set(opened.list_runs())
    response = ask(opened, "training", run="classify")
    assert {"validation", "final"} <= {line["kind"] for line in response["metrics"]}
    for name in ("../secret", "nothing", "/etc"):
        with pytest.raises(GlassError, match="there is no run"):
            ask(opened, "training", run=name)


def test_lessons_and_worksheets_have_all_steps(session):
    opened = session("generate")
    lessons = ask(opened, "lessons")["lessons"]
    assert len(lessons) >= 6
    lesson = ask(opened, "lesson", lesson="attention")
    assert len(lesson["steps"]) > 5
    tables = [table for step in lesson["steps"] for table in step["tables"]]
    assert all(len(t["cells"]) == t["values"].shape[0] for t in tables)
    assert len(ask(opened, "worksheet", input=TEXT)["steps"]) > 5


def test_requests_in_several_threads_do_not_disturb_each_other(session):
    opened = session("generate")
    edits = [
        [{"name": "blocks.0.attention.head_outputs", "kind": "zero", "head": head}]
        for head in (0, 1)
    ]
    requests = [
        {"input": {"text": f"the cat {'at ' * n}"}, "edits": e} for n in range(4) for e in edits
    ]
    one_by_one = [ask(opened, "values", name="output", **request)["values"] for request in requests]
    opened.passes.passes.clear()
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda r: ask(opened, "values", name="output", **r)["values"], requests)
    assert all(torch.equal(a, b) for a, b in zip(one_by_one, found, strict=True))


OUTPUT = {"input": TEXT, "name": "output"}
ENTRY = "output[0,0,0]"
MISSPELLED = {"name": "blocks.0.atention", "kind": "zero"}
HEADLESS = {"name": "blocks.0", "kind": "zero", "head": None}


@pytest.mark.parametrize(
    ("handler", "request_", "message"),
    [
        ("pass", {"input": {"text": "a" * 99}}, "99 tokens, but this model reads at most 32"),
        ("pass", {"input": {"text": ""}}, "the text is empty"),
        ("pass", {"input": {"texts": "a"}}, "unknown keys in the input: texts"),
        ("pass", {"input": {"text": 5}}, "text must be a text, got 5"),
        ("pass", {"input": []}, "the input must be an object"),
        ("pass", {"input": {"ids": [10**9]}}, "ids must be a list of integers"),
        ("pass", {"input": {"ids": "abc"}}, "ids must be a list of integers"),
        ("values", {"input": TEXT, "name": "nothing"}, "no value is named 'nothing'"),
        ("values", OUTPUT | {"edits": [MISSPELLED]}, "did you mean"),
        ("values", OUTPUT | {"edits": [HEADLESS]}, "numbers"),
        ("values", OUTPUT | {"without": [[1]]}, "without must be a list"),
        ("why", {"input": TEXT, "entry": ENTRY, "path": 5}, "a path must be a list"),
        ("why", {"input": TEXT, "entry": ENTRY, "path": [[-1, -1]]}, "not a term"),
        ("tokenize", {"input": "xy"}, "the input must be an object"),
        ("lesson", {"lesson": [1]}, "there is no lesson"),
        ("pass", {"input": {"text": "a", "seed": "x"}}, "seed"),
        ("values", OUTPUT | {"index": [5]}, "5 is not an index"),
        ("values", OUTPUT | {"index": "x"}, "an index needs at most 3"),
        ("values", OUTPUT | {"edits": "x"}, "edits must be a list"),
        ("values", OUTPUT | {"edits": [{"kind": "zero"}]}, "needs the name"),
        ("values", OUTPUT | {"without": ["head"]}, "without must be a list"),
        ("why", {"input": TEXT, "entry": "output[9]"}, "is not an index into it"),
        ("why", {"input": TEXT, "entry": ENTRY, "path": [[99, 0]]}, "not a term"),
        ("why", {"input": TEXT, "entry": "x", "edits": [{}]}, "passes without edits only"),
        ("ablation", {"input": TEXT, "layer": "x", "head": 0}, "there is no head 0 in 'x'"),
        ("ablation", {"input": TEXT, "layer": "blocks.0.attention"}, "there is no head None"),
        ("patch", {"clean": "a"}, "patching needs two texts"),
        ("beam", {"input": TEXT}, "beam search is shown for translators only"),
        ("beam", {"input": TEXT, "beam": 99}, "the beam size must be from 1 to 16"),
        ("lesson", {"lesson": "nothing"}, "there is no lesson 'nothing'"),
        ("worksheet", {}, "a worksheet needs a text"),
        ("change", {"input": TEXT}, "needs another pass"),
    ],
)  # fmt: skip
def test_invalid_requests_get_a_message(session, handler, request_, message):
    with pytest.raises(GlassError, match=message):
        ask(session("generate"), handler, **request_)


@pytest.mark.parametrize("image", ["not base64!", "aGVsbG8="])
def test_a_file_that_is_no_image_gets_a_message(session, image):
    with pytest.raises(GlassError, match=r"base64|cannot be read as an image"):
        ask(session("classify-images"), "pass", input={"image": image})
