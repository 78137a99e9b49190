"""Every architecture compared with its formulas in plain tensor operations; details of layers."""

import copy
import math
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cases import CASES, VOCAB, ids, source
from glassformer import MODELS, GlassError
from glassformer.baselines import markov
from glassformer.nn import ngram_classifier
from glassformer.nn.attention import Attention, UnprojectedAttention
from glassformer.nn.cache import Cache, LayerCache, RecurrentState
from glassformer.nn.compressed import CompressedAttention
from glassformer.nn.convolution import convolutions
from glassformer.nn.dropout import drop
from glassformer.nn.feedforward import ACTIVATIONS, relu_squared
from glassformer.nn.heads import Pooler, mean_pool
from glassformer.nn.image import split_patches
from glassformer.nn.layout import SequenceLayout
from glassformer.nn.lora import LoRA, add_lora, merge_lora
from glassformer.nn.masks import causal, full, window
from glassformer.nn.norms import LayerNorm, RMSNorm
from glassformer.nn.positions import Alibi, RopeScaling, Rotary, slopes
from glassformer.nn.sparse import local_chunk

close = torch.testing.assert_close
loosely = {"atol": 1e-4, "rtol": 1e-4}


# --- settings -------------------------------------------------------------------------------------

DEFAULTS = {
    "bert": {"vocab": 30_522, "context": 512, "segments": 2, "dim": 768, "depth": 12, "heads": 12,
             "hidden": None, "activation": "gelu", "position": "learned", "eps": 1e-12,
             "dropout": 0.1, "next_sentence": True},
    "bert_classifier": {"classes": 2, "eps": 1e-12, "dropout": 0.1},
    "bert_encoder": {"pooled": True, "eps": 1e-12},
    "classifier": {"vocab": 50_000, "classes": 2, "context": 512, "dim": 128, "depth": 6,
                   "heads": 8, "dropout": 0.0},
    "convolutional": {"vocab": 256, "context": 256, "dim": 256, "depth": 6, "kernel_size": 3,
                      "dropout": 0.0},
    "convolutional_classifier": {"vocab": 50_000, "classes": 2, "context": 512, "dim": 128,
                                 "depth": 4, "kernel_size": 3, "dropout": 0.0},
    **{
        name: {"vocab": 256, "context": 256, "dim": 256, "depth": 6, "heads": 8, "hidden": None,
               "score": "scaled", "position": "learned", "dropout": 0.0}
        for name in ("decoder", "post_norm_decoder", "unprojected_decoder")
    },
    "generator": {"vocab": 256, "context": 256, "dim": 256, "depth": 12, "heads": 8,
                  "dropout": 0.0},
    "gpt2": {"vocab": 50_257, "context": 1024, "dim": 768, "depth": 12, "heads": 12,
             "hidden": None, "activation": "gelu_tanh", "eps": 1e-5, "dropout": 0.1},
    "gpt2_classifier": {"classes": 2, "activation": "gelu_tanh", "eps": 1e-5, "dropout": 0.1},
    "image_cnn": {"channels": 1, "height": 28, "width": 28, "classes": 10, "dim": 32,
                  "dropout": 0.2, "max_shift": 2},
    "logistic": {"channels": 1, "height": 28, "width": 28, "classes": 10, "l2": 0.001},
    "sagan": {"channels": 1, "height": 28, "width": 28, "classes": 10, "noise": 64, "dim": 16,
              "attention": True},
    "lead": {"vocab": 8192, "sep": 0, "eos": 1},
    "summarizer": {"vocab": 8192, "sep": 0, "context": 1024, "dim": 256, "depth": 4,
                   "heads": 4, "hidden": None, "block": 256, "compression": 4,
                   "rope_theta": 10_000.0, "dropout": 0.1},
    "biases": {"users": 1000, "items": 1000, "user_damping": 5.0, "item_damping": 3.0},
    "popularity": {"items": 1000},
    "factorization": {"users": 1000, "items": 1000, "dim": 64, "l2": 0.1, "bias_l2": 0.005},
    "sasrec": {"items": 1000, "context": 50, "dim": 64, "depth": 2, "heads": 2, "dropout": 0.2},
    "vision": {"channels": 1, "height": 28, "width": 28, "classes": 10, "patch": 4, "dim": 64,
               "depth": 4, "heads": 4, "dropout": 0.0, "max_shift": 2},
    "llama": {"vocab": 32_000, "context": 2048, "dim": 512, "depth": 8, "heads": 8,
              "kv_heads": None, "head_dim": None, "hidden": 1376, "activation": "silu",
              "rope_theta": 10_000.0, "rope_scaling": None, "eps": 1e-5, "tied": False,
              "attention_bias": False, "feedforward_bias": False, "dropout": 0.0},
    "markov": {"vocab": 256, "order": None, "skips": 0, "masked": False},
    "text_cnn": {"vocab": 50_000, "classes": 2, "context": 1024, "dim": 96, "kernel_size": 3,
                 "dropout": 0.5, "word_dropout": 0.3},
    "speedrun_translator": {"vocab": 4096, "source_vocab": None, "dim": 256, "depth": 2,
                            "heads": 4, "hidden": None, "dropout": 0.1},
    "nb_svm": {"vocab": 50_000, "classes": 2, "order": 3, "min_count": 2, "svm_c": 0.1},
    "neighbors": {"vocab": 30_522},
    "phrase_table": {"vocab": 37_000, "source_vocab": None, "eos": 0, "max_source_words": 4,
                     "max_target_words": 7},
    "recurrent": {"vocab": 256, "context": 256, "dim": 512, "depth": 2, "cell": "lstm",
                  "dropout": 0.0},
    "recurrent_classifier": {"vocab": 50_000, "classes": 2, "context": 512, "dim": 128,
                             "depth": 1, "cell": "lstm", "dropout": 0.0},
    "recurrent_translator": {"vocab": 37_000, "source_vocab": None, "dim": 512, "depth": 2,
                             "cell": "lstm", "attention": "dot", "dropout": 0.1},
    "speedrun": {"vocab": 256, "context": 256, "dim": 160, "depth": 3, "heads": 4, "hidden": None,
                 "rope_theta": 10_000.0, "dropout": 0.0},
    "transformer_xl": {"vocab": 256, "context": 128, "memory": 128, "dim": 256, "depth": 6,
                       "heads": 8, "hidden": None, "dropout": 0.0},
    "sparse": {"vocab": 256, "context": 4096, "dim": 256, "depth": 4, "heads": 4, "hidden": None,
               "pattern": "strided", "stride": None, "summary": 8, "factorize": "heads",
               "dropout": 0.0},
    **{
        name: {"dim": 256, "depth": 6, "heads": 8, "hidden": None, "adaptive": True,
               "halt_threshold": 0.99, "ponder_cost": 0.001, "dropout": 0.0}
        for name in ("universal", "universal_classifier", "universal_translator")
    },
    "translator": {"vocab": 37_000, "source_vocab": None, "dim": 512, "depth": 6, "heads": 8,
                   "hidden": 2048, "dropout": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_default_settings_are_those_of_the_paper(name):
    found = asdict(MODELS[name].Config())
    assert {key: found[key] for key in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {"dim": 10, "heads": 3}),
        ("decoder", {"score": "plain", "position": "rotary"}),
        ("decoder", {"score": "plain", "position": "alibi"}),
        ("llama", {"heads": 8, "kv_heads": 3}),
    ],
)
def test_impossible_settings_are_rejected(name, settings):
    with pytest.raises(GlassError):
        MODELS[name].Config(**settings)
    MODELS["decoder"].Config(score="plain", position="learned")


