"""Claims of the bench scripts that can be tested quickly."""

import gzip
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))


@pytest.fixture(scope="module")
def trained():
    import it

    parts = it.make_examples()
    held_out = it.encode(parts["held out"])
    return it, parts, it.train(*it.encode(parts["train"]), seed=0), held_out


def test_held_out_pairs_are_not_in_the_training_data(trained):
    it, parts, _, _ = trained
    pairs = {name: {frozenset((text[it.FIRST], text[it.SECOND])) for text, _ in part}
             for name, part in parts.items()}  # fmt: skip
    assert not pairs["train"] & pairs["held out"]
    assert len(pairs["train"] | pairs["held out"]) == 400


def test_a_bag_of_words_does_not_determine_the_target(trained):
    """Each bag of words occurs with both targets."""
    _, parts, _, _ = trained
    targets_by_bag = {}
    for text, target in parts["held out"]:
        targets_by_bag.setdefault(tuple(sorted(text)), []).append(target)
    assert all(sorted(targets) == [0, 1] for targets in targets_by_bag.values())


def test_sentences_are_written_with_it_resolved(tmp_path):
    import it

    it.write_sentences(tmp_path)
    lines = (tmp_path / "it-train.tsv").read_text().splitlines()
    assert lines[0] == "source\ttarget"
    assert len(lines) > 15_000
    reasons = {**dict.fromkeys(it.FEELINGS, it.BEINGS), **dict.fromkeys(it.PROPERTIES, it.PLACES)}
    for line in lines[1:200]:
        source, target = line.split("\t")
        before, _, reason = source.partition(" it was too ")
        noun = target.removeprefix(before + " the ").removesuffix(" was too " + reason)
        assert noun in reasons[reason]
        assert noun in before


def test_the_encoder_resolves_it_and_one_head_is_essential(trained):
    it, _, network, held_out = trained
    assert it.accuracy(network(held_out[0]), held_out[1]) >= 0.95
    heads = it.measure_heads(network, *held_out)
    costs = sorted(cost for _, _, cost, _ in heads)
    assert costs[-1] >= 0.30
    assert sum(costs[:-1]) / len(costs[:-1]) <= 0.05
    resolving = {(name, head) for name, head, _, contrast in heads if contrast > it.MIN_CONTRAST}
    assert max(contrast for *_, contrast in heads) >= 0.9
    assert it.ablation_cost(network, *held_out, resolving) >= 0.30


def test_folds_of_the_reviews_are_disjoint_and_complete(tmp_path):
    import tables

    (tmp_path / "imdb").mkdir()
    lines = [json.dumps({"text": f"review {i}", "label": i % 2}) for i in range(23)]
    with gzip.open(tmp_path / "imdb/train.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    tested = []
    for fold in range(tables.FOLDS):
        files = tables.write_reviews(tmp_path, tmp_path, fold)
        rows = {name: file.read_text().splitlines()[1:] for name, file in files.items()}
        assert not set(rows["train"]) & set(rows["test"])
        assert len(rows["train"]) + len(rows["test"]) == 23
        tested += rows["test"]
    assert len(set(tested)) == len(tested) == 23


def test_benchmarks_list_every_model_for_the_given_budgets():
    import quality
    import tables

    jobs = tables.list_jobs()
    assert {job.data for job in jobs} == set(tables.MINUTES)
    assert {job.fold for job in jobs if job.data == "imdb"} == set(range(tables.FOLDS))
    assert {job.fold for job in jobs if job.data == "cmn-en"} == set(range(tables.SEEDS))
    short = tables.list_jobs([0.5, 1.0])
    assert {job.minutes for job in short} == {0.5, 1.0}
    assert {job.model for job in short if job.data == "cmn-en"} == set(
        tables.CONTENDERS["translate"]
    )
    jobs = quality.list_jobs(minutes=[0.5])
    assert {(job.text, job.minutes) for job in jobs} == {(text, 0.5) for text in quality.TEXTS}
    assert not any(job.contender.is_nanogpt for job in jobs)
    assert len({job.key for job in jobs}) == len(jobs)


def test_chinese_pairs_are_split_into_three_tables(tmp_path):
    import tables

    (tmp_path / "cmn-eng").mkdir()
    lines = [f"sentence {i}\t句子{i}\tnobody" for i in range(300)]
    with gzip.open(tmp_path / "cmn-eng/train.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    files = tables.write_chinese_pairs(tmp_path, tmp_path)
    rows = {name: file.read_text(encoding="utf-8").splitlines() for name, file in files.items()}
    assert all(part[0] == "source,target" for part in rows.values())
    assert sorted(row for part in rows.values() for row in part[1:]) == sorted(
        f"句子{i},sentence {i}" for i in range(300)
    )
    assert min(len(part) for part in rows.values()) > 1


def test_sums_are_right_and_offsets_do_not_stay():
    import depth

    source, targets = depth.make_pairs("add", 50, 6)
    for row, target in zip(source.tolist(), targets.tolist(), strict=True):
        first, second, total = (
            int("".join(str(digit - depth.ZERO) for digit in reversed(digits)))
            for digits in (row[:6], row[7:], target[:-1])
        )
        assert first + second == total
        assert target[-1] == depth.EOS
    layout = depth.SequenceLayout(3, 3)
    with depth.offset_positions(5):
        assert layout.positions().tolist() == [5, 6, 7]
    assert layout.positions().tolist() == [0, 1, 2]
    source, targets = depth.make_pairs("reverse", 4, 3)
    assert source.flip(1).tolist() == targets[:, :-1].tolist()


def test_every_variant_of_the_decoder_is_a_row_of_the_page():
    import variants

    from glassformer.registry import build_model

    assert len(set(variants.VARIANTS.values())) == len(variants.VARIANTS)
    for model, _ in variants.VARIANTS.values():
        build_model(model, {**variants.SIZES, "vocab": 9})
    row = {"loss": 2.5, "size": 1234, "seconds": 60.0, "machine": "m", "torch": "t", "date": "d"}
    rows = [{**row, "variant": name} for name in variants.VARIANTS]
    rows[1]["loss"] = 2.75
    page = variants.format_page(rows)
    assert "| 1 head | `decoder` `model.heads=1` | 1,234 | 2.750 | +0.250 | 60 |" in page
    assert page.count("| +0.000 |") == len(rows) - 2


def test_repetitions_repeat_and_exponents_are_fitted(tmp_path):
    import long_context

    long_context.write_repetitions(tmp_path / "a.txt", blocks=3)
    text, size = (tmp_path / "a.txt").read_text(), long_context.DISTANCE
    assert len(text) == 6 * size
    for start in range(0, len(text), 2 * size):
        assert text[start : start + size] == text[start + size : start + 2 * size]
    assert long_context.fit_exponent([10, 100], [3, 300]) == pytest.approx(2)
    kinds = {job["kind"] for job in long_context.list_costs()}
    assert kinds == {"attention", "step"}


def test_the_soak_finds_the_comparisons_of_the_tutorials():
    import soak

    commands = soak.list_comparisons()
    assert commands
    assert all("--minutes" in command for command in commands)
