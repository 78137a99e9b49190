"""From recommending movies to attention, after the example in Peter Bloem's tutorial."""

import torch
from torch import Tensor

from glassformer.lessons.lesson import Values
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.models.factorization import Factorization
from glassformer.nn.attention import attend, dot

MEAN = 3.0  # the rating of a viewer who likes and dislikes nothing
STEPS, LR = 500, 0.05


def compute_values() -> Values:
    matrices = read_matrices("ratings")
    movies, viewers = matrices["movies"], matrices["viewers"]
    ratings = MEAN + viewers @ movies.T
    is_known = choose_known(*ratings.shape)
    network = learn(ratings, is_known)
    with torch.no_grad():
        predicted = network.rate_items(torch.arange(len(viewers)))
        learned_movies = network.item.weight
        learned_viewers = network.user.weight
        recovered = learned_movies @ torch.linalg.lstsq(learned_movies, movies).solution
        return {
            **matrices,
            **read_words("ratings"),
            "mean": MEAN,
            "ratings": ratings,
            "known": ratings.where(is_known, torch.nan),
            "n_known": int(is_known.sum()),
            "n_hidden": int((~is_known).sum()),
            "steps": STEPS,
            "learned_movies": learned_movies,
            "learned_viewers": learned_viewers,
            "predicted_hidden": predicted.where(~is_known, torch.nan),
            "hidden": ratings.where(~is_known, torch.nan),
            "errors": compute_errors(predicted, ratings, is_known),
            "recovered": recovered,
            "similarity": torch.cosine_similarity(
                learned_movies[:, None], learned_movies[None], dim=2
            ),
            **compute_attention(learned_viewers, learned_movies),
        }


def choose_known(n_viewers: int, n_movies: int) -> Tensor:
    """True where a rating is given; two ratings of each viewer are hidden."""
    is_known = torch.ones(n_viewers, n_movies, dtype=torch.bool)
    for viewer in range(n_viewers):
        for first in (0, n_movies // 2):
            is_known[viewer, (3 * viewer + first) % n_movies] = False
    return is_known


def learn(ratings: Tensor, is_known: Tensor) -> Factorization:
    """A model with two features, fitted to the known ratings by gradient descent (Adam)."""
    n_viewers, n_movies = ratings.shape
    config = Factorization.Config(users=n_viewers, items=n_movies, dim=2, l2=0.003, bias_l2=0.003)
    network = Factorization(config).double()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for table in (network.user, network.item):
            sample = torch.randn(table.weight.shape, dtype=torch.float64, generator=random)
            table.weight.copy_(0.3 * sample)
        network.mean.fill_(float(ratings[is_known].mean()))
    viewer, movie = is_known.nonzero(as_tuple=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=LR)
    for _ in range(STEPS):
        squares = (network(viewer, movie) - ratings[is_known]).square().mean()
        loss = squares + network.extra_loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval()


def compute_errors(predicted: Tensor, ratings: Tensor, is_known: Tensor) -> Tensor:
    """Root mean squared errors on known and on hidden ratings: of the model and of the mean."""
    mean = ratings[is_known].mean()
    rows = [
        [(guess - ratings)[chosen].square().mean().sqrt() for chosen in (is_known, ~is_known)]
        for guess in (predicted, mean.expand_as(ratings))
    ]
    return torch.tensor(rows)


def compute_attention(viewers: Tensor, movies: Tensor) -> Values:
    """Viewers as queries; the movies are both keys and values."""
    q, k = viewers[None, None], movies[None, None]  # one text, one head
    scores = dot(q, k)
    return {
        "scores": scores[0, 0],
        "pattern": scores.softmax(dim=-1)[0, 0],
        "output": attend(q, k, k, score=dot)[0, 0],
    }
