"""ROUGE, the extractive stage, the lead sentence, and the batches and metrics of summarize."""

import json
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer

from glassformer import GlassError, train
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.data.sample import reports
from glassformer.generate.sampling import GREEDY
from glassformer.registry import MODELS
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.extract import extract, rank_sentences, shorten
from glassformer.tasks.rouge import longest_common_subsequence, mean_rouge, rouge
from glassformer.tasks.summarize import SummarizeCodec, pad_documents, to_continuation
from glassformer.tasks.task import Artifacts
from glassformer.text.plain import Words
from glassformer.text.sentences import split_sentences, split_words
from glassformer.text.subword import BPE, WordPiece
from glassformer.text.tf_idf import dot, weigh
from glassformer.text.tokenizer import SEPARATOR

WORDS = "the cat sat on a mat . dog lay log".split()
PAIRS = [
    {"id": i, "document": f"Dear {i} . The {a} is {b} . Bye .", "summary": f"{a} {b}"}
    for i, (a, b) in enumerate(combinations("red blue cold warm new old big small".split(), 2))
]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, PAIRS)))
    return path


def open_task(path, folder, reporter=None, **options):
    request = DataRequest(files=(path,) if path else (), **options)
    artifacts = TASKS["summarize"].prepare(request, folder, reporter or NullReporter())
    return TASKS["summarize"].open(artifacts, folder)


# --- ROUGE ----------------------------------------------------------------------------------------


def test_rouge_of_worked_examples():
    assert rouge("the cat sat", "The cat sat!") == (1, 1, 1)
    # 3 of 4 and 3 of 3 words; 1 of 3 and 1 of 2 bigrams; a common subsequence of 2 words
    assert rouge("police kill the gunman", "kill police the") == pytest.approx((6 / 7, 0, 4 / 7))
    assert rouge("a a a", "a a b") == pytest.approx((2 / 3, 1 / 2, 2 / 3))
    assert rouge("", "a") == rouge("a", "") == rouge("...", "?") == (0, 0, 0)
    assert rouge("北京的天气", "北京天气") == pytest.approx((8 / 9, 4 / 7, 8 / 9))
    rows = [{"prediction": "a", "target": "a"}, {"prediction": "b", "target": "a"}]
    assert mean_rouge(rows) == {"rouge_1": 0.5, "rouge_2": 0, "rouge_l": 0.5}


def plain_longest(first, second):
    """The longest of all subsequences of the first text that are in the second one."""
    for size in range(len(first), 0, -1):
        for chosen in combinations(first, size):
            words = iter(second)
            if all(word in words for word in chosen):
                return size
    return 0


def test_the_longest_common_subsequence_equals_a_search_over_all():
    rng = np.random.default_rng(0)
    for _ in range(100):
        first, second = (rng.choice([*"abcd"], rng.integers(0, 8)).tolist() for _ in range(2))
        assert longest_common_subsequence(first, second) == plain_longest(first, second)


