"""Every model obeys the laws of `glassformer.laws`; what one model or one error says is below."""

import copy
import importlib
import pkgutil

import pytest
import torch

import glassformer.laws
from cases import CASES, LENGTH, ids, source, subject, with_traits
from glassformer import MODELS, GlassError, Trace, load
from glassformer.api import Model
from glassformer.laws import LAWS, BrokenLawError, Law, check_laws, laws_for
from glassformer.models.network import PROTOCOLS, Trait
from glassformer.nn.masks import full
from glassformer.text.plain import Characters

close = torch.testing.assert_close
loosely = {"atol": 1e-5, "rtol": 1e-5}
LAWS_OF_CASES = [(law, name) for name in CASES for law in laws_for(CASES[name].network)]


def cases(*traits, without=None):
    """Run a test over the models that have these traits, without those that have another."""
    return pytest.mark.parametrize("case", with_traits(*traits, without=without), indirect=True)


@pytest.fixture
def case(request):
    """A copy, so that no test sees what another did to a network."""
    return copy.deepcopy(CASES[request.param])


def test_every_model_has_a_case():
    assert {case.name for case in CASES.values()} == set(MODELS)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "name"), LAWS_OF_CASES)
def test_the_law_holds_and_its_check_changes_nothing(law, name):
    network = CASES[name].network
    previous_ids, random = state_of(network), torch.get_rng_state()
    LAWS[law](subject(name))
    assert state_of(network) == previous_ids
    assert torch.equal(torch.get_rng_state(), random)


def state_of(network):
    """All that a law could change; the versions of parameters count their changes."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return (
        {n: (x.data_ptr(), x._version, x.requires_grad, x.grad) for n, x in tensors.items()},
        {n: (m.training, len(m._forward_hooks)) for n, m in network.named_modules()},
    )


def test_every_law_is_in_the_registry_and_applies_to_some_case():
    found = {}
    for module in pkgutil.iter_modules(glassformer.laws.__path__):
        values = vars(importlib.import_module(f"glassformer.laws.{module.name}")).values()
        found |= {value.name: value for value in values if isinstance(value, Law)}
    assert len(found) >= 25
    assert found == LAWS
    assert all(law.description.endswith(".") for law in LAWS.values())
    assert {law for law, _ in LAWS_OF_CASES} == set(LAWS)


def test_laws_are_chosen_by_traits():
    assert set(laws_for(CASES["nb_svm"].network)) == {
        "padding changes nothing",
        "ids of padding do not matter",
        "text of padding alone is finite",
        "tracing changes nothing",
        "batch of one equals batch of many",
        "copy gives the same",
    }
    tied = "tied head and embedding share one gradient"
    assert tied in laws_for(CASES["wide llama"].network)
    assert tied not in laws_for(CASES["llama"].network)  # its head has weights of its own
    translator = laws_for(CASES["translator"].network)
    assert "order of the source is in its positions" in translator
    assert "permuted text gives permuted output" not in translator


def test_a_broken_law_names_itself_the_network_and_the_difference():
    network = copy.deepcopy(CASES["gpt2"].network)
    network.blocks[0].attention.mask = full
    results = {result.law.name: result for result in check_laws(network, name="leaky")}
    assert set(results) == set(laws_for(network))
    assert not results["future is hidden"].holds
    assert results["copy gives the same"].holds
    error = results["future is hidden"].error
    assert isinstance(error, BrokenLawError)
    assert (error.law, error.network) == ("future is hidden", "leaky")
    assert error.difference > 1e-4
    assert str(error).startswith("leaky: future is hidden: it does not hold before the tokens that")
    assert str(error).endswith(f"(difference {error.difference:.3g})")


def test_a_network_that_cannot_run_breaks_laws_and_the_others_are_checked():
    network = copy.deepcopy(CASES["gpt2"].network)
    network.features = None
    results = list(check_laws(network))
    assert len(results) == len(laws_for(network))
    assert [r.law.name for r in results if r.holds] == ["it can be built without memory"]
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
    """Untouched by the tests' noise, while it learns with dropout, and partly frozen."""
    network = MODELS[name](MODELS[name].Config(**settings)).train()
    next(network.parameters()).requires_grad_(False)
    previous_ids = state_of(network)
    broken = [str(result.error) for result in check_laws(network) if not result.holds]
    assert not broken
    assert state_of(network) == previous_ids


