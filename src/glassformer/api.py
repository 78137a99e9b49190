"""The Python API: `load`, `train` and `resume` return a `Model`; `evaluate` returns metrics."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassformer import checkpoint, registry
from glassformer.core import config
from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.core.metrics import Metrics
from glassformer.core.reporter import Reporter
from glassformer.data.memory import (
    check_texts,
    open_scratch_folder,
    save_in_memory_data,
    select_texts,
)
from glassformer.export import find_exporter
from glassformer.generate.sampling import Sampling
from glassformer.inspection.alignment import Alignment, align
from glassformer.inspection.displayable import Sheet
from glassformer.inspection.heads import HeadReport, make_repeated_ids, measure_heads
from glassformer.inspection.patch import PatchResult, patch
from glassformer.inspection.pictures.gaze import trace_image
from glassformer.inspection.plots import Needs, find_plot
from glassformer.inspection.trace_view import TraceView
from glassformer.inspection.traced_text import trace_text
from glassformer.inspection.why import Explanation, RecordedPass
from glassformer.inspection.worksheet import worksheet
from glassformer.models.network import Network, PriorNetwork, Trait
from glassformer.nn.label_prior import LabelPrior
from glassformer.predict import codec_for, cosines, embed_texts, inputs_for, predict, stream_text
from glassformer.tasks import TASKS
from glassformer.tasks.extract import Extract
from glassformer.tasks.fill_mask import next_probs
from glassformer.tasks.generate import GenerateCodec
from glassformer.tasks.ranking import RecommendationCodec
from glassformer.tasks.summarize import BEAM_SIZE as SUMMARY_BEAM_SIZE
from glassformer.tasks.summarize import SummarizeCodec
from glassformer.tasks.task import Artifacts, Codec, read_calibration
from glassformer.tasks.translate import BEAM_SIZE, LENGTH_PENALTY
from glassformer.text.tokenizer import Tokenizer, unknown_fraction
from glassformer.training import compare as comparison
from glassformer.training import evaluate as evaluation
from glassformer.training import resume as resuming
from glassformer.training import train as training

SHIPPED_MODEL = Path(__file__).parent / "shipped_model"  # a small GPT-2 (recipes/explorer.toml)
OTHER_USES = {  # ends of an error message, by the trait that each use needs
    Trait.SEQ2SEQ: "; it translates: glass translate RUN",
    Trait.SUMMARIZER: "; it summarizes: glass summarize RUN",
    Trait.CAUSAL_LM: "; it generates text: glass generate RUN",
    Trait.MASKED_LM: "; it fills masks: glass fill-mask RUN",
    Trait.PAINTER: "; it paints images: glass paint RUN",
    Trait.CLASSIFIER: "; it classifies: glass classify RUN",
    Trait.RATER: "; it recommends items: glass recommend RUN",
    Trait.NEXT_ITEM: "; it recommends items: glass recommend RUN",
    Trait.ENCODER: "; it computes embeddings: glass embed RUN",
}


class Model:
    """A network with its tokenizer and task metadata.

    `tokenizer` is None if the network does not read text. `task` is the metadata saved with the
    weights: its name, labels, text columns, end-of-sequence ids. The network is put in eval mode.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer | None = None,
        task: dict[str, Any] | None = None,
    ) -> None:
        self.network = network.eval()
        self.tokenizer = tokenizer
        self.task = task or {}
        self.metrics = Metrics()  # the result of training; empty for a loaded model

    @property
    def config(self) -> Any:
        return self.network.config

    @property
    def name(self) -> str:
        """The architecture's name in `MODELS`."""
        return registry.model_name(self.network)

    # --- predict ------------------------------------------------------------------------------

    def stream(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 200,
        seed: int | None = None,
        stop: Sequence[str] = (),
        **sampling: float,
    ) -> Iterator[str]:
        """Generate a continuation of `prompt`, yielding text as it is generated.

        Generation ends after `max_new_tokens`, at an end-of-sequence token, or before the first
        occurrence of a string in `stop`. `seed` makes sampling reproducible. `sampling` takes
        temperature (0 means greedy), top_k, top_p, min_p and repetition_penalty.

        >>> model = load("runs/generate-1")
        >>> "".join(model.stream("the cat", max_new_tokens=40, stop=[" and"], temperature=0.0))
        ' sat on the mat'
        """
        self.require_trait(Trait.CAUSAL_LM, "generate")
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
        """Return the continuation of a prompt, or a list of them for a list of prompts.

        The options are those of `stream`. The prompt is not part of the result.

        >>> model = load("runs/generate-1")
        >>> model.generate(["the cat", "the dog"], max_new_tokens=4, temperature=0.0)
        [' sat', ' sat']
        """
        if isinstance(prompts, str):
            return "".join(self.stream(prompts, **options))
        return ["".join(self.stream(prompt, **options)) for prompt in prompts]

    def classify(self, texts: str | Path | Sequence[Any]) -> Any:
        """Return the probability of each label, most likely first, for each text.

        A model trained on pairs takes tuples of two texts, a model for images takes image files or
        arrays of pixels (channels x rows x columns, 0 to 255). A list gives a list of dicts, a
        single string or path gives a single dict.

        >>> for labels in load("runs/classify-1").classify(["a lovely film", "an awful one"]):
        ...     print(*labels)
        pos neg
        neg pos
        """
        self.require_labels()
        if isinstance(texts, str | Path):
            return self.classify([texts])[0]
        if self.network.has(Trait.IMAGES):
            return [*predict(self.network, self.codec, texts)]
        columns = self.task.get("text") or ["text"]  # the text columns of the training data
        rows = [check_texts(row, columns) for row in select_texts(texts, columns)]
        return [*predict(self.network, self.codec, rows)]

    @property
    def labels(self) -> list[str]:
        """The labels of a classifier, in the order of the columns of `predict_proba`."""
        return self.require_labels()

    def predict(
        self, texts: Sequence[str | tuple[str, ...]], *, threshold: float | None = None
    ) -> list[Any]:
        """Return the most likely label of each text; None if its probability is below `threshold`.

        `texts` is a list, a Series, or a DataFrame with the text columns of the training data. A
        model with several labels per text returns a list for each: the labels that reach
        `threshold`, by default the threshold that was fitted to the validation texts.

        >>> load("runs/classify-1").predict(["a lovely film", "an awful one"])
        ['pos', 'neg']
        """
        if isinstance(texts, str):
            raise GlassError("predict takes a list of texts: put the text into a list")
        chosen = [self.choose_labels(probs, threshold) for probs in self.classify(texts)]
        if self.task.get("multi_label"):
            return chosen
        return [labels[0] if labels else None for labels in chosen]

    def predict_proba(self, texts: Sequence[str | tuple[str, ...]]) -> NDArray[np.float64]:
        """Return the probabilities of the labels, texts x labels, in the order of `labels`.

        >>> load("runs/classify-1").predict_proba(["a lovely film"]).shape
        (1, 2)
        """
        rows = [[probs[label] for label in self.labels] for probs in self.classify(texts)]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.labels))

    def choose_labels(self, probs: dict[str, float], threshold: float | None = None) -> list[str]:
        """Return the labels that reach `threshold`; only the most likely, unless a text can have
        several.

        The default is 0, or for several labels the threshold with the best F1 on the validation
        texts.
        """
        if self.task.get("multi_label"):
            threshold = read_calibration(self.task, "threshold") if threshold is None else threshold
            return [label for label in self.labels if probs[label] >= threshold]
        best, prob = next(iter(probs.items()))
        return [best] if prob >= (threshold or 0) else []

    def predict_label(
        self, probs: dict[str, float], texts: tuple[str, ...], threshold: float | None = None
    ) -> tuple[str | None, float]:
        """Return the chosen labels, joined by |, and the highest probability.

        The label is None if that is below `threshold`, or if most tokens of the texts are unknown
        to the model. If a text can have several labels, those that reach `threshold` are chosen.
        """
        labels = self.choose_labels(probs, threshold)
        prob = max(probs.values())
        is_unsure = not labels and not self.task.get("multi_label")
        if is_unsure or (self.tokenizer and unknown_fraction(self.tokenizer, texts) > 0.5):
            return None, prob
        return "|".join(labels), prob

    def translate(
        self,
        texts: str | Sequence[str],
        *,
        beam: int = BEAM_SIZE,
        length_penalty: float = LENGTH_PENALTY,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> Any:
        """Return the best translation of each text, found by beam search.

        `beam` is the beam size; 1 means greedy decoding. A `length_penalty` above 0 favors longer
        translations. With a `temperature`, the tokens of a translation are sampled instead; `seed`
        makes that reproducible, whatever the other texts are. A list of texts gives a list of
        strings, a single string gives a string. Blank texts are translated to "".

        >>> model = load("runs/translate-1")
        >>> len(model.translate(["one two", "three"], beam=2))
        2
        """
        self.require_trait(Trait.SEQ2SEQ, "translate")
        search: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty}
        sampling: dict[str, Any] = {"temperature": temperature, "seed": seed}
        check_bounds({**search, **sampling})
        if isinstance(texts, str):
            return self.translate([texts], **search, **sampling)[0]
        if temperature is None:
            options: dict[str, Any] = {"beam_size": beam, "length_penalty": length_penalty}
            translations = predict(self.network, self.codec, texts, **options)
        else:
            options = {"sampling": Sampling(temperature), "seed": seed}
            each = (predict(self.network, self.codec, [text], **options) for text in texts)
            translations = chain.from_iterable(each)
        return [out if text.strip() else "" for text, out in zip(texts, translations, strict=True)]

    def align(self, text: str, translation: str) -> Alignment:
        """Return the cross-attention from each token of a translation to the tokens of the text.

        The result has the tokens (`source`, `target`) and one matrix (`pattern`, target x source).

        >>> alignment = load("runs/translate-1").align("one two", "eins zwei")
        >>> alignment.pattern.shape == (len(alignment.target), len(alignment.source))
        True
        """
        self.require_trait(Trait.SEQ2SEQ, "translate")
        return align(self.network, self.require_tokenizer(), text, translation)

    def summarize(
        self,
        texts: str | Sequence[str | Extract],
        *,
        title: str | None = None,
        beam: int = SUMMARY_BEAM_SIZE,
        length_penalty: float = LENGTH_PENALTY,
    ) -> Any:
        """Return a summary of each text, or, with a title, one summary of all texts.

        Of a document that is longer than the model's context, only some sentences are read (see
        `extract`). `beam` is the beam size; 1 means greedy decoding. A list of texts gives a list
        of strings, a single string or a title gives a string.

        >>> model = load("runs/summarize-1")
        >>> len(model.summarize(["the cat sat on the mat .", "the dog lay on the log ."]))
        2
        """
        check_bounds({"beam": beam, "length_penalty": length_penalty})
        if isinstance(texts, str) or title is not None:
            pile = [texts] if isinstance(texts, str) else [str(text) for text in texts]
            texts = [self.extract("\n\n".join(pile), title=title)]
            is_single = True
        else:
            is_single = False
        self.require_trait(Trait.SUMMARIZER, "summarize")
        options = {"beam_size": beam, "length_penalty": length_penalty}
        summaries = [*predict(self.network, SummarizeCodec(self.artifacts), texts, **options)]
        return summaries[0] if is_single else summaries

    def extract(self, text: str, *, title: str | None = None) -> Extract:
        """Return what a summarizer reads of a text: all of it, or the best sentences that fit.

        They are those most similar to the title, or else the most central ones.

        >>> extract = load("runs/summarize-1").extract("the cat sat . " * 100)
        >>> len(extract.ids) < extract.tokens
        True
        """
        self.require_trait(Trait.SUMMARIZER, "summarize")
        return SummarizeCodec(self.artifacts).extract(text, self.network.context, title)

    def fill_mask(self, text: str, *, top: int = 5) -> list[list[tuple[str, float]]]:
        """Return the `top` most likely tokens, with their probabilities, for each [MASK] in `text`.

        >>> masks = load("runs/fill-mask-1").fill_mask("the [MASK] sat on the [MASK]", top=3)
        >>> [len(candidates) for candidates in masks]
        [3, 3]
        """
        check_bounds({"top": top})
        self.require_masks()
        if "[MASK]" not in text:
            wrong = ", not <mask>" if "<mask>" in text.lower() else ""
            raise GlassError(f"the text contains no [MASK]: write [MASK] for a hidden token{wrong}")
        predictions: list[list[list[tuple[str, float]]]] = [
            *predict(self.network, self.codec, [text], top=top)
        ]
        return predictions[0]

    def follows(self, pairs: Sequence[tuple[str, ...]]) -> list[float]:
        """Return the probability that the second text of each pair follows the first.

        The model was trained to tell apart halves of one passage and halves of two: the metric
        `next_accuracy` says how well it does that on held-out text.

        >>> [0 < p < 1 for p in load("runs/fill-mask-1").follows([("the cat", "sat down")])]
        [True]
        """
        self.require_masks()
        rows = [check_texts(pair, ("first text", "second text")) for pair in pairs]
        if not all(text.strip() for row in rows for text in row):
            raise GlassError("a text is empty: expected a pair of texts, each with a word")
        return next_probs(self.network, self.require_tokenizer(), rows)

    def paint(self, n: int = 16, *, label: str | None = None, seed: int = 0) -> NDArray[np.uint8]:
        """Paint `n` images of a class, or of all classes in turn: n x rows x columns x channels.

        Equal seeds give equal images.

        >>> load("runs/paint-1").paint(4, label="circle").shape
        (4, 32, 32, 1)
        """
        self.require_trait(Trait.PAINTER, "paint")
        check_bounds({"top": n, "seed": seed})
        examples = [(label, seed + i) for i in range(n)]
        images = np.stack([*predict(self.network, self.codec, examples)])
        return images.transpose(0, 2, 3, 1)

    def embed(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Return a vector for each text: the mean of the last block's features over its tokens.

        A list of texts gives an array of texts x dim, a single string gives one vector.

        >>> load("runs/fill-mask-1").embed(["the cat", "the dog", "a log"]).shape
        (3, 32)
        """
        if isinstance(texts, str):
            return self.embed([texts])[0]  # type: ignore[no-any-return]
        return embed_texts(self.network, self.require_tokenizer(), texts)

    def similarity(
        self, texts: Sequence[str], others: Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Return the cosine of the vectors (see `embed`) of each two texts: texts x others.

        Without `others`, the texts are compared with each other.

        >>> load("runs/fill-mask-1").similarity(["the cat", "the dog"]).shape
        (2, 2)
        """
        vectors = self.embed(list(texts))
        return cosines(vectors, vectors if others is None else self.embed(list(others)))

    def recommend(self, user: object, n: int = 10) -> list[dict[str, Any]]:
        """Return the `n` best items for a user that the user has not rated, the best first.

        Each is a dict with the item, its title if the model knows titles, and the score: the
        predicted rating, or for `sasrec` the probability that the item is the next.

        >>> [sorted(row) for row in load("runs/recommend-1").recommend("viewer-7", 2)]
        [['item', 'score', 'title'], ['item', 'score', 'title']]
        """
        check_bounds({"top": n})
        found: list[list[dict[str, Any]]] = [
            *predict(self.network, self.require_recommender(), [user], n=n)
        ]
        return found[0]

    def similar(self, item: object, n: int = 10) -> list[dict[str, Any]]:
        """Return the `n` items most similar to an item, given by its id, title or part of a title.

        The score is the cosine of the angle between the vectors of the two items.

        >>> len(load("runs/recommend-1").similar("film-3", 4))
        4
        """
        check_bounds({"top": n})
        return self.require_recommender().similar(self.network, item, n)

    # --- look inside --------------------------------------------------------------------------

    def trace(
        self, text: str, *patterns: str, target: str | None = None, **options: Any
    ) -> TraceView:
        """Run the model on `text` and return its intermediate values by name.

        `patterns` are shell-style patterns of names; without any, all values are recorded. For a
        translator, `target` is the decoder input, by default its own translation. `options` are
        those of `Trace`.

        >>> model = load("runs/generate-1")
        >>> model.trace("the cat", "*.pattern")["blocks.0.attention.pattern"].shape
        torch.Size([1, 2, 7, 7])
        """
        return TraceView(
            trace_text(
                self.network, self.require_tokenizer(), text, *patterns, target=target, **options
            )
        )

    def walk(self, text: str, **options: Any) -> Sheet:
        """Return a worksheet for a text: every step of the computation in one block and one head.

        Options: layer (default 0), head (default 0), target (the decoder input of a translator, by
        default its own translation), weights (include the weight matrices, default False).

        >>> steps = load("runs/generate-1").walk("the cat")
        >>> steps[0].title, steps[-1].title
        ('Tokens and ids', 'Probabilities')
        """
        names = ("labels", "temperature", "multi_label")
        output = {name: self.task[name] for name in names if name in self.task}
        return Sheet(worksheet(self.network, self.require_tokenizer(), text, **output, **options))

    def why(self, text: str, name: str, *, target: str | None = None) -> Explanation:
        """Explain one number of the forward pass: the operation and terms it was computed from.

        `name` is a value and an index into it, as in the example. For a translator, `target` is the
        decoder input, by default its own translation.

        >>> why = load("runs/generate-1").why("the cat", "blocks.0.attention.scores[0,1,6,2]")
        >>> why.operation, round(why.recomputed - why.value, 5)
        ('÷ 4', 0.0)
        """
        inputs = inputs_for(self.network, self.require_tokenizer(), text, target)
        return RecordedPass(self.network, inputs, self.require_tokenizer()).explain_named(name)

    def heads(self, text: str | None = None, *, reporter: Reporter | None = None) -> HeadReport:
        """Return what each attention head attends to, and what ablating it costs in nats.

        Without `text`, the model reads a random sequence of tokens that is repeated once; a
        translator needs a text. `reporter` shows progress.

        >>> stats = load("runs/generate-1").heads("the cat sat")[0]
        >>> stats.name, stats.head, 0 <= stats.previous <= 1
        ('blocks.0.attention', 0, True)
        """
        if text is not None:
            return measure_heads(
                self.network, inputs_for(self.network, self.require_tokenizer(), text), reporter
            )
        if self.network.has(Trait.SEQ2SEQ):
            raise GlassError("a translator needs a text: it cannot read random tokens")
        ids = make_repeated_ids(self.config.vocab, self.network.context)
        return measure_heads(self.network, {"ids": ids.to(self.network.device)}, reporter)

    def patch(self, clean: str, corrupt: str, *, reporter: Reporter | None = None) -> PatchResult:
        """Find which activations account for the difference between two texts.

        Activation patching: the model reads `corrupt` with one value at a time replaced by its
        value for `clean`. The result has the fraction of the difference that each value restores:
        per token in `positions`, per head in `heads`. Both texts must have the same number of
        tokens. `reporter` shows progress.

        >>> result = load("runs/generate-1").patch("the cat", "the dog")
        >>> list(result.positions)[:2]
        ['blocks.0', 'blocks.0.attention']
        """
        labels = self.task.get("labels", ())
        return patch(self.network, self.require_tokenizer(), clean, corrupt, labels, reporter)

    def draw(
        self,
        name: str,
        text: str = "",
        *,
        layer: int | str | None = None,
        head: int | Sequence[int] | None = None,
        token: int | None = None,
    ) -> Any:
        """Draw the plot `name` (see `glass draw --help`) of the model reading `text`, if any.

        `layer` is the index of a block or the name of an attention layer, by default the first;
        `lines` takes several heads. Returns a matplotlib figure, or an animation for `unfolding`.

        >>> load("runs/generate-1").draw("attention", "the cat").get_axes()[0].images[0].get_size()
        (7, 7)
        """
        plot = find_plot(name)
        model = {"network": self.network, "tokenizer": self.tokenizer}
        options = {"layer": layer, "head": head, "token": token}
        match plot.needs:
            case Needs.NOTHING:
                use = f"glassformer.inspection.plots.draw_diagram({name!r})"
                raise GlassError(f"{name} needs no model: use {use}")
            case Needs.OPTIONAL_MODEL:
                return plot.draw(**model)
            case Needs.MODEL:
                return plot.draw(self.network, self.task)
            case Needs.TRANSLATION:
                return plot.draw(self.align(text, self.translate(text)))
            case Needs.IMAGE:
                if not self.network.has(Trait.IMAGES):
                    raise GlassError(f"{name} is for models that read or paint images")
                return plot.draw(trace_image(self.network, self.codec, text), **options)
        tokenizer = self.require_tokenizer()
        traced = trace_text(self.network, tokenizer, text, *plot.patterns, strict=False)
        return plot.draw(traced, **options, **model, labels=self.task.get("labels"))

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, or raise `GlassError` if there is none."""
        if self.tokenizer is None:
            raise GlassError("this model has no tokenizer, so it cannot read text")
        return self.tokenizer

    @property
    def artifacts(self) -> Artifacts:
        return Artifacts(self.task, self.tokenizer)

    @property
    def codec(self) -> Codec:
        """The codec for the model's task: encodes inputs and decodes outputs."""
        return codec_for(self.network, self.artifacts)

    def require_trait(self, trait: Trait, verb: str) -> None:
        """Raise `GlassError` if the network lacks `trait`, which it needs to `verb`."""
        if not self.network.has(trait):
            raise GlassError(f"this model was not trained to {verb}{self.find_other_use(trait)}")

    def require_labels(self) -> list[str]:
        """Return the labels, or raise `GlassError` if the model is not a classifier."""
        if "labels" not in self.task or not self.network.has(Trait.CLASSIFIER):
            other = self.find_other_use(Trait.CLASSIFIER)
            raise GlassError(f"this model was not trained to classify{other}")
        return list(self.task["labels"])

    def require_recommender(self) -> RecommendationCodec:
        """Return the codec, or raise `GlassError` if the model was not trained on ratings."""
        codec = self.codec if self.task.get("name") in TASKS else None
        if not isinstance(codec, RecommendationCodec):
            other = self.find_other_use(Trait.RATER)
            raise GlassError(f"this model was not trained to recommend{other}")
        return codec

    def require_masks(self) -> None:
        """Raise `GlassError` if the model cannot fill masks."""
        required = {"[CLS]", "[SEP]", "[MASK]"}
        has_tokens = required <= self.require_tokenizer().special_tokens.keys()
        if not self.network.has(Trait.MASKED_LM) or not has_tokens:
            other = self.find_other_use(Trait.MASKED_LM)
            raise GlassError(
                f"this model was not trained to fill masks: it has no masked-LM head{other}"
            )

    def find_other_use(self, trait: Trait) -> str:
        """Return the end of an error message: what the model can do that does not need `trait`."""
        uses = (OTHER_USES[t] for t in OTHER_USES if t is not trait and self.network.has(t))
        return next(uses, "")

    # --- save ---------------------------------------------------------------------------------

    def strip_prior(self) -> None:
        """Remove the prior: n-grams of the training text, or a word-translation table.

        Expect a higher loss: the prior no longer contributes to the predictions.
        """
        if not isinstance(self.network, PriorNetwork) or self.network.prior is None:
            raise GlassError("this model has no prior")
        if isinstance(self.network.prior, LabelPrior) and not self.network.prior.weights[0]:
            raise GlassError(
                "this model is its prior, NB-SVM: the network has a weight of 0, so nothing would "
                "be left without it; train longer, or train with --no-prior"
            )
        self.network.remove_prior()

    def save(
        self,
        path: str | Path,
        *,
        format: str = "glassformer",
        overwrite: bool = False,
    ) -> None:
        """Write the model to the folder `path`.

        `format` is a name in `EXPORTERS`; `load` opens all of them except "onnx". An existing
        folder is replaced only with `overwrite`.

        >>> load("runs/generate-1").save("exported")
        >>> load("exported").name
        'gpt2'
        """
        save = find_exporter(format).save
        save(Path(path), self.network, self.tokenizer, task=self.task, overwrite=overwrite)

    def __repr__(self) -> str:
        size = self.network.size
        tokenizer = self.tokenizer.kind if self.tokenizer else "none"
        return f"<glassformer.Model {self.name}: {size:,} parameters, tokenizer: {tokenizer}>"

    def _repr_html_(self) -> str:
        """A table of the task, the result of training and the model settings, for notebooks."""
        task = {k: v for k, v in self.task.items() if not isinstance(v, list) or len(v) < 20}
        entries = {**task, **self.metrics, **config.to_dict(self.config)}
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>"
            for name, value in entries.items()
        )
        return f"<b>{escape(repr(self)[1:-1])}</b><table>{rows}</table>"


