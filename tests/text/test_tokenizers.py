"""Tokenizers: exactness, the library against the algorithms by hand, and the originals' ids."""

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
    choose_letters,
    count_words,
)

SAMPLE = [
    "The quick brown fox jumps over the lazy dog; the dog sleeps.",
    "It's what they've said: we'll see, won't we? 12,345.67 and 42 items\n\n  indented\ttabs",
    "机器学习是人工智能的一个分支。机器翻译和机器学习。学习语言。",
    "😀😀 emoji 👩‍👩‍👧 and 🇩🇪 flags 😀, naïve café Zürich",
    "aaaa aaa aa a aaaaaa ababab",
]
PIECES = [
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
BYTES = [chr(i) for i in range(256)]
TEXTS = st.lists(st.sampled_from(PIECES) | st.sampled_from(BYTES), max_size=40).map("".join)
ANY = st.text(max_size=40)


@cache
def trained(name):
    return TOKENIZERS[name].train(SAMPLE)


@pytest.mark.parametrize("name", ["bytes", "bpe"])
@settings(max_examples=200, deadline=None)
@given(text=TEXTS | ANY)
def test_decoding_gives_back_the_text_exactly(name, text):
    tokenizer = trained(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_many_texts_at_once_are_each_as_alone():
    for name in ("bpe", "wordpiece"):
        tokenizer = trained(name)
        assert tokenizer.encode_batch(SAMPLE) == [tokenizer.encode(text) for text in SAMPLE]


def test_half_a_character_is_replaced_not_refused():
    for name in TOKENIZERS:
        tokenizer = trained(name)
        assert tokenizer.encode("a\ud83d\ude00b") == tokenizer.encode("a😀b")
        assert isinstance(tokenizer.decode(tokenizer.encode("a\ud83d b")), str)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_stay_below_vocab_and_every_token_has_a_name(name):
    tokenizer = trained(name)
    ids = [i for text in SAMPLE for i in tokenizer.encode(text)]
    assert ids
    assert all(0 <= i < tokenizer.vocab for i in ids)
    names = [tokenizer.token(i) for i in range(tokenizer.vocab)]
    assert all(names)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_comes_back_from_its_file(name, tmp_path):
    tokenizer, file = trained(name), tmp_path / "tokenizer.json"
    file.write_text(tokenizer.to_json(), encoding="utf-8")
    back = text.load(file)
    assert (back.vocab, back.special_tokens, back.kind) == (
        tokenizer.vocab,
        tokenizer.special_tokens,
        tokenizer.kind,
    )
    for sample in [*SAMPLE, "unseen ¿words? <|endoftext|> [MASK]"]:
        assert back.encode(sample) == tokenizer.encode(sample)
        assert back.decode(back.encode(sample)) == tokenizer.decode(tokenizer.encode(sample))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_special_token_that_is_typed_stays_text(name, tmp_path):
    special_tokens = ("<unk>", "[UNK]", "[MASK]", "<|endoftext|>", "<end>", "[bos]")
    tokenizer, file = (
        TOKENIZERS[name].train(SAMPLE, special_tokens=special_tokens),
        tmp_path / "t.json",
    )
    file.write_text(tokenizer.to_json(), encoding="utf-8")
    unknown = {"<unk>", "[UNK]"}  # which a word that is not known becomes, as it should
    markers = {i for token, i in tokenizer.special_tokens.items() if token not in unknown}
    assert set(tokenizer.special_tokens) == set(special_tokens)
    for each in (tokenizer, text.load(file)):
        assert each.special_tokens == tokenizer.special_tokens
        for special in special_tokens:
            assert not markers & set(each.encode(f"a {special} b{special}"))


@pytest.mark.parametrize("name", ["bpe", "wordpiece"])
def test_a_word_cannot_be_a_special_token(name):
    with pytest.raises(GlassError, match="'PAD' is a word of its own: write <PAD>"):
        TOKENIZERS[name].train(["PAD PAD"] * 9, special_tokens=("[UNK]", "PAD"))


def test_training_twice_gives_the_same():
    for kind in TOKENIZERS.values():
        assert kind.train(SAMPLE).to_json() == kind.train(SAMPLE).to_json()


# --- characters, words, bytes ---------------------------------------------------------------------


def test_an_unseen_character_is_unknown_not_an_error():
    tokenizer = Characters.train(["abc"])
    assert tokenizer.encode("aZ") == [1, 0]
    assert tokenizer.decode(tokenizer.encode("cab")) == "cab"
    assert tokenizer.decode([1, 0]) == "a<unk>"


def test_words_are_cut_by_frequency():
    tokenizer = Words.train(["a a a b b c"], min_count=2)
    assert [tokenizer.token(i) for i in range(tokenizer.vocab)] == ["<unk>", "a", "b"]
    assert Words.train(["a a a b b c"], vocab=2).vocab == 2
    assert tokenizer.decode(tokenizer.encode("a c b")) == "a <unk> b"


def test_words_keep_signs_apart_and_ideographs_single():
    assert Words.split("Don't stop, 你好 42!") == ["Don't", "stop", ",", "你", "好", "42", "!"]


def test_bytes_are_utf8():
    tokenizer = Bytes(["<end>"])
    assert tokenizer.encode("é") == list("é".encode())
    assert tokenizer.decode([*"é".encode(), 256]) == "é<end>"
    assert tokenizer.decode([0xC3]) == "\ufffd"
    assert (tokenizer.token(65), tokenizer.token(10), tokenizer.token(256)) == ("A", "0a", "<end>")


def test_tokens_must_differ():
    with pytest.raises(ValueError, match="must differ"):
        Characters(["a", "a"])


# --- by hand --------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=8), probe=TEXTS, more=st.integers(0, 60))
def test_bpe_by_hand_learns_and_says_the_same(texts, probe, more):
    fast = BPE.train(texts, vocab=257 + more)
    ids, merges = by_hand.learn_bpe(texts, 256 + more)
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
def test_wordpiece_by_hand_learns_and_says_the_same(texts, probe, size, lower):
    fast = WordPiece.train(texts, vocab=size, lower=lower)
    words = Counter(word for text_ in texts for word in by_hand.bert_words(text_, lower=lower))
    letters, words = choose_letters(words, size)
    ids, _ = by_hand.learn_wordpiece(words, [*BERT_SPECIAL_TOKENS, *letters], size)
    assert ids == fast.engine.get_vocab()
    for text_ in [probe, *texts]:
        assert by_hand.encode_wordpiece(text_, ids, lower=lower) == fast.encode(text_)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_words_are_split_as_the_library_splits_them(text):
    pieces = BPE.train([]).engine.pre_tokenizer.pre_tokenize_str(text)
    spans = [text[start:end] for _, (start, end) in pieces]
    assert list(by_hand.gpt2_words(text)) == spans
    counts = count_words(WordPiece.of(["[UNK]"]).engine, [text])
    assert Counter(by_hand.bert_words(text)) == counts


def test_bytes_that_are_no_text_survive_by_hand():
    ids, merges = by_hand.learn_bpe(SAMPLE, 300)
    for character in map(chr, [*range(256), 0x4F60, 0x1F600]):
        assert by_hand.decode_bpe(by_hand.encode_bpe(character, ids, merges), ids) == character


def test_rare_letters_leave_room_for_words():
    chinese = ["".join(chr(0x4E00 + i) for i in range(500)) + " common common"]
    tokenizer = WordPiece.train(chinese, vocab=100)
    assert tokenizer.vocab <= 100
    assert tokenizer.encode("common") == [tokenizer.engine.token_to_id("common")]


# --- the originals --------------------------------------------------------------------------------


def test_with_gpt2s_files_the_ids_are_gpt2s(data):
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
def test_with_berts_vocabulary_the_ids_are_berts(data, lower):
    from transformers import BertTokenizer

    file = data / "bert-vocab" / "vocab.txt"
    tokens = file.read_text(encoding="utf-8").splitlines()
    vocabulary = {token: i for i, token in enumerate(tokens)}
    ours = WordPiece.read(file, lower=lower)
    theirs = BertTokenizer(vocab=vocabulary, do_lower_case=lower)
    for sample in SAMPLE:
        assert ours.encode(sample) == theirs(sample, add_special_tokens=False)["input_ids"]
        assert by_hand.encode_wordpiece(sample, vocabulary, lower=lower) == ours.encode(sample)


# --- files that are wrong -------------------------------------------------------------------------


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
def test_a_damaged_tokenizer_is_named_in_one_line(content, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(GlassError, match=r"tokenizer.json") as error:
        text.load(file)
    assert "\n" not in str(error.value)


def test_wrong_files_of_gpt2_and_bert_are_named(tmp_path):
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    signs = {sign: i for i, sign in enumerate(sorted(by_hand.BYTE))}
    vocabulary.write_text(json.dumps({**signs, "ab": 256}))
    merges.write_text("#version: 0.2\na b\nb c\n")
    with pytest.raises(GlassError, match="merge 2, 'b c'"):
        BPE.read(vocabulary, merges)
    merges.write_text("#version: 0.2\na b\n")
    assert BPE.read(vocabulary, merges).encode("ab") == [256]
    for wrong, message in (
        ("[]", "no table of tokens"),
        ('{"a": -1}', "the id of 'a' is -1"),
        ('{"a": 0}', "byte"),
    ):
        vocabulary.write_text(wrong)
        with pytest.raises(GlassError, match=message):
            BPE.read(vocabulary, merges)
    merges.write_bytes(b"\xff")
    vocabulary.write_text(json.dumps(signs))
    with pytest.raises(GlassError, match="not UTF-8"):
        BPE.read(vocabulary, merges)
    with pytest.raises(GlassError, match=r"needs \[UNK\]"):
        WordPiece.of(["a"])


def test_a_vocabulary_with_gaps_is_as_large_as_its_largest_id():
    signs = {sign: i * 2 for i, sign in enumerate(sorted(by_hand.BYTE))}
    assert BPE.of(signs, [], ()).vocab == 511


def test_scored_pieces_merge_best_first():
    pieces = [b"<unk>", b"<s>", b"</s>", b" ", b"a", b"b", b"ab", b"ba", b" a"]
    tokenizer = ScoredTokenizer(pieces, [0, 0, 0, 0, 0, 0, 1.0, 2.0, 0.5])

    def slow(text):
        ids = [pieces.index(c.encode()) for c in " " + text]
        while True:
            found = [
                (-tokenizer.scores[pieces.index(pieces[a] + pieces[b])], at)
                for at, (a, b) in enumerate(itertools.pairwise(ids))
                if pieces[a] + pieces[b] in pieces[3:]
            ]
            if not found:
                return ids
            _, at = min(found)
            ids[at : at + 2] = [pieces.index(pieces[ids[at]] + pieces[ids[at + 1]])]

    for length in range(1, 7):
        for letters in itertools.product("ab ", repeat=length):
            text_ = "".join(letters)
            assert tokenizer.encode(text_) == slow(text_)
            assert tokenizer.decode(tokenizer.encode(text_)) == text_
    tokenizer.encode("ab" * 20_000)  # a long text takes no time


def test_padding_and_truncation_in_a_file_are_not_applied(tmp_path):
    tokenizer, file = BPE.train(SAMPLE), tmp_path / "tokenizer.json"
    tokenizer.engine.enable_truncation(3)
    tokenizer.engine.enable_padding(length=50)
    file.write_text(tokenizer.to_json())
    back = text.load(file)
    assert isinstance(back, SubwordTokenizer)
    assert back.encode(SAMPLE[0]) == trained("bpe").encode(SAMPLE[0])