def test_models_replace_training_settings_of_their_tasks():
    muon = {"optimizer": "muon", "schedule": "linear", "min_lr_ratio": 0.02}
    expected = {
        "speedrun": muon | {"batch_size": 6, "warmup": 0.01},
        "speedrun_translator": muon
        | {"batch_tokens": 4096, "warmup": 0.02, "label_smoothing": 0.1},
        "summarizer": muon | {"warmup": 0.02},
        "text_cnn": {"max_epochs": 8.0, "lr": 3e-3, "weight_decay": 0.01, "schedule": "linear",
                     "warmup": 0.02},
        "image_cnn": {"lr": 2e-3, "weight_decay": 0.01},
        "vision": {"optimizer": "muon", "lr": 0.02, "beta2": 0.95},
    }  # fmt: skip
    found = {name: dict(model.train_settings) for name, model in MODELS.items()}
    assert {name: settings for name, settings in found.items() if settings} == expected
    found = {name: dict(model.lr_scales) for name, model in MODELS.items()}
    scales = {name: factors for name, factors in found.items() if factors}
    assert scales == {"summarizer": {"token": 0.15}, "sagan": {"critic": 4.0}}


# --- architectures and their formulas -------------------------------------------------------------


def norm(x, layer, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * layer.weight + layer.bias


def linear(x, layer):
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias


def attend(
    x, layer, heads, read=None, mask=None, scale=True, score=None, rotate_with=None, bias=0.0
):
    """Attention of one text, t d, one head at a time."""
    read = x if read is None else read
    q, k, v = linear(x, layer.query), linear(read, layer.key), linear(read, layer.value)
    width, found = q.shape[1] // heads, []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        one, other = q[:, part], k[:, part]
        if rotate_with is not None:
            one, other = rotate_with(one), rotate_with(other)
        points = score(one, other) if score else one @ other.T
        points = points / math.sqrt(width) if scale else points
        points = points + (bias[head] if isinstance(bias, list) else bias)
        points = points if mask is None else points.masked_fill(~mask, -math.inf)
        found.append(points.softmax(dim=-1) @ v[:, part])
    return linear(torch.cat(found, dim=1), layer.out)


def feed(x, layer, activation):
    return linear(activation(linear(x, layer.up)), layer.down)


def causal_mask(length):
    return torch.ones(length, length).tril().bool()


def post_norm_block(x, block, heads, activation, mask=None, eps=1e-5):
    x = norm(x + attend(x, block.attention, heads, mask=mask), block.attention_norm, eps)
    return norm(x + feed(x, block.feedforward, activation), block.feedforward_norm, eps)


def pre_norm_block(x, block, activation, mask=None, rotate_with=None):
    y = norm(x, block.attention_norm)
    x = x + attend(y, block.attention, 4, mask=mask, rotate_with=rotate_with)
    return x + feed(norm(x, block.feedforward_norm), block.feedforward, activation)


@torch.no_grad()
def test_sasrec_matches_its_formulas():
    network, items = CASES["sasrec"].network, ids(1)[0]
    x = network.item.weight[items] + network.position.weight[: len(items)]
    for block in network.blocks:
        x = pre_norm_block(x, block, F.relu, mask=causal_mask(len(items)))
    expected = norm(x, network.norm) @ network.item.weight.T
    close(network(items[None])[0], expected, **loosely)
    close(network.score_next(items[None], torch.ones(1, len(items)))[0], expected[-1], **loosely)


@pytest.mark.parametrize("pattern", ["strided", "fixed", "window"])
@torch.no_grad()
def test_the_sparse_transformer_matches_its_formulas(pattern):
    name = f"sparse: {pattern}, {'heads' if pattern == 'window' else 'layers'}"
    network, text = CASES[name].network, ids(1)[0]
    i, j = torch.arange(len(text))[:, None], torch.arange(len(text))
    near, far = {  # the stride is 4, the summary 2
        "strided": (i - j < 4, (i - j) % 4 == 0),
        "fixed": (i // 4 == j // 4, j % 4 >= 2),
        "window": (i - j < 4, i - j < 4),
    }[pattern]
    x = network.token.weight[text]
    for layer, block in enumerate(network.blocks):
        allowed = (far if layer % 2 else near) & (j <= i)
        has_key = allowed.any(dim=1, keepdim=True)  # the first tokens have no summary to read
        y = norm(x, block.attention_norm)
        y = attend(y, block.attention, 4, mask=allowed | ~has_key, rotate_with=rotate)
        x = x + torch.where(has_key, y, block.attention.out.bias)
        x = x + feed(norm(x, block.feedforward_norm), block.feedforward, F.gelu)
    expected = norm(x, network.norm) @ network.token.weight.T
    close(network(text[None])[0], expected, **loosely)


@torch.no_grad()
def test_vision_matches_its_formulas():
    network, pixels = CASES["vision"].network, torch.randn(1, 1, 8, 8)
    squares = [pixels[0, 0, y : y + 2, x : x + 2] for y in range(0, 8, 2) for x in range(0, 8, 2)]
    x = linear(torch.stack([square.flatten() for square in squares]), network.patches)
    x = x + network.position.weight
    for block in network.blocks:
        x = pre_norm_block(x, block, F.gelu)
    assert network.blocks[0].feedforward.up.out_features == 4 * 32
    close(network(pixels)[0], linear(norm(x, network.norm).mean(dim=0), network.head), **loosely)


@torch.no_grad()
def test_image_cnn_matches_its_formulas():
    network, pixels = CASES["image_cnn"].network, torch.randn(2, 1, 8, 8)
    x = pixels
    for layer in (network.conv_1, network.conv_2):
        y = F.conv2d(F.pad(x, (1, 1, 1, 1)), layer.weight, layer.bias).clamp(min=0)
        x = torch.stack(
            (y[..., ::2, ::2], y[..., 1::2, ::2], y[..., ::2, 1::2], y[..., 1::2, 1::2])
        )
        x = x.amax(dim=0)
    features = linear(x.flatten(1), network.dense).clamp(min=0)
    assert features.shape == (2, 2 * 16)
    close(network.image_features(pixels), features, **loosely)
    close(network(pixels), linear(features, network.head), **loosely)


@torch.no_grad()
def test_text_cnn_pools_the_maximum_and_the_sum_of_real_tokens():
    network, text = CASES["text_cnn"].network, ids()
    keep = torch.arange(12) < torch.tensor([[12], [4], [1]])
    for row, n in enumerate((12, 4, 1)):
        x = network.features(text[row : row + 1, :n])[0]
        pooled = torch.cat((x.amax(dim=0), x.sum(dim=0) / math.sqrt(n)))
        close(network(text, keep=keep)[row], linear(pooled, network.head), **loosely)


@torch.no_grad()
def test_the_generator_of_images_matches_its_formulas():
    network = copy.deepcopy(CASES["sagan"].network)
    painter, noise, labels = network.generator, torch.randn(2, 8), torch.tensor([2, 0])
    painter.contrast.fill_(1.7)
    painter.attention.gain.fill_(0.5)
    condition = torch.cat((noise, painter.label.weight[labels]), dim=1)
    x = painter.canvas(condition).reshape(2, 32, 2, 2)
    for block in (painter.up_1, painter.up_2):
        doubled = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        x = block.norm(block.conv(doubled), condition).clamp(min=0)
        x = painter.attention(x) if block is painter.up_1 else x
    close(network(noise, labels), torch.tanh(1.7 * painter.out(x)), **loosely)


@torch.no_grad()
def test_the_critic_of_images_matches_its_formulas():
    network = copy.deepcopy(CASES["sagan"].network)
    critic, images, labels = network.critic, torch.randn(3, 1, 8, 8), torch.tensor([2, 0, 2])
    critic.attention.gain.fill_(0.5)
    x = images
    for block in (critic.down_1, critic.down_2):
        y = block.conv(x)
        x = torch.where(y > 0, y, 0.2 * y)
        x = critic.attention(x) if block is critic.down_1 else x
    pooled = (x + critic.last(x)).clamp(min=0).sum(dim=(2, 3))
    label = critic.label.weight / torch.linalg.svdvals(critic.label.weight)[0]
    expected = critic.score(pooled)[:, 0] + (pooled * label[labels]).sum(dim=1)
    close(critic(images, labels), expected, atol=1e-3, rtol=1e-3)


def test_a_sagan_without_attention_has_none():
    network = CASES["sagan without attention"].network
    assert not [name for name, _ in network.named_parameters() if "attention" in name]
    names = {name for name, _ in CASES["sagan"].network.named_parameters() if "gain" in name}
    assert names == {"critic.attention.gain", "generator.attention.gain"}


def test_local_and_compressed_attention_alternate_in_a_summarizer():
    settings = {"dim": 16, "heads": 2, "depth": 4, "block": 5, "compression": 3}
    kind = MODELS["summarizer"]
    network = kind(kind.Config(**settings, rope_theta=77.0, context=9))
    first, second, third, fourth = (block.attention for block in network.blocks)
    assert first.mask == third.mask == local_chunk(5)
    assert isinstance(second, CompressedAttention)
    assert second.window == fourth.window == second.compress_key.window == 3
    assert {layer.position.rope_theta for layer in (first, second, third, fourth)} == {77.0}
    assert network.blocks[0].feedforward.activation is relu_squared
    assert network.copy.sep == 0 == CASES["summarizer"].network.config.sep


@torch.no_grad()
def test_the_generator_matches_its_formulas():
    network, text = CASES["generator"].network, ids(1)[0]
    x = network.token.weight[text] + network.position.weight[: len(text)]
    for block in network.blocks:
        assert block.attention.query.bias is None
        x = post_norm_block(x, block, 4, F.relu, mask=causal_mask(len(text)))
    close(network.features(text[None])[0], x, **loosely)
    close(network(text[None])[0], linear(x, network.head), **loosely)
    assert network.blocks[0].feedforward.up.out_features == 4 * 32


@torch.no_grad()
def test_the_classifier_matches_its_formulas():
    network, text = CASES["classifier"].network, ids(1)[0]
    x = network.token.weight[text] + network.position.weight[: len(text)]
    for block in network.blocks:
        x = post_norm_block(x, block, 4, F.relu)
    close(network(text[None])[0], linear(x.mean(dim=0), network.head), **loosely)
    assert network.blocks[0].attention.key.bias is None
    assert network.blocks[0].feedforward.up.out_features == 4 * 32


@torch.no_grad()
def test_bert_matches_its_formulas():
    network, text = CASES["bert"].network, ids(1)[0]
    second = (torch.arange(len(text)) > 4).long()
    body = network.body
    x = body.token.weight[text] + body.segment.weight[second] + body.position.weight[: len(text)]
    x = norm(x, body.norm, 1e-12)
    for block in body.blocks:
        x = post_norm_block(x, block, 4, F.gelu, eps=1e-12)
    close(network.features(text[None], segments=second[None])[0], x, **loosely)
    hidden = norm(F.gelu(linear(x, network.masked.dense)), network.masked.norm, 1e-12)
    scores = hidden @ body.token.weight.T + network.masked.offset
    close(network(text[None], segments=second[None])[0], scores, **loosely)
    pooled = torch.tanh(linear(x[0], network.pooler.dense))
    masked = torch.zeros(1, len(text), dtype=torch.bool)
    masked[0, 3] = True
    found = network.masked_logits(text[None], masked, second[None])
    close(found.tokens[0], scores[3], **loosely)
    close(found.is_next[0], linear(pooled, network.head), **loosely)


@torch.no_grad()
def test_the_classifiers_with_pretrained_bodies_match_their_formulas():
    text = ids(1)[0]
    network = CASES["bert_classifier"].network
    second = (torch.arange(len(text)) > 4).long()
    x = network.features(text[None], segments=second[None])[0]
    expected = linear(torch.tanh(linear(x[0], network.pooler.dense)), network.head)
    close(network(text[None], segments=second[None])[0], expected, **loosely)
    network = CASES["gpt2_classifier"].network
    x = network.body.features(text[None])[0]
    close(network(text[None])[0], linear(x.mean(dim=0), network.head), **loosely)
    assert torch.equal(
        CASES["bert_encoder"](text[None]), CASES["bert_encoder"].network.features(text[None])
    )


@torch.no_grad()
def test_speedrun_matches_its_formulas():
    network, text = CASES["speedrun"].network, ids(1)[0]

    x = norm(network.token.weight[text], network.embedding_norm)
    for block in network.blocks:
        layer, y = block.attention, norm(x, block.attention_norm)
        q, k, v = (y @ part.weight.T for part in (layer.query, layer.key, layer.value))
        outputs = []
        for head in range(4):
            part = slice(8 * head, 8 * head + 8)
            query = rotate(norm(q[:, part], layer.query_norm))
            key = rotate(norm(k[:, part], layer.key_norm))
            scores = (query @ key.T / math.sqrt(8)).masked_fill(~causal_mask(len(text)), -math.inf)
            outputs.append(scores.softmax(dim=-1) @ v[:, part])
        x = x + torch.cat(outputs, dim=1) @ layer.out.weight.T
        hidden = F.relu(norm(x, block.feedforward_norm) @ block.feedforward.up.weight.T) ** 2
        x = x + hidden @ block.feedforward.down.weight.T
    expected = norm(x, network.norm) @ network.head.weight.T
    close(network(text[None])[0], expected, **loosely)


def test_speedrun_starts_without_any_output():
    model = MODELS["speedrun"]
    network = model(model.Config(vocab=9, dim=16, depth=2, heads=2))
    assert not network(torch.tensor([[1, 2, 3]])).any()
    embedded = network.embedding_norm(network.token(torch.tensor([[1, 2, 3]])))
    close(network.features(torch.tensor([[1, 2, 3]])), network.norm(embedded))


def test_speedrun_grows_with_the_time_and_reads_small_texts_with_dropout():
    suggest = MODELS["speedrun"].suggest_sizes
    dims = [suggest(minutes, 10**6)["dim"] for minutes in (0.1, 1, 5, 10, 60, 10**5)]
    assert dims == sorted(dims)
    assert dims[0] == 128
    assert dims[-1] == 768
    dropouts = [suggest(1, tokens)["dropout"] for tokens in (10**8, 10**6, 10**5)]
    assert dropouts == [0.0, 0.1, 0.2]  # read less than once, about twice, more often
    for minutes in (0.1, 1, 5, 60, 10**5):
        MODELS["speedrun"].Config(**suggest(minutes, 10**6))  # the sizes match
    assert MODELS["gpt2"].suggest_sizes(1, 10**6) == {}


def test_other_models_suggest_sizes_too():
    suggest = MODELS["speedrun_translator"].suggest_sizes
    dims = [suggest(minutes, 10**6)["dim"] for minutes in (0.01, 1, 5, 60, 10**5)]
    assert dims == sorted(dims)
    assert (dims[0], dims[1], dims[-1]) == (64, 128, 512)
    assert [suggest(minutes, 300_000)["dropout"] for minutes in (4, 6, 49, 51)] == [
        0.1, 0.2, 0.2, 0.3,
    ]  # fmt: skip
    assert [suggest(minutes, 1)["depth"] for minutes in (59, 60)] == [2, 3]
    for minutes in (0.01, 1, 60, 10**5):
        MODELS["speedrun_translator"].Config(**suggest(minutes, 10**6))
    found = MODELS["text_cnn"].suggest_sizes(1, 10**6)
    assert found == {"context": 1024, "dim": 96, "dropout": 0.5}
    assert MODELS["universal_classifier"].suggest_sizes(1, 10**6) == {"depth": 3}
    assert MODELS["universal_translator"].suggest_sizes(1, 10**6) == {"depth": 4}


def rotate(x, theta=10_000.0):
    """Rotate each pair of features i, i + e/2 by position * theta^(-2i/e)."""
    half, y = x.shape[1] // 2, x.clone()
    for position in range(len(x)):
        for i in range(half):
            angle = position * theta ** (-2 * i / x.shape[1])
            a, b = float(x[position, i]), float(x[position, i + half])
            y[position, i] = a * math.cos(angle) - b * math.sin(angle)
            y[position, i + half] = b * math.cos(angle) + a * math.sin(angle)
    return y


def waves(length, dim):
    found = torch.zeros(length, dim)
    for position in range(length):
        for i in range(0, dim, 2):
            angle = position / 10_000 ** (i / dim)
            found[position, i], found[position, i + 1] = math.sin(angle), math.cos(angle)
    return found


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("decoder")])
@torch.no_grad()
def test_the_decoder_matches_its_formulas(name):
    network, text = CASES[name].network, ids(1)[0]
    config, t = network.config, len(text)
    x = network.token.weight[text]
    if config.position == "learned":
        x = x + network.position.weight[:t]
    if config.position == "sinusoidal":
        x = x + 0.03 * waves(t, config.dim)
    far = torch.arange(t)[:, None] - torch.arange(t)
    bias = [-(2.0 ** (-2 * (h + 1))) * far for h in range(4)] if config.position == "alibi" else 0.0
    rotate_with = rotate if config.position == "rotary" else None
    for i, block in enumerate(network.blocks):
        y = norm(x, block.attention_norm)
        if config.score == "plain":
            y = (y @ y.T).masked_fill(~causal_mask(t), -math.inf).softmax(dim=-1) @ y
        elif config.score == "additive":
            vectors = iter(block.attention.score.v)
            score = lambda q, k, v=vectors: (torch.tanh(q[:, None] + k) @ next(v))[..., 0]
            y = attend(y, block.attention, 4, None, causal_mask(t), False, score, rotate_with, bias)
        else:
            y = attend(
                y,
                block.attention,
                4,
                None,
                causal_mask(t),
                config.score == "scaled",
                None,
                rotate_with,
                bias,
            )
        x = x + y
        x = x + feed(norm(x, block.feedforward_norm), block.feedforward, F.gelu)
        assert block.feedforward.up.out_features == 4 * config.dim, i
    close(network(text[None])[0], norm(x, network.norm) @ network.token.weight.T, **loosely)


