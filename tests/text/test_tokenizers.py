"""Tokenizers: lossless decoding, the library against plain Python, the ids of GPT-2 and BERT."""

import itertools
import json
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer import TOKENIZERS, GlassError, text
from glassformer.text import by_hand
from glassformer.text.plain import Bytes, Characters, Words
from glassformer.text.scored import ScoredTokenizer
from glassformer.text.subword import (
    BERT_SPECIAL_TOKENS,
    BPE,
    SubwordTokenizer,
    WordPiece,
    choose_characters,
    count_words,
)

SAMPLE = [
    "The quick brown fox jumps over the lazy dog; the dog sleeps.",
    "It's what they've said: we'll see, won't we? 12,345.67 and 42 items\n\n  indented\ttabs",
    "机器学习是人工智能的一个分支。机器翻译和机器学习。学习语言。",
    "😀😀 emoji 👩‍👩‍👧 and 🇩🇪 flags 😀, naïve café Zürich",
    "aaaa aaa aa a aaaaaa ababab",
]
FRAGMENTS = [
    *"abcdefgh ABC 0123 .,;:!?'\"-()[]{}<>|/\\\n\t",
    *"机器学习语言的是一了我",
    "😀",
    "👍🏽",
    "é",
    "ü",
    "'s",
    "'ll",
    " the",
    "learning",
    "<|endoftext|>",
    "[MASK]",
    "[CLS]",
    "\u00a0",
    "\u3000",
]
LATIN1 = [chr(i) for i in range(256)]
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.sampled_from(LATIN1), max_size=40).map("".join)
ANY_TEXT = st.text(max_size=40)


@cache
def train_once(name):
    return TOKENIZERS[name].train(SAMPLE)


@pytest.mark.parametrize("name", ["bytes", "bpe"])
@settings(max_examples=200, deadline=None)
@given(text=TEXTS | ANY_TEXT)
def test_decoding_is_lossless(name, text):
    tokenizer = train_once(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_encoding_a_batch_equals_encoding_each_text():
    for name in ("bpe", "wordpiece"):
        tokenizer = train_once(name)
        assert tokenizer.encode_batch(SAMPLE) == [tokenizer.encode(text) for text in SAMPLE]


def test_lone_surrogates_are_replaced():
    for name in TOKENIZERS:
        tokenizer = train_once(name)
        assert tokenizer.encode("a\ud83d\ude00b") == tokenizer.encode("a😀b")
        assert isinstance(tokenizer.decode(tokenizer.encode("a\ud83d b")), str)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_are_below_vocab_and_every_token_has_a_name(name):
    tokenizer = train_once(name)
    ids = [i for text in SAMPLE for i in tokenizer.encode(text)]
    assert ids
    assert all(0 <= i < tokenizer.vocab for i in ids)
    names = [tokenizer.token(i) for i in range(tokenizer.vocab)]
    assert all(names)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_saved_tokenizer_can_be_loaded(name, tmp_path):
    tokenizer, file = train_once(name), tmp_path / "tokenizer.json"
    file.write_text(tokenizer.to_json(), encoding="utf-8")
    loaded = text.load(file)
    assert (loaded.vocab, loaded.special_tokens, loaded.kind) == (
        tokenizer.vocab,
        tokenizer.special_tokens,
        tokenizer.kind,
    )
    for sample in [*SAMPLE, "unseen ¿words? <|endoftext|> [MASK]"]:
        assert loaded.encode(sample) == tokenizer.encode(sample)
        assert loaded.decode(loaded.encode(sample)) == tokenizer.decode(tokenizer.encode(sample))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_special_token_in_the_input_is_encoded_as_text(name, tmp_path):
    special_tokens = ("<unk>", "[UNK]", "[MASK]", "<|endoftext|>", "<end>", "[bos]")
    tokenizer, file = (
        TOKENIZERS[name].train(SAMPLE, special_tokens=special_tokens),
        tmp_path / "t.json",
    )
    file.write_text(tokenizer.to_json(), encoding="utf-8")
    unknown = {"<unk>", "[UNK]"}  # unknown words may become these
    special_ids = {i for token, i in tokenizer.special_tokens.items() if token not in unknown}
    assert set(tokenizer.special_tokens) == set(special_tokens)
    for each in (tokenizer, text.load(file)):
        assert each.special_tokens == tokenizer.special_tokens
        for special in special_tokens:
            assert not special_ids & set(each.encode(f"a {special} b{special}"))


@pytest.mark.parametrize("name", ["bpe", "wordpiece"])
def test_an_ordinary_word_cannot_be_a_special_token(name):
    with pytest.raises(GlassError, match="'PAD' is an ordinary word: use <PAD>"):
        TOKENIZERS[name].train(["PAD PAD"] * 9, special_tokens=("[UNK]", "PAD"))


def test_training_is_deterministic():
    for cls in TOKENIZERS.values():
        assert cls.train(SAMPLE).to_json() == cls.train(SAMPLE).to_json()


# --- characters, words, bytes ---------------------------------------------------------------------


def test_an_unseen_character_becomes_the_unknown_token():
    tokenizer = Characters.train(["abc"])
    assert tokenizer.encode("aZ") == [1, 0]
    assert tokenizer.decode(tokenizer.encode("cab")) == "cab"
    assert tokenizer.decode([1, 0]) == "a<unk>"


def test_rare_words_are_left_out_of_the_vocabulary():
    tokenizer = Words.train(["a a a b b c"], min_count=2)
    assert [tokenizer.token(i) for i in range(tokenizer.vocab)] == ["<unk>", "a", "b"]
    assert Words.train(["a a a b b c"], vocab=2).vocab == 2
    assert tokenizer.decode(tokenizer.encode("a c b")) == "a <unk> b"


def test_punctuation_marks_and_ideographs_are_separate_words():
    assert Words.split("Don't stop, 你好 42!") == ["Don't", "stop", ",", "你", "好", "42", "!"]


def test_byte_ids_are_utf8():
    tokenizer = Bytes(["<end>"])
    assert tokenizer.encode("é") == list("é".encode())
    assert tokenizer.decode([*"é".encode(), 256]) == "é<end>"
    assert tokenizer.decode([0xC3]) == "\ufffd"
    assert (tokenizer.token(65), tokenizer.token(10), tokenizer.token(256)) == ("A", "0a", "<end>")


def test_duplicate_tokens_are_rejected():
    with pytest.raises(ValueError, match="must be distinct"):
        Characters(["a", "a"])


# --- plain Python against the library -------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8), probe=TEXTS, max_merges=st.integers(0, 60))
def test_bpe_by_hand_equals_the_library(texts, probe, max_merges):
    fast = BPE.train(texts, vocab=257 + max_merges)
    ids, merges = by_hand.train_bpe(texts, 256 + max_merges)
    assert ids | fast.special_tokens == fast.engine.get_vocab()
    assert merges == [tuple(pair) for pair in json.loads(fast.to_json())["model"]["merges"]]
    for text_ in [probe, *texts]:
        assert by_hand.encode_bpe(text_, ids, merges) == fast.encode(text_)
        assert by_hand.decode_bpe(fast.encode(text_), ids) == text_


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8),
    probe=TEXTS,
    size=st.integers(20, 120),
    lower=st.booleans(),
)
def test_wordpiece_by_hand_equals_the_library(texts, probe, size, lower):
    fast = WordPiece.train(texts, vocab=size, lower=lower)
    words = Counter(word for text_ in texts for word in by_hand.bert_words(text_, lower=lower))
    characters, words = choose_characters(words, size)
    ids, _ = by_hand.train_wordpiece(words, [*BERT_SPECIAL_TOKENS, *characters], size)
    assert ids == fast.engine.get_vocab()
    for text_ in [probe, *texts]:
        assert by_hand.encode_wordpiece(text_, ids, lower=lower) == fast.encode(text_)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_words_are_split_as_in_the_library(text):
    pieces = BPE.train([]).engine.pre_tokenizer.pre_tokenize_str(text)
    spans = [text[start:end] for _, (start, end) in pieces]
    assert list(by_hand.gpt2_words(text)) == spans
    counts = count_words(WordPiece.from_vocab(["[UNK]"]).engine, [text])
    assert Counter(by_hand.bert_words(text)) == counts


