"""The split, batches, loss and metrics of each task, compared with their definitions."""

import csv
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from glassformer import MODELS
from glassformer.core.reporter import NullReporter
from glassformer.data.request import DataRequest
from glassformer.models.network import Network
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.tasks.classify import ClassifyCodec
from glassformer.tasks.fill_mask import (
    MASK_FRACTION,
    MASK_TOKEN_FRACTION,
    RANDOM_TOKEN_FRACTION,
    FillMaskCodec,
)
from glassformer.tasks.label_metrics import LabelScores
from glassformer.tasks.task import Artifacts
from glassformer.tasks.text_pairs import encode_pair, find_separator, truncate
from glassformer.tasks.translate import MAX_TOKENS, max_target_lengths
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


def prepare_task(home, name, reporter=None, **more):
    request = DataRequest(files=(home / FILES[name],), **more)
    artifacts = TASKS[name].prepare(request, home, reporter or NullReporter())
    return TASKS[name].open(artifacts, home)


def train_batch(task, step, context=32, batch_size=1, seed=0):
    return task.dataset.train_batches(batch_size, context, seed).at(step)


def compute_loss(task, network, batch, smoothing):
    (loss,) = task.objective.losses(network, batch, label_smoothing=smoothing)
    return float(loss)


def build_network(task, context=32, **more):
    torch.manual_seed(1)
    model = MODELS[MODEL[task.name]]
    settings = {**SMALL, "context": context, "hidden": 32, **task.dataset.sizes(), **more}
    known = model.Config.__dataclass_fields__
    return randomize(model(model.Config(**{n: v for n, v in settings.items() if n in known})))


def randomize(network):
    """Add noise to the weights, so that outputs for different inputs differ clearly."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network.eval()


# --- loss -----------------------------------------------------------------------------------------


def smoothed_loss(logits, targets, smoothing):
    """(1 - e) times the target's loss plus e times the mean loss, summed over predictions."""
    losses = -logits.double().log_softmax(dim=-1)
    target_losses = losses.gather(1, targets[:, None])[:, 0]
    return float(((1 - smoothing) * target_losses + smoothing * losses.mean(dim=1)).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("name", ["generate", "classify", "translate"])
@torch.no_grad()
def test_loss_matches_the_formula(home, name, smoothing):
    task = prepare_task(home, name)
    network, batch = build_network(task), train_batch(task, 3)
    if name == "generate":
        logits, targets = network(batch["ids"]), batch["targets"]
        assert torch.equal(targets[:, :-1], batch["ids"][:, 1:])
    elif name == "classify":
        logits, targets = network(batch["ids"], keep=batch["keep"]), batch["targets"]
    else:
        logits = network(batch["ids"], batch["source"], source_keep=batch["source_keep"])
        logits, targets = logits[batch["targets"] >= 0], batch["targets"][batch["targets"] >= 0]
    expected = smoothed_loss(logits.reshape(-1, logits.shape[-1]), targets.flatten(), smoothing)
    assert compute_loss(task, network, batch, smoothing) == pytest.approx(expected, rel=1e-4)
    assert task.objective.count(batch) == targets.numel()


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@torch.no_grad()
def test_fill_mask_loss_matches_the_formula(home, smoothing):
    task = prepare_task(home, "fill-mask")
    network, batch = build_network(task), train_batch(task, 3)
    masked_positions = batch["targets"] >= 0
    logits = network(batch["ids"], segments=batch["segments"])
    tokens = smoothed_loss(logits[masked_positions], batch["targets"][masked_positions], smoothing)
    is_next = network.head(network.pooler(network.features(batch["ids"], None, batch["segments"])))
    pairs = smoothed_loss(is_next, 1 - batch["is_next"], 0.0) * MASK_FRACTION * 29
    assert compute_loss(task, network, batch, smoothing) == pytest.approx(tokens + pairs, rel=1e-4)
    assert task.objective.count(batch) == int(masked_positions.sum())


# --- generate -------------------------------------------------------------------------------------


@torch.no_grad()
def test_bits_per_byte_counts_every_validation_token_once(home):
    task = prepare_task(home, "generate")
    network, ids = (
        build_network(task, context=8),
        task.dataset.valid.read(0, task.dataset.valid.size),
    )
    total = math.log(task.artifacts.tokenizer.vocab)  # the first token: uniform
    for start in range(0, len(ids) - 1, 8):
        part = torch.from_numpy(ids[start : start + 9])
        logits = network(part[None, :-1])[0]
        total += float(F.cross_entropy(logits, part[1:], reduction="sum"))
    metrics = task.evaluate(network)[0]
    size = len(task.artifacts.tokenizer.decode(ids.tolist()).encode())
    assert metrics["bytes"] == size
    assert metrics["tokens"] == len(ids)
    assert metrics["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-4)
    assert metrics["loss"] == pytest.approx(total / len(ids), rel=1e-4)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / len(ids)), rel=1e-3)