def test_laws_need_a_few_tokens():
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=50, context=3, dim=32, depth=1, heads=4))
    with pytest.raises(GlassError, match="texts of 4 tokens, not 3"):
        next(check_laws(network))


# --- what is not a law ----------------------------------------------------------------------------


def padded_left():
    return torch.arange(LENGTH) >= torch.tensor([[0], [3], [7]])


@cases(Trait.CACHED)
@torch.no_grad()
def test_a_cache_is_of_one_batch(case):
    cache = case.network.cache(LENGTH)
    case(ids()[:, :6], cache=cache)
    with pytest.raises(ValueError, match="holds 3 texts; 1 were given"):
        case(ids()[:1, 6:], cache=cache)


@cases(Trait.CACHED, Trait.SEQ2SEQ)
@torch.no_grad()
def test_a_cache_that_holds_a_source_takes_no_other(case):
    cache = case.network.cache(LENGTH)
    case(ids()[:, :6], cache=cache)
    with pytest.raises(ValueError, match="the cache holds a source already"):
        case.network(ids()[:, 6:], source=source(3), cache=cache)


@cases(Trait.CACHED, Trait.ATTENTION)
@torch.no_grad()
def test_a_cache_takes_memory_for_what_it_holds(case):
    cache = case.network.cache(131_072)
    case(ids()[:, :6], cache=cache)
    room = [layer_cache.keys.shape[2] for layer_cache in cache.layers]
    assert max(room) <= 64
    long = ids(3, 30)
    cache, steps = case.network.cache(30), []
    with pytest.MonkeyPatch.context() as patch:  # so that it grows on the way
        patch.setattr("glassformer.nn.cache.MIN_CAPACITY", 2)
        steps = [case(part, cache=cache) for part in long.split(3, dim=1)]
    close(torch.cat(steps, dim=1), case(long), **loosely)


@cases(Trait.CACHED)
@torch.no_grad()
def test_a_full_cache_says_so(case):
    cache = case.network.cache(4)
    with pytest.raises(ValueError, match="holds 4 tokens; 5 do not fit"):
        case(ids(length=5), cache=cache)


@cases()
@torch.no_grad()
def test_saving_and_loading_changes_nothing(case, tmp_path):
    tokenizer = Characters("abc", ["<unk>", "<end>"])
    Model(case.network, tokenizer).save(tmp_path / "model")
    back = load(tmp_path / "model")
    text = ids()
    again = copy.copy(case)
    again.network = back.network
    assert torch.equal(again(text), case(text))
    assert back.config == case.network.config
    assert back.tokenizer.special_tokens == {"<unk>": 0, "<end>": 1}


@cases()
def test_no_text_at_all_is_refused(case):
    with pytest.raises(ValueError, match="no tokens to read"):
        case(ids(length=0))


@pytest.mark.parametrize("name", ["classifier", "generator", "bert", "gpt2"])
def test_a_text_longer_than_the_context_is_refused(name):
    with pytest.raises(ValueError, match="33 tokens do not fit into a context of 32"):
        CASES[name](ids(length=33))


def test_padding_does_not_count_against_the_context():
    gpt2, text = CASES["gpt2"].network, ids(1, 40)
    keep = torch.arange(40)[None] >= 10
    close(gpt2(text, keep=keep)[:, 10:], gpt2(text[:, 10:]), **loosely)