@torch.no_grad()
def test_the_variants_of_the_decoder_match_their_formulas():
    text = ids(1)[0]
    mask = causal_mask(len(text))
    network = CASES["post_norm_decoder"].network
    x = network.token.weight[text] + network.position.weight[: len(text)]
    for block in network.blocks:
        assert block.feedforward.up.out_features == 40
        x = post_norm_block(x, block, 4, F.gelu, mask)
    close(network(text[None])[0], x @ network.token.weight.T, **loosely)

    network = CASES["unprojected_decoder"].network
    x = network.token.weight[text]
    for block in network.blocks:
        assert isinstance(block.attention, UnprojectedAttention)
        layer = copy.deepcopy(block.attention)  # no W_o is the same as the identity
        layer.out = nn.Linear(32, 32)
        layer.out.weight.copy_(torch.eye(32))
        layer.out.bias.zero_()
        x = x + attend(norm(x, block.attention_norm), layer, 4, mask=mask)
        x = x + feed(norm(x, block.feedforward_norm), block.feedforward, F.gelu)
    close(network(text[None])[0], norm(x, network.norm) @ network.token.weight.T, **loosely)
    names = [name for name in network.state_dict() if ".out." in name]
    assert not names


@torch.no_grad()
def test_llama_matches_its_formulas():
    network, text = CASES["llama"].network, ids(1)[0]
    x, t = network.token.weight[text], len(text)

    def rms(x, layer):
        return x / ((x**2).mean(dim=-1, keepdim=True) + 1e-5).sqrt() * layer.weight

    for block in network.blocks:
        y, layer = rms(x, block.attention_norm), copy.deepcopy(block.attention)
        for part in (layer.key, layer.value):  # each of two heads serves two query heads
            heads = part.weight.reshape(2, 8, 32)
            part.weight = nn.Parameter(heads[[0, 0, 1, 1]].reshape(32, 32))
            assert part.bias is None
        x = x + attend(y, layer, 4, mask=causal_mask(t), rotate_with=rotate)
        y = rms(x, block.feedforward_norm)
        inner = F.silu(linear(y, block.feedforward.gate)) * linear(y, block.feedforward.up)
        x = x + linear(inner, block.feedforward.down)
    x = rms(x, network.norm)
    close(network(text[None])[0], x @ network.head.weight.T, **loosely)
    tied = CASES["wide llama"].network
    assert tied.head is None
    close(tied(text[None]), tied.features(text[None]) @ tied.token.weight.T, **loosely)


