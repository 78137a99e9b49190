"""Plots show the numbers that they are drawn from."""

import copy
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from matplotlib.text import Text

from cases import CASES
from glassformer import GlassError, Model, Trace
from glassformer.cli import glass
from glassformer.core import figures
from glassformer.core.i18n import language, show_whitespace
from glassformer.inspection import draw
from glassformer.inspection.alignment import Alignment, align
from glassformer.inspection.pictures import (
    architecture,
    attention,
    connections,
    counting,
    features,
    folding,
    influence,
    masks,
    positions,
    self_attention,
    sizes,
    skips,
    softmax,
    unfolding,
)
from glassformer.inspection.pictures.prior import lexical_prior
from glassformer.inspection.pictures.reach import read_segments
from glassformer.inspection.plots import PLOTS, Needs, draw_diagram, plots_needing
from glassformer.inspection.traced_text import trace_text
from glassformer.nn.masks import full
from glassformer.nn.positions import sinusoid
from inspection.test_worksheet import TEXT, TOKENIZER

NETWORK = CASES["gpt2"].network
TRACED = trace_text(NETWORK, TOKENIZER, TEXT)
CROSS = CASES["translator"].network


def image_values(chart, axes=0):
    return torch.from_numpy(chart.get_axes()[axes].images[0].get_array().data).float()


@pytest.fixture
def chinese():
    token = language.set("zh")
    yield
    language.reset(token)


VARIANTS = [
    *(
        (name, {"depth": 4} if name == "skips" else {})  # a small network, which trains quickly
        for name in plots_needing(Needs.NOTHING, Needs.OPTIONAL_MODEL)
    ),
    *(("product", {"kind": kind}) for kind in ("dot", "films")),
    *(("markov", {"kind": kind}) for kind in ("battery", "second")),
    ("self-attention", {"kind": "plain", "token": 3}),
    ("self-attention", {"kind": "matrices"}),
    *(("folding", {"kind": kind}) for kind in ("reshape", "projections", "parameters")),
    *(("connections", {"kind": kind}) for kind in connections.TITLES if kind != "rnn"),
    *(("architecture", {"part": part}) for part in ("norm", "decoder", *architecture.ZOOMED)),
]


def texts_of(chart):
    return [text.get_text() for text in chart.findobj(Text) if text.get_text()]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_every_plot_without_a_model_can_be_drawn_in_both_languages(name, options, chinese):
    """A missing character would be drawn as its code point, and a missing glyph is a warning."""
    chart = draw_diagram(name, **options)
    assert len(chart._repr_png_()) > 5000
    assert not chart.missing
    in_chinese = texts_of(chart)
    language.set("en")
    english = draw_diagram(name, **options)
    english.draw_without_rendering()  # makes the labels of axes
    in_english = texts_of(english)
    is_chinese = lambda text: any("\u4e00" <= c <= "\u9fff" for c in text)
    assert any(map(is_chinese, in_chinese))
    assert not any(map(is_chinese, in_english))
    assert len(in_chinese) == len(in_english)
    phrases = {
        text for text in in_english if len(re.findall("[a-z]{2,}", text)) > 2 and "&" not in text
    }
    assert not phrases & {*in_chinese}


def test_every_command_on_the_page_of_pictures_is_valid(tmp_path, monkeypatch):
    """Those without a run also name a variant that the test above draws."""
    page = Path(__file__).parents[2] / "docs" / "pictures.md"
    commands = set(re.findall(r"`glass draw ([^`]+)`", page.read_text(encoding="utf-8")))
    assert len(commands) > 40
    monkeypatch.chdir(tmp_path)
    drawn = []
    record = lambda *names, **chosen: drawn.append((*names, chosen))
    monkeypatch.setattr("glassformer.inspection.plots.draw_diagram", record)
    monkeypatch.setattr("glassformer.inspection.draw.save", lambda chart, file: None)
    monkeypatch.setattr("glassformer.api.load", lambda run: SimpleNamespace(draw=record))
    for command in commands:
        words = command.replace("RUN", ".").split()
        result = CliRunner().invoke(glass, ["draw", *words])
        assert result.exit_code == 0, command + result.output
    parts = {*architecture.ZOOMED, *architecture.STACKS, "embedding", "position", "logits",
             "feedforward", "norm", "cross", "softmax", None}  # fmt: skip
    kinds = [(name, options["kind"]) for name, options in VARIANTS if "kind" in options]
    for name, *_, chosen in drawn:
        assert chosen.get("part") in parts
        if chosen.get("kind"):
            assert (name, chosen["kind"]) in kinds


