"""Fine-tuning a trained model on other data, other tasks and other labels."""

import shutil

import pytest
import torch

from cases import CASES, ids, source
from glassformer import MODELS, GlassError, Model, load, weights
from glassformer.checkpoint import ADAPTER, BEST, average, load_matching
from glassformer.core.folder import MANIFEST, write_manifest
from glassformer.core.reporter import NullReporter
from glassformer.nn.lora import LoRA, add_lora, merge_lora
from glassformer.tasks import TASKS
from glassformer.tasks.check import RecordingReporter
from glassformer.text.plain import Characters, Words
from glassformer.training import train as training
from glassformer.training.optimizers import adamw, layers_after
from glassformer.training.request import FINETUNE_LR_FACTOR, Request
from glassformer.training.resume import resume
from glassformer.training.run import Run
from glassformer.training.settings import TrainingSettings

TINY = ["model.dim=32", "model.depth=2", "model.heads=2", "train.lr=3e-3"]
EXACT = {"device": "cpu", "precision": "float32", "threads": 1}
SMALL = [*TINY, "model.context=32", "train.batch_size=4"]


def train(task, *data, **options):
    return training.train(
        task, *data, **{"steps": 20, "reporter": NullReporter(), **EXACT, **options}
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    (folder / "book.txt").write_text("the cat sat on the mat and the dog sat on the log. " * 200)
    labels = [("cat", "animal"), ("mat", "thing")]
    rows = [f"{i % 7} the {labels[i % 2][0]} sat {i},{labels[i % 2][1]}" for i in range(120)]
    (folder / "labels.csv").write_text("text,label\n" + "\n".join(rows))
    rows = [f"the {w} {i},{w}" for i in range(30) for w in ("cat", "dog", "log")]
    (folder / "three.csv").write_text("text,label\n" + "\n".join(rows))
    words, other = "one two three".split(), "eins zwei drei".split()
    phrase = lambda names, i: f"{names[i % 3]} {names[i // 3 % 3]} {i}"
    pairs = [f"{phrase(words, i)}\t{phrase(other, i)}" for i in range(120)]
    (folder / "pairs.tsv").write_text("\n".join(pairs))
    for task, model in (("generate", "gpt2"), ("fill-mask", "bert")):
        train(task, folder / "book.txt", run=folder / task, model=model, settings=SMALL)
    train(
        "classify",
        folder / "labels.csv",
        run=folder / "classify",
        model="classifier",
        settings=TINY,
    )
    settings = [*TINY, "model.hidden=64"]
    train("translate", folder / "pairs.tsv", run=folder / "translate", settings=settings)
    return folder


# --- LoRA -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "bert", "translator", "llama"])
def test_merging_an_adapter_does_not_change_the_output(name):
    case = CASES[name]
    network = MODELS[case.name](case.network.config).eval()
    network.load_state_dict(case.network.state_dict())
    text = ids()
    inputs = (text, source(len(text))) if name == "translator" else (text,)
    before = network(*inputs)
    add_lora(network, network.stacks, 4)
    torch.testing.assert_close(network(*inputs), before)
    trained = {n for n, p in network.named_parameters() if p.requires_grad}
    assert trained
    assert all(n.endswith((".up", ".down")) for n in trained)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, LoRA):
                module.up.normal_(std=0.1)
    adapted = network(*inputs)
    assert not torch.allclose(adapted, before)
    merge_lora(network)
    assert not any(isinstance(m, LoRA) for m in network.modules())
    torch.testing.assert_close(network(*inputs), adapted, atol=1e-5, rtol=1e-5)
    assert network.state_dict().keys() == case.network.state_dict().keys()


def test_an_adapter_is_small_and_needs_its_base_model(home, tmp_path):
    base, run = tmp_path / "base", tmp_path / "run"
    shutil.copytree(home / "fill-mask" / BEST, base)
    result = train("classify", home / "labels.csv", base=base, lora=2, run=run, lr=1e-2, steps=60)
    assert result["accuracy"] > 0.9
    names = {p.name for p in (run / BEST).iterdir()}
    assert ADAPTER in names
    assert "model.safetensors" not in names
    assert (run / BEST / ADAPTER).stat().st_size < (base / "model.safetensors").stat().st_size
    model = load(run)
    assert next(iter(model.classify(["the cat sat 5"])[0])) == "animal"
    frozen, ours = load(base).network.state_dict(), model.network.state_dict()
    assert torch.equal(frozen["body.token.weight"], ours["body.token.weight"])
    assert not torch.equal(
        frozen["body.blocks.0.attention.query.weight"],
        ours["body.blocks.0.attention.query.weight"],
    )
    model.save(tmp_path / "merged")
    assert load(tmp_path / "merged").classify(["the cat"]) == model.classify(["the cat"])

    assert resume(run, NullReporter(), steps=66)["steps"] == 66

    base.rename(tmp_path / "moved")
    with pytest.raises(GlassError, match=r"adapter for .*base, which does not exist"):
        load(run)
    shutil.copytree(home / "generate" / BEST, base)
    with pytest.raises(GlassError, match="whose weights have changed"):
        load(run)


