"""Plots show the numbers that they are drawn from."""

import copy
from dataclasses import replace

import pytest
import torch
from matplotlib.text import Text

from cases import CASES
from glassformer import GlassError, Model, Trace
from glassformer.core import figures
from glassformer.core.i18n import language, show_whitespace
from glassformer.inspection import diagrams, draw
from glassformer.inspection.alignment import Alignment, align
from glassformer.inspection.plots import Needs, plots_needing
from glassformer.inspection.prior import lexical_prior
from glassformer.inspection.reach import read_segments
from glassformer.inspection.traced_text import trace_text
from glassformer.nn.positions import sinusoid
from inspection.test_worksheet import TEXT, TOKENIZER

NETWORK = CASES["gpt2"].network
TRACED = trace_text(NETWORK, TOKENIZER, TEXT)
CROSS = CASES["translator"].network


def image_values(chart, axes=0):
    return torch.from_numpy(chart.get_axes()[axes].images[0].get_array().data).float()


@pytest.mark.parametrize("name", plots_needing(Needs.NOTHING))
def test_every_diagram_can_be_drawn(name, tmp_path):
    draw.save(diagrams.draw_diagram(name), tmp_path / f"{name}.png")
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_waves_shows_the_positional_encoding_of_the_models():
    expected = sinusoid(torch.arange(diagrams.POSITIONS), diagrams.DIM).T
    torch.testing.assert_close(image_values(diagrams.waves()), expected)


def test_scaling_prevents_a_saturated_softmax():
    largest, slope = diagrams.softmax().get_axes()
    unscaled, divided = (line.get_ydata() for line in largest.get_lines())
    assert unscaled[-1] > 0.9
    assert max(divided) < 0.5
    unscaled, divided = (line.get_ydata() for line in slope.get_lines())
    assert unscaled[-1] < 0.1 * divided[-1]


def test_gradients_reach_the_first_layer_only_with_skips():
    axes = next(a for a in diagrams.skips(depth=12).get_axes() if "gradient" in a.get_title())
    without, with_skips = (line.get_ydata() for line in axes.get_lines())
    assert without[0] < 0.05 * without[-1]
    assert with_skips[0] > 0.1 * with_skips[-1]


def test_an_unknown_part_of_the_architecture_is_rejected():
    with pytest.raises(GlassError, match="expected one of embedding, position"):
        diagrams.architecture("motor")