def lstm(x, layer, state=None):
    """Run one text, t d, through an LSTM layer of torch."""
    d = x.shape[1]
    h, c = state or (torch.zeros(d), torch.zeros(d))
    found = []
    for one in x:
        gates = layer.weight_ih_l0 @ one + layer.bias_ih_l0 + layer.weight_hh_l0 @ h
        i, f, g, o = (gates + layer.bias_hh_l0).split(d)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        found.append(h)
    return torch.stack(found), (h, c)


@torch.no_grad()
def test_the_recurrent_networks_match_their_formulas():
    network, text = CASES["recurrent: lstm"].network, ids(1)[0]
    x = network.token.weight[text]
    for layer in network.layers:
        x, _ = lstm(x, layer.cell)
    close(network(text[None])[0], linear(x, network.offset) @ network.token.weight.T, **loosely)
    network = CASES["recurrent_classifier"].network
    x = network.token.weight[text]
    for forth, back in zip(network.forth, network.back, strict=True):
        ahead, behind = lstm(x, forth.cell)[0], lstm(x.flip(0), back.cell)[0].flip(0)
        x = ahead + behind
    close(network(text[None])[0], linear(x.mean(dim=0), network.head), **loosely)


@pytest.mark.parametrize("attention", ["none", "dot", "additive"])
@torch.no_grad()
def test_the_recurrent_translator_matches_its_formulas(attention):
    network = CASES[f"recurrent_translator: {attention}"].network
    text, given = ids(1)[0], source(1)[0]
    read, states = network.token.weight[given], []
    for layer in network.encoder:
        read, state = lstm(read, layer.cell)
        states.append(state)
    close(network.features(given[None])[0], read, **loosely)
    x = network.token.weight[text]
    for layer, state in zip(network.decoder, states, strict=True):
        x, _ = lstm(x, layer.cell, state)
    if attention != "none":
        score = None
        if attention == "additive":
            score = lambda q, k: (torch.tanh(q[:, None] + k) @ network.cross.score.v[0])[..., 0]
        found = attend(x, network.cross, 1, read=read, scale=False, score=score)
        x = torch.cat((x, found), dim=1)
    x = torch.tanh(linear(x, network.together))
    close(network(text[None], given[None])[0], x @ network.token.weight.T, **loosely)