def test_bpe_by_hand_is_lossless_for_every_byte():
    ids, merges = by_hand.train_bpe(SAMPLE, 300)
    for character in map(chr, [*range(256), 0x4F60, 0x1F600]):
        assert by_hand.decode_bpe(by_hand.encode_bpe(character, ids, merges), ids) == character


def test_rare_letters_leave_room_for_words():
    chinese = ["".join(chr(0x4E00 + i) for i in range(500)) + " common common"]
    tokenizer = WordPiece.train(chinese, vocab=100)
    assert tokenizer.vocab <= 100
    assert tokenizer.encode("common") == [tokenizer.engine.token_to_id("common")]


# --- the vocabularies of GPT-2 and BERT -----------------------------------------------------------


def test_ids_with_the_gpt2_vocabulary_equal_those_of_transformers(data):
    from transformers import GPT2Tokenizer

    files = [str(data / "gpt2-bpe" / name) for name in ("encoder.json", "vocab.bpe")]
    ours = BPE.read(*map(data.joinpath, files))
    vocabulary = json.loads((data / "gpt2-bpe" / "encoder.json").read_text())
    lines = (data / "gpt2-bpe" / "vocab.bpe").read_text().splitlines()[1:]
    theirs = GPT2Tokenizer(vocab=vocabulary, merges=[tuple(line.split()) for line in lines])
    assert ours.encode("Hello world") == [15496, 995]  # as published
    assert ours.special_tokens == {"<|endoftext|>": 50256}
    ids, merges = vocabulary, [tuple(line.split()) for line in lines]
    for sample in SAMPLE:
        assert ours.encode(sample) == theirs(sample)["input_ids"]
        assert by_hand.encode_bpe(sample, ids, merges) == ours.encode(sample)
        assert ours.decode(ours.encode(sample)) == sample


