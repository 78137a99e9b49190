"""Each task against its definition: its split, its batches, its loss, its metrics."""

import csv
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glassformer import MODELS
from glassformer.core.reporter import NullReporter
from glassformer.data.files import BadRowPolicy
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.tasks import TASKS
from glassformer.tasks.classify import ClassifyCodec, encode_pair, macro_f1, separator, shortened
from glassformer.tasks.fill_mask import HIDDEN, MASKED, RANDOM, FillMaskCodec
from glassformer.tasks.task import Artifacts
from glassformer.tasks.translate import LONGEST, limits_for
from glassformer.text.plain import Words
from glassformer.text.subword import WordPiece

close = torch.testing.assert_close
SMALL = {"dim": 16, "depth": 1, "heads": 2, "dropout": 0.0}


@pytest.fixture
def home(tmp_path):
    book = "the cat sat on the mat and the dog sat on the log while two birds sang. " * 60
    (tmp_path / "book.txt").write_text(book)
    with (tmp_path / "labels.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for i in range(120):
            word, label = (("awful", "neg"), ("lovely", "pos"), ("plain", "mid"))[i % 3]
            rows.writerow([f"{word} film " + "very " * (i % 11) + str(i), label])
    pairs = [f"one {i} " + "a " * (i % 6) + f"\teins {i} " + "x " * (i % 4) for i in range(90)]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs))
    return tmp_path


FILES = {"generate": "book.txt", "fill-mask": "book.txt", "classify": "labels.csv",
         "translate": "pairs.tsv"}  # fmt: skip
MODEL = {"generate": "gpt2", "fill-mask": "bert", "classify": "classifier",
         "translate": "translator"}  # fmt: skip


def prepared(home, name, **more):
    request = DataRequest(files=(home / FILES[name],), **more)
    return TASKS[name].open(TASKS[name].prepare(request, home, NullReporter()), home)


def batch_at(task, step, context=32, batch_size=1, seed=0):
    return task.dataset.train_batches(batch_size, context, seed).at(step)


def loss_of(task, network, batch, smoothing):
    (loss,) = task.objective.losses(network, batch, label_smoothing=smoothing)
    return float(loss)


def network_for(task, context=32, **more):
    torch.manual_seed(1)
    kind = MODELS[MODEL[task.name]]
    wanted = {**SMALL, "context": context, "hidden": 32, **task.dataset.sizes(), **more}
    known = kind.Config.__dataclass_fields__
    return shaken(kind(kind.Config(**{n: v for n, v in wanted.items() if n in known})))


