"""Every model obeys the laws in `glassformer.laws`; further tests of models and their errors."""

import copy
import importlib
import pkgutil

import pytest
import torch

import glassformer.laws
from cases import CASES, LENGTH, ids, source, subject, with_traits
from glassformer import MODELS, GlassError, Trace, load
from glassformer.api import Model
from glassformer.laws import LAWS, BrokenLawError, Law, Subject, check_laws, laws_for
from glassformer.models.network import PROTOCOLS, Trait
from glassformer.nn.masks import full
from glassformer.text.plain import Characters

close = torch.testing.assert_close
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}
LAWS_OF_CASES = [(law, name) for name in CASES for law in laws_for(CASES[name].network)]


def cases(*traits, without=None):
    """Run a test for each case that has all of these traits, and not `without`."""
    return pytest.mark.parametrize("case", with_traits(*traits, without=without), indirect=True)


@pytest.fixture
def case(request):
    """A copy, so that tests do not share changes to a network."""
    return copy.deepcopy(CASES[request.param])


def test_every_model_has_a_case():
    assert {case.name for case in CASES.values()} == set(MODELS)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "name"), LAWS_OF_CASES)
def test_law_holds_and_does_not_change_the_network(law, name):
    network = CASES[name].network
    state, rng_state = network_state(network), torch.get_rng_state()
    LAWS[law](subject(name))
    assert network_state(network) == state
    assert torch.equal(torch.get_rng_state(), rng_state)