def test_a_new_head_is_trained_and_saved_with_an_adapter(home, tmp_path):
    run = tmp_path / "run"
    train("classify", home / "three.csv", base=home / "fill-mask", lora=2, run=run, steps=2)
    saved, ours = weights.read(run / BEST / ADAPTER), load(run).network.state_dict()
    assert saved["head.bias"].abs().min() > 0  # it is initialized with 0
    for name in ("head.weight", "head.bias"):
        assert torch.equal(saved[name], ours[name])


def test_lora_without_a_base_model_is_rejected(home, tmp_path):
    with pytest.raises(GlassError, match="specify it with --from"):
        train("classify", home / "labels.csv", lora=2, run=tmp_path / "run")


# --- from one task to another ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "model", "parameter"),
    [
        ("fill-mask", "bert_classifier", "body.token.weight"),
        ("generate", "gpt2_classifier", "token.weight"),
    ],
)
def test_pretrained_models_become_classifiers(home, tmp_path, base, model, parameter):
    reporter = RecordingReporter()
    train(
        "classify",
        home / "labels.csv",
        base=home / base,
        run=tmp_path / "run",
        steps=1,
        freeze=["token*"],
        reporter=reporter,
    )
    ours, theirs = load(tmp_path / "run"), load(home / base)
    assert ours.name == model
    assert ours.tokenizer.to_json() == theirs.tokenizer.to_json()
    assert torch.equal(
        ours.network.state_dict()["body.token.weight"], theirs.network.state_dict()[parameter]
    )
    line = next(line for line in reporter.lines if line.startswith("starting from"))
    assert "re-initialized" in line
    assert "head.weight" in line
    assert "blocks" not in line


def test_only_fine_tuning_has_a_smaller_default_learning_rate():
    def default_lr(*, from_scratch):
        request = Request.of(
            "classify", (), None, (), {}, model="classifier", from_scratch=from_scratch
        )
        return request.training.lr

    task_lr = TASKS["classify"].train_settings["lr"]
    for _ in range(2):
        assert default_lr(from_scratch=True) == task_lr
        assert default_lr(from_scratch=False) == pytest.approx(FINETUNE_LR_FACTOR * task_lr)


def test_the_head_is_kept_if_the_labels_are_the_same(home, tmp_path):
    reporter = RecordingReporter()
    train(
        "classify",
        home / "labels.csv",
        base=home / "classify",
        run=tmp_path / "same",
        reporter=reporter,
    )
    assert not any("re-initialized" in line for line in reporter.lines)
    reporter = RecordingReporter()
    train(
        "classify",
        home / "three.csv",
        base=home / "classify",
        run=tmp_path / "other",
        reporter=reporter,
    )
    assert any("re-initialized: head.weight, head.bias" in line for line in reporter.lines)
    assert load(tmp_path / "other").task["labels"] == ["cat", "dog", "log"]
    assert any("unknown to the model's tokenizer; --extend adds them" in x for x in reporter.lines)


def test_fine_tuning_a_translator_starts_from_its_weights(home, tmp_path):
    last = Run(home / "translate").metrics()[-1]
    reporter = RecordingReporter()
    first = train(
        "translate",
        home / "pairs.tsv",
        base=home / "translate",
        run=tmp_path / "r",
        lr=1e-9,
        steps=1,
        reporter=reporter,
    )
    assert not any("re-initialized" in line for line in reporter.lines)
    assert first["loss"] == pytest.approx(last["loss"], abs=1e-3)


def test_extend_adds_unknown_words_to_the_tokenizer(home, tmp_path):
    reporter = RecordingReporter()
    train(
        "classify",
        home / "three.csv",
        base=home / "classify",
        run=tmp_path / "run",
        extend=True,
        freeze=["token.weight"],
        reporter=reporter,
    )
    ours, theirs = load(tmp_path / "run"), load(home / "classify")
    old_vocab = theirs.tokenizer.vocab
    assert ours.tokenizer.vocab > old_vocab
    assert ours.tokenizer.tokens[:old_vocab] == theirs.tokenizer.tokens
    embedding = ours.network.state_dict()["token.weight"]
    assert torch.equal(embedding[:old_vocab], theirs.network.state_dict()["token.weight"])
    assert any("tokens added to the tokenizer" in line for line in reporter.lines)
    with pytest.raises(GlassError, match="wordpiece tokenizer cannot be extended"):
        train(
            "classify", home / "three.csv", base=home / "fill-mask", run=tmp_path / "x", extend=True
        )
    assert Characters.train(["ab"]).extend(["abc"]).decode([1, 2, 3]) == "abc"
    assert Words.train(["a b"]).extend(["a b"]).vocab == Words.train(["a b"]).vocab


