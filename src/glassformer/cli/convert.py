"""`glass convert`: a model from one library's files to another's."""

import click


@click.command()
@click.argument("source", type=click.Path(exists=True))
@click.argument("target", type=click.Path())
@click.option(
    "--to",
    "form",
    type=click.Choice(["glassformer", "huggingface"]),
    default="glassformer",
    show_default=True,
    help="What to write.",
)
@click.option("--tokenizer", type=click.Path(exists=True), help="llama2.c's tokenizer file.")
@click.option("--ignore", multiple=True, help="A setting or tensor to pass over.")
@click.option("--overwrite", is_flag=True, help="Replace TARGET if it exists.")
def convert(
    source: str,
    target: str,
    form: str,
    tokenizer: str | None,
    ignore: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Write the model in SOURCE as the folder TARGET.

    SOURCE is a folder of ours, a Hugging Face folder (GPT-2, BERT, Llama) or a llama2.c file.

    \b
    glass convert downloads/gpt2 models/gpt2
    glass convert models/gpt2 for-transformers --to huggingface
    glass convert stories260K.bin models/stories --tokenizer tok512.bin
    """
    from glassformer.api import load

    model = load(source, ignore=ignore, tokenizer=tokenizer)
    model.save(target, format=form, overwrite=overwrite)  # type: ignore[arg-type]
    click.echo(f"{model!r}\nwritten to {target}")