@pytest.mark.parametrize("name", ["convolutional", "convolutional_classifier"])
@torch.no_grad()
def test_the_convolutional_networks_match_their_formulas(name):
    network, text = CASES[name].network, ids(1)[0]
    x, t = network.token.weight[text], len(text)
    for depth, layer in enumerate(network.layers):
        y, step = norm(x, layer.norm), 2**depth
        added = []
        for position in range(t):
            total = layer.window.bias.clone()
            for tap in range(3):
                at = (
                    position + (tap - 2) * step
                    if name == "convolutional"
                    else position + (tap - 1) * step
                )
                if 0 <= at < t:
                    total = total + layer.window.weight[:, :, tap] @ y[at]
            a, b = total.chunk(2)
            added.append(a * b.sigmoid())
        x = x + torch.stack(added)
    x = norm(x, network.norm)
    if name == "convolutional":
        close(network(text[None])[0], x @ network.token.weight.T, **loosely)
    else:
        close(network(text[None])[0], linear(x.mean(dim=0), network.head), **loosely)


# --- initialization and dropout -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "std"),
    [("gpt2", 0.02), ("bert", 0.02), ("generator", 0.02), ("classifier", 0.02), ("llama", 0.02),
     ("decoder", 0.02), ("convolutional", 0.02), ("recurrent", 1 / 8),
     ("recurrent_translator", 1 / 8), ("translator", 1 / 8), ("transformer_xl", 0.02),
     ("sparse", 0.02), ("sasrec", 0.02), ("vision", 0.02), ("summarizer", 0.02),
     ("text_cnn", 0.1), ("speedrun", 1.0), ("speedrun_translator", 1.0), ("universal", 1 / 8),
     ("universal_classifier", 1 / 8), ("universal_translator", 1 / 8)],
)  # fmt: skip
def test_embeddings_are_initialized_with_the_expected_scale(name, std):
    kind = MODELS[name]
    known = kind.Config.__dataclass_fields__
    sizes = {"vocab": 500, "dim": 64, "depth": 1, "heads": 2, "context": 8, "hidden": 8}
    network = kind(kind.Config(**{n: v for n, v in sizes.items() if n in known}))
    token = network.get_submodule(network.embeddings[0]).weight.detach()
    assert float(token.std()) == pytest.approx(std, rel=0.05)
    for path, module in network.named_modules():
        has_own_start = path in ("copy.gate", "convolution")
        if isinstance(module, nn.Linear) and module.bias is not None and not has_own_start:
            assert not module.bias.any(), path


def test_patches_of_an_image_keep_their_size_at_first():
    """Pixels have a variance of 1, and so do the features of a patch."""
    network = MODELS["vision"](MODELS["vision"].Config(height=16, width=16, dim=256)).eval()
    features = network.patches(split_patches(torch.randn(50, 1, 16, 16), 4))
    assert float(features.detach().std()) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("dim", [4, 256])
@torch.no_grad()
def test_a_factorization_starts_close_to_the_mean(dim):
    model = MODELS["factorization"]
    network = model(model.Config(users=200, items=200, dim=dim)).eval()
    network.mean.fill_(3.0)
    ratings = network.rate_items(torch.arange(200))
    assert float(ratings.mean()) == pytest.approx(3, abs=0.02)
    assert float(ratings.std()) == pytest.approx(0.1, rel=0.25)


def test_text_cnn_starts_without_a_preference_for_a_class():
    network = MODELS["text_cnn"](MODELS["text_cnn"].Config(vocab=VOCAB, classes=3)).eval()
    assert not network(ids()).any()


def test_the_summarizer_starts_without_any_output_of_its_blocks():
    model = MODELS["summarizer"]
    network = model(model.Config(vocab=VOCAB, dim=16, heads=2)).eval()
    text = ids()
    embedded = network.embedding_norm(network.token(text))
    close(network.features(text), network.norm(embedded))


@torch.no_grad()
def test_an_untrained_summarizer_copies_the_document_from_its_start():
    model = MODELS["summarizer"]
    network = model(model.Config(vocab=VOCAB, sep=9, dim=16, heads=2)).eval()
    document = [5, 1, 2, 1, 3, 4]
    log_probs = network(torch.tensor([[*document, 9, *document]]))[0]
    assert log_probs[6:-1].argmax(dim=1).tolist() == document
    assert float(log_probs[6:-1].exp().amax(dim=1).min()) > 0.5