@pytest.mark.parametrize("lower", [True, False])
def test_ids_with_the_bert_vocabulary_equal_those_of_transformers(data, lower):
    from transformers import BertTokenizer

    file = data / "bert-vocab" / "vocab.txt"
    tokens = file.read_text(encoding="utf-8").splitlines()
    vocabulary = {token: i for i, token in enumerate(tokens)}
    ours = WordPiece.read(file, lower=lower)
    theirs = BertTokenizer(vocab=vocabulary, do_lower_case=lower)
    for sample in SAMPLE:
        assert ours.encode(sample) == theirs(sample, add_special_tokens=False)["input_ids"]
        assert by_hand.encode_wordpiece(sample, vocabulary, lower=lower) == ours.encode(sample)


# --- invalid files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"kind": "words"}',
        '{"kind": "words", "special_tokens": ["<unk>"], "tokens": ["a", "a"]}',
        '{"kind": "words", "special_tokens": [], "tokens": ["a"]}',
        '{"kind": "scored", "pieces": ["\u4e00"], "scores": [1]}',
        '{"kind": "scored", "pieces": ["a", "b", "c", "d"], "scores": [1]}',
        '{"kind": "bytes", "special_tokens": [1, 2]}',
        '{"kind": "bytes", "special_tokens": ["a", "a"]}',
        '{"kind": "magic", "n": ' + "9" * 5000 + "}",
        '{"kind": "magic"}',
        '{"model": {"type": "BPE"}}',
        '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}',
    ],
)
def test_a_corrupted_tokenizer_file_is_rejected_in_one_line(content, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(GlassError, match=r"tokenizer.json") as error:
        text.load(file)
    assert "\n" not in str(error.value)


def test_invalid_vocabulary_files_of_gpt2_and_bert_are_rejected(tmp_path):
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    byte_ids = {c: i for i, c in enumerate(sorted(by_hand.CHAR_TO_BYTE))}
    vocabulary.write_text(json.dumps({**byte_ids, "ab": 256}))
    merges.write_text("#version: 0.2\na b\nb c\n")
    with pytest.raises(GlassError, match="merge 2, 'b c'"):
        BPE.read(vocabulary, merges)
    merges.write_text("#version: 0.2\na b\n")
    assert BPE.read(vocabulary, merges).encode("ab") == [256]
    for content, message in (
        ("[]", "not a JSON object that maps tokens"),
        ('{"a": -1}', "the id of 'a' must be from 0 to 16,777,215, got -1"),
        ('{"a": 0}', "byte"),
    ):
        vocabulary.write_text(content)
        with pytest.raises(GlassError, match=message):
            BPE.read(vocabulary, merges)
    merges.write_bytes(b"\xff")
    vocabulary.write_text(json.dumps(byte_ids))
    with pytest.raises(GlassError, match="not valid UTF-8"):
        BPE.read(vocabulary, merges)
    with pytest.raises(GlassError, match=r"must contain \[UNK\]"):
        WordPiece.from_vocab(["a"])


def test_the_vocab_of_ids_with_gaps_is_the_largest_id_plus_one():
    byte_ids = {c: i * 2 for i, c in enumerate(sorted(by_hand.CHAR_TO_BYTE))}
    assert BPE.from_vocab(byte_ids, [], ()).vocab == 511


def test_scored_pieces_merge_best_first():
    pieces = [b"<unk>", b"<s>", b"</s>", b" ", b"a", b"b", b"ab", b"ba", b" a"]
    tokenizer = ScoredTokenizer(pieces, [0, 0, 0, 0, 0, 0, 1.0, 2.0, 0.5])

    def encode_naively(text):
        ids = [pieces.index(c.encode()) for c in " " + text]
        while True:
            candidates = [
                (-tokenizer.scores[pieces.index(pieces[a] + pieces[b])], i)
                for i, (a, b) in enumerate(itertools.pairwise(ids))
                if pieces[a] + pieces[b] in pieces[3:]
            ]
            if not candidates:
                return ids
            _, i = min(candidates)
            ids[i : i + 2] = [pieces.index(pieces[ids[i]] + pieces[ids[i + 1]])]

    for length in range(1, 7):
        for letters in itertools.product("ab ", repeat=length):
            text_ = "".join(letters)
            assert tokenizer.encode(text_) == encode_naively(text_)
            assert tokenizer.decode(tokenizer.encode(text_)) == text_
    tokenizer.encode("ab" * 20_000)  # would take very long in quadratic time


def test_padding_and_truncation_in_a_file_are_not_applied(tmp_path):
    tokenizer, file = BPE.train(SAMPLE), tmp_path / "tokenizer.json"
    tokenizer.engine.enable_truncation(3)
    tokenizer.engine.enable_padding(length=50)
    file.write_text(tokenizer.to_json())
    loaded = text.load(file)
    assert isinstance(loaded, SubwordTokenizer)
    assert loaded.encode(SAMPLE[0]) == train_once("bpe").encode(SAMPLE[0])