def network_state(network):
    """Everything that a law could change; `_version` counts in-place changes of a tensor."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return (
        {n: (x.data_ptr(), x._version, x.requires_grad, x.grad) for n, x in tensors.items()},
        {n: (m.training, len(m._forward_hooks)) for n, m in network.named_modules()},
    )


def test_every_law_is_listed_and_applies_to_a_case():
    laws = {}
    for module in pkgutil.iter_modules(glassformer.laws.__path__):
        values = vars(importlib.import_module(f"glassformer.laws.{module.name}")).values()
        laws |= {value.name: value for value in values if isinstance(value, Law)}
    assert len(laws) >= 25
    assert laws == LAWS
    assert all(law.description.endswith(".") for law in LAWS.values())
    assert {law for law, _ in LAWS_OF_CASES} == set(LAWS)


def test_laws_are_chosen_by_traits():
    assert set(laws_for(CASES["nb_svm"].network)) == {
        "padding changes nothing",
        "padding ids do not matter",
        "sequence of only padding is finite",
        "tracing changes nothing",
        "batch of one equals batch of many",
        "copy gives the same output",
    }
    tied = "tied head and embedding share one gradient"
    assert tied in laws_for(CASES["wide llama"].network)
    assert tied not in laws_for(CASES["llama"].network)  # its head is not tied
    translator = laws_for(CASES["translator"].network)
    assert "source order comes from its positions" in translator
    assert "permuted input gives permuted output" not in translator


def test_a_broken_law_reports_its_name_the_network_and_the_difference():
    network = copy.deepcopy(CASES["gpt2"].network)
    network.blocks[0].attention.mask = full
    results = {result.law.name: result for result in check_laws(network, name="leaky")}
    assert set(results) == set(laws_for(network))
    assert not results["future is hidden"].holds
    assert results["copy gives the same output"].holds
    error = results["future is hidden"].error
    assert isinstance(error, BrokenLawError)
    assert (error.law, error.network) == ("future is hidden", "leaky")
    assert error.difference > 1e-4
    assert str(error).startswith("leaky: the law 'future is hidden' does not hold before the")
    assert str(error).endswith(f"(difference {error.difference:.3g})")


def test_a_network_that_cannot_run_breaks_laws_without_stopping_the_check():
    network = copy.deepcopy(CASES["gpt2"].network)
    network.features = None
    results = list(check_laws(network))
    assert len(results) == len(laws_for(network))
    assert [r.law.name for r in results if r.holds] == ["builds on the meta device"]
    assert isinstance(results[0].error, TypeError)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {"vocab": 300, "context": 4, "dim": 64, "depth": 1, "heads": 2, "dropout": 0.1}),
        ("llama", {"vocab": 2000, "context": 64, "dim": 128, "depth": 3, "heads": 4}),
        ("translator", {"vocab": 97, "dim": 64, "depth": 1, "heads": 2, "hidden": 96}),
        ("bert_classifier", {"vocab": 80, "context": 9, "dim": 48, "heads": 3, "classes": 2}),
    ],
)
def test_laws_hold_for_networks_of_other_sizes_in_any_state(name, settings):
    """Freshly initialized, in training mode with dropout, and partly frozen."""
    network = MODELS[name](MODELS[name].Config(**settings)).train()
    next(network.parameters()).requires_grad_(False)
    state = network_state(network)
    broken = [str(result.error) for result in check_laws(network) if not result.holds]
    assert not broken
    assert network_state(network) == state


def test_a_context_that_is_too_short_for_laws_is_rejected():
    model_class = MODELS["gpt2"]
    network = model_class(model_class.Config(vocab=50, context=3, dim=32, depth=1, heads=4))
    with pytest.raises(GlassError, match="at least 4 tokens, got 3"):
        next(check_laws(network))


# --- further tests of models ----------------------------------------------------------------------


def keep_with_left_padding():
    return torch.arange(LENGTH) >= torch.tensor([[0], [3], [7]])


@cases(Trait.CACHED)
@torch.no_grad()
def test_a_cache_rejects_another_batch_size(case):
    cache = case.network.cache(LENGTH)
    case(ids()[:, :6], cache=cache)
    with pytest.raises(ValueError, match="the cache has batch size 3, got 1"):
        case(ids()[:1, 6:], cache=cache)


@cases(Trait.CACHED, Trait.SEQ2SEQ)
@torch.no_grad()
def test_a_cache_with_a_source_rejects_another_source(case):
    cache = case.network.cache(LENGTH)
    case(ids()[:, :6], cache=cache)
    with pytest.raises(ValueError, match="the cache already holds a source"):
        case.network(ids()[:, 6:], source=source(3), cache=cache)


@cases(Trait.CACHED, Trait.ATTENTION, without=Trait.SEGMENT_MEMORY)
@torch.no_grad()
def test_cache_buffers_grow_with_the_number_of_tokens(case):
    cache = case.network.cache(131_072)
    case(ids()[:, :6], cache=cache)
    sizes = [layer_cache.keys.shape[2] for layer_cache in cache.layers]
    assert max(sizes) <= 64
    text = ids(3, 30)
    cache, steps = case.network.cache(30), []
    with pytest.MonkeyPatch.context() as patch:  # the buffers grow several times
        patch.setattr("glassformer.nn.cache.MIN_CAPACITY", 2)
        steps = [case(chunk, cache=cache) for chunk in text.split(3, dim=1)]
    close(torch.cat(steps, dim=1), case(text), **TOLERANCE)


@cases(Trait.CACHED)
@torch.no_grad()
def test_a_cache_rejects_more_tokens_than_its_capacity(case):
    cache = case.network.cache(4)
    with pytest.raises(ValueError, match=r"it has \d+ of at most 4 tokens, got \d+ more"):
        case(ids(length=5), cache=cache)


@cases()
@torch.no_grad()
def test_saving_and_loading_changes_nothing(case, tmp_path):
    reads_ids = "ids" in case.network.forward_inputs
    tokenizer = Characters("abc", ["<unk>", "<end>"]) if reads_ids else None
    Model(case.network, tokenizer).save(tmp_path / "model")
    loaded, subject = load(tmp_path / "model"), Subject(case.network)
    inputs = subject.examples()
    assert torch.equal(Subject(loaded.network).run(inputs), subject.run(inputs))
    assert loaded.config == case.network.config
    if loaded.tokenizer:
        assert loaded.tokenizer.special_tokens == {"<unk>": 0, "<end>": 1}


@cases()
def test_an_empty_input_is_rejected(case):
    if "ids" not in case.network.forward_inputs:
        pytest.skip("its inputs are not sequences")
    with pytest.raises(ValueError, match="no tokens to read"):
        case(ids(length=0))


def test_a_tokenizer_of_a_model_that_does_not_read_text_is_rejected(tmp_path):
    Model(CASES["vision"].network, Characters("abc", ["<unk>"])).save(tmp_path / "model")
    with pytest.raises(GlassError, match="has a tokenizer, but its model does not read text"):
        load(tmp_path / "model")


@pytest.mark.parametrize("name", ["classifier", "generator", "bert", "gpt2"])
def test_a_sequence_longer_than_the_context_is_rejected(name):
    with pytest.raises(ValueError, match="33 tokens do not fit in a context of 32"):
        CASES[name](ids(length=33))


def test_padding_does_not_count_against_the_context():
    gpt2, text = CASES["gpt2"].network, ids(1, 40)
    keep = torch.arange(40)[None] >= 10
    close(gpt2(text, keep=keep)[:, 10:], gpt2(text[:, 10:]), **TOLERANCE)


def test_keep_may_be_integers_and_ids_must_be_a_batch():
    gpt2, text, keep = CASES["gpt2"].network, ids(), keep_with_left_padding()
    assert torch.equal(gpt2(text, keep=keep.long()), gpt2(text, keep=keep))
    with pytest.raises(ValueError, match=r"expected ids of shape \(batch, tokens\), got \(12,\)"):
        gpt2(text[0])


@pytest.mark.parametrize(
    "name",
    [
        *("gpt2", "generator", "classifier", "bert", "llama", "translator", "transformer_xl"),
        *("speedrun", "speedrun_translator", "universal: True", "universal_classifier: True"),
        *("universal_translator: True", "summarizer", "sparse: fixed, heads", "sasrec", "vision"),
    ],
)
@torch.no_grad()
def test_dropout_is_applied_where_the_paper_has_it(name):
    """About half of each layer's output is 0 in training mode, and nothing in eval mode."""
    case = CASES[name]
    model_class = MODELS[case.name]
    network = model_class(model_class.Config(**{**case.settings, "dropout": 0.5})).train()
    for parameter in network.parameters():  # output layers may start at zero
        parameter.add_(torch.randn_like(parameter) * 0.05)
    inputs, fractions = case.inputs(), {}

    def record_zeros(key):
        def record(x):
            fractions[key] = float((x == 0).float().mean())
            return x

        return record

    layers = ("*.1.attention", "*.1.feedforward")  # the first attention of a summarizer is local
    if name == "sparse: fixed, heads":
        layers = layers[1:]
    if name.startswith("universal"):
        layers = ("*.0.attention", "*.0.feedforward")
    edits = {key: record_zeros(key) for key in layers}
    with Trace(network, edit=edits):
        network(**inputs)
    assert fractions.keys() == edits.keys()
    assert all(0.4 < fraction < 0.6 for fraction in fractions.values())
    assert not torch.equal(network(**inputs), network(**inputs))
    network.eval()
    assert torch.equal(network(**inputs), network(**inputs))


