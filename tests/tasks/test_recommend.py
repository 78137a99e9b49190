"""Recommenders: networks, metrics and sampling against plain definitions, and whole runs."""

import csv
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

import glassformer
from glassformer import MODELS, GlassError, load
from glassformer.cli import glass
from glassformer.core.reporter import NullReporter
from glassformer.data.rating_scale import Scale
from glassformer.data.request import DataRequest
from glassformer.data.sample import film_features
from glassformer.inspection.pictures.factors import GAP, SIZE, place_names, principal_components
from glassformer.tasks import TASKS
from glassformer.tasks.ranking import gains, hits, rank_targets
from glassformer.tasks.recommend_next import sampled_logits
from glassformer.tasks.task import Artifacts
from glassformer.training.evaluate import evaluate
from glassformer.training.resume import resume
from glassformer.training.train import train
from glassformer.training.trainer import Trainer

close = torch.testing.assert_close
USERS, ITEMS = 40, 25
EXACT = {"device": "cpu", "precision": "float32", "threads": 1, "baseline": False}


def build(name, **settings):
    model = MODELS[name]
    return model(model.Config(**settings)).eval()


# --- ratings --------------------------------------------------------------------------------------


def test_factorization_learns_the_closed_form_solution():
    """With all ratings known and no biases, the SVD with smaller singular values is the optimum."""
    users, items, l2 = 6, 4, 0.05
    ratings = torch.randn(users, items, dtype=torch.float64)
    network = build("factorization", users=users, items=items, dim=4, l2=l2).double().train()
    for parameter in (network.mean, network.user_bias.weight, network.item_bias.weight):
        parameter.requires_grad_(False)
    user, item = (grid.flatten() for grid in torch.meshgrid(
        torch.arange(users), torch.arange(items), indexing="ij"))  # fmt: skip
    vectors = [network.user.weight, network.item.weight]
    optimizer = torch.optim.LBFGS(vectors, max_iter=500, line_search_fn="strong_wolfe",
                                  tolerance_change=1e-14, tolerance_grad=1e-12)  # fmt: skip

    def loss():
        optimizer.zero_grad()
        value = (network(user, item) - ratings.flatten()).square().mean() + network.extra_loss()
        value.backward()
        return value

    optimizer.step(loss)
    u, s, v = torch.linalg.svd(ratings, full_matrices=False)
    threshold = l2 * math.sqrt(users * items)
    expected = u * (s - threshold).clamp(min=0) @ v
    assert 0 < threshold < s[0]
    close(network.eval()(user, item).view(users, items).detach(), expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_the_penalty_of_a_factorization_is_that_of_the_rated_users_and_items():
    network = build("factorization", users=5, items=4, dim=3, l2=0.3, bias_l2=0.07)
    for parameter in network.parameters():
        parameter.normal_()
    user, item = torch.tensor([1, 1, 4, -1]), torch.tensor([0, 3, -1, 2])
    network(user, item)
    assert network.extra_loss() is None  # only in training
    network.train()(user, item)
    total = 0.0
    for u, i in zip(user.tolist(), item.tolist(), strict=True):
        for weights, biases, row in (
            (network.user.weight, network.user_bias.weight, u),
            (network.item.weight, network.item_bias.weight, i),
        ):
            if row >= 0:
                total += 0.3 * float(weights[row] @ weights[row]) + 0.07 * float(biases[row]) ** 2
    assert network.extra_loss().item() == pytest.approx(total / 4)
    assert network.extra_loss() is None  # it belongs to one pass


def test_biases_solve_the_normal_equations():
    random = np.random.default_rng(0)
    user, item = random.integers(0, 8, 60), random.integers(0, 5, 60)
    rating = random.normal(3, 1, 60)
    network = build("biases", users=8, items=5, user_damping=2.0, item_damping=1.0)
    network.fit(*map(torch.from_numpy, (user, item, rating)))
    design = np.concatenate((np.eye(8)[user], np.eye(5)[item]), axis=1)
    damping = np.diag([2.0] * 8 + [1.0] * 5)
    solution = np.linalg.solve(design.T @ design + damping, design.T @ (rating - rating.mean()))
    found = torch.cat((network.user_bias, network.item_bias)).double()
    close(found, torch.from_numpy(solution), atol=1e-4, rtol=0)
    close(network.mean.double(), torch.tensor(rating.mean()))


@pytest.mark.parametrize("name", ["factorization", "biases"])
@torch.no_grad()
def test_ratings_of_all_items_are_those_of_each(name):
    network = build(name, users=4, items=6)
    for value in network.state_dict().values():
        value.normal_()
    user = torch.tensor([2, -1, 0])
    rows = [network(torch.full((6,), i), torch.arange(6)) for i in user.tolist()]
    close(network.rate_items(user), torch.stack(rows))
    biases = network.state_dict()
    item_bias = biases.get("item_bias", biases.get("item_bias.weight")).flatten()
    close(network(torch.tensor([-1]), torch.tensor([3]))[0], network.mean + item_bias[3])
    close(network(torch.tensor([-1]), torch.tensor([-1]))[0], network.mean)


# --- next items -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sasrec", "popularity"])
@torch.no_grad()
def test_the_next_item_is_scored_after_the_last_one(name):
    network = build(name, items=9)
    if name == "popularity":
        network.fit(torch.tensor([[1, 1, 2], [1, 8, -1]]))
        close(network.log_probs().exp()[:3], torch.tensor([1, 4, 2]) / 14)
    ids = torch.tensor([[1, 2, 3], [4, 5, 0]])
    keep = torch.tensor([[True, True, True], [True, True, False]])
    logits = network(ids, keep=keep)
    expected = torch.stack((logits[0, 2], logits[1, 1]))
    close(network.score_next(ids, keep), expected)
    left, left_keep = ids[1:].roll(1, 1), keep[1:].roll(1, 1)
    close(network.score_next(left, left_keep), expected[1:])


def test_with_all_items_in_the_sample_the_loss_is_the_cross_entropy():
    features, vectors = torch.randn(2, 5, 4), torch.randn(7, 4)
    targets = torch.randint(7, (2, 5))
    sampled = torch.stack([torch.randperm(7) for _ in range(2)])
    logits = sampled_logits(features, vectors, targets, sampled)
    nats = -logits.log_softmax(dim=-1)[..., 0]
    full = F.cross_entropy(
        (features @ vectors.T).flatten(0, 1), targets.flatten(), reduction="none"
    )
    close(nats.flatten(), full)


def test_a_sample_of_items_stands_for_all_of_them():
    features, vectors = torch.randn(1, 1, 4), torch.randn(50, 4)
    target = torch.tensor([[3]])
    sums = []
    for _ in range(4000):
        sampled = torch.randperm(50)[None, :10]
        logits = sampled_logits(features, vectors, target, sampled)
        sums.append(logits[..., 1:].exp().sum())
    rest = (features @ vectors.T)[0, 0].exp()
    close(torch.stack(sums).mean(), rest.sum() - rest[3], rtol=0.03, atol=0)


def test_ranking_metrics_equal_a_plain_loop():
    scores = torch.randn(30, 40).round(decimals=1)  # with ties
    targets = torch.randint(-1, 40, (30,))
    histories = [torch.randperm(40)[: i % 12] for i in range(30)]
    ranks = rank_targets(scores, targets, histories)
    expected_hits, expected_gains = [], []
    for row, target, history, rank in zip(
        scores.tolist(), targets.tolist(), histories, ranks.tolist(), strict=True
    ):
        seen = set(history.tolist()) - {target}
        ahead = sum(1 for i, score in enumerate(row) if i not in seen | {target} and target >= 0
                    and score >= row[target])  # fmt: skip
        assert rank == (ahead + 1 if target >= 0 else 41)
        expected_hits.append(rank <= 10)
        expected_gains.append(1 / math.log2(rank + 1) if rank <= 10 else 0)
    np.testing.assert_allclose(hits(ranks.numpy()), expected_hits)
    np.testing.assert_allclose(gains(ranks.numpy()), expected_gains)


def test_a_score_that_is_not_a_number_counts_against_the_target():
    scores = torch.tensor([[math.nan, 1.0, 0.0], [1.0, math.nan, 0.0]])
    assert rank_targets(scores, torch.tensor([1, 1]), [torch.tensor([], dtype=torch.long)] * 2).tolist() == [2, 3]  # fmt: skip  # noqa: E501


# --- data -----------------------------------------------------------------------------------------


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def make_ratings():
    """Even users like even items; each user goes through the items of one parity in order."""
    random, rows = np.random.default_rng(0), []
    for user in range(USERS):
        start = int(random.integers(0, 6))
        for time, number in enumerate([*range(start, start + 6), start + 7]):
            item = (2 * number + user % 2) % ITEMS
            rows.append((user, item, 5.0 if item % 2 == user % 2 else 1.0, time))
        for time, item in enumerate(random.choice(ITEMS, 6, replace=False)):
            rows.append((user, int(item), 5.0 if item % 2 == user % 2 else 1.0, 100 + time))
    return [dict(zip(("userId", "movieId", "rating", "timestamp"), row, strict=True))
            for row in {row[:2]: row for row in rows}.values()]  # fmt: skip


# --- datasets and scores --------------------------------------------------------------------------


def open_task(folder, name="recommend", rows=None, **options):
    """A task on a file of ratings, opened without training."""
    file = write(folder / "given.csv", make_ratings() if rows is None else rows)
    spec = TASKS[name]
    (folder / "cache").mkdir()
    request = DataRequest(files=(file,), **options)
    artifacts = spec.prepare(request, folder / "cache", NullReporter())
    return spec.open(artifacts, folder / "cache")


def test_every_rating_is_read_once_per_epoch_in_an_order_of_its_own(tmp_path):
    dataset = open_task(tmp_path).dataset
    pairs, ratings = dataset.parts["train"]

    def read(seed, epoch):
        batches = dataset.train_batches(20, None, seed)
        assert batches.per_epoch == len(ratings) // 20
        steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        return [
            row
            for batch in map(batches.at, steps)
            for row in zip(*(batch[n].tolist() for n in ("user", "item", "targets")), strict=True)
        ]

    rows = {(*pair, rating) for pair, rating in zip(pairs.tolist(), ratings.tolist(), strict=True)}
    first, second, other = read(0, 0), read(0, 1), read(1, 0)
    assert len(set(first)) == len(first) == len(ratings) // 20 * 20
    assert set(first) <= {(user, item, rating) for user, item, rating in rows}
    assert first == read(0, 0)
    assert first != second
    assert first != other


def test_the_mean_is_that_of_training_and_histories_have_all_ratings(tmp_path):
    task = open_task(tmp_path)
    (pairs, ratings), (held_out, _) = (task.dataset.parts[split] for split in ("train", "valid"))
    assert len(held_out) > 0
    assert task.artifacts.metadata["mean"] == pytest.approx(ratings.mean())
    for user, history in enumerate(task.dataset.catalog.histories):
        rated = [item for u, item in (*pairs.tolist(), *held_out.tolist()) if u == user]
        assert sorted(history) == sorted(item for item in rated if item >= 0)


@torch.no_grad()
def test_a_factorization_starts_from_the_biases(tmp_path):
    task = open_task(tmp_path)
    network, baseline = (
        build(name, **task.dataset.sizes()) for name in ("factorization", "biases")
    )
    assert task.spec.initialize is not None
    task.spec.initialize(task.dataset, network)
    assert task.dataset.fit(baseline, 1.0) == 1.0
    network.user.weight.zero_()
    users = torch.arange(USERS)
    close(network.rate_items(users), baseline.rate_items(users))
    assert float(baseline.rate_items(users).std()) > 0.1
    part = build("biases", **task.dataset.sizes())
    assert task.dataset.fit(part, 0.25) == pytest.approx(0.25, abs=0.01)
    assert not torch.equal(part.item_bias, baseline.item_bias)


class Constant(torch.nn.Module):
    """Predicts the given ratings, whatever the user and the item."""

    def __init__(self, ratings):
        super().__init__()
        self.ratings = ratings

    def select_inputs(self, batch):
        return {}

    def forward(self):
        return self.ratings


def test_errors_are_those_of_ratings_on_the_scale():
    artifacts = Artifacts(
        {**Scale.of(Counter([1.0, 2.0, 3.0, 4.0, 5.0]), None).metadata, "mean": 3.5}
    )
    objective = TASKS["recommend"].objective(artifacts)
    batch = {
        "user": torch.tensor([0, -1, 2]), "item": torch.tensor([4, 1, -1]),
        "targets": torch.tensor([2.0, 5.0, 3.0]), "index": torch.tensor([7, 8, 9]),
    }  # fmt: skip
    scores = objective.scores(Constant(torch.tensor([2.5, 9.0, -4.0])), batch)  # clamped: 5 and 1
    found = objective.metrics(scores)
    assert found["loss"] == pytest.approx((0.25 + 0 + 4) / 3)
    assert found["rmse"] == pytest.approx(math.sqrt(4.25 / 3))
    assert found["mean_rmse"] == pytest.approx(math.sqrt((2.25 + 2.25 + 0.25) / 3))
    assert (found["examples"], found["unseen"]) == (3, 2)
    worst = TASKS["recommend"].details(scores, artifacts)["worst"]
    assert [(row["index"], row["prediction"]) for row in worst] == [(9, 1.0), (7, 2.5), (8, 5.0)]
    (loss,) = objective.losses(Constant(torch.tensor([2.5, 9.0, -4.0])), batch)
    assert loss == 0.25 + 16 + 49  # without the scale
    predictions = TASKS["recommend"].predictions(scores, artifacts)
    assert predictions == {7: {"prediction": 2.5}, 8: {"prediction": 5.0}, 9: {"prediction": 1.0}}


def make_histories():
    """Users with 30, 5 and 2 different items; the last one of each is held out."""
    return [
        {"userId": user, "movieId": 100 * user + i, "timestamp": i}
        for user, count in enumerate((30, 5, 2))
        for i in reversed(range(count))
    ] + [{"userId": 3, "movieId": i, "timestamp": i} for i in (29, 104, 201)]


def test_training_reads_windows_of_histories_in_order_of_time(tmp_path, monkeypatch):
    monkeypatch.setattr("glassformer.tasks.recommend_next.SAMPLED_ITEMS", 20)
    dataset = open_task(tmp_path, "recommend-next", make_histories()).dataset
    histories = [dataset.histories["train"][i].tolist() for i in range(4)]
    assert [len(history) for history in histories] == [29, 4, 1, 2]
    names = [[int(dataset.catalog.items[i]) for i in history] for history in histories]
    assert names == [[*range(29)], [100, 101, 102, 103], [200], [29, 104]]
    batches = dataset.train_batches(4, 6, seed=2)
    windows = [-(-29 // 7), 1, 1]  # of 6 inputs and a target; one item has no next one
    assert batches.per_epoch == sum(windows) // 4
    assert dataset.n_targets == 28 + 3 + 1
    drawn, starts = Counter(), set()
    for step in range(100):
        batch = batches.at(step)
        for ids, keep, targets, sampled in zip(
            *(batch[name] for name in ("ids", "keep", "targets", "sampled")), strict=True
        ):
            n = int(keep.sum())
            assert keep[:n].all()
            items = [int(ids[0]), *targets[:n].tolist()]
            assert ids[:n].tolist() == items[:-1]
            (user,) = [u for u, history in enumerate(histories) if items[0] in history]
            start = histories[user].index(items[0])
            assert items == histories[user][start : start + 7]
            assert len(set(sampled.tolist())) == len(sampled) == 20 < len(dataset.catalog.items)
            drawn[user] += 1
            starts.add(start)
    assert starts == {*range(23)}  # every window of the long history
    assert drawn[0] / 400 == pytest.approx(5 / 7, abs=0.1)
    assert drawn[1] / 400 == pytest.approx(1 / 7, abs=0.1)
    assert torch.equal(batches.at(3)["ids"], dataset.train_batches(4, 6, seed=2).at(3)["ids"])
    first = batches.at(3)["sampled"]
    assert not torch.equal(first, batches.at(4)["sampled"])
    assert not torch.equal(first, dataset.train_batches(4, 6, seed=3).at(3)["sampled"])


def test_an_evaluation_reads_the_most_recent_items_and_excludes_all_earlier_ones(tmp_path):
    task = open_task(tmp_path, "recommend-next", make_histories())
    network = build("sasrec", items=len(task.dataset.catalog.items), context=3, dim=8)
    (batch,) = task.dataset.eval_batches(network)
    names = [int(item) for item in task.dataset.catalog.items]
    rows = [
        [names[i] for i in ids[keep]] for ids, keep in zip(batch["ids"], batch["keep"], strict=True)
    ]
    assert rows == [[26, 27, 28], [101, 102, 103], [200], [29, 104]]
    seen = [[names[i] for i in row[row >= 0]] for row in batch["seen"]]
    assert seen == [[*range(29)], [100, 101, 102, 103], [200], [29, 104]]
    targets = [names[i] if i >= 0 else None for i in batch["targets"].tolist()]
    assert targets == [29, 104, None, None]  # the last items of two users occur nowhere else
    assert batch["index"].tolist() == [0, 1, 2, 3]
    with torch.no_grad():
        scores = task.objective.scores(network, batch)
        logits = network.score_next(batch["ids"], batch["keep"])
    nats = F.cross_entropy(logits[:2], batch["targets"][:2])
    found = task.objective.metrics(scores)
    assert found["loss"] == pytest.approx(float(nats), rel=1e-5)
    assert (found["examples"], found["unseen"]) == (4, 2)
    assert scores.array("rank")[2:].tolist() == [len(names) + 1] * 2
    user = torch.tensor([0, 1])
    recent = [task.dataset.catalog.histories[i][-3:] for i in (0, 1)]
    assert [[names[i] for i in row] for row in recent] == [[27, 28, 29], [102, 103, 104]]
    with torch.no_grad():
        expected = network.score_next(torch.tensor(recent), torch.ones(2, 3, dtype=torch.bool))
        close(task.codec.score_items(network, user), expected.softmax(dim=-1))


def test_popularity_is_fitted_to_a_part_of_the_training_histories(tmp_path):
    dataset = open_task(tmp_path, "recommend-next", make_histories()).dataset
    network = build("popularity", items=len(dataset.catalog.items))
    assert dataset.fit(network, 1.0) == 1.0
    assert int(network.counts.sum()) == 29 + 4 + 1 + 2
    assert dataset.fit(network, 0.5) == 0.5
    assert 0 < int(network.counts.sum()) < 29 + 4 + 1 + 2


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A factorization, a SASRec and their data."""
    folder = tmp_path_factory.mktemp("recommend")
    rows = make_ratings()
    files = (
        write(folder / "ratings.csv", rows),
        write(folder / "movies.csv", [{"movieId": i, "title": f"Film {i}"} for i in range(ITEMS)]),
    )
    for model, run in (("factorization", "ratings"), ("sasrec", "next")):
        train(
            "recommend",
            *files,
            model=model,
            run=folder / run,
            steps=40,
            **EXACT | {"baseline": True},
        )
    return folder


def command(*args, code=0):
    result = CliRunner().invoke(glass, [*map(str, args)], env={"COLUMNS": "120"})
    output = result.output + (str(result.exception) if result.exception else "")
    assert (result.exit_code == 0) == (code == 0), output
    return output


@torch.no_grad()
def test_rmse_equals_its_definition(home, tmp_path):
    rows = [
        {"userId": 3, "movieId": 4, "rating": 2, "timestamp": 0},
        {"userId": 5, "movieId": 9, "rating": 4.5, "timestamp": 0},
        {"userId": "new", "movieId": 4, "rating": 1, "timestamp": 0},
        {"userId": 3, "movieId": "new", "rating": 5, "timestamp": 0},
    ]
    file = write(tmp_path / "test.csv", rows)
    found = json.loads(command("evaluate", home / "ratings", file, "--json").splitlines()[-1])
    model = load(home / "ratings")
    users, items = (model.task[name] for name in ("users", "items"))
    errors = []
    for row in rows:
        user, item = str(row["userId"]), str(row["movieId"])
        index = [
            users.index(user) if user in users else -1,
            items.index(item) if item in items else -1,
        ]
        rating = float(model.network(*torch.tensor(index)[:, None]).clamp(1, 5))
        errors.append((rating - row["rating"]) ** 2)
    assert found["rmse"] == pytest.approx(np.mean(errors) ** 0.5, rel=1e-5)
    assert (found["examples"], found["unseen"]) == (4, 2)
    assert found["baseline"]["model"] == "biases"


def test_the_model_is_better_than_its_baseline(home):
    for run, name, sign in (("ratings", "rmse", -1), ("next", "ndcg_10", 1)):
        found = evaluate(home / run)
        assert sign * found[name] > sign * found["baseline"][name]


@pytest.mark.parametrize("run", ["ratings", "next"])
def test_recommended_items_are_new_to_the_user_and_the_best_first(home, run):
    model = load(home / run)
    rated = {str(row["movieId"]) for row in make_ratings() if row["userId"] == 7}
    rows = model.recommend(7, n=100)
    assert {row["item"] for row in rows} == set(model.task["items"]) - rated
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert rows[0]["title"] == f"Film {rows[0]['item']}"
    assert model.recommend("7", n=2) == rows[:2]


@pytest.mark.parametrize("run", ["ratings", "next"])
def test_similar_items_have_the_largest_cosine(home, run):
    model = load(home / run)
    items, vectors = model.task["items"], model.network.item_vectors().detach()
    cosines = F.cosine_similarity(vectors, vectors[items.index("4")][None])
    cosines[items.index("4")] = -2
    best = cosines.argsort(descending=True)[:3].tolist()
    assert [row["item"] for row in model.similar("Film 4", 3)] == [items[i] for i in best]


def test_the_command_prints_recommended_and_similar_items(home):
    lines = command("recommend", home / "ratings", "--user", 7, "-n", 3).splitlines()
    assert [len(line.split("\t")) for line in lines] == [3, 3, 3]
    output = command("recommend", home / "next", "--similar-to", "film 11", "-n", 2, "--json")
    assert [sorted(json.loads(line)) for line in output.splitlines()] == [["item", "score", "title"]] * 2  # fmt: skip  # noqa: E501


def test_users_and_items_never_seen_get_a_message(home):
    for args, message in (
        (
            ("--user", "nobody"),
            "unknown user 'nobody': the model was trained on ratings of 40 users",
        ),
        (("--similar-to", "Casablanca"), "unknown item 'Casablanca'"),
        (("--similar-to", "film"), "25 items match 'film'"),
        ((), "give either --user or --similar-to"),
        (("--user", 1, "--similar-to", 2), "give either --user or --similar-to"),
    ):
        assert message in command("recommend", home / "ratings", *args, code=1)


def test_a_rating_outside_the_scale_gets_a_message(home, tmp_path):
    rows = make_ratings()
    rows[3] = rows[3] | {"rating": 50}
    file = write(tmp_path / "ratings.csv", rows)
    message = r"ratings\.csv:5: the rating 50 is outside the scale from 1 to 5; if it is right"
    with pytest.raises(GlassError, match=message):
        evaluate(home / "ratings", (file,))
    assert evaluate(home / "ratings", (file,), skip_bad=True)["examples"] == len(rows) - 1
    with pytest.raises(GlassError, match=r"the rating 50 is outside the scale from 1 to 5"):
        train("recommend", file, run=tmp_path / "run", steps=1, scale=(1.0, 5.0), **EXACT)


def test_other_models_and_other_data_get_a_message(home, tmp_path):
    train("recommend", home / "ratings.csv", model="biases", run=tmp_path / "biases", **EXACT)
    with pytest.raises(GlassError, match="biases has no vectors of items to compare"):
        load(tmp_path / "biases").similar("4")
    with pytest.raises(GlassError, match="`factors` needs a recommender"):
        load(tmp_path / "biases").draw("factors")
    other = write(tmp_path / "other.csv", [row | {"userId": row["userId"] + 1} for row in make_ratings()])  # fmt: skip  # noqa: E501
    with pytest.raises(GlassError, match="was trained on other users: leave out --from"):
        train("recommend", other, base=home / "ratings", run=tmp_path / "more", steps=1, **EXACT)


def test_features_are_drawn_with_titles(home):
    figure = load(home / "ratings").draw("factors")
    names = {text.get_text() for text in figure.axes[0].texts}
    assert names == {f"Film {i}" for i in range(ITEMS)}


def test_no_name_covers_another_or_another_point():
    points = np.random.default_rng(0).uniform(0, 100, (12, 2))
    names = ["x" * 8] * 12
    width, boxes = 0.56 * SIZE * 8, []
    for (x, y), (dx, dy) in zip(points, place_names(points, names), strict=True):
        left = x + dx if dx > 0 else x + dx - width
        boxes.append((left, left + width, y + dy))
    for i, (a, b, height) in enumerate(boxes):
        others = [*boxes[:i], *boxes[i + 1 :]]
        marks = [(x - GAP / 2, x + GAP / 2, y) for x, y in np.delete(points, i, axis=0)]
        for left, right, other in (*others, *marks):
            assert right <= a or b <= left or abs(height - other) >= SIZE


def test_the_last_item_of_each_user_is_held_out(home):
    last = {}
    for row in make_ratings():
        if row["userId"] not in last or row["timestamp"] >= last[row["userId"]]["timestamp"]:
            last[row["userId"]] = row
    lines = (home / "next/cache/valid.examples.jsonl").read_text().splitlines()
    held_out = {tuple(json.loads(line)["texts"][:2]) for line in lines}
    assert held_out == {(str(user), str(row["movieId"])) for user, row in last.items()}


def test_the_history_has_the_items_of_validation_files_too(tmp_path):
    rows = [{"user": u, "item": i, "time": i} for u in range(4) for i in range(6)]
    files = write(tmp_path / "b.csv", rows[6:]), write(tmp_path / "a.csv", rows[3:6])
    write(files[0], rows[:3] + rows[6:])
    options = {"model": "sasrec", "valid": [files[1]], "steps": 1, **EXACT}
    model = glassformer.train("recommend", files[0], run=tmp_path / "run", **options)
    assert model.task["histories"][0] == [0, 1, 2, 3, 4, 5]
    unknown = write(tmp_path / "c.csv", [rows[0], rows[1] | {"item": 9, "time": 9}])
    with pytest.raises(GlassError, match="the last must occur in the training data"):
        evaluate(tmp_path / "run", (unknown,))


@pytest.mark.parametrize("model", ["factorization", "sasrec"])
def test_a_resumed_run_equals_an_uninterrupted_run(home, tmp_path, monkeypatch, model):
    options = {"steps": 8, "save_every": 2, "model": model, **EXACT}
    train("recommend", home / "ratings.csv", run=tmp_path / "uninterrupted", **options)
    take_step = Trainer.take_step

    def stop_after_five_steps(self, moment):
        result = take_step(self, moment)
        self.is_stopping = self.state.step == 5
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", stop_after_five_steps)
        train("recommend", home / "ratings.csv", run=tmp_path / "resumed", **options)
    resume(tmp_path / "resumed", NullReporter())
    weights = [(tmp_path / run / "last/model.safetensors").read_bytes()
               for run in ("uninterrupted", "resumed")]  # fmt: skip
    assert weights[0] == weights[1]


def test_the_hidden_features_of_the_sample_are_found_again(tmp_path):
    """The first three components of the learned features determine the hidden ones."""
    train("recommend", run=tmp_path / "run", steps=300, **EXACT)
    model = load(tmp_path / "run")
    hidden = np.array([film_features()[0][int(item[5:]) - 1] for item in model.task["items"]])
    points, shares = principal_components(model.network.item_vectors().detach(), 4)
    design = np.column_stack((points[:, :3].numpy(), np.ones(len(points))))
    rest = hidden - design @ np.linalg.lstsq(design, hidden, rcond=None)[0]
    assert 1 - rest.var() / hidden.var() > 0.9
    assert shares[2] > 3 * shares[3]
