"""Recommenders: networks, metrics and sampling against plain definitions, and whole runs."""

import csv
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

import glassformer
from glassformer import MODELS, GlassError, load
from glassformer.cli import glass
from glassformer.core.reporter import NullReporter
from glassformer.data.sample import film_features
from glassformer.inspection.pictures.factors import GAP, SIZE, place_names, principal_components
from glassformer.tasks.ranking import gains, hits, rank_targets
from glassformer.tasks.recommend_next import sampled_logits
from glassformer.training.evaluate import evaluate
from glassformer.training.train import resume, train
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


# --- runs -----------------------------------------------------------------------------------------


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
