"""The page in a real Chromium: what it shows equals torch, by keyboard alone, in both languages."""

import json
import re
import shutil
import time

import pytest
import torch

from glassformer.generate.sampling import Sampling, filter_probs
from glassformer.serve.app import PAGE
from glassformer.serve.export import export_page
from glassformer.serve.subject import read_subject

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium")

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
TEXT = "the cat sat on the mat"
ALL_TEXTS = re.compile(r'\b(?:t|label)\(\s*"((?:[^"\\]|\\.)*)"')
WAIT = 60_000  # milliseconds: only a limit for a page that never answers


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """Opens an address; at the end, the page must have had no errors and asked only its server."""
    contexts, problems = [], []

    def open_at(url, size="desktop", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        local = ("http://127.0.0.1", "file:", "data:", "blob:")
        page.on("request", lambda r: r.url.startswith(local) or problems.append(r.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None
        )
        page.goto(url)
        wait_until_shown(page)
        contexts.append(context)
        page.problems = problems
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def addresses(session, start_server):
    started = {}

    def find(name):
        if name not in started:
            started[name] = start_server(session(name))
        return started[name]

    return find


IS_SHOWN = """() => document.querySelector('main').children.length > 0 &&
    !document.body.innerText.match(/Loading …|正在加载/)"""


def wait_until_shown(page):
    wait_for(page, IS_SHOWN)
    page.wait_for_load_state("networkidle")
    wait_for(page, IS_SHOWN)


def wait_for(page, condition, arg=None):
    """Wait for a function of the page; Playwright's own waits need eval, which the page forbids."""
    end = time.monotonic() + WAIT / 1000
    while not page.evaluate(condition, arg):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def go(page, hash):
    page.evaluate("hash => { location.hash = hash }", hash)
    page.wait_for_timeout(50)
    wait_until_shown(page)


def read_table(page, selector="main table"):
    """The cells of the first table as numbers."""
    rows = page.locator(f"{selector} >> nth=0").evaluate(
        "table => [...table.rows].slice(1).map(r => [...r.cells].slice(1).map(c => c.innerText))"
    )
    return [[to_number(cell) for cell in row] for row in rows]


def to_number(text):
    text = text.strip().replace("−", "-").replace("∞", "inf")
    return float(text)


def shown(value):
    """A number as the page shows it: four significant digits."""
    return float(f"{value:.4g}") if 1e-4 <= abs(value) < 1e6 else float(f"{value:.3e}")


def test_numbers_of_a_value_equal_those_of_torch(session, addresses, open_page):
    opened = session("generate")
    name = "blocks.1.attention.scores"
    page = open_page(f"{addresses('generate')}#flow?text={TEXT}&stage={name}&head=1")
    found = read_table(page)
    value = opened.find_pass({"input": {"text": TEXT}}).value(name)[0, 1]
    expected = [[shown(x) for x in row[:14]] for row in value[:14].tolist()]
    assert found == expected
    assert any(x == float("-inf") for row in found for x in row)


def test_a_number_is_explained_by_terms_that_add_up_to_it(addresses, open_page):
    page = open_page(f"{addresses('generate')}#flow?text={TEXT}&stage=output")
    page.locator("td button.number >> nth=0").click()
    page.get_by_text("Recomputed from all").wait_for()
    card = page.locator("section.card", has_text="Where this number came from")
    value = to_number(card.locator("b").inner_text())
    recomputed = card.locator("p.note", has_text="Recomputed").inner_text()
    assert to_number(recomputed.rpartition(":")[2]) == value
    rows = card.locator("tr").evaluate_all(
        "rows => rows.slice(1).map(r => [...r.cells].slice(1).map(c => c.innerText))"
    )
    assert len(rows) == 16
    products = [to_number(row[-1]) for row in rows]
    assert sum(products) == pytest.approx(value, abs=2e-3)
    assert [to_number(a) * to_number(b) for a, b, _ in rows] == pytest.approx(products, abs=2e-3)
    card.locator("td button.number >> nth=0").click()  # on to the largest term
    page.locator("button", has_text="← output").wait_for()


def test_attention_shows_every_head_and_the_mask(session, addresses, open_page):
    page = open_page(f"{addresses('generate')}#attention?text={TEXT}")
    assert page.locator("button.thumbnail").count() == 4
    assert page.get_by_text("Gray cells are masked").is_visible()
    page.locator("button.thumbnail >> nth=3").click()
    wait_until_shown(page)
    assert "head=1" in page.url
    pattern = session("generate").find_pass({"input": {"text": TEXT}})
    weights = pattern.value("blocks.1.attention.pattern")[0, 1, -1]
    bars = page.locator("ol.bars >> nth=0").locator(".number").all_inner_texts()
    expected = weights.topk(8).values
    assert [float(bar.strip("<>%")) for bar in bars] == pytest.approx(
        (100 * expected).tolist(), abs=0.06
    )


COUNT_ADDED = """count => new URLSearchParams(location.hash.split("?")[1])
    .get("added")?.split(",").length === count"""


def test_the_next_token_can_be_stepped_and_taken_back(session, addresses, open_page):
    opened = session("generate")
    page = open_page(f"{addresses('generate')}#next?text={TEXT}&temperature=0")
    ids = read_subject(opened.model, {"text": TEXT}).inputs["ids"]
    with torch.no_grad():
        logits = opened.model.network(ids)[0, -1]
    best = opened.vocabulary[int(logits.argmax())]
    for count in (1, 2):
        page.get_by_role("button", name="Step").click()
        wait_for(page, COUNT_ADDED, count)
    assert page.locator("mark").text_content().startswith(best)
    page.get_by_role("button", name="Back").click()
    wait_for(page, COUNT_ADDED, 1)
    assert page.locator("mark").text_content() == best
    slider = page.get_by_label("temperature")
    slider.fill("1")
    probs = page.locator("ol.bars >> nth=0").locator(".number").all_inner_texts()
    assert len(probs) > 5
    assert "temperature=1" in page.url


def test_switching_a_head_off_changes_the_prediction_as_in_a_trace(session, addresses, open_page):
    page = open_page(f"{addresses('generate')}#edit?text={TEXT}")
    assert page.get_by_text("Attention weights alone do not explain").is_visible()
    before = page.locator("ol.bars >> nth=0").locator(".number").all_inner_texts()
    assert before[::2] == before[1::2]
    page.get_by_role("button", name="whole layer").first.click()
    wait_until_shown(page)
    note = page.locator("p.note", has_text="Kullback").inner_text()
    opened = session("generate")
    edits = [{"name": "blocks.0.attention", "kind": "zero"}]
    passes = [opened.find_pass({"input": {"text": TEXT}, "edits": e}) for e in ([], edits)]
    largest = (passes[0].output - passes[1].output).abs().max()
    assert to_number(note.rstrip(".").rpartition(" ")[2]) == pytest.approx(float(largest), rel=1e-2)
    page.get_by_role("button", name="Reset").click()
    page.wait_for_load_state("networkidle")
    assert "off=" not in page.url


SAMPLED_PROBS = """async ([logits, settings]) =>
    [...(await import("./next.js")).sampledProbs(logits, settings)]"""


def test_sampling_in_the_page_equals_that_of_generation(addresses, open_page):
    page = open_page(f"{addresses('generate')}#walk")
    logits = torch.randn(300, generator=torch.Generator().manual_seed(0)) * 3
    for temperature, top_k, top_p in ((1, 0, 1), (0.7, 20, 1), (1.3, 0, 0.6), (0.9, 50, 0.5)):
        settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        found = page.evaluate(SAMPLED_PROBS, [logits.tolist(), settings])
        probs = (logits[None] / temperature).softmax(dim=-1)
        expected = filter_probs(probs, Sampling(temperature, top_k=top_k, top_p=top_p))[0]
        torch.testing.assert_close(
            torch.tensor(found, dtype=torch.float32), expected / expected.sum()
        )


def test_a_late_answer_does_not_replace_a_newer_one(addresses, open_page):
    page = open_page(f"{addresses('generate')}#edit?text={TEXT}")
    delayed = []

    def answer(route):
        if not delayed:  # only the first request
            delayed.append(route)
        else:
            route.continue_()

    page.route("**/api/change", answer)
    page.get_by_role("button", name="mask").click()
    wait_for(page, "() => location.hash.includes('without=mask')")
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="feed-forward").first.click()
    text = page.locator("p.note", has_text="Kullback").inner_text()
    delayed[0].continue_()
    page.wait_for_load_state("networkidle")
    assert page.locator("p.note", has_text="Kullback").inner_text() == text


def test_beam_search_is_drawn_as_a_tree(addresses, open_page):
    page = open_page(f"{addresses('translate')}#next?text=one two 3")
    assert page.locator(".tree rect").count() > 10
    assert page.locator("ol li").count() >= 3


def test_an_exercise_checks_the_number_that_is_typed(session, addresses, open_page):
    page = open_page(f"{addresses('generate')}#walk?lesson=attention&exercise=1")
    for _ in range(12):
        if page.locator("input.exercise").count():
            break
        page.get_by_role("button", name="Next →").click()
        wait_until_shown(page)
    blank = page.locator("input.exercise >> nth=0")
    blank.fill("123456")
    blank.blur()
    assert blank.get_attribute("aria-invalid") == "true"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_view_of_every_task_is_shown_without_overflow(addresses, open_page, size, lang):
    names = ("generate", "translate") if size == "phone" or lang == "zh" else tuple(RUN_VIEWS)
    for name in names:
        page = open_page(f"{addresses(name)}#flow?lang={lang}", size)
        views = page.locator("nav a").count()
        assert views == RUN_VIEWS[name], name
        for index in range(views):
            page.locator("nav a").nth(index).click()
            page.wait_for_timeout(50)
            wait_until_shown(page)
            assert page.locator(".failure").count() == 0, page.url
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), page.url
            assert page.evaluate("document.activeElement !== document.body"), "the focus is lost"
            assert len(page.locator("main").inner_text()) > 40
            if lang == "zh":
                assert re.search("[\u4e00-\u9fff]{2}", page.locator("main").inner_text())
        page.close()