@pytest.mark.parametrize("name", ["attention", "lines", "heads", "residual", "norm"])
@pytest.mark.parametrize("model", ["gpt2", "bert", "translator", "llama"])
def test_every_plot_of_a_text_can_be_drawn(name, model, tmp_path):
    traced = trace_text(CASES[model].network, TOKENIZER, TEXT)
    draw.save(getattr(draw, name)(traced), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 3000


def test_the_attention_plot_shows_the_attention_weights():
    pattern = TRACED.trace["blocks.1.attention.pattern"][0, 2]
    torch.testing.assert_close(image_values(draw.attention(TRACED, 1, 2)), pattern)
    small = draw.heads(TRACED)
    torch.testing.assert_close(image_values(small, 4 + 2), pattern)  # the second row's third


@torch.no_grad()
def test_the_last_row_of_the_lens_is_the_output_of_the_model():
    probs = image_values(draw.lens(TRACED, NETWORK, TOKENIZER))
    assert probs.shape == (2, len(TEXT))
    torch.testing.assert_close(probs[-1], TRACED.output.softmax(-1).max(-1).values)
    normal = NETWORK.norm(TRACED.trace["blocks.0"])
    first = (normal @ NETWORK.token.weight.T).softmax(-1).max(-1).values[0]
    torch.testing.assert_close(probs[0], first.detach())


def test_lines_go_from_queries_to_keys():
    pattern = TRACED.trace["blocks.1.attention.pattern"][0, 2]
    drawn = torch.zeros_like(pattern)
    for line in draw.lines(TRACED, 1, 2).get_axes()[0].get_lines():
        query, key = (round(-y) for y in line.get_ydata())
        drawn[query, key] = line.get_alpha()
    torch.testing.assert_close(drawn, pattern * (pattern > 0.02))


def test_the_residual_plot_shows_mean_norms():
    lines = draw.residual(TRACED).get_axes()[0].get_lines()
    for line, part in zip(lines, ("", ".attention", ".feedforward"), strict=True):
        sizes = [TRACED.trace[f"blocks.{i}{part}"][0].norm(dim=-1).mean() for i in range(2)]
        assert list(line.get_ydata()) == pytest.approx([float(size) for size in sizes])


def test_the_norm_plot_shows_features_before_and_after():
    before, after = draw.norm(TRACED, 1).get_axes()
    middles = lambda ax: [line.get_ydata()[0] for line in ax.get_lines()[5::7]]
    first = TRACED.trace["blocks.1.attention_residual"][0]
    second = TRACED.trace["blocks.1.feedforward_norm"][0]
    for ax, value in ((before, first), (after, second)):
        expected = [float(row.quantile(0.5)) for row in value]
        assert middles(ax) == pytest.approx(expected, abs=1e-5)


def test_the_masks_plot_shows_the_masks_of_the_models():
    axes = diagrams.masks().get_axes()
    torch.testing.assert_close(
        torch.from_numpy(axes[1].images[0].get_array().data).float(), torch.ones(16, 16).tril()
    )
    assert all(ax.images[0].get_array().data.diagonal().all() for ax in axes)


def test_a_one_hot_row_selects_a_row():
    row, table, picked = (image_values(diagrams.one_hot(), i) for i in range(3))
    torch.testing.assert_close(row @ table, picked)
    assert sorted(picked[0].tolist())[-3:] == pytest.approx([0.2, 0.3, 0.5])


def test_only_the_requested_part_is_highlighted():
    for part in ("cross", "feedforward"):
        texts = diagrams.architecture(part).get_axes()[0].texts
        boxes = [(t.get_text(), t.get_bbox_patch()) for t in texts]
        highlighted = [text for text, box in boxes if box and box.get_facecolor()[2] < 0.6]
        assert highlighted == [diagrams.LABELS[part]] * len(diagrams.BOXES[part])


def test_the_words_plot_is_a_projection_of_the_embeddings():
    axes = draw.words(TRACED, NETWORK).get_axes()[0]
    points = torch.from_numpy(axes.collections[0].get_offsets().data).float()
    assert len(points) == len(set(TEXT))
    rows = NETWORK.token.weight.detach()[[TOKENIZER.encode(c)[0] for c in dict.fromkeys(TEXT)]]
    distances = torch.cdist(rows, rows)
    projected = torch.cdist(points, points)
    assert (projected <= distances + 1e-4).all()  # a projection shortens distances


def test_alignment_and_unfolding_show_the_cross_attention(tmp_path):
    aligned = align(CROSS, TOKENIZER, TEXT, "bad")
    assert isinstance(aligned, Alignment)
    torch.testing.assert_close(image_values(draw.alignment(aligned)), aligned.pattern)
    animation = draw.unfolding(aligned)
    draw.save(animation, tmp_path / "a.gif")
    last = animation._fig.get_axes()[0].get_lines()  # after the last token
    drawn = {(round(-line.get_ydata()[0]), round(-line.get_ydata()[1])) for line in last}
    assert drawn == {tuple(at) for at in (aligned.pattern > 0.02).nonzero().tolist()}
    assert (tmp_path / "a.gif").read_bytes()[:3] == b"GIF"
    with pytest.raises(GlassError, match=r"written as \.gif"):
        draw.save(object(), tmp_path / "a.png")


def test_an_impossible_plot_is_rejected():
    recurrent = CASES["recurrent: lstm"].network
    traced = trace_text(recurrent, TOKENIZER, TEXT)
    for make, message in (
        (
            lambda: draw.attention(TRACED, 9),
            "there is no attention layer 9; available: blocks.0.attention",
        ),
        (lambda: draw.lines(TRACED, 0, 9), "there is no head 9"),
        (lambda: draw.norm(TRACED, 5), "no norm in block 5; available: blocks.0, blocks.1"),
        (lambda: draw.heads(traced), "no attention layers"),
        (
            lambda: draw.lens(trace_text(CROSS, TOKENIZER, TEXT), CROSS, TOKENIZER),
            "the logit lens needs a model with one stack of blocks",
        ),
        (lambda: draw.words(trace_text(NETWORK, TOKENIZER, "a"), NETWORK), "three different"),
    ):
        with pytest.raises(GlassError, match=message):
            make()


@pytest.mark.parametrize("name", plots_needing(Needs.TEXT, Needs.TRANSLATION))
def test_a_model_draws_every_plot_by_name(name):
    model = Model(CROSS if name in ("alignment", "unfolding") else NETWORK, TOKENIZER)
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
    if name == "unfolding":  # it has a frame for each generated token
        words = model.translate("the")[:3]
        chart = draw.unfolding(model.align("the", words))
    else:
        chart = model.draw(name, text, layer=layer, head=1)
    if name == "unfolding":
        assert chart._repr_html_().startswith("<img")
    else:
        assert chart._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(GlassError, match="unknown plot 'attentoin'; did you mean 'attention"):
        model.draw("attentoin", TEXT)


def test_a_character_without_a_glyph_is_shown_as_its_code_point(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FONTS", ())
    figures.installed_fonts.cache_clear()
    figures.figure_class.cache_clear()
    try:
        chart, axes = figures.subplots(figsize=(3, 2))
        axes.set_title("三 a $x")
        axes.set_yscale("log")
        axes.plot([1, 1000])
        axes.set_xticks([0, 1], ["四", "b"])
        drawn = []
        set_text = Text.set_text
        monkeypatch.setattr(Text, "set_text", lambda t, s: (drawn.append(s), set_text(t, s))[1])
        for name in ("a.png", "a.pdf"):
            with pytest.warns(UserWarning, match="no installed font has 三"):
                draw.save(chart, tmp_path / name)
        token = language.set("zh")
        try:
            with pytest.warns(UserWarning, match="已安装的字体都不含 三"):
                draw.save(chart, tmp_path / "a.png")
        finally:
            language.reset(token)
        assert {"⟨4e09⟩ a $x", "⟨56db⟩"} <= set(drawn)
        assert [t.get_text() for t in axes.get_xticklabels()] == ["四", "b"]
        assert axes.get_title() == "三 a $x"
        drawn.clear()
        chart.missing.clear()
        draw.save(chart, tmp_path / "a.svg")  # text, not paths
        assert "三 a $x" in (tmp_path / "a.svg").read_text()
        assert not any("⟨4e09⟩" in str(text) for text in drawn)
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