@pytest.mark.parametrize(
    "name", [name for name in MODELS if "hidden" in MODELS[name].Config.__dataclass_fields__]
)
def test_the_feed_forward_layers_have_as_many_hidden_features_as_set(name):
    kind = MODELS[name]
    known = kind.Config.__dataclass_fields__
    sizes = {"vocab": 50, "dim": 32, "depth": 2, "heads": 2, "context": 16}
    sizes = {n: v for n, v in sizes.items() if n in known}
    default = {"llama": 1376, "translator": 2048, "speedrun_translator": 3 * 32}.get(name, 4 * 32)
    for settings, expected in (({"hidden": 40}, 40), ({}, default)):
        network = kind(kind.Config(**sizes, **settings))
        layers = [m for n, m in network.named_modules() if n.endswith("feedforward")]
        assert {layer.down.in_features for layer in layers} == {expected}


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("gpt2", {"blocks.0": True}),
        ("bert", {"body.blocks.0": True, "head": False}),
        ("llama", {"blocks.0": True}),
        ("generator", {"blocks.0": False}),
        ("classifier", {"blocks.0": False, "head": False}),
        ("translator", {"encoder.0": True, "decoder.0": True}),
        ("recurrent: lstm", {"layers.0": True, "layers.1": True, "offset": True}),
        ("recurrent_classifier", {"forth.0": True, "back.0": True, "forth.1": True, "head": False}),
        ("recurrent_translator: none",
         {"encoder.0": True, "encoder.1": True, "decoder.0": True, "decoder.1": True,
          "together": True}),
        ("convolutional", {"layers.0": False, "layers.0.window": False}),
        ("transformer_xl", {"blocks.0": True}),
        ("sparse: fixed, heads", {"blocks.0": True}),
        ("speedrun", {"blocks.0": True}),
        ("speedrun_translator", {"encoder.0": True, "decoder.0": True}),
        ("universal: True", {"loop": True}),
        ("universal_classifier: True", {"loop": True, "head": False}),
        ("universal_translator: True", {"encoder_loop": True, "decoder_loop": True}),
        ("summarizer", {"blocks.0": True}),
        ("sasrec", {"blocks.0": True}),
        ("vision", {"blocks.0": False, "head": False}),
    ],
)  # fmt: skip
def test_dropout_is_applied_before_the_expected_modules(name, modules):
    case = CASES[name]
    kind = MODELS[case.name]
    network = kind(kind.Config(**{**case.settings, "dropout": 0.5})).train()
    fractions = {}

    def watch(path):
        def look(_, inputs):
            fractions[path] = float((inputs[0] == 0).float().mean())

        return look

    for path in modules:
        network.get_submodule(path).register_forward_pre_hook(watch(path))
    network(**case.inputs(4))
    for path, dropped in modules.items():
        if path in fractions:
            assert (0.4 < fractions[path] < 0.6) if dropped else fractions[path] < 0.2, path


@torch.no_grad()
def test_the_networks_of_convolutions_drop_the_inputs_of_their_linear_layers():
    """All weights and inputs are positive, so that nothing else is 0."""
    for name, paths, inputs in (
        ("image_cnn", ("dense", "head"), {"pixels": torch.rand(8, 1, 8, 8)}),
        ("text_cnn", ("head",), {"ids": ids(8)}),
    ):
        kind, settings = MODELS[CASES[name].name], CASES[name].settings | {"dropout": 0.5}
        network, seen = kind(kind.Config(**settings)), []
        for parameter in network.parameters():
            parameter.uniform_(0.1, 0.2)
        for path in paths:
            layer = network.get_submodule(path)
            layer.register_forward_pre_hook(lambda _, x, s=seen: s.append(x[0] == 0))
        network.train()(**inputs)
        assert len(seen) == len(paths)
        assert all(0.35 < float(zeros.float().mean()) < 0.65 for zeros in seen)
        seen.clear()
        network.eval()(**inputs)
        assert not any(zeros.any() for zeros in seen)


@torch.no_grad()
def test_word_dropout_leaves_out_whole_words():
    kind, words = MODELS["text_cnn"], []
    settings = {"dropout": 0.0, "word_dropout": 0.3, "kernel_size": 1}
    network = kind(kind.Config(**CASES["text_cnn"].settings | settings))
    network.convolution.register_forward_pre_hook(lambda _, x: words.append(x[0]))
    text = ids(100)
    network.train()(text)
    network.eval()(text)
    dropped, kept = (found == 0 for found in words)
    assert torch.equal(dropped.any(dim=2), dropped.all(dim=2))
    assert float(dropped.float().mean()) == pytest.approx(0.3, abs=0.05)
    assert not kept.any()


@torch.no_grad()
def test_only_training_shifts_images():
    for name in ("vision", "image_cnn"):
        case = CASES[name]
        kind, pixels = MODELS[case.name], torch.randn(4, 1, 8, 8)
        for max_shift in (0, 3):
            network = kind(kind.Config(**case.settings | {"max_shift": max_shift, "dropout": 0.0}))
            unshifted = network.eval()(pixels)
            assert torch.equal(network.train()(pixels), unshifted) == (max_shift == 0)


@torch.no_grad()
def test_the_remaining_values_are_scaled_up_after_dropout():
    found = drop(torch.ones(100_000), 0.2)
    assert found.unique().tolist() == pytest.approx([0.0, 1.25])
    assert float((found == 0).float().mean()) == pytest.approx(0.2, abs=0.01)
    assert drop(torch.ones(7, 3), 0.5).shape == (7, 3)
    rows = drop(torch.ones(1000, 8), 0.5)  # independently
    assert 0.4 < float((rows[:, 0] == rows[:, 1]).float().mean()) < 0.6


# --- LoRA -----------------------------------------------------------------------------------------


@torch.no_grad()
def test_an_adapter_adds_twice_its_low_rank_product():
    layer = LoRA(nn.Linear(6, 4), rank=3)
    assert (layer.down.shape, layer.up.shape) == ((3, 6), (4, 3))
    x = torch.randn(5, 6)
    assert torch.equal(layer(x), layer.linear(x))  # at first it adds nothing
    assert layer.down.abs().sum() > 0
    layer.up.copy_(torch.randn(4, 3))
    weight = layer.linear.weight + 2 * layer.up @ layer.down
    expected = x @ weight.T + layer.linear.bias
    close(layer(x), expected)
    close(layer.merge()(x), expected)


def test_only_linear_layers_inside_the_stacks_get_an_adapter():
    network = copy.deepcopy(CASES["bert"].network)
    add_lora(network, network.stacks, 2)
    names = {name for name, p in network.named_parameters() if p.requires_grad}
    parts = ("attention.query", "attention.key", "attention.value", "attention.out",
             "feedforward.up", "feedforward.down")  # fmt: skip
    assert names == {
        f"body.blocks.{i}.{part}.{side}" for i in range(2) for part in parts
        for side in ("up", "down")
    }  # fmt: skip
    merge_lora(network)
    assert all(p.requires_grad for p in network.parameters())
    assert not any(isinstance(module, LoRA) for module in network.modules())
    text = ids()
    assert torch.equal(network(text), CASES["bert"].network(text))


# --- caches and layouts ---------------------------------------------------------------------------


def buffer_size(cache):
    return cache.keys.shape[2]


def test_a_cache_grows_by_doubling_up_to_its_capacity():
    cache, found = LayerCache(300), []
    for new in (3, 61, 1, 70, 100):
        k = torch.randn(1, 2, new, 4)
        cache.extend(k, k)
        found.append((cache.length, buffer_size(cache)))
    assert found == [(3, 64), (64, 64), (65, 130), (135, 270), (235, 270)]
    cache.extend(torch.randn(1, 2, 40, 4), torch.randn(1, 2, 40, 4))
    assert buffer_size(cache) == 300
    small = LayerCache(10)
    small.extend(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4))
    assert buffer_size(small) == 10