def test_limited_evaluation_counts_only_the_bytes_it_reads(home):
    task = prepare_task(home, "generate", valid_fraction=0.5)
    network = build_network(task, context=8)
    limited, full = task.evaluate(network, 200)[0], task.evaluate(network)[0]
    assert limited["tokens"] == 201
    assert limited["bytes"] == 201  # one byte per character in this text
    assert limited["bits_per_byte"] == pytest.approx(limited["loss"] / math.log(2), rel=1e-3)
    assert full["bytes"] > 1000


def test_windows_are_spans_of_the_text_determined_by_seed_and_step(home):
    task = prepare_task(home, "generate")
    all_ids = task.dataset.train.read(0, task.dataset.train.size).tolist()
    batches = task.dataset.train_batches(4, 8, 0)
    batch = batches.at(5)
    ids, targets = batch["ids"], batch["targets"]
    batch = torch.cat((ids, targets[:, -1:]), dim=1)
    assert batch.shape == (4, 9)
    assert torch.equal(targets, batch[:, 1:])
    text = ",".join(map(str, all_ids))
    assert all(",".join(map(str, row)) in text for row in batch.tolist())
    assert torch.equal(ids, batches.at(5)["ids"])
    assert not torch.equal(ids, batches.at(6)["ids"])
    assert not torch.equal(ids, task.dataset.train_batches(4, 8, 1).at(5)["ids"])


def test_end_of_the_text_is_held_out_for_validation(home):
    task = prepare_task(home, "generate", valid_fraction=0.25)
    text = (home / "book.txt").read_text()
    cut = round(len(text) * 0.75)
    decode = task.artifacts.tokenizer.decode
    assert decode(task.dataset.train.read(0, task.dataset.train.size).tolist()) == text[:cut]
    assert decode(task.dataset.valid.read(0, task.dataset.valid.size).tolist()) == text[cut:]


# --- classify -------------------------------------------------------------------------------------


