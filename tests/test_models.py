"""The laws: what must hold for every model that has the trait which a law names."""

import copy

import pytest
import torch
import torch.nn.functional as F

from cases import CASES, LENGTH, VOCAB, ids, source, with_traits
from glassformer import MODELS, Trace, load
from glassformer.api import Model
from glassformer.models.network import PROTOCOLS, Trait
from glassformer.text.plain import Characters

close = torch.testing.assert_close
STACKS = ("blocks", "layers", "decoder")
loosely = {"atol": 1e-5, "rtol": 1e-5}


def cases(*traits, without=None):
    """Run a law over the models that have these traits, without those that have another."""
    return pytest.mark.parametrize("case", with_traits(*traits, without=without), indirect=True)


@pytest.fixture
def case(request):
    """A copy, so that no test sees what another did to a network."""
    return copy.deepcopy(CASES[request.param])


def position_of(network):
    return next(name for name in network.embeddings if name.endswith("position"))


def named_in(network, path):
    return [(name, p) for name, p in network.named_parameters() if name.startswith(f"{path}.")]


def test_every_model_has_a_case():
    assert {case.name for case in CASES.values()} == set(MODELS)


# --- causal ---------------------------------------------------------------------------------------


@cases(Trait.CAUSAL)
@torch.no_grad()
def test_the_future_is_hidden(case):
    before = ids()
    after = before.clone()
    after[:, 8:] = (after[:, 8:] + 1) % VOCAB
    assert torch.equal(case(before)[:, :8], case(after)[:, :8])
    assert not torch.equal(case(before)[:, 8:], case(after)[:, 8:])


@cases(Trait.CAUSAL, Trait.ATTENTION)
@pytest.mark.parametrize("patterns", [(), ("*.pattern",)], ids=["fused", "open"])
def test_no_gradient_comes_back_from_beyond_the_mask(case, patterns):
    leaves = []

    def leaf(x):
        leaves.append(x.detach().requires_grad_())
        return leaves[-1]

    case.network.requires_grad_(True)
    with Trace(case.network, *patterns, edit={"token": leaf}):
        case(ids())[:, :8].sum().backward()
    gradient = leaves[-1].grad  # of the target, which a translator embeds last
    assert (gradient[:, 8:] == 0).all()
    assert (gradient[:, :8] != 0).all(dim=-1).all()


# --- cached ---------------------------------------------------------------------------------------


@cases(Trait.CACHED)
@pytest.mark.parametrize("chunk", [1, 5, LENGTH])
@torch.no_grad()
def test_cached_steps_equal_one_pass(case, chunk):
    text, cache = ids(), case.network.cache(LENGTH)
    steps = [case(part, cache=cache) for part in text.split(chunk, dim=1)]
    close(torch.cat(steps, dim=1), case(text), **loosely)


@cases(Trait.CACHED)
@pytest.mark.parametrize("chunk", [1, 5])
@torch.no_grad()
def test_cached_steps_equal_one_pass_with_padding_on_the_left(case, chunk):
    text, keep, cache = ids(), padded_left(), case.network.cache(LENGTH)
    pieces = zip(text.split(chunk, dim=1), keep.split(chunk, dim=1), strict=True)
    steps = [case(part, keep=kept, cache=cache) for part, kept in pieces]
    close(torch.cat(steps, dim=1)[keep], case(text, keep=keep)[keep], **loosely)


@cases(Trait.CACHED)
@torch.no_grad()
def test_only_the_prompt_needs_to_say_what_is_padding(case):
    text, keep, cache = ids(), padded_left(), case.network.cache(LENGTH)
    case(text[:, :8], keep=keep[:, :8], cache=cache)
    close(case(text[:, 8:], cache=cache), case(text, keep=keep)[:, 8:], **loosely)


@cases(Trait.CACHED)
@torch.no_grad()
def test_a_cache_goes_on_with_the_rows_that_are_selected(case):
    text, keep, rows = ids(), padded_left(), torch.tensor([2, 0, 0, 1])
    whole = case(text, keep=keep)[rows]
    cache = case.network.cache(LENGTH)
    case(text[:, :8], keep=keep[:, :8], cache=cache)
    cache.select(rows)
    close(case(text[rows, 8:], cache=cache), whole[:, 8:], **loosely)


