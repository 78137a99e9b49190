"""`glass models`: the architectures, what they can do, and their settings."""

import json
from dataclasses import fields

import click


@click.command()
@click.option("--training", is_flag=True, help="List the settings of training.")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
def models(training: bool, as_json: bool) -> None:
    """List the models, the tasks that each can do, and their settings with defaults.

    \b
    glass models
    glass models --training
    glass models --json
    """
    from glassformer.core.config import to_dict
    from glassformer.models import MODELS
    from glassformer.tasks import TASKS
    from glassformer.training.settings import Training

    if training:
        default = to_dict(Training())
        lines = [f"train.{f.name}={default.get(f.name, '')}" for f in fields(Training)]
        click.echo(json.dumps(default) if as_json else "\n".join(lines))
        return
    for name, kind in MODELS.items():
        tasks = [task for task, what in TASKS.items() if name in what.models]
        settings = to_dict(kind.Config())
        if as_json:
            click.echo(json.dumps({"model": name, "tasks": tasks, "settings": settings}))
        else:
            click.echo(f"{name:<12} {', '.join(tasks)}")
            click.echo("    " + "  ".join(f"{k}={v}" for k, v in settings.items()))