def test_keep_may_be_numbers_and_ids_must_be_a_batch():
    gpt2, text = CASES["gpt2"].network, ids()
    assert torch.equal(gpt2(text, keep=padded_left().long()), gpt2(text, keep=padded_left()))
    with pytest.raises(ValueError, match="a batch of texts"):
        gpt2(text[0])


@pytest.mark.parametrize("name", ["gpt2", "generator", "classifier", "bert", "llama", "translator"])
def test_dropout_is_applied_where_the_paper_has_it(name):
    """About half of what each layer gives is 0 while it learns, and nothing afterwards."""
    kind = MODELS[name]
    settings = {**CASES[name].settings, "dropout": 0.5}
    network = kind(kind.Config(**settings)).train()
    more = {"source": source(3)} if name == "translator" else {}
    zeros = {}

    def share(key):
        def count(x):
            zeros[key] = float((x == 0).float().mean())
            return x

        return count

    edits = {key: share(key) for key in ("*.0.attention", "*.0.feedforward")}
    with Trace(network, edit=edits):
        network(ids(), **more)
    assert zeros.keys() == edits.keys()
    assert all(0.4 < part < 0.6 for part in zeros.values())
    assert not torch.equal(network(ids(), **more), network(ids(), **more))
    network.eval()
    text = ids()
    assert torch.equal(network(text, **more), network(text, **more))


@pytest.mark.parametrize("depth", [2, 8])
def test_what_a_new_gpt2_adds_to_its_stream_shrinks_with_its_depth(depth):
    """Two layers of each block add to it: each starts smaller by the root of twice the depth."""
    kind = MODELS["gpt2"]
    network = kind(kind.Config(vocab=50, context=16, dim=128, depth=depth, heads=4))
    for name, weight in network.named_parameters():
        if name.endswith(("attention.out.weight", "feedforward.down.weight")):
            assert float(weight.detach().std()) == pytest.approx(
                0.02 / (2 * depth) ** 0.5, rel=0.05
            ), name
        elif name.endswith("query.weight"):
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05), name


def test_bert_predicts_where_it_is_asked_as_it_does_everywhere():
    text, bert = ids(), CASES["bert"].network
    masked_positions = torch.rand(text.shape) < 0.3
    found = bert.masked_logits(text, masked_positions)
    close(found.tokens, bert(text)[masked_positions])
    first = bert.features(text)[:, 0]
    close(found.is_next, bert.head(torch.tanh(bert.pooler.dense(first))))


@pytest.mark.parametrize("name", CASES)
def test_a_trait_implies_its_protocol(name):
    network = CASES[name].network
    for trait, protocol in PROTOCOLS.items():
        if network.has(trait):
            assert isinstance(network, protocol), trait
    if network.has(Trait.SEGMENTED):
        assert "segments" in network.forward_inputs
    assert network.has(Trait.FITTED) != bool(network.embeddings and network.stacks)
    for path in (*network.stacks, *network.embeddings, *network.heads):
        parent, _, name = path.rpartition(".")
        assert hasattr(network.get_submodule(parent), name), path


def test_a_bert_that_sorts_drops_some_of_the_pooled_text_while_it_learns():
    kind, heard = MODELS["bert_classifier"], []
    network = kind(kind.Config(**{**CASES["bert_classifier"].settings, "dropout": 0.5})).train()
    network.head.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    network(ids(8))
    assert 0.4 < float((heard[0] == 0).float().mean()) < 0.6
    network.eval()(ids(8))
    assert (heard[1] != 0).all()


def test_the_second_sentence_is_told_from_the_first():
    text, second = ids(), (torch.arange(LENGTH) >= 6).long().expand(3, -1)
    bert = CASES["bert"].network
    assert not torch.allclose(bert(text), bert(text, segments=second), **loosely)


def test_a_translator_without_source_says_what_it_needs():
    with pytest.raises(ValueError, match="needs source ids"):
        CASES["translator"].network(ids())