@cases(Trait.CACHED, without=Trait.FITTED)
@torch.no_grad()
def test_a_pass_that_fails_leaves_the_cache_as_it_was(case):
    text, cache = ids(), case.network.cache(LENGTH)
    case(text[:, :8], keep=padded_left()[:, :8], cache=cache)

    def fail(_):
        raise ArithmeticError("as planned")

    names = [name for name, _ in case.network.named_children() if name in STACKS]
    trace = Trace(case.network, edit={f"{names[-1]}.0": fail})  # the layers behind it read nothing
    with pytest.raises(ArithmeticError), trace:
        case(text[:, 8:10], cache=cache)
    again = case(text[:, 8:], cache=cache)
    close(again, case(text, keep=padded_left())[:, 8:], **loosely)


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
    room = [past.keys.shape[2] for past in cache.pasts]
    assert max(room) <= 64
    long = ids(3, 30)
    cache, steps = case.network.cache(30), []
    with pytest.MonkeyPatch.context() as patch:  # so that it grows on the way
        patch.setattr("glassformer.nn.cache.SMALLEST", 2)
        steps = [case(part, cache=cache) for part in long.split(3, dim=1)]
    close(torch.cat(steps, dim=1), case(long), **loosely)


@cases(Trait.CACHED)
@torch.no_grad()
def test_a_full_cache_says_so(case):
    cache = case.network.cache(4)
    with pytest.raises(ValueError, match="holds 4 tokens; 5 do not fit"):
        case(ids(length=5), cache=cache)


# --- padded ---------------------------------------------------------------------------------------


def padded_left():
    return torch.arange(LENGTH) >= torch.tensor([[0], [3], [7]])


def padded_right():
    return padded_left().flip(1)


@cases(Trait.PADDED)
@pytest.mark.parametrize("keep", [padded_left(), padded_right()], ids=["left", "right"])
@torch.no_grad()
def test_padding_changes_nothing(case, keep):
    text = ids()
    together = case(text, keep=keep)
    for row, kept in enumerate(keep):
        more = {"source": source(3)[row : row + 1]} if case.has(Trait.SEQ2SEQ) else {}
        alone = case(text[row : row + 1, kept], **more)[0]
        close(together[row] if alone.ndim == 1 else together[row, kept], alone, **loosely)


@cases(Trait.PADDED)
@pytest.mark.parametrize("keep", [padded_left(), padded_right()], ids=["left", "right"])
@torch.no_grad()
def test_what_stands_in_the_padding_does_not_matter(case, keep):
    text = ids()
    other = torch.where(keep, text, (text + 1) % VOCAB)
    if case.has(Trait.CLASSIFIER):
        assert torch.equal(case(text, keep=keep), case(other, keep=keep))
    else:
        assert torch.equal(case(text, keep=keep)[keep], case(other, keep=keep)[keep])


@cases(Trait.SEQ2SEQ)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_of_the_source_changes_nothing(case, side):
    text, given, junk = ids(1), source(1), torch.full((1, 2), 9)
    keep = torch.ones(1, 9, dtype=torch.bool)
    keep[:, slice(2) if side == "left" else slice(7, None)] = False
    longer = torch.cat((junk, given) if side == "left" else (given, junk), dim=1)
    plain = case(text, source=given)
    close(case(text, source=longer, source_keep=keep), plain, **loosely)
    cache = case.network.cache(LENGTH)
    steps = [case(text[:, :5], source=longer, source_keep=keep, cache=cache)]
    steps += [case(text[:, 5:], cache=cache)]
    close(torch.cat(steps, dim=1), plain, **loosely)


@cases(Trait.PADDED)
def test_a_text_of_padding_alone_gives_finite_numbers_and_gradients(case):
    text, keep = ids(), padded_right()
    keep[1] = False
    case.network.zero_grad()
    logits = case(text, keep=keep)
    assert logits.isfinite().all()
    if not case.has(Trait.FITTED):
        logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in case.network.parameters())


# --- positionless ---------------------------------------------------------------------------------


@cases(Trait.POSITIONLESS)
@torch.no_grad()
def test_without_positions_a_permuted_text_gives_a_permuted_answer(case):
    network, text, order = copy.deepcopy(case.network), ids(), torch.randperm(LENGTH)
    if case.has(Trait.FIRST_TOKEN):  # the first token stands for the whole, so it stays the first
        order = torch.cat((torch.zeros(1, dtype=torch.long), torch.randperm(LENGTH - 1) + 1))

    def both():
        answer = network(text)
        return network(text[:, order]), answer if case.has(Trait.CLASSIFIER) else answer[:, order]

    assert not torch.allclose(*both(), **loosely)
    network.get_parameter(f"{position_of(network)}.weight").zero_()
    close(*both(), **loosely)