def load(
    path: str | Path, *, ignore: Sequence[str] = (), tokenizer: str | Path | None = None
) -> Model:
    """Load a model from a run folder, a saved model, a Hugging Face folder or a llama2.c file.

    For a run, the best weights are loaded. Hugging Face folders may contain GPT-2, BERT or Llama;
    `ignore` lists their settings and tensors to skip. `tokenizer` is the tokenizer file for a
    llama2.c model. No code in the files is executed.

    >>> load("runs/classify-1").name
    'classifier'
    """
    tokenizer_file = None if tokenizer is None else Path(tokenizer)
    return Model(*checkpoint.open_model(Path(path), ignore, tokenizer=tokenizer_file))


def train(task: str | None = None, *data: Any, **options: Any) -> Model:
    """Train a model for `task` on `data` and return it with its best weights.

    `task` is generate, classify, translate, fill-mask or summarize. `data` are files, DataFrames
    (pandas, polars), or lists of dicts or tuples; without any, a built-in sample is used. The
    options are those of `glass train`: run (the folder to write), model (an architecture), base (a
    model to fine-tune), config (a recipe), minutes, steps or epochs, text and label (columns),
    valid (more data), seed, settings (as for `--set`), overwrite, and any training setting by its
    name. `Model.metrics` has the result.

    >>> model = train("classify", "reviews.csv", steps=20, settings=["model.dim=32"])
    >>> sorted(model.classify(["a lovely film"])[0])
    ['neg', 'pos']
    """
    with open_scratch_folder() as scratch:
        files = save_in_memory_data(task, data, scratch)
        options = use_tuples(options)
        if options.get("valid") is not None:
            valid = options["valid"]
            are_files = isinstance(valid, list) and all(isinstance(v, str | Path) for v in valid)
            valid = tuple(valid) if are_files or isinstance(valid, tuple) else (valid,)
            options["valid"] = save_in_memory_data(task, valid, scratch, "validation")
        result = training.train(task, *files, **options)
    return load_trained(result)