def test_waves_shows_the_positional_encoding_of_the_models():
    expected = sinusoid(torch.arange(positions.POSITIONS), positions.DIM).T
    torch.testing.assert_close(image_values(positions.waves()), expected)


def test_scaling_prevents_a_saturated_softmax():
    largest, slope, _, _, _ = softmax.softmax().get_axes()
    unscaled, divided = (line.get_ydata() for line in largest.get_lines())
    assert unscaled[-1] > 0.9
    assert max(divided) < 0.5
    unscaled, divided = (line.get_ydata() for line in slope.get_lines())
    assert unscaled[-1] < 0.1 * divided[-1]


def test_gradients_reach_the_first_layer_only_with_skips():
    axes = next(a for a in skips.skips(depth=12).get_axes() if "gradient" in a.get_title())
    without, with_skips = (line.get_ydata() for line in axes.get_lines())
    assert without[0] < 0.05 * without[-1]
    assert with_skips[0] > 0.1 * with_skips[-1]


def test_an_unknown_part_of_the_architecture_is_rejected():
    with pytest.raises(GlassError, match="expected one of embedding, position"):
        architecture.architecture("motor")


@pytest.mark.parametrize("name", ["attention", "lines", "heads", "residual", "norm"])
@pytest.mark.parametrize("model", ["gpt2", "bert", "translator", "llama"])
def test_every_plot_of_a_text_can_be_drawn(name, model, tmp_path):
    traced = trace_text(CASES[model].network, TOKENIZER, TEXT)
    draw.save(PLOTS[name].draw(traced), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 3000


def test_the_attention_plot_shows_the_attention_weights():
    pattern = TRACED.trace["blocks.1.attention.pattern"][0, 2]
    torch.testing.assert_close(image_values(attention.attention(TRACED, 1, 2)), pattern)
    small = attention.heads(TRACED)
    torch.testing.assert_close(image_values(small, 4 + 2), pattern)  # the second row's third


@torch.no_grad()
def test_the_last_row_of_the_lens_is_the_output_of_the_model():
    probs = image_values(features.lens(TRACED, NETWORK, TOKENIZER))
    assert probs.shape == (2, len(TEXT))
    torch.testing.assert_close(probs[-1], TRACED.output.softmax(-1).max(-1).values)
    normal = NETWORK.norm(TRACED.trace["blocks.0"])
    first = (normal @ NETWORK.token.weight.T).softmax(-1).max(-1).values[0]
    torch.testing.assert_close(probs[0], first.detach())


def test_lines_go_from_queries_to_keys():
    pattern = TRACED.trace["blocks.1.attention.pattern"][0, 2]
    drawn = torch.zeros_like(pattern)
    for line in attention.lines(TRACED, 1, 2).get_axes()[0].get_lines():
        query, key = (round(-y) for y in line.get_ydata())
        drawn[query, key] = line.get_alpha()
    torch.testing.assert_close(drawn, pattern * (pattern > 0.02))


def test_the_residual_plot_shows_mean_norms():
    lines = features.residual(TRACED).get_axes()[0].get_lines()
    for line, part in zip(lines, ("", ".attention", ".feedforward"), strict=True):
        sizes = [TRACED.trace[f"blocks.{i}{part}"][0].norm(dim=-1).mean() for i in range(2)]
        assert list(line.get_ydata()) == pytest.approx([float(size) for size in sizes])


def test_the_norm_plot_shows_features_before_and_after():
    before, after = features.norm(TRACED, 1).get_axes()
    middles = lambda ax: [line.get_ydata()[0] for line in ax.get_lines()[5::7]]
    first = TRACED.trace["blocks.1.attention_residual"][0]
    second = TRACED.trace["blocks.1.feedforward_norm"][0]
    for ax, value in ((before, first), (after, second)):
        expected = [float(row.quantile(0.5)) for row in value]
        assert middles(ax) == pytest.approx(expected, abs=1e-5)


def test_the_masks_plot_shows_the_masks_of_the_models():
    axes = masks.masks().get_axes()
    torch.testing.assert_close(
        torch.from_numpy(axes[1].images[0].get_array().data).float(), torch.ones(16, 16).tril()
    )
    assert all(ax.images[0].get_array().data.diagonal().all() for ax in axes)


def test_a_one_hot_row_selects_a_row():
    images = counting.one_hot().get_axes()[0].images
    identity, row, table, picked = (torch.from_numpy(i.get_array().data).float() for i in images)
    torch.testing.assert_close(identity, torch.eye(7))
    torch.testing.assert_close(row @ table, picked)
    assert sorted(picked[0].tolist())[-3:] == pytest.approx([0.2, 0.3, 0.5])


def test_only_the_requested_part_is_highlighted():
    for part in ("cross", "feedforward"):
        axes = architecture.architecture(part).get_axes()[0]
        boxes = [box for box in axes.patches if box.get_facecolor()[2] < 0.6]
        inside = lambda text, box: box.get_extents().contains(*text.get_window_extent().p0)
        highlighted = [t.get_text() for b in boxes for t in axes.texts if inside(t, b)]
        expected = [
            label for boxes in architecture.COLUMNS.values() for n, label in boxes if n == part
        ]
        assert len(expected) == (1 if part == "cross" else 2)
        assert highlighted == expected


def test_the_words_plot_is_a_projection_of_the_embeddings():
    axes = features.words(TRACED, NETWORK).get_axes()[0]
    points = torch.from_numpy(axes.collections[0].get_offsets().data).float()
    assert len(points) == len(set(TEXT))
    rows = NETWORK.token.weight.detach()[[TOKENIZER.encode(c)[0] for c in dict.fromkeys(TEXT)]]
    distances = torch.cdist(rows, rows)
    projected = torch.cdist(points, points)
    assert (projected <= distances + 1e-4).all()  # a projection shortens distances


def test_the_alignment_plot_shows_the_cross_attention(tmp_path):
    aligned = align(CROSS, TOKENIZER, TEXT, "bad")
    assert isinstance(aligned, Alignment)
    torch.testing.assert_close(image_values(attention.alignment(aligned)), aligned.pattern)
    with pytest.raises(GlassError, match=r"written as \.gif"):
        draw.save(object(), tmp_path / "a.png")


def lines_of(animation):
    """The strong lines in the current frame: token, key and layer, by color."""
    lines = [line for line in animation._fig.get_axes()[0].get_lines() if line.get_gid()]
    return {
        color: {tuple(map(int, line.get_gid().split())) for line in lines
                if line.get_color() == color and line.get_alpha() > 0.14}
        for color in ("C0", "C1")
    }  # fmt: skip


def test_unfolding_shows_the_encoder_by_layer_and_the_decoder_by_token(tmp_path):
    traced = trace_text(CROSS, TOKENIZER, TEXT, "*.pattern", target="ba")
    animation = unfolding.unfolding(traced, TOKENIZER)
    draw.save(animation, tmp_path / "a.gif")
    assert (tmp_path / "a.gif").read_bytes()[:3] == b"GIF"
    depth = len(CROSS.encoder)
    assert list(animation.frame_seq) == list(range(depth + 3))  # the start token, b and a

    animation._func(1)  # the second layer of the encoder
    mean = traced.trace["encoder.1.attention.pattern"][0].mean(dim=0)
    at = {(t, s, 1) for t, s in (mean > unfolding.MIN_WEIGHT).nonzero().tolist()}
    assert lines_of(animation) == {"C0": at, "C1": set()}
    animation._func(depth + 2)  # the last token of the decoder
    lines = lines_of(animation)
    for color, layer_name in (("C0", "attention"), ("C1", "cross")):
        at = set()
        for layer in range(len(CROSS.decoder)):
            row = traced.trace[f"decoder.{layer}.{layer_name}.pattern"][0].mean(dim=0)[2]
            at |= {(2, int(s), layer) for s in (row > unfolding.MIN_WEIGHT).nonzero()}
        assert lines[color] == at != set()


def test_unfolding_of_a_language_model_goes_token_by_token():
    animation = unfolding.unfolding(TRACED, TOKENIZER)
    assert len(list(animation.frame_seq)) == len(TEXT)
    animation._func(3)
    animation._draw_was_started = True  # or it warns that it was never shown
    assert {token for token, _, _ in lines_of(animation)["C0"]} == {3}
    bert = trace_text(CASES["bert"].network, TOKENIZER, TEXT, "*.pattern")
    by_layer = unfolding.unfolding(bert, TOKENIZER)
    by_layer._draw_was_started = True
    assert len(list(by_layer.frame_seq)) == 2  # its layers


def test_lines_of_two_heads_have_two_colors():
    axes = attention.lines(TRACED, 1, (0, 2)).get_axes()[0]
    weights = TRACED.trace["blocks.1.attention.pattern"][0]
    for color, head in (("C0", 0), ("C1", 2)):
        drawn = [
            line for line in axes.get_lines() if line.get_color() == color and line.get_alpha()
        ]
        assert len(drawn) == int((weights[head] > 0.02).sum())
    with pytest.raises(GlassError, match="there is no head 9"):
        attention.lines(TRACED, 1, (0, 9))


@pytest.mark.parametrize("model", ["gpt2", "llama", "translator", "decoder: plain, learned"])
def test_flow_shows_the_attention_of_one_token(model):
    traced = trace_text(
        CASES[model].network, TOKENIZER, TEXT, *PLOTS["flow"].patterns, strict=False
    )
    if "plain" in model:
        with pytest.raises(GlassError, match="no queries, keys and values"):
            self_attention.flow(traced, CASES[model].network)
        return
    name = next(n for n in traced.trace if n.endswith(".pattern"))
    chart = self_attention.flow(traced, CASES[model].network, head=1, token=2)
    texts = texts_of(chart)
    for weight in traced.trace[name][0, 1, 2].tolist():
        assert f"{weight:.2f}" in texts
    output = traced.trace[name.replace("pattern", "head_outputs")][0, 1, 2, :6]
    torch.testing.assert_close(image_values_of_last(chart), output[None])
    with pytest.raises(GlassError, match="there is no token 99"):
        self_attention.flow(traced, CASES[model].network, token=99)


def test_flow_of_a_long_text_shows_the_tokens_with_the_largest_weights():
    text = 3 * TEXT
    traced = trace_text(NETWORK, TOKENIZER, text)
    weights = traced.trace["blocks.0.attention.pattern"][0, 0, -1]
    texts = texts_of(self_attention.flow(traced, NETWORK))
    assert len(weights) > self_attention.MAX_TOKENS
    largest = weights.topk(self_attention.MAX_TOKENS).values
    assert all(f"{weight:.2f}" in texts for weight in largest.tolist())
    assert any(f"{self_attention.MAX_TOKENS} of {len(weights)} tokens" in t for t in texts)


def image_values_of_last(chart):
    return torch.from_numpy(chart.get_axes()[0].images[-1].get_array().data).float()


def test_each_kind_of_connection_sees_what_its_gradients_reach():
    layers = {
        "rnn": [influence.recurrence()], "birnn": [influence.both_directions()],
        "cnn": [influence.convolution(1)] * 3, "attention": [influence.attention(full)],
    }  # fmt: skip
    for kind, stack in layers.items():
        reached = influence.measure_influence(stack, connections.TOKENS, 5) > 0
        assert (
            set(reached.nonzero()[:, 0].tolist()) == connections.reachable(kind, len(stack), 5)[0]
        )


def test_shapes_are_those_of_the_paper_or_of_a_model():
    shapes = dict(sizes.list_shapes(sizes.build_paper_network()))
    assert (8, 10, 64) in shapes.values()
    assert (10, 2048) in shapes.values()
    assert list(shapes.values())[-1] == (10, 37_000)
    dim = NETWORK.config.dim
    assert (10, dim) in dict(sizes.list_shapes(NETWORK)).values()
    with pytest.raises(GlassError, match="needs a network that reads tokens"):
        sizes.list_shapes(CASES["markov"].network)


def test_shapes_leave_out_the_prior():
    cases = {name: case for name, case in CASES.items() if name in ("gpt2", "translator")}
    assert len(cases) == 2
    for name, case in cases.items():
        network = CASES[f"{name} with a prior"].network
        assert sizes.list_shapes(network) == sizes.list_shapes(case.network)
        assert network.prior is not None


def test_folding_keeps_the_numbers_of_every_head():
    images = [image_values(folding.folding("reshape"), 0)]
    assert images[0].shape == (3, 4)
    chart = folding.folding("projections")
    x, w, q = (torch.from_numpy(i.get_array().data).float() for i in chart.get_axes()[0].images)
    torch.testing.assert_close(x @ w, q)


def test_the_chain_of_a_trained_model_shows_its_next_token_probabilities():
    chart = counting.markov(network=NETWORK, tokenizer=TOKENIZER)
    (table,) = chart.get_axes()[0].images
    assert table.get_array().shape[0] == min(counting.N_STATES, TOKENIZER.vocab)
    with pytest.raises(GlassError, match="needs a language model"):
        counting.markov(network=CASES["bert"].network, tokenizer=TOKENIZER)


def test_an_impossible_plot_is_rejected():
    recurrent = CASES["recurrent: lstm"].network
    traced = trace_text(recurrent, TOKENIZER, TEXT)
    for make, message in (
        (
            lambda: attention.attention(TRACED, 9),
            "there is no attention layer 9; available: blocks.0.attention",
        ),
        (lambda: attention.lines(TRACED, 0, 9), "there is no head 9"),
        (lambda: features.norm(TRACED, 5), "no norm in block 5; available: blocks.0, blocks.1"),
        (lambda: attention.heads(traced), "no attention layers"),
        (
            lambda: features.lens(trace_text(CROSS, TOKENIZER, TEXT), CROSS, TOKENIZER),
            "the logit lens needs a model with one stack of blocks",
        ),
        (lambda: features.words(trace_text(NETWORK, TOKENIZER, "a"), NETWORK), "three different"),
    ):
        with pytest.raises(GlassError, match=message):
            make()


@pytest.mark.parametrize("name", plots_needing(Needs.TEXT, Needs.TRANSLATION))
def test_a_model_draws_every_plot_by_name(name):
    model = Model(CROSS if name == "alignment" else NETWORK, TOKENIZER)
    if name == "prior":
        with pytest.raises(GlassError, match="has no prior"):
            model.draw(name, TEXT)
        model = Model(CASES["speedrun with a prior"].network, TOKENIZER)
    layer, text = 1, TEXT
    if name == "memory":
        with pytest.raises(GlassError, match="has no memory"):
            model.draw(name, TEXT)
        model, text = Model(CASES["transformer_xl"].network, TOKENIZER), 5 * f"{TEXT} "
        with pytest.raises(GlassError, match="not more than the 32 of one segment"):
            model.draw(name, "the")
    if name == "halting":
        with pytest.raises(GlassError, match="does not choose its number of steps"):
            model.draw(name, TEXT)
        model, layer = Model(CASES["universal: True"].network, TOKENIZER), "loop"
        with pytest.raises(GlassError, match="there is no loop 1"):
            model.draw(name, TEXT, layer=1)
    if name == "unfolding":  # a short text, because each frame takes time
        text = "the"
    chart = model.draw(name, text, layer=layer, head=1)
    if name == "unfolding":
        assert chart._repr_html_().startswith("<img")
    else:
        assert chart._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(GlassError, match="unknown plot 'attentoin'; did you mean 'attention"):
        model.draw("attentoin", TEXT)


def test_the_fonts_of_the_package_cover_its_texts_and_common_chinese(monkeypatch):
    monkeypatch.setattr(figures, "FONTS", ())
    figures.installed_fonts.cache_clear()
    try:
        family, drawable = figures.installed_fonts()
    finally:
        figures.installed_fonts.cache_clear()
    assert family == ["DejaVu Sans", "Glassformer Sans SC"]
    package = Path(figures.__file__).parents[1]
    texts = [package / "locale" / "zh.json", *(package / "lessons" / "text").glob("*.zh.toml")]
    assert len(texts) > 5
    needed = {c for text in texts for c in text.read_text(encoding="utf-8") if not c.isspace()}
    rows = [bytes((a, b)) for a in range(0xB0, 0xF8) for b in range(0xA1, 0xFF)]
    needed |= {c for pair in rows for c in pair.decode("gb2312", errors="ignore")}
    assert len(needed) > 6700
    assert not {c for c in needed if ord(c) not in drawable}


def test_a_character_without_a_glyph_is_shown_as_its_code_point(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FONTS", ())
    figures.installed_fonts.cache_clear()
    figures.figure_class.cache_clear()
    try:
        chart, axes = figures.subplots(figsize=(3, 2))
        axes.set_title("龘 a $x")
        axes.set_yscale("log")
        axes.plot([1, 1000])
        axes.set_xticks([0, 1], ["龖", "b"])
        drawn = []
        set_text = Text.set_text
        monkeypatch.setattr(Text, "set_text", lambda t, s: (drawn.append(s), set_text(t, s))[1])
        for name in ("a.png", "a.pdf"):
            with pytest.warns(UserWarning, match="no installed font has 龖龘"):
                draw.save(chart, tmp_path / name)
        token = language.set("zh")
        try:
            with pytest.warns(UserWarning, match="已安装的字体都不含 龖龘"):
                draw.save(chart, tmp_path / "a.png")
        finally:
            language.reset(token)
        assert {"⟨9f98⟩ a $x", "⟨9f96⟩"} <= set(drawn)
        assert [t.get_text() for t in axes.get_xticklabels()] == ["龖", "b"]
        assert axes.get_title() == "龘 a $x"
        drawn.clear()
        chart.missing.clear()
        draw.save(chart, tmp_path / "a.svg")  # text, not paths
        assert "龘 a $x" in (tmp_path / "a.svg").read_text()
        assert not any("⟨9f98⟩" in str(text) for text in drawn)
        assert any("mathdefault" in t.get_text() for t in axes.get_yticklabels())
    finally:
        figures.installed_fonts.cache_clear()
        figures.figure_class.cache_clear()


def test_the_prior_of_a_classifier_shows_labels_and_ngrams():
    network = CASES["text_cnn with a prior"].network
    texts = {"name": "classify", "labels": ["red", "green", "blue"]}
    model = Model(network, TOKENIZER, texts)
    chart = model.draw("prior", TEXT)
    left, right = chart.get_axes()
    assert sorted(t.get_text() for t in left.get_yticklabels()) == ["blue", "green", "red"]
    ids = torch.tensor(TOKENIZER.encode(TEXT))
    ngrams = network.prior.classifier.list_ngrams(ids)
    assert len(right.patches) == min(len(ngrams), 16)
    logits = network(ids[None])[0]
    both = {t.get_text(): float(left.containers[2][i].get_width())
            for i, t in enumerate(left.get_yticklabels())}  # fmt: skip
    found = torch.tensor([both[name] for name in texts["labels"]])
    torch.testing.assert_close(found, (logits - logits.mean()).detach())


def test_the_prior_of_a_translator_shows_probabilities_and_the_alignment():
    network = CASES["speedrun_translator with a prior"].network
    traced = trace_text(network, TOKENIZER, TEXT, "prior.*", target="the cat")
    chart = lexical_prior(traced, TOKENIZER)
    top, bottom, _ = chart.get_axes()
    source = [show_whitespace(token) for token in traced.source]
    assert [label.get_text() for label in bottom.get_yticklabels()] == [*source, "<end>"]
    drawn = torch.from_numpy(bottom.images[0].get_array().data)
    torch.testing.assert_close(drawn, traced.trace["prior.alignment"][0, :-1].T.float())
    probs = traced.output.softmax(dim=-1)[:-1].gather(1, traced.inputs["ids"][0, 1:, None])[:, 0]
    heights = [float(bar.get_height()) for bar in top.containers[2]]
    torch.testing.assert_close(torch.tensor(heights), probs)
    assert len(heights) > 1


@torch.no_grad()
def test_patterns_of_segments_are_those_of_one_pass_while_the_memory_reaches():
    network = copy.deepcopy(CASES["transformer_xl"].network)
    ids = torch.randint(0, 50, (1, 12))
    with Trace(network, "*.pattern") as trace:
        network(ids)
    assert read_segments(network, ids, 5)["blocks.0.attention"][11, :5].eq(0).all()
    network.config = replace(network.config, memory=12)
    patterns = read_segments(network, ids, 5)
    assert list(patterns) == ["blocks.0.attention", "blocks.1.attention"]
    for name, pattern in patterns.items():
        torch.testing.assert_close(pattern, trace[f"{name}.pattern"][0].mean(0))