def test_a_hugging_face_model_can_be_fine_tuned(home, tmp_path):
    with pytest.raises(GlassError, match="train with position=learned"):
        load(home / "fill-mask").save(tmp_path / "theirs", format="huggingface")
    learned = [*SMALL, "model.position=learned"]
    train("fill-mask", home / "book.txt", run=tmp_path / "mine", settings=learned)
    load(tmp_path / "mine").save(tmp_path / "theirs", format="huggingface")
    result = train(
        "classify",
        home / "labels.csv",
        base=tmp_path / "theirs",
        run=tmp_path / "run",
        steps=60,
        lr=1e-2,
    )
    assert result["model"] == "bert_classifier"
    assert result["accuracy"] > 0.9


def test_a_base_model_that_does_not_suit_the_task_is_rejected(home, tmp_path):
    for task, base, message in (
        ("generate", "classify", "not for generate"),
        ("translate", "generate", "not for translate"),
        ("fill-mask", "generate", "not for fill-mask"),
    ):
        with pytest.raises(GlassError, match=message):
            train(task, home / "book.txt", base=home / base, run=tmp_path / task)
    with pytest.raises(
        GlassError, match="can only be fine-tuned as bert_classifier, not as classifier"
    ):
        train("classify", base=home / "fill-mask", model="classifier", run=tmp_path / "y")
    Model(CASES["bert"].network).save(tmp_path / "mute")
    with pytest.raises(GlassError, match="has no tokenizer"):
        train("classify", home / "labels.csv", base=tmp_path / "mute", run=tmp_path / "z")


def test_new_embedding_rows_are_initialized_with_the_mean():
    make = lambda **sizes: MODELS["gpt2"](MODELS["gpt2"].Config(**sizes))
    sizes = {"dim": 8, "depth": 1, "heads": 2, "dropout": 0.0}
    small = make(vocab=10, context=4, **sizes)
    large = make(vocab=12, context=6, **sizes)
    assert load_matching(large, small.state_dict()) == []
    assert torch.equal(large.token.weight[:10], small.token.weight)
    torch.testing.assert_close(large.token.weight[11], small.token.weight.mean(dim=0))
    assert torch.equal(large.position.weight[:4], small.position.weight)


# --- freezing and learning rates ------------------------------------------------------------------


def test_frozen_parameters_do_not_change(home, tmp_path):
    train(
        "generate",
        home / "book.txt",
        base=home / "generate",
        run=tmp_path / "run",
        freeze=["token.*", "blocks.0.*"],
        weight_decay=0.5,
        ema_decay=0.5,
    )
    ours, theirs = (load(x).network.state_dict() for x in (tmp_path / "run", home / "generate"))
    for name in (n for n, v in ours.items() if v.is_floating_point()):  # not the prior's counts
        is_frozen = name.startswith(("token.", "blocks.0."))
        assert torch.equal(ours[name], theirs[name]) == is_frozen, name
    for freeze, message in (
        (["tokn*"], "no parameter matches 'tokn"),
        (["*"], "all parameters are frozen"),
    ):
        with pytest.raises(GlassError, match=message):
            train(
                "generate",
                home / "book.txt",
                base=home / "generate",
                run=tmp_path / "x",
                freeze=freeze,
            )


def test_blocks_nearer_the_input_have_a_smaller_learning_rate():
    network = CASES["gpt2"].network
    assert [
        layers_after(network, n)
        for n in (
            "token.weight",
            "blocks.0.attention.query.weight",
            "blocks.1.norm1.weight",
            "norm.weight",
        )
    ] == [2, 1, 0, 0]
    groups = adamw(network, TrainingSettings(layer_lr_decay=0.5), None).param_groups
    scales = {id(p): g["scale"] for g in groups for p in g["params"]}
    assert scales[id(network.token.weight)] == 0.25
    assert scales[id(network.blocks[0].attention.query.weight)] == 0.5
    assert scales[id(network.norm.weight)] == 1.0


# --- averaging ------------------------------------------------------------------------------------


def test_weights_of_runs_are_averaged(home, tmp_path):
    for seed in (1, 2):
        train(
            "generate",
            home / "book.txt",
            base=home / "generate",
            run=tmp_path / f"r{seed}",
            seed=seed,
        )
    runs = [tmp_path / "r1", tmp_path / "r2"]
    average(runs, tmp_path / "mean")
    mean, *both = (
        load(p).network.state_dict() for p in (tmp_path / "mean", *(r / "last" for r in runs))
    )
    for name, value in mean.items():
        expected = ((both[0][name] + both[1][name]) / 2).to(value.dtype)
        torch.testing.assert_close(value, expected)
    assert load(tmp_path / "mean").task["name"] == "generate"
    with pytest.raises(GlassError, match="their models differ"):
        average([runs[0], home / "classify"], tmp_path / "x")
    with pytest.raises(GlassError, match="already exists"):
        average(runs, tmp_path / "mean")
    shutil.copytree(home / "classify", tmp_path / "other")
    file = tmp_path / "other" / "last" / "config.toml"
    file.write_text(file.read_text().replace(load(home / "classify").task["labels"][0], "another"))
    (file.parent / MANIFEST).unlink()
    write_manifest(file.parent)
    with pytest.raises(GlassError, match="their labels differ"):
        average([home / "classify", tmp_path / "other"], tmp_path / "x")