def test_identical_texts_are_in_the_same_split(home):
    with (home / "labels.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([f"text number {i % 60}", "ab"[i % 2]] for i in range(600))
    task = prepare_task(home, "classify")
    texts = [
        {tuple(task.dataset.texts[part][i]) for i in range(len(task.dataset.texts[part]))}
        for part in ("train", "valid")
    ]
    assert len(texts[0]) + len(texts[1]) == 60
    assert not texts[0] & texts[1]
    assert all(len(task.dataset.texts[part]) == 10 * len(distinct) for part, distinct in
               zip(("train", "valid"), texts, strict=True))  # fmt: skip


def test_rows_of_a_group_are_in_the_same_split(home):
    with (home / "labels.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "who"])
        rows.writerows([f"text {i}", "ab"[i % 2], f"person {i % 40}"] for i in range(400))
    task = prepare_task(home, "classify", group="who", text=("text",))
    people = {
        part: {
            int(task.artifacts.tokenizer.decode(task.dataset.texts[part][i]).split()[1]) % 40
            for i in range(len(task.dataset.texts[part]))
        }
        for part in ("train", "valid")
    }
    assert not people["train"] & people["valid"]
    assert len(people["train"] | people["valid"]) == 40


def test_every_text_occurs_once_per_epoch_with_its_own_label(home):
    task = prepare_task(home, "classify")
    labels = {
        tuple(task.dataset.texts["train"][i]): int(task.dataset.targets["train"][i])
        for i in range(len(task.dataset.texts["train"]))
    }
    counts = Counter()
    batches = task.dataset.train_batches(1, 32, 0)
    for step in range(batches.per_epoch):
        batch = batches.at(step)
        for row, keep, target in zip(batch["ids"], batch["keep"], batch["targets"], strict=True):
            text = tuple(row[keep].tolist())
            assert labels[text] == int(target)
            counts[text] += 1
    assert counts == Counter(labels.keys())


@torch.no_grad()
def test_classify_metrics_match_a_direct_computation(home):
    task = prepare_task(home, "classify")
    network = build_network(task)
    total, pairs = 0.0, []
    for i in range(len(task.dataset.texts["valid"])):
        ids = torch.from_numpy(task.dataset.texts["valid"][i])[None]
        logits = network(ids)[0]
        target = int(task.dataset.targets["valid"][i])
        total -= float(logits.log_softmax(-1)[target])
        pairs.append((target, int(logits.argmax())))
    metrics, scores = task.evaluate(network)
    assert metrics["examples"] == len(pairs) > 5
    assert metrics["loss"] == pytest.approx(total / len(pairs), rel=1e-4)
    assert metrics["accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    f1 = []
    for label in range(3):
        true, predicted = (sum(pair[side] == label for pair in pairs) for side in (0, 1))
        if true + predicted:
            f1.append(2 * pairs.count((label, label)) / (true + predicted))
    assert metrics["f1"] == pytest.approx(sum(f1) / len(f1))
    for (true, predicted), count in Counter(pairs).items():
        assert LabelScores(scores, task.artifacts).confusion()[true, predicted] == count


def test_long_texts_are_truncated_at_the_end_and_keep_their_separators():
    ids = np.arange(10, 20)
    assert truncate(ids, 99, 5).tolist() == list(range(10, 20))
    assert truncate(ids, 4, 5).tolist() == [10, 11, 12, 13]
    single = np.array([1, 10, 11, 12, 13, 14, 2])  # [CLS] text [SEP]
    assert truncate(single, 5, 2).tolist() == [1, 10, 11, 12, 2]
    pair = np.array([1, 10, 11, 12, 13, 2, 20, 21, 2])  # [CLS] text [SEP] text [SEP]
    assert truncate(pair, 8, 2).tolist() == [1, 10, 11, 12, 2, 20, 21, 2]
    assert truncate(pair, 7, 2).tolist() == [1, 10, 11, 2, 20, 21, 2]
    longer_second = np.array([1, 10, 2, 20, 21, 22, 23, 24, 2])
    assert truncate(longer_second, 6, 2).tolist() == [1, 10, 2, 20, 21, 2]
    plain = np.array([10, 11, 7, 20, 21, 22])  # text <sep> text
    assert truncate(plain, 4, 7).tolist() == [10, 11, 7, 20]


def test_pairs_have_the_special_tokens_that_the_model_expects():
    words = Words.train(["a b c"], special_tokens=("<unk>", "<sep>"))
    a, b, sep = words.encode("a")[0], words.encode("b")[0], words.special_tokens["<sep>"]
    assert encode_pair(words, ("a",)) == [a]
    assert encode_pair(words, ("a", "b")) == [a, sep, b]
    assert find_separator(words) == sep
    wordpiece = WordPiece.train(["a b c"] * 3, vocab=30)
    cls, sep = (wordpiece.special_tokens[name] for name in ("[CLS]", "[SEP]"))
    a, b = wordpiece.encode("a")[0], wordpiece.encode("b")[0]
    assert encode_pair(wordpiece, ("a",)) == [cls, a, sep]
    assert encode_pair(wordpiece, ("a", "b")) == [cls, a, sep, b, sep]


@torch.no_grad()
def test_bert_receives_the_segments_of_a_pair():
    wordpiece = WordPiece.train(["a b c"] * 3, vocab=30)
    model = MODELS["bert_classifier"]
    network = randomize(model(model.Config(vocab=30, context=16, **SMALL, classes=2)))
    batch = ClassifyCodec(Artifacts(tokenizer=wordpiece)).encode([("a b", "c")], 16)
    ids, keep = batch["ids"], batch["keep"]
    assert ids.tolist() == [encode_pair(wordpiece, ("a b", "c"))]
    output = network(**network.select_inputs(batch))
    close(output, network(ids, segments=torch.tensor([[0, 0, 0, 0, 1, 1]]), keep=keep))
    other = network(ids, segments=torch.tensor([[0, 0, 0, 1, 1, 1]]), keep=keep)
    assert not torch.allclose(output, other, atol=1e-3)


# --- translate ------------------------------------------------------------------------------------


def test_decoder_inputs_start_with_bos_and_targets_end_with_eos(home):
    task = prepare_task(home, "translate")
    batch = train_batch(task, 0)
    translations = {
        tuple(task.dataset.pairs["train"][0][i]): task.dataset.pairs["train"][1][i].tolist()
        for i in range(len(task.dataset.pairs["train"][0]))
    }
    for i in range(len(batch["ids"])):
        source = tuple(batch["source"][i][batch["source_keep"][i]].tolist())
        translation = translations[source]
        targets = batch["targets"][i][batch["targets"][i] >= 0].tolist()
        inputs = batch["ids"][i][: len(targets)].tolist()
        assert inputs == [task.dataset.bos, *translation]
        assert targets == [*translation, task.dataset.eos]


class LookupTranslator(Network):
    """Generates the translation that a dict holds for a source."""

    forward_inputs = ("ids", "source", "source_keep")

    def __init__(self, translations, vocab, eos):
        super().__init__(type("Config", (), {"vocab": vocab})())
        self.translations, self.eos = translations, eos
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def cache(self, capacity):
        return type("Cache", (), {"length": 0, "generated": None})()

    def forward(self, ids, source=None, *, keep=None, source_keep=None, cache=None):
        if source is not None:
            rows = [tuple(s[k].tolist()) for s, k in zip(source, source_keep, strict=True)]
            generated = [[*self.translations[row], self.eos] for row in rows]
            if cache is not None:
                cache.generated, cache.at = generated, 0
        if cache is None:
            tokens = [(row + [self.eos] * ids.shape[1])[: ids.shape[1]] for row in generated]
            return F.one_hot(torch.tensor(tokens), self.vocab).float() * 9
        tokens = [(row + [self.eos] * 400)[cache.at] for row in cache.generated]
        cache.at += 1
        return F.one_hot(torch.tensor(tokens), self.vocab)[:, None].float() * 9


def test_translation_scores_match_sacrebleu(home):
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    task = prepare_task(home, "translate", valid_fraction=0.5)
    source, target = task.dataset.pairs["valid"]
    decode, encode = task.artifacts.tokenizer.decode, task.artifacts.tokenizer.encode
    texts = [decode(target[i].tolist()) for i in range(len(target))]
    ours = [t.upper() if i % 3 == 0 else t + " y" if i % 3 == 1 else t for i, t in enumerate(texts)]
    translations = {tuple(source[i]): encode(ours[i]) for i in range(len(source))}
    vocab, eos = task.artifacts.tokenizer.vocab, task.dataset.eos
    metrics = task.evaluate(LookupTranslator(translations, vocab, eos))[0]
    assert metrics["bleu"] == pytest.approx(BLEU().corpus_score(ours, [texts]).score, abs=0.5)
    assert metrics["chrf"] == pytest.approx(CHRF().corpus_score(ours, [texts]).score, abs=0.5)
    assert "case:mixed" in metrics["bleu_signature"]
    exact = sum(a == b for a, b in zip(ours, texts, strict=True)) / len(texts)
    assert metrics["exact"] == pytest.approx(exact)
    correct = total = 0  # teacher-forced: position by position, whatever was generated before
    for i in range(len(source)):
        wanted, got = [*target[i].tolist(), eos], [*translations[tuple(source[i])], eos]
        got += [eos] * len(wanted)
        correct += sum(a == b for a, b in zip(wanted, got, strict=False))
        total += len(wanted)
    assert metrics["token_accuracy"] == pytest.approx(correct / total)
    assert exact < metrics["token_accuracy"] < 1
    lower = {row: encode(decode(ids).lower()) for row, ids in translations.items()}
    better = task.evaluate(LookupTranslator(lower, vocab, eos))[0]
    assert better["bleu"] > metrics["bleu"] + 5  # BLEU is case-sensitive


def test_length_limits_leave_room_for_long_translations():
    """The number 37,373 has nine characters in Chinese and 46 in English."""
    keep = torch.arange(12)[None] < torch.tensor([[11], [1], [12]])
    assert max_target_lengths(keep) == [74, 34, 78]
    assert max_target_lengths(torch.ones(1, 200, dtype=torch.bool)) == [MAX_TOKENS]


def test_pairs_over_the_length_limit_are_left_out_and_counted(home):
    (home / "pairs.tsv").write_text(
        "\n".join([f"a {i}\tb {i}" for i in range(40)] + ["a " * 900 + "\tb"])
    )
    reporter = RecordingReporter()
    task = prepare_task(home, "translate", reporter=reporter)
    assert any(line.startswith("left out 1 pair with more than 256") for line in reporter.lines)
    assert sum(len(task.dataset.pairs[part][0]) for part in ("train", "valid")) == 40


# --- fill-mask ------------------------------------------------------------------------------------

LENGTH = 29  # tokens of a window of 32, without its special tokens


def test_tokens_are_masked_in_the_same_proportions_as_in_bert(home):
    task = prepare_task(home, "fill-mask")
    masker = task.dataset.masker
    counts = Counter()
    for step in range(400):
        ids = torch.from_numpy(task.dataset.train.read(0, LENGTH))[None].repeat(4, 1)
        random = np.random.default_rng(step)
        pair = masker.make_pairs(ids, ids, random)
        batch = masker.mask_tokens(*pair, random)
        masked_positions = batch["targets"] >= 0
        assert torch.equal(batch["targets"][masked_positions], pair[0][masked_positions])
        assert not masked_positions[(pair[0] == masker.cls) | (pair[0] == masker.sep)].any()
        assert torch.equal(batch["ids"][~masked_positions], pair[0][~masked_positions])
        assert masked_positions.any(dim=1).all()
        counts["all"] += 4 * LENGTH
        counts["targets"] += int(masked_positions.sum())
        counts["masked"] += int((batch["ids"][masked_positions] == masker.mask).sum())
        counts["same"] += int((batch["ids"][masked_positions] == pair[0][masked_positions]).sum())
    assert counts["targets"] / counts["all"] == pytest.approx(MASK_FRACTION, abs=0.01)
    assert counts["masked"] / counts["targets"] == pytest.approx(MASK_TOKEN_FRACTION, abs=0.02)
    random_is_same = RANDOM_TOKEN_FRACTION / task.artifacts.tokenizer.vocab
    rest = 1 - MASK_TOKEN_FRACTION - RANDOM_TOKEN_FRACTION + random_is_same
    assert counts["same"] / counts["targets"] == pytest.approx(rest, abs=0.02)


def test_second_half_follows_the_first_in_half_of_the_pairs(home):
    task = prepare_task(home, "fill-mask")
    masker = task.dataset.masker
    ids = torch.arange(1000, 1000 + LENGTH)[None].repeat(400, 1)
    others = ids + 5000
    mixed, segments, is_next = masker.make_pairs(ids, others, np.random.default_rng(0))
    assert 0.4 < float(is_next.float().mean()) < 0.6
    for row, segment, follows in zip(mixed, segments, is_next, strict=True):
        first, second = row[segment == 0], row[segment == 1]
        assert (int(first[0]), int(first[-1]), int(second[-1])) == (
            masker.cls,
            masker.sep,
            masker.sep,
        )
        cut = len(first) - 2
        assert first[1:-1].tolist() == list(range(1000, 1000 + cut))
        start = 1000 + cut + (0 if follows else 5000)
        assert second[:-1].tolist() == list(range(start, start + LENGTH - cut))


@torch.no_grad()
def test_fill_mask_metrics_match_a_direct_computation(home):
    task = prepare_task(home, "fill-mask", valid_fraction=0.4)
    masker = task.dataset.masker
    network = build_network(task)
    metrics = task.evaluate(network)[0]
    total, correct, count, correct_pairs = 0.0, 0, 0, 0
    ids = torch.from_numpy(task.dataset.valid.read(0, task.dataset.valid.size // LENGTH * LENGTH))
    windows = ids.reshape(-1, LENGTH)
    others = windows.roll(len(windows) // 2, dims=0)
    batches = torch.arange(len(windows)).tensor_split(max(len(windows) // 16, 1))
    for i, rows in enumerate(batches):
        random = np.random.default_rng((0, i, 2))
        batch = masker.mask_tokens(*masker.make_pairs(windows[rows], others[rows], random), random)
        logits = network(batch["ids"], segments=batch["segments"])
        all_positions = torch.ones_like(batch["ids"], dtype=torch.bool)
        is_next = network.masked_logits(batch["ids"], all_positions, batch["segments"]).is_next
        correct_pairs += int((is_next.argmax(-1) == 1 - batch["is_next"]).sum())
        for row, column in (batch["targets"] >= 0).nonzero().tolist():
            target = int(batch["targets"][row, column])
            total -= float(logits[row, column].log_softmax(-1)[target])
            correct += int(logits[row, column].argmax()) == target
            count += 1
    assert metrics["tokens"] == count
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-3)
    assert metrics["accuracy"] == pytest.approx(correct / count)
    assert metrics["next_accuracy"] == pytest.approx(correct_pairs / len(windows))


def test_text_with_masks_is_encoded_as_in_training():
    wordpiece = WordPiece.train(["the cat sat"] * 3, vocab=40)
    cls, sep, mask = (wordpiece.special_tokens[m] for m in ("[CLS]", "[SEP]", "[MASK]"))
    codec = FillMaskCodec(Artifacts(tokenizer=wordpiece))
    the, sat = wordpiece.encode("the"), wordpiece.encode("sat")
    assert codec.encode_masked("the [MASK] sat [MASK]") == [cls, *the, mask, *sat, mask, sep]


def test_a_group_in_both_splits_is_a_leak(tmp_path):
    """The texts differ, but the user says that one person wrote them."""
    train, valid = tmp_path / "train.csv", tmp_path / "valid.csv"
    rows = [f"ann,text {i},{'good' if i % 2 else 'bad'}" for i in range(8)]
    train.write_text("who,text,label\n" + "\n".join(rows) + "\n")
    valid.write_text("who,text,label\nann,another text,good\nbob,a third text,bad\n")
    reporter = RecordingReporter()
    request = DataRequest(files=(train,), valid=(valid,), group="who")
    TASKS["classify"].prepare(request, tmp_path, reporter)
    assert any("data leak: 1 of the validation texts" in line for line in reporter.lines)
