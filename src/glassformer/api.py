"""The object that `load` gives: a network with its tokenizer."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer import checkpoint, registry
from glassformer.core import config
from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.export import find_exporter
from glassformer.generate.sampling import Sampling
from glassformer.inspection.alignment import Alignment, align
from glassformer.inspection.displayable import Sheet
from glassformer.inspection.heads import HeadReport, measure_heads, repeated
from glassformer.inspection.patch import PatchResult, patch
from glassformer.inspection.plots import PLOTS, Needs, plots_needing
from glassformer.inspection.trace_view import TraceView
from glassformer.inspection.traced_text import trace_text
from glassformer.inspection.why import RecordedPass, Why
from glassformer.inspection.worksheet import worksheet
from glassformer.models.network import Network, Trait
from glassformer.predict import codec_for, embed_texts, inputs_for, predict, stream_text
from glassformer.tasks.generate import GenerateCodec
from glassformer.tasks.task import Artifacts, Codec
from glassformer.tasks.translate import BEAM, LENGTH_PENALTY
from glassformer.text.tokenizer import Tokenizer
from glassformer.training import train as training


class Model:
    """A network, the tokenizer that made its ids (or None), its config, and what it is for."""

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer | None = None,
        task: dict[str, Any] | None = None,
    ) -> None:
        self.network, self.tokenizer, self.task = network.eval(), tokenizer, task or {}
        self.figures: dict[str, Any] = {}  # what training came to

    @property
    def config(self) -> Any:
        return self.network.config

    @property
    def name(self) -> str:
        """The architecture's name in `MODELS`."""
        return registry.model_name(self.network)

    # --- use ----------------------------------------------------------------------------------

    def stream(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 200,
        seed: int | None = None,
        stop: Sequence[str] = (),
        **sampling: float,
    ) -> Iterator[str]:
        """The continuation of a text, a piece at a time; it ends before a text in `stop`.

        `sampling` is any of temperature, top_k, top_p, min_p, repetition.

        >>> model = load("runs/generate-1")
        >>> "".join(model.stream("the cat", max_new_tokens=40, stop=[" and"], temperature=0.0))
        ' sat on the mat'
        """
        self.must(Trait.CAUSAL_LM, "generate")
        check_bounds({"max_new_tokens": max_new_tokens, "seed": seed})
        return stream_text(
            self.network,
            GenerateCodec(self.artifacts),
            prompt,
            max_new_tokens=max_new_tokens,
            sampling=config.from_dict(Sampling, sampling),
            seed=seed,
            stop=stop,
        )

    def generate(self, prompts: str | Sequence[str] = "", **options: Any) -> Any:
        """Continuations: for a text a text, for a list a list. Options are those of `stream`.

        >>> model = load("runs/generate-1")
        >>> model.generate(["the cat", "the dog"], max_new_tokens=4, temperature=0.0)
        [' sat', ' sat']
        """
        if isinstance(prompts, str):
            return "".join(self.stream(prompts, **options))
        return ["".join(self.stream(prompt, **options)) for prompt in prompts]

    def classify(self, texts: str | Sequence[str | tuple[str, str]]) -> Any:
        """For each text, or pair of texts, its labels with their probabilities, likeliest first.

        For one text alone its own answer, here and in `translate` and `embed`.

        >>> for labels in load("runs/classify-1").classify(["a lovely film", "an awful one"]):
        ...     print(*labels)
        pos neg
        neg pos
        """
        if "labels" not in self.task:
            raise GlassError("this model was not trained to classify")
        if isinstance(texts, str):
            return self.classify([texts])[0]
        rows = [(t,) if isinstance(t, str) else tuple(t) for t in texts]
        read = self.task.get("text") or ["text"]  # the columns that it learnt from
        for row in rows:
            if len(row) != len(read):
                together = f"{len(read)} texts together" if len(read) > 1 else "one text at a time"
                raise GlassError(f"this model reads {together} ({', '.join(read)}), not {row}")
        return [*predict(self.network, self.codec, rows)]

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        beam: int = BEAM,
        length_penalty: float = LENGTH_PENALTY,
    ) -> Any:
        """The best translation of each text; a beam of 1 takes the likeliest word each time.

        Nothing is the translation of nothing.

        >>> model = load("runs/translate-1")
        >>> len(model.translate(["one two", "three"], beam=2))
        2
        """
        self.must(Trait.SEQ2SEQ, "translate")
        check_bounds({"beam": beam, "penalty": length_penalty})
        if isinstance(texts, str):
            return self.translate([texts], beam=beam, length_penalty=length_penalty)[0]
        found = predict(self.network, self.codec, texts, beam=beam, length_penalty=length_penalty)
        return [answer if text.strip() else "" for text, answer in zip(texts, found, strict=True)]

    def align(self, text: str, translation: str) -> Alignment:
        """What each token of a translation read of the text: cross-attention, as one grid.

        >>> read = load("runs/translate-1").align("one two", "eins zwei")
        >>> read.pattern.shape == (len(read.target), len(read.source))
        True
        """
        self.must(Trait.SEQ2SEQ, "translate")
        return align(self.network, self.words(), text, translation)

    def fill_mask(self, text: str, *, top: int = 5) -> list[list[tuple[str, float]]]:
        """For each [MASK] in a text the likeliest tokens, with their probabilities.

        >>> guesses = load("runs/fill-mask-1").fill_mask("the [MASK] sat on the [MASK]", top=3)
        >>> [len(guess) for guess in guesses]
        [3, 3]
        """
        check_bounds({"top": top})
        marks = {"[CLS]", "[SEP]", "[MASK]"}
        if not self.network.has(Trait.MASKED_LM) or not marks <= self.words().special_tokens.keys():
            raise GlassError("this model was not trained to fill masks: it has no head for them")
        if "[MASK]" not in text:
            raise GlassError("there is no [MASK] in the text")
        answers: list[list[list[tuple[str, float]]]] = [
            *predict(self.network, self.codec, [text], top=top)
        ]
        return answers[0]

    def embed(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """A vector for each text: the mean of what the last block says of its tokens.

        >>> load("runs/fill-mask-1").embed(["the cat", "the dog", "a log"]).shape
        (3, 32)
        """
        if isinstance(texts, str):
            return self.embed([texts])[0]  # type: ignore[no-any-return]
        return embed_texts(self.network, self.words(), texts)

    # --- look inside --------------------------------------------------------------------------

    def trace(
        self, text: str, *patterns: str, target: str | None = None, **options: Any
    ) -> TraceView:
        """Every value on a text's way through the model, or those that the patterns name.

        >>> model = load("runs/generate-1")
        >>> model.trace("the cat", "*.pattern")["blocks.0.attention.pattern"].shape
        torch.Size([1, 2, 7, 7])
        """
        return TraceView(
            trace_text(self.network, self.words(), text, *patterns, target=target, **options)
        )

    def walk(self, text: str, **options: Any) -> Sheet:
        """The worksheet of a text: every step through one block and one head.

        Options: layer, head, target (a translation to write), weights (show them too).

        >>> steps = load("runs/generate-1").walk("the cat")
        >>> steps[0].title, steps[-1].title
        ('Tokens and ids', 'Probabilities')
        """
        labels = self.task.get("labels")
        return Sheet(worksheet(self.network, self.words(), text, labels=labels, **options))

    def why(self, text: str, name: str, *, target: str | None = None) -> Why:
        """How one number on a text's way was made: by what, and from which others.

        >>> found = load("runs/generate-1").why("the cat", "blocks.0.attention.scores[0,1,6,2]")
        >>> found.how, round(found.again - found.value, 5)
        ('÷ 4', 0.0)
        """
        inputs = inputs_for(self.network, self.words(), text, target)
        return RecordedPass(self.network, inputs, self.words()).at(name)

    def heads(self, text: str | None = None, *, reporter: Reporter | None = None) -> HeadReport:
        """Where each head looks, and what its silence costs; without a text, on chance said twice.

        >>> role = load("runs/generate-1").heads("the cat sat")[0]
        >>> role.name, role.head, 0 <= role.previous <= 1
        ('blocks.0.attention', 0, True)
        """
        if text is not None:
            return measure_heads(
                self.network, inputs_for(self.network, self.words(), text), reporter
            )
        if self.network.has(Trait.SEQ2SEQ):
            raise GlassError("a translator needs a text to read")
        ids = repeated(self.config.vocab, self.network.context)
        return measure_heads(self.network, {"ids": ids.to(self.network.device)}, reporter)

    def patch(self, clean: str, corrupt: str, *, reporter: Reporter | None = None) -> PatchResult:
        """Which values carry the difference between two texts.

        >>> found = load("runs/generate-1").patch("the cat", "the dog")
        >>> list(found.places)[:2]
        ['blocks.0', 'blocks.0.attention']
        """
        labels = self.task.get("labels", ())
        return patch(self.network, self.words(), clean, corrupt, labels, reporter)

    def draw(self, name: str, text: str, *, layer: int | str | None = None, head: int = 0) -> Any:
        """One of the pictures of a text's way through the model, as a figure of matplotlib.

        >>> load("runs/generate-1").draw("attention", "the cat").get_axes()[0].images[0].get_size()
        (7, 7)
        """
        if name in plots_needing(Needs.NOTHING):
            raise GlassError(
                f"{name} needs no model: glassformer.inspection.diagrams.sketch({name!r})"
            )
        known = plots_needing(Needs.TEXT, Needs.TRANSLATION)
        if name not in known:
            raise GlassError(f"there is no picture {name!r}{config.did_you_mean(name, known)}")
        picture = PLOTS[name]
        if picture.needs is Needs.TRANSLATION:
            return picture.draw(self.align(text, self.translate(text)))
        reading = trace_text(self.network, self.words(), text, *picture.patterns)
        model = {"network": self.network, "tokenizer": self.words()}
        return picture.draw(reading, layer=layer, head=head, **model)

    def words(self) -> Tokenizer:
        if self.tokenizer is None:
            raise GlassError("this model has no tokenizer, so it cannot read text")
        return self.tokenizer

    @property
    def artifacts(self) -> Artifacts:
        return Artifacts(self.task, self.words())

    @property
    def codec(self) -> Codec:
        """How it reads and answers."""
        return codec_for(self.network, self.artifacts)

    def must(self, trait: Trait, what: str) -> None:
        if not self.network.has(trait):
            raise GlassError(f"this model was not trained to {what}")

    # --- keep ---------------------------------------------------------------------------------

    def save(
        self,
        path: str | Path,
        *,
        format: str = "glassformer",
        overwrite: bool = False,
    ) -> None:
        """Write a folder that `load` opens; `format` is any of `EXPORTERS`.

        >>> load("runs/generate-1").save("to-give-away")
        >>> load("to-give-away").name
        'gpt2'
        """
        save, parts = find_exporter(format).save, (self.network, self.tokenizer)
        save(Path(path), *parts, task=self.task, overwrite=overwrite)

    def __repr__(self) -> str:
        size = sum(p.numel() for p in self.network.parameters())
        words = self.tokenizer.kind if self.tokenizer else "none"
        return f"<glassformer.Model {self.name}: {size:,} parameters, tokenizer: {words}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what it is, how it was trained, its settings."""
        task = {k: v for k, v in self.task.items() if not isinstance(v, list) or len(v) < 20}
        facts = {**task, **self.figures, **config.to_dict(self.config)}
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>"
            for name, value in facts.items()
        )
        return f"<b>{escape(repr(self)[1:-1])}</b><table>{rows}</table>"


def load(
    path: str | Path, *, ignore: Sequence[str] = (), tokenizer: str | Path | None = None
) -> Model:
    """Open a run or folder of ours, a Hugging Face folder (GPT-2, BERT, Llama) or a llama2.c file.

    `ignore` names settings and tensors of a Hugging Face folder to pass over; `tokenizer` is the
    tokenizer file of a llama2.c model. Nothing in the files is run.

    >>> load("runs/classify-1").name
    'classifier'
    """
    words = None if tokenizer is None else Path(tokenizer)
    return Model(*checkpoint.open_model(Path(path), ignore, tokenizer=words))


def train(task: str | None = None, *data: str | Path, **options: Any) -> Model:
    """Train a model for a task on files, and open the best of it.

    Without files there is a sample for each task. Options are those of `glass train`: run, model,
    base (a model to start from), config (a recipe), minutes, steps or epochs, text, label, valid,
    seed, settings, overwrite, and any other setting of training by its name.

    >>> model = train("classify", "reviews.csv", steps=20, settings=["model.dim=32"])
    >>> sorted(model.classify(["a lovely film"])[0])
    ['neg', 'pos']
    """
    result = training.train(task, *data, **options)
    model = load(result["run"])
    model.figures = result
    return model