@cases(Trait.SEQ2SEQ, Trait.ATTENTION)
@torch.no_grad()
def test_without_positions_the_order_of_the_source_does_not_matter(case, monkeypatch):
    text, given = ids(), source(3)
    order = torch.tensor([3, 1, 6, 0, 5, 2, 4])
    ordered, permuted = case(text, source=given), case(text, source=given[:, order])
    assert not torch.allclose(ordered, permuted, **loosely)
    monkeypatch.setattr("glassformer.nn.positions.sinusoid", lambda at, dim: torch.zeros(dim))
    close(case(text, source=given), case(text, source=given[:, order]), **loosely)


# --- all ------------------------------------------------------------------------------------------


@cases()
@torch.no_grad()
def test_a_batch_of_one_equals_a_batch_of_many(case):
    text = ids()
    many = case(text)
    for row in range(len(text)):
        more = {"source": source(3)[row : row + 1]} if case.has(Trait.SEQ2SEQ) else {}
        close(case(text[row : row + 1], **more), many[row : row + 1], **loosely)


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
    assert back.tokenizer.specials == {"<unk>": 0, "<end>": 1}


@cases()
@torch.no_grad()
def test_tracing_changes_nothing(case):
    text = ids()
    plain = case(text)
    with Trace(case.network) as trace:
        close(case(text), plain, **loosely)
    close(trace["output"], plain, **loosely)
    if case.has(Trait.ATTENTION):
        assert sum(name.endswith("attention.pattern") for name in trace) >= 2
    with Trace(case.network, "*.attention", "*.q", allow_missing=True) as quiet:
        assert torch.equal(case(text), plain)  # nothing left the fused kernel
    assert all(name.endswith((".attention", ".q")) for name in quiet)
    assert torch.equal(case(text), plain)


@cases(without=Trait.FITTED)
def test_every_parameter_gets_a_gradient(case):
    """But for the bias of keys, which moves all scores of a query alike: the softmax removes it."""
    network = copy.deepcopy(case.network).requires_grad_(True)
    shaken = copy.copy(case)
    shaken.network = network
    torch.manual_seed(3)
    text = ids(6, LENGTH)
    logits = [shaken(text)]
    if case.has(Trait.MASKED_LM):
        asked, segments = torch.ones_like(text, dtype=torch.bool), (torch.arange(LENGTH) > 5).long()
        found = network.masked_logits(text, asked, segments.expand(6, -1))
        logits = [x for x in (found.tokens, found.follows) if x is not None]
    elif case.name == "bert_encoder":
        logits = [logits[0], network.pooler(logits[0])]
    sum((x * torch.randn_like(x)).sum() for x in logits).backward()
    for name, parameter in network.named_parameters():
        beyond = name.endswith("position.weight")  # places behind the text are not read
        gradient = parameter.grad[:LENGTH] if beyond else parameter.grad
        assert gradient is not None, name
        if name.endswith("key.bias") and "additive" not in vars(network.config).values():
            continue
        assert gradient.abs().max() > 1e-7, name


@cases(without=Trait.FITTED)
def test_a_tied_head_and_its_embedding_share_one_gradient(case):
    """The gradient of the table is that of both its uses, which two tables would get apart."""
    network = case.network
    own_head = any("weight" in n for h in network.heads for n, _ in named_in(network, h))
    predicts_tokens = any(map(case.has, (Trait.CAUSAL_LM, Trait.MASKED_LM, Trait.SEQ2SEQ)))
    if not predicts_tokens or (own_head and not case.has(Trait.MASKED_LM)):
        pytest.skip("its head has weights of its own")
    network = copy.deepcopy(case.network).requires_grad_(True)
    one = copy.copy(case)
    one.network = network
    torch.manual_seed(5)
    text = ids()
    weight = torch.randn_like(one(text))

    def loss():
        return (one(text) * weight).sum()

    loss().backward()
    table = network.get_parameter(f"{network.embeddings[0]}.weight")
    analytic = table.grad.clone()
    direction = torch.randn_like(table)
    with torch.no_grad():
        double = copy.deepcopy(network).double()
        one.network, weight = double, weight.double()
        values = []
        for sign in (1, -1):
            table = double.get_parameter(f"{network.embeddings[0]}.weight")
            table.add_(sign * 1e-6 * direction)
            values.append(float(loss()))
            table.sub_(sign * 1e-6 * direction)
    numeric = (values[0] - values[1]) / 2e-6
    assert float((analytic * direction).sum()) == pytest.approx(numeric, rel=2e-3, abs=1e-2)