def test_keys_and_values_are_not_mixed_up():
    cache = LayerCache(9)
    k, v = torch.zeros(1, 1, 2, 3), torch.ones(1, 1, 2, 3)
    cache.extend(k, v)
    keys, values = cache.extend(k - 1, v + 1)
    assert keys[0, 0, :, 0].tolist() == [0, 0, -1, -1]
    assert values[0, 0, :, 0].tolist() == [1, 1, 2, 2]
    with pytest.raises(ValueError, match="the cache has batch size 1, got 2"):
        cache.extend(torch.zeros(2, 1, 1, 3), torch.zeros(2, 1, 1, 3))


def test_all_layers_discard_a_failed_pass():
    cache = Cache(2, 9)
    k = torch.zeros(1, 1, 2, 3)
    for layer in cache.layers:
        layer.extend(k, k)
    cache.layers[0].extend(k, k)  # and then the second layer fails
    assert cache.length == 2
    assert cache.start_pass(None, 1, 1) == (2, None)
    assert cache.layers[0].length == 2


def test_a_state_can_be_initialized_selected_from_and_returned_to():
    carried = RecurrentState(5)
    assert carried.state is None
    carried.set_initial((torch.arange(3.0).reshape(1, 3, 1), torch.zeros(1, 3, 1)))
    carried.advance(2, (torch.arange(3.0, 6.0).reshape(1, 3, 1), torch.ones(1, 3, 1)))
    carried.select_rows(torch.tensor([2, 0]))
    assert carried.state[0].flatten().tolist() == [5, 3]
    carried.length = 0
    assert carried.state[0].flatten().tolist() == [2, 0]
    with pytest.raises(ValueError, match=r"it has \d+ of at most 5 tokens, got \d+ more"):
        carried.advance(6, None)


def test_positions_are_counted_in_each_text():
    assert SequenceLayout(2, 5).positions().tolist() == [3, 4]
    assert SequenceLayout(2, 5).positions(4).tolist() == [1, 2, 3, 4]
    keep = torch.tensor([[False, False, True, True], [True, True, True, False]])
    assert SequenceLayout(4, 4, keep=keep).positions().tolist() == [[0, 0, 0, 1], [0, 1, 2, 2]]
    assert SequenceLayout(1, 4, keep=keep).positions().tolist() == [[1], [2]]


def test_a_mask_is_omitted_only_if_it_masks_nothing():
    keep = torch.ones(1, 4, dtype=torch.bool)
    assert SequenceLayout(4, 4).is_unmasked(full)
    assert SequenceLayout(1, 4).is_unmasked(causal)
    assert not SequenceLayout(2, 4).is_unmasked(causal)
    assert not SequenceLayout(1, 4).is_unmasked(window(2))
    assert not SequenceLayout(4, 4, keep=keep).is_unmasked(full)


def test_a_window_counts_from_the_first_real_token():
    keep = torch.tensor([[False, True, True, True]])
    found = SequenceLayout(4, 4, keep=keep).mask_matrix(causal & window(2))[0, 0].int().tolist()
    assert found[1:] == [[0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


# --- layers ---------------------------------------------------------------------------------------


@torch.no_grad()
def test_poolers_use_the_first_or_all_real_tokens_but_no_padding():
    x = torch.randn(2, 4, 3)
    keep = torch.tensor([[False, False, True, True], [True, True, False, False]])
    pooler = Pooler(3)
    close(pooler(x, keep)[0], torch.tanh(linear(x[0, 2], pooler.dense)))
    close(pooler(x, keep)[1], torch.tanh(linear(x[1, 0], pooler.dense)))
    close(mean_pool(x, keep)[0], x[0, 2:].mean(dim=0))
    assert mean_pool(x, torch.zeros(2, 4, dtype=torch.bool)).abs().sum() == 0


@torch.no_grad()
def test_norms_have_the_default_epsilon_of_their_papers():
    tiny = torch.tensor([[1e-3, -1e-3]])
    close(LayerNorm(2)(tiny), tiny / math.sqrt(1e-6 + 1e-5))
    close(RMSNorm(2)(tiny), tiny / math.sqrt(1e-6 + 1e-6))
    close(LayerNorm(2, eps=1e-12)(tiny), torch.tensor([[1.0, -1.0]]))


def test_slopes_are_those_of_the_alibi_paper():
    assert slopes(4) == [2**-2, 2**-4, 2**-6, 2**-8]
    assert slopes(1) == [2**-8]
    assert slopes(6) == pytest.approx([2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3])
    assert slopes(8)[0] == 0.5


def test_distance_lowers_scores_on_both_sides_or_more_on_one_side():
    q, layout = torch.zeros(1, 2, 3, 4), SequenceLayout(3, 3)
    plain = Alibi(2).bias(q, layout)
    far = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    close(plain, torch.stack((-far / 16, -far / 256)))
    sided = Alibi(2, directional=True).bias(q, SequenceLayout(3, 3))
    # the first head favors earlier tokens
    ahead = torch.tensor([[0.0, 8, 16], [1, 0, 8], [2, 1, 0]])
    close(sided, torch.stack((-ahead / 16, -ahead.T / 256)))


@torch.no_grad()
def test_low_frequencies_are_lowered_and_high_ones_kept():
    assert asdict(RopeScaling()) == {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context": 8192
    }  # fmt: skip
    scaling = RopeScaling(
        factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0, original_context=100
    )
    cycles = torch.tensor([0.5, 1.0, 2.0, 3.0, 9.0])  # in the original context
    freqs = cycles * 2 * math.pi / 100
    close(scaling(freqs) / freqs, torch.tensor([0.25, 0.25, 0.625, 1.0, 1.0]))
    with pytest.raises(GlassError, match="high_freq_factor must be greater than low_freq_factor"):
        RopeScaling(low_freq_factor=4.0)


@torch.no_grad()
def test_rotation_continues_after_a_cached_text():
    q, k = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 1, 4)
    rotary = Rotary(4)
    found, _ = rotary.rotate(q, k, SequenceLayout(1, 6))
    row = torch.cat((torch.zeros(5, 4), q[0, 0]))
    close(found[0, 0, 0], rotate(row)[5])
    with pytest.raises(GlassError, match="need an even head_dim, got 5"):
        Rotary(5)


def test_attention_has_the_requested_shapes():
    layer = Attention(12, 4, kv_heads=2, head_dim=5, out_bias=False)
    shapes = [tuple(p.weight.shape) for p in (layer.query, layer.key, layer.value, layer.out)]
    assert shapes == [(20, 12), (10, 12), (10, 12), (12, 20)]
    assert layer.out.bias is None
    assert layer.key.bias is not None
    assert layer.mask == full
    assert Attention(12, 4).head_dim == 3


def test_dilations_restart_at_1_after_ten_layers():
    layers = convolutions(2, 12, 3, causal=True, dropout=0.0)
    far = [layer.window.dilation[0] for layer in layers]
    assert far == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1, 2]
    assert [layer.reach for layer in layers][:3] == [2, 4, 8]


