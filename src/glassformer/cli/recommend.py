"""The command that uses a recommender: recommend."""

import json

import click

from glassformer.cli import options


@click.command()
@options.trained_run
@click.option("--user", metavar="USER", help="Recommend items that this user has not rated.")
@click.option(
    "--similar-to",
    metavar="ITEM",
    help="List the items most similar to this one: its id, its title, or a part of its title.",
)
@click.option(
    "-n", "count", type=click.IntRange(1), default=10, show_default=True, help="Number of items."
)
@options.json()
def recommend(
    run: str, user: str | None, similar_to: str | None, count: int, as_json: bool
) -> None:
    """Recommend items to a user with the model in RUN, or list similar items.

    Prints a score, the item and, if the model knows it, its title. The score is the predicted
    rating; for sasrec, the probability that the item is the next; for similar items, the cosine of
    the angle between the vectors of the two.

    \b
    glass recommend runs/recommend-1 --user 7 -n 10
    glass recommend runs/recommend-1 --similar-to "Toy Story (1995)"
    """
    from glassformer.api import load

    if (user is None) == (similar_to is None):
        raise click.UsageError("give either --user or --similar-to")
    model = load(run)
    rows = model.recommend(user, count) if user is not None else model.similar(similar_to, count)
    for row in rows:
        if as_json:
            click.echo(json.dumps(row, ensure_ascii=False))
        else:
            title = f"\t{row['title']}" if row.get("title") else ""
            click.echo(f"{row['score']:.3f}\t{row['item']}{title}")
