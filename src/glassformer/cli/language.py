"""`--lang`: the language in which a command speaks."""

from __future__ import annotations

import click


def choose(context: click.Context, option: click.Parameter, name: str) -> None:
    from glassformer.core.i18n import language

    language.set(name)


spoken = click.option(
    "--lang",
    type=click.Choice(["en", "zh"]),
    envvar="GLASSFORMER_LANG",
    default="en",
    callback=choose,
    expose_value=False,
    help="English or 中文.",
)
