"""Pictures show the numbers that they are drawn from."""

import pytest
import torch
from matplotlib.text import Text

from cases import CASES
from glassformer import GlassError, Model
from glassformer.core import figures
from glassformer.inspection import diagrams, draw
from glassformer.inspection.alignment import Alignment, align
from glassformer.inspection.plots import Needs, plots_needing
from glassformer.inspection.traced_text import trace_text
from glassformer.nn.positions import sinusoid
from inspection.test_worksheet import TEXT, TOKENIZER

NETWORK = CASES["gpt2"].network
READING = trace_text(NETWORK, TOKENIZER, TEXT)
CROSS = CASES["translator"].network


def shown(chart, axes=0):
    return torch.from_numpy(chart.get_axes()[axes].images[0].get_array().data).float()


@pytest.mark.parametrize("name", plots_needing(Needs.NOTHING))
def test_every_sketch_can_be_drawn(name, tmp_path):
    draw.save(diagrams.draw_diagram(name), tmp_path / f"{name}.png")
    assert (tmp_path / f"{name}.png").stat().st_size > 5000


def test_waves_are_the_positions_of_the_models():
    expected = sinusoid(torch.arange(diagrams.PLACES), diagrams.WIDTH).T
    torch.testing.assert_close(shown(diagrams.waves()), expected)


def test_dividing_keeps_shares_even_and_slopes_steep():
    largest, slope = diagrams.softmax().get_axes()
    plain, divided = (line.get_ydata() for line in largest.get_lines())
    assert plain[-1] > 0.9
    assert max(divided) < 0.5
    plain, divided = (line.get_ydata() for line in slope.get_lines())
    assert plain[-1] < 0.1 * divided[-1]


def test_gradients_reach_the_first_layer_only_with_skips():
    axes = next(a for a in diagrams.skips(depth=12).get_axes() if "gradient" in a.get_title())
    without, with_skips = (line.get_ydata() for line in axes.get_lines())
    assert without[0] < 0.05 * without[-1]
    assert with_skips[0] > 0.1 * with_skips[-1]


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(GlassError, match="the parts are embedding, position"):
        diagrams.architecture("motor")