@pytest.mark.parametrize("depth", [2, 8])
def test_initial_output_weights_of_gpt2_shrink_with_the_depth(depth):
    """Two layers per block add to the residual stream: their std is divided by √(2 * depth)."""
    model_class = MODELS["gpt2"]
    network = model_class(model_class.Config(vocab=50, context=16, dim=128, depth=depth, heads=4))
    for name, weight in network.named_parameters():
        if name.endswith(("attention.out.weight", "feedforward.down.weight")):
            assert float(weight.detach().std()) == pytest.approx(
                0.02 / (2 * depth) ** 0.5, rel=0.05
            ), name
        elif name.endswith("query.weight"):
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05), name


def test_masked_logits_of_bert_equal_its_output_at_masked_positions():
    text, bert = ids(), CASES["bert"].network
    masked_positions = torch.rand(text.shape) < 0.3
    logits = bert.masked_logits(text, masked_positions)
    close(logits.tokens, bert(text)[masked_positions])
    first = bert.features(text)[:, 0]
    close(logits.is_next, bert.head(torch.tanh(bert.pooler.dense(first))))


@pytest.mark.parametrize("name", CASES)
def test_a_trait_implies_its_protocol(name):
    network = CASES[name].network
    for trait, protocol in PROTOCOLS.items():
        if network.has(trait):
            assert isinstance(network, protocol), trait
    if network.has(Trait.SEGMENTED):
        assert "segments" in network.forward_inputs
    if "ids" in network.forward_inputs:
        assert network.has(Trait.FITTED) != bool(network.embeddings)
    for path in (*network.stacks, *network.embeddings, *network.output_heads):
        parent, _, name = path.rpartition(".")
        assert hasattr(network.get_submodule(parent), name), path


def test_bert_classifier_applies_dropout_to_the_pooled_features_in_training():
    model_class, pooled = MODELS["bert_classifier"], []
    settings = {**CASES["bert_classifier"].settings, "dropout": 0.5}
    network = model_class(model_class.Config(**settings)).train()
    network.head.register_forward_pre_hook(lambda _, inputs: pooled.append(inputs[0]))
    network(ids(8))
    assert 0.4 < float((pooled[0] == 0).float().mean()) < 0.6
    network.eval()(ids(8))
    assert (pooled[1] != 0).all()


def test_segments_change_the_output_of_bert():
    text, segments = ids(), (torch.arange(LENGTH) >= 6).long().expand(3, -1)
    bert = CASES["bert"].network
    assert not torch.allclose(bert(text), bert(text, segments=segments), **TOLERANCE)


def test_a_translator_without_a_source_is_rejected():
    with pytest.raises(ValueError, match="needs source ids"):
        CASES["translator"].network(ids())