def test_rouge_equals_the_package_rouge_score():
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    rng = np.random.default_rng(0)
    words = [*"The cat; sat-on (a) Mat's dog_x 12 3.5 Ünder naïve ... U.S. e-mail".split(), ""]
    for _ in range(300):
        first, second = (" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(2))
        expected = [score.fmeasure for score in scorer.score(second, first).values()]
        assert rouge(first, second) == pytest.approx(expected)


# --- sentences and the extractive stage -----------------------------------------------------------


def test_sentences_join_to_the_text():
    text = " One. Two!\n\nThree is 3.5 long?  四是。五！ six\n"
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    expected = ["One.", "Two!", "Three is 3.5 long?", "四是。", "五！", "six"]
    assert [sentence.strip() for sentence in sentences] == expected
    assert split_sentences(" \n ") == []
    assert split_words("Don't stop 东京!") == ["don", "t", "stop", "东", "京"]


def test_tf_idf_vectors_have_length_one_and_rare_words_weigh_more():
    vector = weigh(Counter("a a b c".split()), {"a": 1.0, "b": 3.0})
    assert dot(vector, vector) == pytest.approx(1)
    assert vector["b"] / vector["a"] == pytest.approx(1.5)
    assert "c" not in vector


def test_sentences_are_ranked_by_title_or_else_by_centrality():
    sentences = ["Cats eat fish.", "Cats eat fish and mice.", "Rain fell.", "The port opens."]
    assert rank_sentences(sentences, "Port news")[3] == 0
    ranks = rank_sentences(sentences)
    assert sorted(ranks) == [0, 1, 2, 3]
    assert {ranks[0], ranks[1]} == {0, 1}
    assert rank_sentences(["Same.", "Same."]) == [0, 1]


def test_the_best_sentences_that_fit_are_read_in_their_order():
    ids, ranks = np.arange(10), np.array([2, 2, 0, 0, 0, 0, 1, 1, 3, 3])
    assert shorten(ids, ranks, 10).tolist() == [*range(10)]
    assert shorten(ids, ranks, 8).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert shorten(ids, ranks, 5).tolist() == [2, 3, 4, 5]
    assert shorten(ids, ranks, 3).tolist() == [6, 7]  # the best one does not fit
    assert shorten(ids, np.zeros(10, dtype=int), 3).tolist() == [0, 1, 2]


def test_an_extract_says_what_was_left_out():
    tokenizer = Words([*WORDS, *"port opens".split()])
    text = "the cat sat on a mat. " * 1000 + "the port opens. " + "the dog lay. " * 1000
    whole = extract(tokenizer, text, 10**6)
    assert whole.is_whole
    assert (whole.sentences, whole.sentences_read) == (2001, 2001)
    read = extract(tokenizer, text, 100, "port")
    assert read.tokens == whole.tokens > 10_000
    assert not read.is_whole
    assert len(read.ids) <= 100
    assert 0 < read.sentences_read < read.sentences == 2001
    assert "port opens" in tokenizer.decode(read.ids.tolist())


# --- data, batches and metrics --------------------------------------------------------------------


def test_reports_name_the_facts_of_their_headline():
    pairs = [*reports(200)]
    assert pairs == [*reports(200)]
    assert len({document for document, _ in pairs}) == 200
    for document, headline in pairs:
        company, *_ = headline.split()
        assert company in document
        assert {w for w in split_words(headline) if w.isdigit()} <= {*split_words(document)}
        assert company not in split_sentences(document)[0]  # the lead sentence is not enough


def test_columns_are_guessed_and_empty_texts_are_bad_rows(pairs, tmp_path):
    reporter = RecordingReporter()
    open_task(pairs, tmp_path, reporter)
    assert 'columns: document = "document", summary = "summary"' in reporter.lines
    mails = tmp_path / "mails.csv"
    rows = "\n".join(f"hello {i},mail {i} is here." for i in range(20))
    mails.write_text(f"subject,body\n{rows}\nno body,\n")
    with pytest.raises(GlassError, match=r"mails.csv:22.*the document or summary is empty"):
        open_task(mails, tmp_path)
    one = tmp_path / "one.csv"
    one.write_text("body\nhello\nthere\n")
    with pytest.raises(GlassError, match="expected a document and a summary"):
        open_task(one, tmp_path)


def test_a_batch_predicts_the_summary_after_the_separator(pairs, tmp_path):
    task = open_task(pairs, tmp_path, tokenizer="words")
    dataset, tokenizer = task.dataset, task.artifacts.text_tokenizer
    batch = dataset.gather("train", np.arange(5), 100)
    for ids, positions, targets in zip(
        batch["ids"], batch["positions"], batch["targets"], strict=True
    ):
        start, n = positions[0], int((targets >= 0).sum())
        assert ids[start] == dataset.sep
        assert ids[start + 1 : start + n].tolist() == targets[: n - 1].tolist()
        assert targets[n - 1] == dataset.eos
        assert positions[:n].tolist() == [*range(start, start + n)]
        document, summary = (tokenizer.decode(x.tolist()) for x in (ids[:start], targets[: n - 1]))
        assert {*summary.split()} < {*document.split()}
    short = dataset.gather("train", np.arange(5), 8)
    assert (short["positions"][:, 0] <= 7).all()


def test_documents_are_padded_on_the_left():
    batch = pad_documents([np.array([1, 2, 3]), np.array([4])])
    assert batch["ids"][:, -1].tolist() == [3, 4]
    assert batch["keep"].tolist() == [[True, True, True], [False, False, True]]
    assert "keep" not in pad_documents([np.array([1, 2])])


def test_the_loss_is_that_of_the_summary_only(pairs, tmp_path):
    task = open_task(pairs, tmp_path)
    sizes = {k: v for k, v in task.dataset.sizes().items() if k == "vocab"}
    network = MODELS["summarizer"](
        MODELS["summarizer"].Config(**sizes, context=64, dim=8, depth=2, heads=1)
    ).eval()
    batch = task.dataset.gather("train", np.arange(4), 64)
    (loss,) = task.objective.losses(network, batch)
    expected, log_probs = 0.0, network(batch["ids"])
    for row, (positions, targets) in enumerate(
        zip(batch["positions"], batch["targets"], strict=True)
    ):
        for position, target in zip(positions, targets, strict=True):
            if target >= 0:
                expected -= log_probs[row, position, target]
    torch.testing.assert_close(loss, expected)


def test_batches_are_of_whole_pairs_and_depend_on_the_seed(pairs, tmp_path):
    dataset = open_task(pairs, tmp_path, tokenizer="words").dataset
    documents, _, summaries = dataset.stores["train"]
    whole = documents.lengths + summaries.lengths + 1  # with a separator, without the end token
    assert dataset.lengths("train", None).tolist() == whole.tolist()
    cut = np.minimum(documents.lengths, 7) + summaries.lengths + 1  # 7 tokens and a separator
    assert dataset.lengths("train", 8).tolist() == cut.tolist()
    assert dataset.train_batches(64, 8, 0).truncated == int((documents.lengths > 7).sum()) > 0
    longest = int(documents.lengths.max())
    assert dataset.train_batches(64, longest + 1, 0).truncated == 0
    assert dataset.train_batches(64, longest, 0).truncated > 0
    assert dataset.n_targets == sum(len(summary) + 1 for summary in summaries)
    assert dataset.size == int(documents.lengths.sum() + summaries.lengths.sum())
    first, again, other = (dataset.train_batches(64, 100, seed) for seed in (1, 1, 2))
    ids = [[b.at(step)["ids"].tolist() for step in range(3)] for b in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]


def test_summaries_that_are_too_long_are_left_out(tmp_path):
    path = tmp_path / "long.jsonl"
    rows = [{"document": f"a b c {i} .", "summary": "a " * (n - 1) + "b"}
            for i, n in enumerate([2] * 20 + [256, 257])]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    reporter = RecordingReporter()
    dataset = open_task(path, tmp_path, reporter, tokenizer="words").dataset
    lengths = [len(row) for split in ("train", "valid") for row in dataset.stores[split][2]]
    assert sorted(lengths) == [2] * 20 + [256]
    assert "left out 1 pair with more than 256 tokens in the summary" in reporter.lines


def test_an_evaluation_shortens_documents_to_the_context_of_the_network(pairs, tmp_path):
    dataset = open_task(pairs, tmp_path, tokenizer="words", valid=(pairs,)).dataset
    for limit in (None, 3):
        for context, own in ((None, 8), (100, 8), (8, None)):
            network = SimpleNamespace(context=own)
            batches = list(dataset.eval_batches(network, limit, context))
            assert all((batch["positions"][:, 0] <= 7).all() for batch in batches)
            index = torch.cat([batch["index"] for batch in batches])
            count = limit or dataset.eval_size
            assert len(set(index.tolist())) == len(index) == count
            for batch in batches:  # the index says which pair it is
                expected = dataset.gather("valid", batch["index"].numpy(), 8)
                assert torch.equal(batch["targets"], expected["targets"])


@pytest.mark.parametrize(
    ("options", "called"),
    [({}, (1, 0.6)), ({"beam_size": 3, "length_penalty": 1.5}, (3, 1.5)), ({"beam_size": 0}, None)],
)
def test_a_summary_has_a_limit_and_repeats_nothing(monkeypatch, options, called):
    words, seen = Words([*WORDS, "<unk>"], ("<unk>", SEPARATOR, "<end>")), {}
    codec = SummarizeCodec(Artifacts(tokenizer=words))

    def search(network, ids, limits, **more):
        seen.update(more, ids=ids, limits=limits)
        return [[(-1.0, [3]), (-2.0, [4])]] * len(ids)

    def decode(network, ids, limits, **more):
        return [best[0][1] for best in search(network, ids, limits, **more)]

    monkeypatch.setattr("glassformer.tasks.summarize.beam_search", search)
    monkeypatch.setattr("glassformer.tasks.summarize.generate_until", decode)
    batch = codec.encode(["the cat sat on a mat . " * 20, "the cat sat ."])
    network = SimpleNamespace(device="cpu")
    assert codec.run(network, batch, **options) == [[3], [3]]
    assert seen["limits"] == [141 // 4 + 16, 5 // 4 + 16]  # with the separator
    assert (seen["eos"], seen["no_repeat_ngram_size"]) == (codec.eos, 3)
    assert seen["positions"].tolist() == [[140], [140]]
    assert torch.equal(seen["keep"], batch["keep"])
    if called is None:
        assert seen["sampling"] == GREEDY
    else:
        assert (seen["beam_size"], seen["length_penalty"]) == called
    huge = codec.encode(["the cat sat on a mat . " * 300])
    codec.run(network, huge, **options)
    assert seen["limits"] == [256]


def test_documents_are_shortened_with_the_title_and_the_context():
    words = Words([*WORDS, "<unk>"], ("<unk>", SEPARATOR, "<end>"))
    codec = SummarizeCodec(Artifacts(tokenizer=words))
    text = "the cat sat. the cat sat on a mat. the dog lay. "
    assert words.decode(codec.extract(text, 6, "dog").ids.tolist()) == "the dog lay ."
    whole = codec.encode([text])["ids"]
    assert whole[0, -1] == codec.sep
    assert codec.encode([text], context=6)["ids"].shape[1] <= 6 < whole.shape[1]


@torch.no_grad()
def test_scores_are_per_token_and_of_the_summaries_without_their_end(monkeypatch, pairs, tmp_path):
    task = open_task(pairs, tmp_path, tokenizer="words", valid=(pairs,))
    batch = {**task.dataset.gather("valid", np.arange(2), 100), "index": torch.tensor([5, 6])}
    references = [[*row] for row in task.dataset.stores["valid"][2]][:2]
    monkeypatch.setattr(task.objective.codec, "run", lambda *_, **__: [[*references[0]], []])
    sizes = {"vocab": task.dataset.sizes()["vocab"], "dim": 8, "depth": 2, "heads": 1}
    network = MODELS["summarizer"](MODELS["summarizer"].Config(**sizes)).eval()
    scores = task.objective.scores(network, batch)
    found = task.objective.metrics(scores)
    (nats,) = task.objective.losses(network, batch)
    n_tokens = sum(len(row) + 1 for row in references)
    assert found["loss"] == pytest.approx(float(nats) / n_tokens)
    assert (found["tokens"], found["examples"]) == (n_tokens, 2)
    assert (found["rouge_1"], found["rouge_l"]) == (0.5, 0.5)
    assert [row["target"] for row in scores.rows] == task.codec.decode(references)
    (smooth,) = task.objective.losses(network, batch, label_smoothing=0.3)
    assert float(smooth) != float(nats)
    worst = TASKS["summarize"].details(scores, task.artifacts)["worst"]
    assert [(row["index"], row["rouge_l"]) for row in worst] == [(6, 0.0), (5, 1.0)]
    sampled = TASKS["summarize"].sampled_metric  # for the interval of ROUGE-L
    for reference in (references[0], references[0][::-1]):  # reversed, only ROUGE-1 is perfect
        scores.rows[0]["prediction"] = task.codec.decode([reference])[0]
        sums = sampled.sample(scores, task.artifacts).statistics.sum(axis=0, keepdims=True)
        assert sampled.value(sums)[0] == pytest.approx(mean_rouge(scores.rows)["rouge_l"])
    assert mean_rouge(scores.rows)["rouge_1"] > mean_rouge(scores.rows)["rouge_l"]
    scores.rows[0]["prediction"] = scores.rows[0]["target"]
    predictions = TASKS["summarize"].predictions(scores, task.artifacts)
    assert predictions[6] == {"predicted_summary": ""}
    assert predictions[5] == {"predicted_summary": scores.rows[0]["target"]}


def test_the_tokenizer_of_a_summarizer_is_as_requested_or_wordpiece(pairs, tmp_path):
    default = open_task(pairs, tmp_path).artifacts.tokenizer
    assert type(default) is WordPiece
    assert default.encode("RED") == default.encode("red")
    (tmp_path / "bpe").mkdir()
    found = open_task(pairs, tmp_path / "bpe", tokenizer="bpe", vocab=290).artifacts.tokenizer
    assert (type(found), found.vocab) == (BPE, 290)


@pytest.mark.parametrize("tokenizer", ["bpe", "words", "characters", "bytes"])
def test_the_lead_baseline_copies_the_first_sentence(tmp_path, tokenizer):
    time = "noon" if tokenizer == "words" else "3.5"  # for words, every point is a token
    rows = [
        (f"Hello number {i} at {time} today. The rest is long.", f"number {i}") for i in range(40)
    ]
    path = tmp_path / "mails.jsonl"
    path.write_text(
        "\n".join(json.dumps({"document": a, "summary": b}) for a, b in rows), encoding="utf-8"
    )
    task = open_task(path, tmp_path, tokenizer=tokenizer)
    network = MODELS["lead"](MODELS["lead"].Config(**task.dataset.sizes()))
    task.dataset.fit(network, 1.0)
    codec = SummarizeCodec(task.artifacts)
    documents = [rows[0][0], "The rest is long"]
    first, second = codec.decode(codec.run(network, codec.encode(documents), beam_size=0))
    assert split_words(first) == split_words(f"Hello number 0 at {time} today")
    assert second == "The rest is long"  # the end of the document ends a sentence too


def test_training_evaluating_and_summarizing(pairs, tmp_path):
    options = {"settings": ["model.dim=16", "model.depth=2", "model.heads=1"], "device": "cpu"}
    model = train("summarize", pairs, run=tmp_path / "run", steps=8, **options)
    assert {"rouge_1", "rouge_2", "rouge_l", "loss"} <= model.metrics.keys()
    single = model.summarize(PAIRS[0]["document"], beam=2)
    assert isinstance(single, str)
    assert model.summarize([PAIRS[0]["document"]], beam=2) == [single]
    assert isinstance(model.summarize([p["document"] for p in PAIRS[:3]], title="red"), str)
    assert model.extract("The cat sat. " * 1000).tokens > 1000
    with pytest.raises(GlassError, match="the document is empty"):
        model.summarize(" ")


def test_the_facts_of_the_sample_are_found(tmp_path):
    settings = ["model.dim=64", "model.heads=1", "train.batch_tokens=2048", "train.eval_limit=32"]
    options = {"settings": settings, "device": "cpu", "precision": "float32", "baseline": False}
    rows = [{"document": document, "summary": headline} for document, headline in reports(1500)]
    model = train(
        "summarize", rows[60:], valid=rows[:60], run=tmp_path / "run", steps=40, **options
    )
    assert model.metrics["rouge_l"] > 0.35  # the lead sentence has 0.01


@torch.no_grad()
def test_the_lead_sentence_gets_most_of_the_probability():
    """5 ends a sentence before 6, a new word; 7 always does. 1 is the separator, 2 the end."""
    network = MODELS["lead"](MODELS["lead"].Config(vocab=10, sep=1, eos=2))
    ids = torch.arange(10)
    network.fit(ids == 5, ids == 6, ids == 7)
    for document, sentence in (
        ([3, 5, 4, 5, 6, 8], [3, 5, 4, 5]),
        ([3, 7, 4, 5, 6, 8], [3, 7]),
        ([3, 4, 8, 5], [3, 4, 8, 5]),  # to the end of the document
    ):
        text = [*document, 1, *sentence, 2]
        probs = network(torch.tensor([text]))[0].exp()
        best, following = probs.max(dim=1)
        assert following[len(document) :].tolist() == [*sentence, 2, 2]
        torch.testing.assert_close(best, torch.full_like(best, 0.95 + 0.05 / 10))
        torch.testing.assert_close(probs.sum(dim=1), torch.ones(len(text)))
        left = torch.tensor([[0, 0, *text]])
        padded = network(left, keep=torch.arange(left.shape[1])[None] >= 2)
        torch.testing.assert_close(padded[0, 2:].exp(), probs)


def test_a_summary_is_one_line(pairs, tmp_path):
    codec = SummarizeCodec(open_task(pairs, tmp_path, tokenizer="bytes").artifacts)
    assert codec.decode([[*b" two\nlines "]]) == ["two lines"]


@pytest.mark.parametrize(("summary", "expected"), [("Ship 7", " Ship 7"), ("北京", "北京")])
def test_the_first_word_of_a_summary_is_encoded_as_inside_a_document(summary, expected):
    assert to_continuation(summary) == expected


def test_a_tokenizer_without_a_separator_is_rejected():
    with pytest.raises(GlassError, match="special tokens"):
        SummarizeCodec(Artifacts(tokenizer=Words(WORDS)))
