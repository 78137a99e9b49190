"""The lessons markov and tokens, on their own corpora and on a user's text."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch

from glassformer.core.errors import GlassError
from glassformer.inspection import export
from glassformer.lessons import TEXT_LESSONS, load_lesson, load_text_lesson, markov_text, tokens

MARKOV = {step.title: step for step in load_lesson("markov")}
SENTENCES = "The cat sat on the mat. The dog sat on the rug. The cat saw the dog."


def tables(title):
    return {table.name: table.values.double() for table in MARKOV[title].tables}


def matrix(rows):
    return torch.tensor(rows, dtype=torch.float64)


# --- markov ---------------------------------------------------------------------------------------


def test_a_matrix_product_is_made_of_dot_products():
    a, b, product = tables("Matrix product").values()
    expected = [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in b.T] for row in a
    ]
    torch.testing.assert_close(product, matrix(expected))
    assert product[0].tolist() == b[1].tolist()  # the first row of A is one-hot


def test_long_contexts_have_too_many_rows():
    counts = tables("Why not the last eight words")["contexts of k words"]
    words = "check whether the battery program ran down please".split()
    assert counts[0].tolist() == [len(words), len(words) ** 2, len(words) ** 8]
    assert counts[1].tolist() == [8, 9, 0]
    assert "3.9e+37" in MARKOV["Why not the last eight words"].text
    assert f"{50_000**8:.1e}" == "3.9e+37"


def test_the_skip_matrix_gives_the_votes_of_the_tutorial():
    matrix_of_skips = MARKOV["The matrix of skips"].tables[0]
    rows = dict(zip(matrix_of_skips.rows, matrix_of_skips.values, strict=True))
    column = list(matrix_of_skips.columns).index
    for pair, values in rows.items():
        expected = {"battery, ran": (1, 0), "program, ran": (0, 1)}.get(pair, (0.5, 0.5))
        expected = (0, 0) if pair in ("down, ran", "please, ran", "ran, ran") else expected
        assert (values[column("down")], values[column("please")]) == expected, pair
        assert values.sum() == sum(expected), pair
    vectors = tables("Mask as a vector")
    assert vectors["x T: votes without the mask"].tolist() == [[4, 5]]
    assert vectors["(x × m) T: votes"].tolist() == [[0, 1]]
    assert torch.equal(vectors["x × m"], vectors["x: pairs of the text"] * vectors["m: mask"])
    assert vectors["m: mask"].sum() == 2


def test_completion_ends_where_no_word_follows():
    step = MARKOV["Completion, word by word"]
    assert step.text.endswith("“show me my photos please”.")
    assert step.tables[0].values.argmax(1).tolist() == [4, 5]


def test_the_tutorials_125_trillion_weights_are_correct():
    step = MARKOV["Why words need an embedding"]
    assert not step.wrong_cells(step.tables[0]).any()
    assert step.tables[2].values.flatten().tolist() == [50_000**2, 50_000**3, 2 * 50_000 * 512]
    shapes = tables("The shapes from input to output")["shape of each matrix"].tolist()
    v, n, d = 50_000, 2048, 512
    assert shapes == [[n, v], [v, d], [n, d], [n, 64], [n, n], [n, d], [n, d], [d, v], [n, v]]


def test_the_learned_embedding_puts_the_nouns_together():
    distances = tables("Embedding in two dimensions")["distances between words"]
    words = list(MARKOV["Embedding in two dimensions"].tables[0].rows)
    nouns = [words.index(noun) for noun in ("directories", "files", "photos")]
    others = [words.index(word) for word in ("me", "my", "show")]
    assert distances[nouns][:, nouns].max() < distances[nouns][:, others].min() / 2
    counted, learned = tables("Counts and network").values()
    followed = counted.sum(1) > 0
    assert (counted - learned)[followed].abs().max() < 0.01
    e, d = tables("Embedding in two dimensions")["E"], tables("De-embedding gives logits")["D"]
    torch.testing.assert_close(learned, (e @ d).softmax(-1))


def test_positions_lie_on_a_circle_around_the_word_and_are_no_rotation():
    values = tables("Positions: a circle around the word")
    p = torch.arange(8.0).double()
    circle = torch.stack((p.sin(), p.cos()), dim=1)
    torch.testing.assert_close(values["offset of position p"], circle)
    torch.testing.assert_close(values["“my” at position p"], values["“my”"] + circle)
    (x, y), rotated = values["“my”"][0], values["“my” rotated by p radians"]
    by_hand = torch.stack((x * p.cos() - y * p.sin(), x * p.sin() + y * p.cos()), dim=1)
    torch.testing.assert_close(rotated, by_hand, rtol=0, atol=1e-5)
    from_word, from_origin, from_origin_rotated = values["distances"].T
    assert (from_word - 1).abs().max() < 1e-6
    assert from_origin_rotated.std() < 1e-5 < from_origin.std()


def test_the_softmax_is_written_out():
    values = tables("Softmax")
    powers = [math.exp(x) for x in values["logits after “my”"][0].tolist()]
    torch.testing.assert_close(values["e^x"], matrix([powers]))
    assert values["sum"].item() == pytest.approx(sum(powers))
    torch.testing.assert_close(values["softmax"], matrix([[x / sum(powers) for x in powers]]))
    formula, differentiated = values["derivative of each probability in its own logit"]
    torch.testing.assert_close(formula, differentiated)


# --- markov on a user's text ----------------------------------------------------------------------


def test_own_sentences_are_counted():
    values = markov_text.compute_values(SENTENCES)
    words = [line.split() for line in SENTENCES.lower().replace(".", "\n").splitlines()]
    after = Counter(b for line in words for a, b in pairwise(line) if a == "the")
    assert values["word"] == "the"
    assert values["followers"][:2] == ["cat", "dog"]
    assert values["after_one_word"][0].tolist() == pytest.approx(
        [after[word] / after.total() for word in values["followers"]]
    )
    rows = dict(zip(values["two_words"], values["after_two_words"].tolist(), strict=True))
    assert rows == {"on the": [0, 0, 0.5, 0.5], "saw the": [0, 1, 0, 0]}
    row = values["shown"].index("the")
    assert values["transitions"][row].sum() == pytest.approx(1)
    assert values["context_counts"].tolist() == [[8, 64], [8, 10]]
    assert (values["prompt"], values["target"]) == ("the cat saw the", "dog")
    votes = dict(zip(values["pairs"], values["votes"].tolist(), strict=True))
    assert votes["saw, the"] == [1, 0, 0]
    assert votes["cat, the"] == [0.5, 0.5, 0]
    torch.testing.assert_close(values["total_votes"][0], values["votes"].sum(0))
    assert values["total_votes"][1].tolist() == [1, 0, 0]
    assert values["completion"] == "the cat sat on the mat"


TEXTS = ["hi there", "我吃饭了。他吃面了。", "a a a a", "x y. y x.", "a b " * 99]
WITHOUT_MERGES, LONG = TEXTS[0], TEXTS[-1]
REJECTED = {("tokens", WITHOUT_MERGES), ("attention", LONG), ("position", LONG)}
REJECTED |= {("thrones", text) for text in TEXTS}  # it knows only the words of its corpus


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", TEXT_LESSONS)
def test_short_texts_and_other_scripts_work(name, text):
    if (name, text) in REJECTED:
        with pytest.raises(GlassError, match=r"give|use"):
            load_text_lesson(name, text)
        return
    steps = load_text_lesson(name, text)
    assert all(table.values.numel() for step in steps for table in step.tables)
    assert export.html([steps], name).count("<section>") == len(steps) > 1


def test_a_text_without_a_next_word_is_an_error():
    for name in TEXT_LESSONS:
        for text in ("", "one", " \n"):
            with pytest.raises(GlassError, match=r"give|use"):
                load_text_lesson(name, text)


# --- tokens ---------------------------------------------------------------------------------------


def count_pairs(words):
    """How often each pair of neighboring pieces occurs: slow and plain."""
    pairs = Counter()
    for pieces in words:
        pairs.update(pairwise(pieces))
    return pairs


def test_the_merges_are_those_of_a_plain_implementation():
    values = tokens.compute_values()
    words = [["␣" * (i > 0), *word] for i, word in enumerate(tokens.CORPUS.split())]
    words = [[piece for piece in pieces if piece] for pieces in words]
    for label, (count, left) in zip(
        values["bpe_merges"], values["bpe_counts"].tolist(), strict=True
    ):
        pairs = count_pairs(words)
        a, b = label.split(": ")[1].split(" + ")
        assert pairs[a, b] == max(pairs.values()) == count, label
        merged = []
        for pieces in words:
            text = f"|{'|'.join(pieces)}|".replace(f"|{a}|{b}|", f"|{a}{b}|")
            merged.append(text.strip("|").split("|"))
        words = merged
        assert sum(map(len, words)) == left, label
    assert len(values["bpe_merges"]) == 12


@pytest.mark.parametrize("text", [tokens.CORPUS, SENTENCES, "我吃饭了 我吃面了"])
def test_every_merge_joins_the_most_frequent_pair(text):
    values = tokens.compute_values(text)
    counts, lengths = values["bpe_counts"], values["bpe_lengths"]
    assert len(counts) == len(values["bpe_merges"]) > 3
    assert counts[0, 0] == values["pair_counts"].max()
    assert (counts[:, 0].diff() <= 0).all()
    n_bytes = len(" ".join(text.split()).encode())
    before = torch.cat((torch.tensor([n_bytes]), counts[:-1, 1]))
    assert (before - counts[:, 1] <= counts[:, 0]).all()
    assert (before > counts[:, 1]).all()
    assert (lengths.diff(dim=0) <= 0).all()


def test_walking_becomes_walk_and_ing():
    values = tokens.compute_values()
    assert values["wordpiece_split"] == "walk ##ing"
    assert values["bpe_pieces"] == ["␣walk", "ing"]
    assert values["word_history"].startswith("␣ w a l k i n g → ")
    assert values["word_history"].endswith("␣walk ing")
    assert values["candidates"] == ["walking", "walkin", "walki", "walk", "##ing"]
    assert values["is_token"].flatten().tolist() == [0, 0, 0, 1, 1]
    assert "walking" not in tokens.CORPUS


def test_words_per_token_follow_from_the_tokens_of_the_text():
    values = tokens.compute_values()
    text = " ".join(tokens.CORPUS.split())
    vocabulary, n_tokens, ratio = values["sizes"].T
    assert (vocabulary[0], n_tokens[0]) == (256, len(text))
    torch.testing.assert_close(ratio, len(text.split()) / n_tokens)
    by_merges = dict(zip(values["merge_counts"], n_tokens.tolist(), strict=True))
    after = dict(zip(range(1, 13), values["bpe_counts"][:, 1].tolist(), strict=True))
    assert [by_merges[str(n)] for n in (1, 2, 4, 8)] == [after[n] for n in (1, 2, 4, 8)]
    assert values["split_sizes"].tolist() == [[10, 16], [len(set(text)), len(text)]]
    ratios = values["documentation_sizes"][:, 1]
    assert (ratios.diff() > 0).all()
    assert (ratios - values["rule"]).abs().min() > 0.01  # the rule is no law