@pytest.mark.parametrize("name", ["attention", "lines", "heads", "residual", "norm"])
@pytest.mark.parametrize("model", ["gpt2", "bert", "translator", "llama"])
def test_every_picture_of_a_text_can_be_drawn(name, model, tmp_path):
    traced = trace_text(CASES[model].network, TOKENIZER, TEXT)
    draw.save(getattr(draw, name)(traced), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 3000


def test_a_heat_map_is_the_pattern():
    pattern = READING.trace["blocks.1.attention.pattern"][0, 2]
    torch.testing.assert_close(shown(draw.attention(READING, 1, 2)), pattern)
    small = draw.heads(READING)
    torch.testing.assert_close(shown(small, 4 + 2), pattern)  # the second row's third


@torch.no_grad()
def test_the_lens_ends_with_what_the_model_says():
    probs = shown(draw.lens(READING, NETWORK, TOKENIZER))
    assert probs.shape == (2, len(TEXT))
    torch.testing.assert_close(probs[-1], READING.output.softmax(-1).max(-1).values)
    normal = NETWORK.norm(READING.trace["blocks.0"])
    first = (normal @ NETWORK.token.weight.T).softmax(-1).max(-1).values[0]
    torch.testing.assert_close(probs[0], first.detach())


def test_lines_go_from_who_reads_to_who_is_read():
    pattern = READING.trace["blocks.1.attention.pattern"][0, 2]
    drawn = torch.zeros_like(pattern)
    for line in draw.lines(READING, 1, 2).get_axes()[0].get_lines():
        reads, is_read = (round(-y) for y in line.get_ydata())
        drawn[reads, is_read] = line.get_alpha()
    torch.testing.assert_close(drawn, pattern * (pattern > 0.02))


def test_sizes_are_those_of_what_blocks_and_layers_say():
    lines = draw.residual(READING).get_axes()[0].get_lines()
    for line, part in zip(lines, ("", ".attention", ".feedforward"), strict=True):
        sizes = [READING.trace[f"blocks.{i}{part}"][0].norm(dim=-1).mean() for i in range(2)]
        assert list(line.get_ydata()) == pytest.approx([float(size) for size in sizes])


def test_a_norm_is_drawn_before_and_after():
    previous_ids, after = draw.norm(READING, 1).get_axes()
    middles = lambda ax: [line.get_ydata()[0] for line in ax.get_lines()[5::7]]
    first = READING.trace["blocks.1.attention_residual"][0]
    second = READING.trace["blocks.1.feedforward_norm"][0]
    for ax, value in ((previous_ids, first), (after, second)):
        expected = [float(row.quantile(0.5)) for row in value]
        assert middles(ax) == pytest.approx(expected, abs=1e-5)


def test_masks_are_the_rules_of_models():
    axes = diagrams.masks().get_axes()
    torch.testing.assert_close(
        torch.from_numpy(axes[1].images[0].get_array().data).float(), torch.ones(16, 16).tril()
    )
    assert all(ax.images[0].get_array().data.diagonal().all() for ax in axes)


def test_a_one_hot_row_picks_a_row():
    row, table, picked = (shown(diagrams.one_hot(), i) for i in range(3))
    torch.testing.assert_close(row @ table, picked)
    assert sorted(picked[0].tolist())[-3:] == pytest.approx([0.2, 0.3, 0.5])


def test_only_the_part_that_was_asked_for_is_lit():
    for part in ("cross", "feedforward"):
        texts = diagrams.architecture(part).get_axes()[0].texts
        lit = [t.get_text() for t in texts
               if t.get_bbox_patch() and t.get_bbox_patch().get_facecolor()[2] < 0.6]  # fmt: skip
        assert lit == [diagrams.SAYS[part]] * len(diagrams.BOXES[part])


def test_words_lie_where_their_embeddings_differ_most():
    axes = draw.words(READING, NETWORK).get_axes()[0]
    spots = torch.from_numpy(axes.collections[0].get_offsets().data).float()
    assert len(spots) == len(set(TEXT))
    rows = NETWORK.token.weight.detach()[[TOKENIZER.encode(c)[0] for c in dict.fromkeys(TEXT)]]
    far = torch.cdist(rows, rows)
    assert (torch.cdist(spots, spots) <= far + 1e-4).all()  # a shadow is no longer than the thing


def test_a_translation_unfolds(tmp_path):
    found = align(CROSS, TOKENIZER, TEXT, "bad")
    assert isinstance(found, Alignment)
    torch.testing.assert_close(shown(draw.alignment(found)), found.pattern)
    moves = draw.unfolding(found)
    draw.save(moves, tmp_path / "a.gif")
    last = moves._fig.get_axes()[0].get_lines()  # all that was read, at the end
    drawn = {(round(-line.get_ydata()[0]), round(-line.get_ydata()[1])) for line in last}
    assert drawn == {tuple(at) for at in (found.pattern > 0.02).nonzero().tolist()}
    assert (tmp_path / "a.gif").read_bytes()[:3] == b"GIF"
    with pytest.raises(GlassError, match=r"written as \.gif"):
        draw.save(object(), tmp_path / "a.png")


def test_what_cannot_be_drawn_is_said():
    recurrent = CASES["recurrent: lstm"].network
    traced = trace_text(recurrent, TOKENIZER, TEXT)
    for make, message in (
        (
            lambda: draw.attention(READING, 9),
            "there is no attention 9; there are blocks.0.attention",
        ),
        (lambda: draw.lines(READING, 0, 9), "there is no head 9"),
        (lambda: draw.norm(READING, 5), "norms in blocks.0, blocks.1, not in 5"),
        (lambda: draw.heads(traced), "no attention to look at"),
        (
            lambda: draw.lens(trace_text(CROSS, TOKENIZER, TEXT), CROSS, TOKENIZER),
            "a lens needs blocks",
        ),
        (lambda: draw.words(trace_text(NETWORK, TOKENIZER, "a"), NETWORK), "three different"),
    ):
        with pytest.raises(GlassError, match=message):
            make()


@pytest.mark.parametrize("name", plots_needing(Needs.TEXT, Needs.TRANSLATION))
def test_a_model_draws_by_name(name):
    model = Model(CROSS if name in ("alignment", "unfolding") else NETWORK, TOKENIZER)
    if name == "unfolding":  # one picture for each token that it writes
        words = model.translate("the")[:3]
        chart = draw.unfolding(model.align("the", words))
    else:
        chart = model.draw(name, TEXT, layer=1, head=1)
    if name == "unfolding":
        assert chart._repr_html_().startswith("<img")
    else:
        assert chart._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(GlassError, match="unknown plot 'attentoin'; did you mean 'attention"):
        model.draw("attentoin", TEXT)


def test_a_character_that_no_font_has_is_shown_by_its_number(tmp_path, monkeypatch):
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
        assert {"⟨4e09⟩ a $x", "⟨56db⟩"} <= set(drawn)
        assert [t.get_text() for t in axes.get_xticklabels()] == ["四", "b"]
        assert axes.get_title() == "三 a $x"
        drawn.clear()
        chart.missing.clear()
        draw.save(chart, tmp_path / "a.svg")  # a text stays a text
        assert "三 a $x" in (tmp_path / "a.svg").read_text()
        assert not any("⟨4e09⟩" in str(text) for text in drawn)
        assert any("mathdefault" in t.get_text() for t in axes.get_yticklabels())
    finally:
        figures.installed_fonts.cache_clear()
        figures.figure_class.cache_clear()