def test_activations_match_their_names():
    x = torch.tensor([-1.0, 2.0])
    normal = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    close(ACTIVATIONS["gelu"](x), x * normal)
    close(ACTIVATIONS["silu"](x), x / (1 + torch.exp(-x)))
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    close(ACTIVATIONS["gelu_tanh"](x), 0.5 * x * (1 + torch.tanh(inner)))
    assert ACTIVATIONS["relu"](x).tolist() == [0, 2]


def test_a_network_knows_its_sizes_and_its_inputs():
    assert CASES["two vocabularies"].network.vocab == 50
    kind = MODELS["translator"]
    small = {"dim": 8, "depth": 1, "heads": 2, "hidden": 8}
    assert kind(kind.Config(vocab=50, source_vocab=40, **small)).vocab == 40
    assert CASES["gpt2"].network.context == 32
    assert CASES["translator"].network.context is None
    batch = {"ids": 1, "source": 2, "source_keep": 3, "targets": 4, "keep": 5, "segments": 6}
    assert CASES["gpt2"].network.select_inputs(batch) == {"ids": 1, "keep": 5}
    assert CASES["bert"].network.select_inputs(batch) == {"ids": 1, "keep": 5, "segments": 6}
    reads = {"ids": 1, "source": 2, "source_keep": 3}
    assert CASES["translator"].network.select_inputs(batch) == reads
    assert CASES["phrase_table"].network.select_inputs(batch) == reads


# --- baselines ------------------------------------------------------------------------------------


def test_the_default_order_is_lower_for_a_large_vocabulary():
    kind = MODELS["markov"]
    orders = {vocab: kind(kind.Config(vocab=vocab)).counts.order for vocab in (50, 1000, 1001)}
    assert orders == {50: 4, 1000: 4, 1001: 3}
    assert kind(kind.Config(vocab=5000, order=6)).counts.order == 6


@pytest.mark.parametrize("name", ["markov", "markov with skips", "markov with a mask"])
def test_reading_a_long_text_in_chunks_changes_nothing(monkeypatch, name):
    network, text = CASES[name].network, ids(2)
    whole, probs = network(text), network.target_probs(text[0])
    monkeypatch.setattr(markov, "MAX_ELEMENTS", 5 * VOCAB)
    assert torch.equal(network(text), whole)
    close(network.target_probs(text[0]), probs)
    close(whole.exp().sum(dim=-1), torch.ones(2, text.shape[1]))


def test_a_chain_is_fitted_within_texts_and_not_across_them():
    kind = MODELS["markov"]
    network = kind(kind.Config(vocab=4, order=1))
    network.fit(torch.tensor([[0, 1, 2], [3, 0, -1]]))
    # nothing followed 2, 1 followed 0, 0 followed 3
    found = network(torch.tensor([[0], [2], [3]])).exp()[:, 0]
    nothing = torch.tensor([1 + 3 / 4, 1 + 3 / 4, 1 + 3 / 4, 3 / 4]) / 6
    close(found[1], nothing)
    close(found[0], (torch.tensor([0.0, 1, 0, 0]) + nothing) / 2)
    close(found[2], (torch.tensor([1.0, 0, 0, 0]) + nothing) / 2)


@torch.no_grad()
def test_neighbors_predict_the_masked_positions():
    network, text = CASES["neighbors"].network, ids(2)
    masked = torch.rand(text.shape) < 0.3
    masked[0, 0] = masked[1, -1] = True
    targets = text[masked]
    every = network(text).exp()[masked]
    close(network.target_probs(text, masked, targets), every.gather(1, targets[:, None])[:, 0])
    close(network.masked_logits(text, masked).tokens.exp(), every)


def fit_nb_svm(classes=2, **settings):
    kind = MODELS["nb_svm"]
    network = kind(kind.Config(vocab=9, classes=classes, **settings))
    texts = [[1, 2, 3], [1, 2], [4, 5, 6], [4, 5], [7, 8], [7, 8, 1]][: 2 * classes]
    flat = [i for text in texts for i in (*text, -1)][:-1]
    network.fit(torch.tensor(flat), torch.arange(2 * classes) // 2)
    return network


@torch.no_grad()
def test_the_weights_of_two_classes_are_opposite():
    network = fit_nb_svm()
    assert torch.equal(network.svm.weight[:, 0], -network.svm.weight[:, 1])
    assert torch.equal(network.svm.bias[:1], -network.svm.bias[1:])
    found = network(torch.tensor([[1, 2], [4, 5]]))
    assert found.argmax(dim=1).tolist() == [0, 1]
    assert len(network.svm.ngrams.keys[2]) == 0  # no n-gram of three tokens occurs twice
    assert len(fit_nb_svm(min_count=1).svm.ngrams.keys[2]) == 2
    padded = network(torch.tensor([[1, 2, 4]]), keep=torch.tensor([[True, True, False]]))
    close(padded, found[:1])


def test_many_classes_are_fitted_a_few_at_a_time(monkeypatch):
    whole = fit_nb_svm(classes=3)
    monkeypatch.setattr(ngram_classifier, "MAX_WEIGHTS", 1)
    few = fit_nb_svm(classes=3)
    close(few.svm.weight, whole.svm.weight, atol=1e-3, rtol=1e-2)
    assert few(torch.tensor([[7, 8]])).argmax() == 2


def fit_phrase_table(*pairs, **settings):
    kind = MODELS["phrase_table"]
    network = kind(kind.Config(vocab=30, eos=29, **settings))
    joined = [[i for pair in pairs for i in (*pair[side], -1)][:-1] for side in (0, 1)]
    network.fit(*map(torch.tensor, joined))
    return network


@torch.no_grad()
def test_a_word_is_translated_by_its_most_frequent_translation():
    pairs = [([1], [11]), ([1], [12]), ([1], [12]), ([2], [13])]
    network = fit_phrase_table(*pairs)
    assert network.translate(torch.tensor([[1, 2]])).tolist() == [[12, 13, 29]]
    keep = torch.tensor([[True, False], [True, True]])
    found = network.translate(torch.tensor([[1, 2], [2, 1]]), keep)
    assert found.tolist() == [[12, 29, 29], [13, 12, 29]]
    probs = network(torch.tensor([[0, 12, 13]]), torch.tensor([[1, 2]])).exp()[0]
    assert probs.argmax(dim=1).tolist() == [12, 13, 29]
    assert float(probs[0, 12]) == pytest.approx(0.95 + 0.05 / 30)
    assert float(probs[0, 3]) == pytest.approx(0.05 / 30)
    # a word without a translation is copied only if it is a target word
    assert network.translate(torch.tensor([[5, 12]])).tolist() == [[12, 29]]


@torch.no_grad()
def test_phrases_are_at_most_as_long_as_allowed():
    pairs = [([1, 2, 3], [11, 12, 13])] * 3
    for words in (1, 2, 3):
        network = fit_phrase_table(*pairs, max_source_words=words, max_target_words=2)
        assert [len(keys) > 0 for keys in network.phrases.keys] == [n < 2 for n in range(words)]
        assert all(table.shape[1] == 2 for table in network.translations if len(table))
        assert network.translate(torch.tensor([[1, 2, 3]])).tolist() == [[11, 12, 13, 29]]