def resume(run: str | Path, **budget: Any) -> Model:
    """Resume the training run in a folder; `budget` is steps (in total) or minutes (from now).

    >>> resume("runs/classify-1", steps=40).metrics["steps"]
    40
    """
    return load_trained(resuming.resume(Path(run), **budget))


def load_trained(result: dict[str, Any]) -> Model:
    """Load the model of a run; `result` is what training it returned."""
    model = load(result["run"])
    model.metrics = Metrics(result)
    return model


def evaluate(model: Model | str | Path, *data: Any, **options: Any) -> Metrics:
    """Return the metrics of a model, or of the run in a folder, on data: a dict that shows itself.

    `data` is as for `train`; without any, it is the run's own validation data. Options: text and
    label (columns), predictions (a file for a row per example), plot (a file), skip_bad.

    >>> round(evaluate("runs/classify-1", "reviews.csv")["accuracy"], 1)
    1.0
    """
    options = use_tuples(options)
    for name in ("plot", "predictions"):
        if options.get(name) is not None:
            options[name] = Path(options[name])
    are_files = all(isinstance(item, str | Path) for item in data)
    with open_scratch_folder() as scratch:
        if not isinstance(model, Model):
            path = Path(model)
            task = None if are_files else load(model).task.get("name")
        elif data:
            path = scratch / "model"
            task = model.task.get("name")
            model.save(path)
        elif model.metrics:
            path, task = Path(model.metrics["run"]), None
        else:
            raise GlassError("a loaded model has no validation data: specify the data")
        files = save_in_memory_data(task, data, scratch)
        return Metrics(evaluation.evaluate(path, tuple(map(Path, files)), **options))


def compare(task: str, *data: Any, models: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """Train several models with the same budget; return a row with the metrics of each.

    `models` are as for `glass compare`; the options are those of `train`.

    >>> rows = compare("classify", "reviews.csv", models=["nb_svm", "classifier"], steps=5)
    >>> sorted(row["name"] for row in rows)
    ['classifier', 'nb_svm']
    """
    with open_scratch_folder() as scratch:
        files = save_in_memory_data(task, data, scratch)
        names = models.split(",") if isinstance(models, str) else models
        options = use_tuples(options)
        _, rows = comparison.compare(task, *files, models=names, reporter=Reporter(), **options)
    return rows


def use_tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in which the name of one text column is a tuple."""
    text = options.get("text")
    return {**options, "text": (text,)} if isinstance(text, str) else options