@cases(without=Trait.FITTED)
def test_gradients_of_the_fast_and_the_open_way_match(case):
    text, gradients = ids(), []
    for patterns in ((), ("*",)):
        case.network.zero_grad()
        with Trace(case.network, *(patterns or ("nothing",)), allow_missing=True):
            case(text, keep=padded_right()).square().mean().backward()
        gradients.append([p.grad.clone() for p in case.network.parameters() if p.grad is not None])
    for fast, plain in zip(*gradients, strict=True):
        close(fast, plain, **loosely)


@cases()
@torch.no_grad()
def test_a_copy_gives_the_same(case):
    again = copy.copy(case)
    again.network = copy.deepcopy(case.network)
    text = ids()
    assert torch.equal(again(text), case(text))
    close(again(text, keep=padded_left()), case(text, keep=padded_left()))


@cases(without=Trait.FITTED)
def test_it_works_under_inference_mode_and_can_be_trained_afterwards(case):
    with torch.inference_mode(), Trace(case.network, "*.pattern", allow_missing=True) as trace:
        case(ids(), keep=padded_right())
    assert trace.visits or not case.has(Trait.ATTENTION)
    case(ids(), keep=padded_right()).sum().backward()


@cases(without=Trait.FITTED)
@torch.no_grad()
def test_half_precision_goes_through(case):
    half = copy.copy(case)
    half.network = copy.deepcopy(case.network).bfloat16()
    text, keep = ids(), padded_left()
    for patterns in (("nothing",), ("*",)):
        with Trace(half.network, *patterns, allow_missing=True):
            logits = half(text, keep=keep)
        assert logits.dtype == torch.bfloat16
        close(logits.float(), case(text, keep=keep), atol=0.2, rtol=0.1)


@cases(without=Trait.FITTED)
def test_one_batch_can_be_learnt(case):
    network = copy.deepcopy(case.network).train()
    learner = copy.copy(case)
    learner.network = network
    text, answers = ids(), torch.randint(0, VOCAB, (3, LENGTH))
    answers = torch.tensor([0, 1, 2]) if case.has(Trait.CLASSIFIER) else answers
    answers = answers % learner(text).shape[-1]
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(500):
        logits = learner(text)
        loss = F.cross_entropy(logits.flatten(0, -2), answers.flatten())
        if loss < 0.05:
            return
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    pytest.fail(f"the loss stays at {loss:.2f}")


@cases(Trait.COMPILED)
@torch.no_grad()
def test_the_compiler_takes_it_whole(case):
    compiled = copy.copy(case)
    text = ids()
    compiled.network = torch.compile(case.network, fullgraph=True, backend="eager")
    close(compiled(text), case(text), **loosely)
    close(compiled(text, keep=padded_left()), case(text, keep=padded_left()), **loosely)
    torch._dynamo.reset()


@cases(without=Trait.FITTED)
def test_it_can_be_built_without_memory(case):
    with torch.device("meta"):
        network = MODELS[case.name](case.network.config)
    sizes = [sum(p.numel() for p in n.parameters()) for n in (network, case.network)]
    assert sizes[0] == sizes[1]


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
        if name.endswith(("attention.out.weight", "feedforward.narrow.weight")):
            assert float(weight.detach().std()) == pytest.approx(
                0.02 / (2 * depth) ** 0.5, rel=0.05
            ), name
        elif name.endswith("query.weight"):
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05), name


def test_bert_predicts_where_it_is_asked_as_it_does_everywhere():
    text, bert = ids(), CASES["bert"].network
    asked = torch.rand(text.shape) < 0.3
    found = bert.masked_logits(text, asked)
    close(found.tokens, bert(text)[asked])
    first = bert.features(text)[:, 0]
    close(found.follows, bert.head(torch.tanh(bert.pooler.dense(first))))


@cases(Trait.ENCODER)
@torch.no_grad()
def test_features_are_rows_of_each_token_and_know_no_padding(case):
    text, keep = ids(), padded_right()
    features = case.network.features(text, keep)
    assert features.shape == (*text.shape, case.network.config.dim)
    for row, kept in enumerate(keep):
        close(features[row, kept], case.network.features(text[row : row + 1, kept])[0], **loosely)


@pytest.mark.parametrize("name", CASES)
def test_a_trait_implies_its_protocol(name):
    network = CASES[name].network
    for trait, protocol in PROTOCOLS.items():
        if network.has(trait):
            assert isinstance(network, protocol), trait
    if network.has(Trait.SEGMENTED):
        assert "segments" in network.takes
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