def shaken(network):
    """The network with larger weights, so that what it says of two inputs differs."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network.eval()


# --- loss -----------------------------------------------------------------------------------------


def smoothed(logits, answers, smoothing):
    """(1 - e) of the loss of the answer and e of the mean loss of all, summed over predictions."""
    losses = -logits.double().log_softmax(dim=-1)
    answer = losses.gather(1, answers[:, None])[:, 0]
    return float(((1 - smoothing) * answer + smoothing * losses.mean(dim=1)).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("name", ["generate", "classify", "translate"])
@torch.no_grad()
def test_the_loss_is_its_formula(home, name, smoothing):
    task = prepared(home, name)
    network, batch = network_for(task), batch_at(task, 3)
    if name == "generate":
        logits, answers = network(batch["ids"]), batch["targets"]
        assert torch.equal(answers[:, :-1], batch["ids"][:, 1:])
    elif name == "classify":
        logits, answers = network(batch["ids"], keep=batch["keep"]), batch["targets"]
    else:
        logits = network(batch["ids"], batch["source"], source_keep=batch["source_keep"])
        logits, answers = logits[batch["targets"] >= 0], batch["targets"][batch["targets"] >= 0]
    expected = smoothed(logits.reshape(-1, logits.shape[-1]), answers.flatten(), smoothing)
    assert loss_of(task, network, batch, smoothing) == pytest.approx(expected, rel=1e-4)
    assert task.objective.count(batch) == answers.numel()


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@torch.no_grad()
def test_the_loss_of_masks_is_its_formula(home, smoothing):
    task = prepared(home, "fill-mask")
    network, batch = network_for(task), batch_at(task, 3)
    masked_positions = batch["targets"] >= 0
    logits = network(batch["ids"], segments=batch["segments"])
    tokens = smoothed(logits[masked_positions], batch["targets"][masked_positions], smoothing)
    is_next = network.head(network.pooler(network.features(batch["ids"], None, batch["segments"])))
    pairs = smoothed(is_next, batch["is_next"], 0.0) * HIDDEN * 29
    assert loss_of(task, network, batch, smoothing) == pytest.approx(tokens + pairs, rel=1e-4)
    assert task.objective.count(batch) == int(masked_positions.sum())


# --- generate -------------------------------------------------------------------------------------


@torch.no_grad()
def test_bits_per_byte_count_every_token_of_the_text_once(home):
    task = prepared(home, "generate")
    network, ids = network_for(task, context=8), task.dataset.valid.read(0, task.dataset.valid.size)
    total = math.log(task.artifacts.tokenizer.vocab)  # the first token is a guess among all
    for start in range(0, len(ids) - 1, 8):
        part = torch.from_numpy(ids[start : start + 9])
        logits = network(part[None, :-1])[0]
        total += float(F.cross_entropy(logits, part[1:], reduction="sum"))
    found = task.evaluate(network)[0]
    size = len(task.artifacts.tokenizer.decode(ids.tolist()).encode())
    assert found["bytes"] == size
    assert found["tokens"] == len(ids)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-4)
    assert found["loss"] == pytest.approx(total / len(ids), rel=1e-4)
    assert found["perplexity"] == pytest.approx(math.exp(total / len(ids)), rel=1e-3)


def test_a_part_of_the_text_is_measured_by_its_own_bytes(home):
    task = prepared(home, "generate", share=0.5)
    network = network_for(task, context=8)
    part, whole = task.evaluate(network, 200)[0], task.evaluate(network)[0]
    assert part["tokens"] == 201
    assert part["bytes"] == 201  # a byte for each character of this text
    assert part["bits_per_byte"] == pytest.approx(part["loss"] / math.log(2), rel=1e-3)
    assert whole["bytes"] > 1000


def test_windows_are_stretches_of_the_text_that_depend_on_seed_and_step_alone(home):
    task = prepared(home, "generate")
    whole = task.dataset.train.read(0, task.dataset.train.size).tolist()
    batches = task.dataset.train_batches(4, 8, 0)
    ids, answers = batches.at(5).values()
    batch = torch.cat((ids, answers[:, -1:]), dim=1)
    assert batch.shape == (4, 9)
    assert torch.equal(answers, batch[:, 1:])
    text = ",".join(map(str, whole))
    assert all(",".join(map(str, row)) in text for row in batch.tolist())
    assert torch.equal(ids, batches.at(5)["ids"])
    assert not torch.equal(ids, batches.at(6)["ids"])
    assert not torch.equal(ids, task.dataset.train_batches(4, 8, 1).at(5)["ids"])


def test_the_end_of_a_text_is_kept_to_validate_on(home):
    task = prepared(home, "generate", share=0.25)
    text = (home / "book.txt").read_text()
    cut = round(len(text) * 0.75)
    decode = task.artifacts.tokenizer.decode
    assert decode(task.dataset.train.read(0, task.dataset.train.size).tolist()) == text[:cut]
    assert decode(task.dataset.valid.read(0, task.dataset.valid.size).tolist()) == text[cut:]


# --- classify -------------------------------------------------------------------------------------


def test_equal_texts_stay_on_one_side_of_the_split(home):
    with (home / "labels.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([f"text number {i % 60}", "ab"[i % 2]] for i in range(600))
    task = prepared(home, "classify")
    split_files = [
        {tuple(task.dataset.texts[part][i]) for i in range(len(task.dataset.texts[part]))}
        for part in ("train", "valid")
    ]
    assert len(split_files[0]) + len(split_files[1]) == 60
    assert not split_files[0] & split_files[1]
    assert all(len(task.dataset.texts[part]) == 10 * len(side) for part, side in
               zip(("train", "valid"), split_files, strict=True))  # fmt: skip


def test_rows_of_a_group_stay_on_one_side_of_the_split(home):
    with (home / "labels.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "who"])
        rows.writerows([f"text {i}", "ab"[i % 2], f"person {i % 40}"] for i in range(400))
    task = prepared(home, "classify", group="who")
    whose = {
        part: {
            int(task.artifacts.tokenizer.decode(task.dataset.texts[part][i]).split()[1]) % 40
            for i in range(len(task.dataset.texts[part]))
        }
        for part in ("train", "valid")
    }
    assert not whose["train"] & whose["valid"]
    assert len(whose["train"] | whose["valid"]) == 40


def test_every_text_is_learnt_from_once_an_epoch_with_its_own_label(home):
    task = prepared(home, "classify")
    right = {
        tuple(task.dataset.texts["train"][i]): int(task.dataset.answers["train"][i])
        for i in range(len(task.dataset.texts["train"]))
    }
    seen = Counter()
    batches = task.dataset.train_batches(1, 32, 0)
    for step in range(batches.per_epoch):
        batch = batches.at(step)
        for row, keep, answer in zip(batch["ids"], batch["keep"], batch["targets"], strict=True):
            text = tuple(row[keep].tolist())
            assert right[text] == int(answer)
            seen[text] += 1
    assert seen == Counter(right.keys())


@torch.no_grad()
def test_the_metrics_of_labels_are_those_counted_by_hand(home):
    task = prepared(home, "classify")
    network = network_for(task)
    total, pairs = 0.0, []
    for i in range(len(task.dataset.texts["valid"])):
        ids = torch.from_numpy(task.dataset.texts["valid"][i])[None]
        logits = network(ids)[0]
        answer = int(task.dataset.answers["valid"][i])
        total -= float(logits.log_softmax(-1)[answer])
        pairs.append((answer, int(logits.argmax())))
    found, scores = task.evaluate(network)
    assert found["examples"] == len(pairs) > 5
    assert found["loss"] == pytest.approx(total / len(pairs), rel=1e-4)
    assert found["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    f1 = []
    for label in range(3):
        true, generated = (sum(pair[side] == label for pair in pairs) for side in (0, 1))
        if true + generated:
            f1.append(2 * pairs.count((label, label)) / (true + generated))
    assert found["f1"] == pytest.approx(sum(f1) / len(f1))
    for (true, generated), count in Counter(pairs).items():
        assert scores.sums["confusion"][true, generated] == count
    assert macro_f1(np.array([[3, 1], [0, 0]])) == pytest.approx((6 / 7 + 0) / 2)


def test_a_text_that_is_too_long_loses_its_end():
    ids = np.arange(10, 20)
    assert shortened(ids, 99, 5).tolist() == list(range(10, 20))
    assert shortened(ids, 4, 5).tolist() == [10, 11, 12, 13]
    one = np.array([1, 10, 11, 12, 13, 14, 2])  # [CLS] text [SEP]
    assert shortened(one, 5, 2).tolist() == [1, 10, 11, 12, 2]
    pair = np.array([1, 10, 11, 12, 13, 2, 20, 21, 2])  # [CLS] text [SEP] text [SEP]
    assert shortened(pair, 8, 2).tolist() == [1, 10, 11, 12, 2, 20, 21, 2]
    assert shortened(pair, 7, 2).tolist() == [1, 10, 11, 2, 20, 21, 2]
    late = np.array([1, 10, 2, 20, 21, 22, 23, 24, 2])
    assert shortened(late, 6, 2).tolist() == [1, 10, 2, 20, 21, 2]
    plain = np.array([10, 11, 7, 20, 21, 22])  # text <sep> text
    assert shortened(plain, 4, 7).tolist() == [10, 11, 7, 20]


def test_pairs_are_marked_as_each_model_expects_it():
    words = Words.train(["a b c"], special_tokens=("<unk>", "<sep>"))
    a, b, mark = words.encode("a")[0], words.encode("b")[0], words.special_tokens["<sep>"]
    assert encode_pair(words, ("a",)) == [a]
    assert encode_pair(words, ("a", "b")) == [a, mark, b]
    assert separator(words) == mark
    pieces = WordPiece.train(["a b c"] * 3, vocab=30)
    first, last = (pieces.special_tokens[m] for m in ("[CLS]", "[SEP]"))
    a, b = pieces.encode("a")[0], pieces.encode("b")[0]
    assert encode_pair(pieces, ("a",)) == [first, a, last]
    assert encode_pair(pieces, ("a", "b")) == [first, a, last, b, last]


@torch.no_grad()
def test_a_bert_is_told_which_text_is_the_second():
    pieces = WordPiece.train(["a b c"] * 3, vocab=30)
    kind = MODELS["bert_classifier"]
    network = shaken(kind(kind.Config(vocab=30, context=16, **SMALL, classes=2)))
    batch = ClassifyCodec(Artifacts(tokenizer=pieces)).encode([("a b", "c")], 16)
    ids, keep = batch["ids"], batch["keep"]
    assert ids.tolist() == [encode_pair(pieces, ("a b", "c"))]
    found = network(**network.select_inputs(batch))
    close(found, network(ids, segments=torch.tensor([[0, 0, 0, 0, 1, 1]]), keep=keep))
    other = network(ids, segments=torch.tensor([[0, 0, 0, 1, 1, 1]]), keep=keep)
    assert not torch.allclose(found, other, atol=1e-3)


# --- translate ------------------------------------------------------------------------------------


def test_a_target_starts_with_a_mark_and_its_answers_end_with_another(home):
    task = prepared(home, "translate")
    batch = batch_at(task, 0)
    right = {
        tuple(task.dataset.pairs["train"][0][i]): task.dataset.pairs["train"][1][i].tolist()
        for i in range(len(task.dataset.pairs["train"][0]))
    }
    for i in range(len(batch["ids"])):
        read = tuple(batch["source"][i][batch["source_keep"][i]].tolist())
        target = right[read]
        answers = batch["targets"][i][batch["targets"][i] >= 0].tolist()
        given = batch["ids"][i][: len(answers)].tolist()
        assert given == [task.dataset.begin, *target]
        assert answers == [*target, task.dataset.end]


class Fixed(Network):
    """Writes what a list of answers holds for a source."""

    forward_inputs = ("ids", "source", "source_keep")

    def __init__(self, answers, vocab, end):
        super().__init__(type("Config", (), {"vocab": vocab})())
        self.answers, self.end = answers, end
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def cache(self, capacity):
        return type("Cache", (), {"length": 0, "said": None})()

    def forward(self, ids, source=None, *, keep=None, source_keep=None, cache=None):
        if source is not None:
            rows = [tuple(s[k].tolist()) for s, k in zip(source, source_keep, strict=True)]
            generated = [[*self.answers[row], self.end] for row in rows]
            if cache is not None:
                cache.generated, cache.at = generated, 0
        if cache is None:
            wanted = [(row + [self.end] * ids.shape[1])[: ids.shape[1]] for row in generated]
            return F.one_hot(torch.tensor(wanted), self.vocab).float() * 9
        step = [(row + [self.end] * 400)[cache.at] for row in cache.generated]
        cache.at += 1
        return F.one_hot(torch.tensor(step), self.vocab)[:, None].float() * 9


def test_translations_are_scored_as_sacrebleu_scores_them(home):
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    task = prepared(home, "translate", share=0.5)
    source, target = task.dataset.pairs["valid"]
    decode, encode = task.artifacts.tokenizer.decode, task.artifacts.tokenizer.encode
    texts = [decode(target[i].tolist()) for i in range(len(target))]
    ours = [t.upper() if i % 3 == 0 else t + " y" if i % 3 == 1 else t for i, t in enumerate(texts)]
    answers = {tuple(source[i]): encode(ours[i]) for i in range(len(source))}
    found = task.evaluate(Fixed(answers, task.artifacts.tokenizer.vocab, task.dataset.end))[0]
    assert found["bleu"] == pytest.approx(BLEU().corpus_score(ours, [texts]).score, abs=0.5)
    assert found["chrf"] == pytest.approx(CHRF().corpus_score(ours, [texts]).score, abs=0.5)
    assert "case:mixed" in found["bleu_signature"]
    right = sum(a == b for a, b in zip(ours, texts, strict=True)) / len(texts)
    assert found["exact"] == pytest.approx(right)
    lower = {row: encode(decode(generated).lower()) for row, generated in answers.items()}
    better = task.evaluate(Fixed(lower, task.artifacts.tokenizer.vocab, task.dataset.end))[0]
    assert better["bleu"] > found["bleu"] + 5  # case counts


def test_a_long_translation_is_not_cut_short():
    """Of 37,373 in Chinese, nine characters, the English has 46."""
    keep = torch.arange(12)[None] < torch.tensor([[11], [1], [12]])
    assert limits_for(keep) == [74, 34, 78]
    assert limits_for(torch.ones(1, 200, dtype=torch.bool)) == [LONGEST]


def test_pairs_that_are_too_long_are_bad_rows(home):
    (home / "pairs.tsv").write_text(
        "\n".join([f"a {i}\tb {i}" for i in range(40)] + ["a " * 900 + "\tb"])
    )
    on_bad_row = BadRowPolicy(home / "skipped.jsonl")
    task = prepared(home, "translate", on_bad_row=on_bad_row)
    assert on_bad_row.count == 1
    assert sum(len(task.dataset.pairs[part][0]) for part in ("train", "valid")) == 40


# --- fill-mask ------------------------------------------------------------------------------------

LENGTH = 29  # tokens of a window of 32, without its marks


def test_tokens_are_hidden_as_often_and_in_the_ways_that_bert_does_it(home):
    task = prepared(home, "fill-mask")
    mask = task.dataset.mask
    counts = Counter()
    for step in range(400):
        ids = torch.from_numpy(task.dataset.train.read(0, LENGTH))[None].repeat(4, 1)
        random = np.random.default_rng(step)
        pair = mask.pair(ids, ids, random)
        batch = mask.hide(*pair, random)
        masked_positions = batch["targets"] >= 0
        assert torch.equal(batch["targets"][masked_positions], pair[0][masked_positions])
        assert not masked_positions[(pair[0] == mask.first) | (pair[0] == mask.last)].any()
        assert torch.equal(batch["ids"][~masked_positions], pair[0][~masked_positions])
        assert masked_positions.any(dim=1).all()
        counts["all"] += 4 * LENGTH
        counts["asked"] += int(masked_positions.sum())
        counts["masked"] += int((batch["ids"][masked_positions] == mask.mask).sum())
        counts["same"] += int((batch["ids"][masked_positions] == pair[0][masked_positions]).sum())
    assert counts["asked"] / counts["all"] == pytest.approx(HIDDEN, abs=0.01)
    assert counts["masked"] / counts["asked"] == pytest.approx(MASKED, abs=0.02)
    random_is_same = RANDOM / task.artifacts.tokenizer.vocab
    rest = 1 - MASKED - RANDOM + random_is_same
    assert counts["same"] / counts["asked"] == pytest.approx(rest, abs=0.02)


def test_half_of_the_second_texts_are_what_followed(home):
    task = prepared(home, "fill-mask")
    mask = task.dataset.mask
    ids = torch.arange(1000, 1000 + LENGTH)[None].repeat(400, 1)
    others = ids + 5000
    mixed, segments, is_next = mask.pair(ids, others, np.random.default_rng(0))
    assert 0.4 < float(is_next.float().mean()) < 0.6
    for row, segment, follow in zip(mixed, segments, is_next, strict=True):
        first, second = row[segment == 0], row[segment == 1]
        assert (int(first[0]), int(first[-1]), int(second[-1])) == (
            mask.first,
            mask.last,
            mask.last,
        )
        cut = len(first) - 2
        assert first[1:-1].tolist() == list(range(1000, 1000 + cut))
        start = 1000 + cut + (0 if follow else 5000)
        assert second[:-1].tolist() == list(range(start, start + LENGTH - cut))


@torch.no_grad()
def test_the_metrics_of_masks_are_those_counted_by_hand(home):
    task = prepared(home, "fill-mask", share=0.4)
    mask = task.dataset.mask
    network = network_for(task)
    found = task.evaluate(network)[0]
    total, right, count, together = 0.0, 0, 0, 0
    whole = torch.from_numpy(task.dataset.valid.read(0, task.dataset.valid.size // LENGTH * LENGTH))
    whole = whole.reshape(-1, LENGTH)
    others = whole.roll(len(whole) // 2, dims=0)
    pieces = torch.arange(len(whole)).tensor_split(max(len(whole) // 16, 1))
    for i, rows in enumerate(pieces):
        random = np.random.default_rng((0, i, 2))
        batch = mask.hide(*mask.pair(whole[rows], others[rows], random), random)
        logits = network(batch["ids"], segments=batch["segments"])
        masked_positions = torch.ones_like(batch["ids"], dtype=torch.bool)
        found_pairs = network.masked_logits(
            batch["ids"], masked_positions, batch["segments"]
        ).is_next
        together += int((found_pairs.argmax(-1) == batch["is_next"]).sum())
        for row, column in (batch["targets"] >= 0).nonzero().tolist():
            answer = int(batch["targets"][row, column])
            total -= float(logits[row, column].log_softmax(-1)[answer])
            right += int(logits[row, column].argmax()) == answer
            count += 1
    assert found["tokens"] == count
    assert found["loss"] == pytest.approx(total / count, rel=1e-3)
    assert found["accuracy"] == pytest.approx(right / count)
    assert found["next_accuracy"] == pytest.approx(together / len(whole))


def test_a_text_with_masks_is_marked_as_in_training():
    pieces = WordPiece.train(["the cat sat"] * 3, vocab=40)
    first, last, mask = (pieces.special_tokens[m] for m in ("[CLS]", "[SEP]", "[MASK]"))
    codec = FillMaskCodec(Artifacts(tokenizer=pieces))
    the, sat = pieces.encode("the"), pieces.encode("sat")
    assert codec.encode_masked("the [MASK] sat [MASK]") == [first, *the, mask, *sat, mask, last]