RUN_VIEWS = {  # how many views a run has
    "generate": 8, "prior": 8, "xl": 8, "universal": 8, "markov": 4, "classify": 6, "translate": 7,
    "fill-mask": 7, "summarize": 8, "recommend": 4, "recommend-next": 5, "classify-images": 5,
    "paint": 5,
}  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_rule_of_axe_is_broken(addresses, open_page, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(f"{addresses('generate')}#flow?text={TEXT}", color_scheme=theme)
    for view in ("flow", "attention", "next", "edit", "lens", "patch", "training", "walk"):
        go(page, f"{view}?text={TEXT}")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        result = axe.run(page)
        assert result.violations_count == 0, f"{view}: {result.generate_report()}"


def test_every_view_can_be_reached_and_used_by_keyboard_alone(addresses, open_page):
    page = open_page(f"{addresses('generate')}#flow?text={TEXT}&stage=output")
    labels = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        label = page.evaluate("document.activeElement.innerText || document.activeElement.tagName")
        labels.add(label.split("\n")[0])
        if label == "Attention":
            break
    assert {"Look", "Flow", "Attention"} <= labels
    page.keyboard.press("Enter")
    page.wait_for_timeout(50)
    wait_until_shown(page)
    assert "#attention" in page.url
    page.locator("heat-map[tabindex] >> nth=0").focus()
    before = page.locator("h3", has_text="attends to").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator("h3", has_text="attends to").inner_text() != before


def test_a_reload_and_the_back_button_return_to_the_same_view(addresses, open_page):
    page = open_page(f"{addresses('generate')}#flow?text={TEXT}")
    go(page, f"flow?text={TEXT}&stage=blocks.1.attention.pattern&head=1&cell=3,2")
    text = page.locator("main").inner_text()
    page.reload()
    wait_until_shown(page)
    wait_for(page, "text => document.querySelector('main').innerText === text", text)
    page.locator("nav a", has_text="Lens").click()
    wait_until_shown(page)
    page.go_back()
    page.wait_for_timeout(50)
    wait_until_shown(page)
    assert "blocks.1.attention.pattern" in page.url


def test_two_users_at_once_see_their_own_texts(addresses, open_page):
    pages = [open_page(f"{addresses('generate')}#flow?text={text}") for text in ("a cat", "a dog")]
    for page, word in zip(pages, ("c", "d"), strict=True):
        go(page, page.url.partition("#")[2])
        tokens = page.locator(".token").all_inner_texts()
        assert any(token.startswith(word) for token in tokens)


def test_errors_are_shown_where_they_belong(addresses, open_page):
    page = open_page(f"{addresses('generate')}#flow?text={'x' * 80}")
    assert "this model reads at most 32" in page.locator(".failure").inner_text()
    page.problems[:] = [p for p in page.problems if "400" not in p]
    go(page, f"flow?text={TEXT}")
    page.route("**/api/*", lambda route: route.abort())
    go(page, "lens?text=the dog")
    assert "it was stopped" in page.locator(".failure").inner_text()
    page.problems.clear()  # Chromium reports each failed request


def test_an_exported_page_works_from_disk(session, open_page, tmp_path):
    text, omitted = export_page(session("generate"))
    assert omitted == []
    file = tmp_path / "page.html"
    file.write_text(text)
    page = open_page(f"file://{file}")
    for index in range(page.locator("nav a").count()):
        page.locator("nav a").nth(index).click()
        page.wait_for_timeout(50)
        wait_until_shown(page)
        assert page.locator(".failure").count() == 0, page.url
    go(page, "flow?stage=blocks.0.attention.q&head=1")
    assert page.locator("main table").count() >= 1
    go(page, "edit")
    assert page.get_by_text("not part of an exported file").is_visible()


def test_a_large_export_says_what_it_left_out(session, monkeypatch):
    monkeypatch.setattr("glassformer.serve.export.MAX_MEGABYTES", 0.75)
    text, omitted = export_page(session("generate"))
    assert len(text) < 1.2e6
    assert "output" in omitted or any("walk" in name for name in omitted)
    assert json.dumps(omitted[0]) in text


def test_every_text_of_the_page_has_a_chinese_translation():
    used = {text for file in PAGE.glob("*.js") for text in ALL_TEXTS.findall(file.read_text())}
    catalog = json.loads((PAGE / "zh.json").read_text(encoding="utf-8"))
    assert len(used) > 100
    assert used == catalog.keys()
    for english, chinese in catalog.items():
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese))
