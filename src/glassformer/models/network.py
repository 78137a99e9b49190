"""The base class of networks, and what networks can do.

Protocols are for static typing, traits for run-time checks. `keep` is true at real tokens, false at
padding. Shapes: b batch, t tokens, s source tokens, n masked tokens, d features, v vocabulary,
c classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import chain
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Generator, Tensor, nn

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.nn.cache import Cache
from glassformer.nn.count_prior import CountPrior
from glassformer.nn.label_prior import LabelPrior
from glassformer.nn.layout import mark_padding
from glassformer.nn.ngram_classifier import NGramClassifier
from glassformer.nn.prior import Prior


class Trait(StrEnum):
    """A property of a network. The first traits have a protocol (see `PROTOCOLS`).

    A network with such a trait implements its protocol's methods (a test checks this).
    """

    CAUSAL_LM = "causal_lm"  # CausalLM: predicts the next token
    MASKED_LM = "masked_lm"  # MaskedLM: predicts masked tokens
    CLASSIFIER = "classifier"  # Classifier: class logits for each sequence
    SEQ2SEQ = "seq2seq"  # Seq2Seq: predicts the next token, given a source
    RATER = "rater"  # Rater: predicts the rating that a user gives an item
    NEXT_ITEM = "next_item"  # NextItem: predicts the next item from those before it
    ENCODER = "encoder"  # Encoder: hidden states of each token
    PAINTER = "painter"  # Painter: makes images from noise
    FITTED = "fitted"  # Fitted: fitted directly, without training steps
    CACHED = "cached"  # Cached: decoding in chunks equals one pass

    SUMMARIZER = "summarizer"  # a CausalLM that continues a document with its summary

    PADDING_INVARIANT = "padding_invariant"  # padding on either side does not change the output
    CAUSAL = "causal"  # the output does not depend on later tokens
    ATTENTION = "attention"  # every layer has attention
    ORDER_FREE = "order_free"  # without its position embedding, token order does not matter
    SOURCE_ORDER_FREE = "source_order_free"  # the same, for the order of the source
    FIRST_TOKEN = "first_token"  # the output is computed from the first token
    SEGMENTED = "segmented"  # takes segment ids, which distinguish the texts of a pair
    SEGMENT_MEMORY = "segment_memory"  # reads streams of text in segments and has a memory of them
    IMAGES = "images"  # reads or makes images instead of texts
    COMPILABLE = "compilable"  # torch.compile compiles it to one graph


@runtime_checkable
class CausalLM(Protocol):
    """Next-token logits: b t -> b t v."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class MaskedLM(Protocol):
    """Token logits at each position: b t -> b t v."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...

    def masked_logits(
        self,
        ids: Tensor,
        masked_positions: Tensor,
        segments: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> "MaskedLogits":
        """Logits only where `masked_positions` (b t) is true."""
        ...


@dataclass(frozen=True)
class MaskedLogits:
    tokens: Tensor  # n v
    # b 2: logits of whether the second text follows the first; yes is first, as in published BERTs
    is_next: Tensor | None = None


@runtime_checkable
class Classifier(Protocol):
    """Class logits of each sequence: b t -> b c."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class Seq2Seq(Protocol):
    """Next-token logits, given the source: b t, b s -> b t v.

    With a cache, `source` and `source_keep` are passed with the first ids only.
    """

    def __call__(
        self,
        ids: Tensor,
        source: Tensor | None = None,
        *,
        keep: Tensor | None = None,
        source_keep: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor: ...


@runtime_checkable
class Rater(Protocol):
    """The ratings of items by users, both given by their index (-1: never seen): b, b -> b."""

    def __call__(self, user: Tensor, item: Tensor) -> Tensor: ...

    def rate_items(self, user: Tensor) -> Tensor:
        """The ratings of all items: b -> b v."""
        ...


@runtime_checkable
class NextItem(Protocol):
    """Logits of the next item after each item of a history: b t -> b t v."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...

    def score_next(self, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits of the item after the last one of each history: b t -> b v."""
        ...


@runtime_checkable
class ItemVectors(Protocol):
    """A recommender that has learned features of items; not a trait, since no law needs it."""

    def item_vectors(self) -> Tensor:
        """The features of every item: v d."""
        ...


@runtime_checkable
class Encoder(Protocol):
    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """Hidden states of the last layer (in a Seq2Seq, of the encoder): b t -> b t d."""
        ...


@runtime_checkable
class Painter(Protocol):
    """Images of the classes `labels`, between -1 and 1: b z, b -> b c y x."""

    def __call__(self, noise: Tensor, labels: Tensor) -> Tensor: ...


@runtime_checkable
class Cached(Protocol):
    def cache(self, capacity: int) -> Cache:
        """An empty cache for sequences of up to `capacity` tokens, to pass to `forward`."""
        ...


@runtime_checkable
class Fitted(Protocol):
    def fit(self, *data: Tensor) -> None:
        """Fit the model directly to the data, replacing its weights."""
        ...


PROTOCOLS: dict[Trait, type] = {
    Trait.CAUSAL_LM: CausalLM,
    Trait.MASKED_LM: MaskedLM,
    Trait.CLASSIFIER: Classifier,
    Trait.SEQ2SEQ: Seq2Seq,
    Trait.RATER: Rater,
    Trait.NEXT_ITEM: NextItem,
    Trait.ENCODER: Encoder,
    Trait.PAINTER: Painter,
    Trait.FITTED: Fitted,
    Trait.CACHED: Cached,
}
TRANSFORMER = frozenset({Trait.PADDING_INVARIANT, Trait.ATTENTION, Trait.ENCODER, Trait.COMPILABLE})
AUTOREGRESSIVE = frozenset({Trait.PADDING_INVARIANT, Trait.CAUSAL, Trait.CACHED, Trait.ENCODER})
DECODER = TRANSFORMER | AUTOREGRESSIVE


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a model; every number is checked against its bounds."""

    def __post_init__(self) -> None:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        check_bounds(values)
        if values.get("heads") and values["dim"] % values["heads"]:
            raise GlassError(
                f"dim must be divisible by heads, got {values['dim']} and {values['heads']}"
            )


class Network(nn.Module):
    """The base class of all models in the registry: a module with a config and traits.

    If a setting changes the traits, the instance overrides them.
    """

    Config: Any
    traits: frozenset[Trait] = frozenset()
    embeddings: ClassVar[tuple[str, ...]] = ()  # modules with a row for each token or position
    stacks: ClassVar[tuple[str, ...]] = ()  # module lists of layers, in the order of execution
    output_heads: ClassVar[tuple[str, ...]] = ()  # modules that are specific to a task
    forward_inputs: tuple[str, ...] = ("ids", "keep")  # keys of a batch for `forward`
    train_settings: ClassVar[Mapping[str, Any]] = {}  # replace the defaults of a task
    lr_scales: ClassVar[Mapping[str, float]] = {}  # factors of the learning rate, by child module
    config: Any

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def suggest_sizes(cls, minutes: float, tokens: int) -> dict[str, Any]:
        """The model settings that suit a time budget and an amount of training data."""
        return {}

    def has(self, *traits: Trait) -> bool:
        return self.traits.issuperset(traits)

    def select_inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The entries of a batch that `forward` takes."""
        return {name: batch[name] for name in self.forward_inputs if name in batch}

    @property
    def context(self) -> int | None:
        """The max sequence length; None if there is no limit."""
        context: int | None = getattr(self.config, "context", None)
        return context

    @property
    def decoding_limit(self) -> int | None:
        """The number of tokens after which decoding starts over with a new cache; None if never."""
        return self.context

    def extra_loss(self) -> Tensor | None:
        """A loss besides that of the task, per prediction, from the last pass in training."""
        return None

    def training_state(self) -> dict[str, Tensor]:
        """What a network needs besides its weights to resume training."""
        return {}

    def load_training_state(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `training_state` returned."""

    def random_inputs(self, batch: int, length: int, generator: Generator) -> dict[str, Tensor]:
        """Random arguments of `forward`: by default, a batch of sequences of this many ids."""
        return {"ids": torch.randint(self.vocab, (batch, length), generator=generator)}

    def all_outputs(self, **inputs: Tensor) -> list[Tensor]:
        """Everything that the network is trained to compute, by default the output of `forward`."""
        return [self(**inputs)]

    @property
    def vocab(self) -> int:
        """The size of the vocabulary, or of the smaller of two; ids below it are always valid."""
        size: int = self.config.vocab
        return min(size, getattr(self.config, "source_vocab", None) or size)

    @property
    def device(self) -> Any:
        return next(chain(self.parameters(), self.buffers())).device

    @property
    def size(self) -> int:
        """The number of parameters; for a model that is fitted directly, of saved values."""
        values = self.state_dict().values() if self.has(Trait.FITTED) else self.parameters()
        return sum(value.numel() for value in values)


@dataclass(frozen=True)
class PriorConfig(ModelConfig):
    """The settings of an n-gram prior."""

    order: int  # max context length; for a classifier, max n-gram length


# count lookups break the graph of torch.compile, and the prior of a translator depends on the
# order of the source
LOST_WITH_PRIOR = frozenset({Trait.COMPILABLE, Trait.SOURCE_ORDER_FREE})
P = TypeVar("P", bound=Prior)


class PriorNetwork(Network, Generic[P]):
    """A network that can have a prior, which adds count-based predictions to its logits."""

    prior_config_type: ClassVar[type[ModelConfig]] = PriorConfig
    prior_inputs: ClassVar[tuple[str, ...]] = ()  # further keys of a batch, used only by the prior

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.prior: P | None = None
        self.prior_config: ModelConfig | None = None

    def build_prior(self, config: Any) -> P:
        """Build an unfitted prior from `config`, of type `prior_config_type`."""
        raise NotImplementedError

    def attach_prior(self, config: ModelConfig, prior: P | None = None) -> P:
        """Add a prior, by default a new one."""
        self.prior_config, self.prior = config, prior or self.build_prior(config)
        self.traits = self.traits - LOST_WITH_PRIOR
        self.forward_inputs = (*type(self).forward_inputs, *self.prior_inputs)
        return self.prior

    def remove_prior(self) -> None:
        self.prior = self.prior_config = None
        self.traits |= type(self).traits & LOST_WITH_PRIOR
        self.forward_inputs = type(self).forward_inputs

    def share_prior(self, other: Network) -> None:
        """Use the prior of another network, if it has one and their sizes are the same."""
        if not isinstance(other, PriorNetwork) or other.prior is None or not other.prior_config:
            return
        names = ("dim", "vocab", "source_vocab", "classes")
        sizes = [[getattr(n.config, name, None) for name in names] for n in (self, other)]
        if sizes[0] == sizes[1]:
            self.attach_prior(other.prior_config, other.prior)


class LanguageModel(PriorNetwork[CountPrior]):
    """Predicts the next token from `features` with an output layer, `unembed`.

    Optionally, a prior adds the predictions of n-gram counts (see nn/count_prior.py).
    """

    prior_inputs = ("past_ids", "folds")

    def forward(
        self,
        ids: Tensor,
        *,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        past_ids: Tensor | None = None,
        folds: Tensor | None = None,
    ) -> Tensor:
        """Next-token logits: b t -> b t v.

        Only the prior uses `past_ids`, the ids before the first token, and `folds`, the fold to
        exclude from the counts for each token in training.
        """
        features = self.features(ids, keep, cache)
        logits = self.unembed(features)
        if self.prior is None:
            return logits
        real_ids = mark_padding(ids, keep)
        if cache is not None:
            past_ids = cache.extend_past_ids(real_ids, self.prior.order - 1)
        mixed_logits: Tensor = self.prior(logits, features, real_ids, past_ids, folds)
        return mixed_logits

    def features(
        self, ids: Tensor, keep: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Hidden states of the last layer: b t -> b t d."""
        raise NotImplementedError

    def unembed(self, features: Tensor) -> Tensor:
        """The network's own logits: b t d -> b t v."""
        raise NotImplementedError

    def build_prior(self, config: PriorConfig) -> CountPrior:
        return CountPrior(self.config.dim, self.config.vocab, config.order)


class TextClassifier(PriorNetwork[LabelPrior]):
    """Predicts a class for each sequence, with `classify`.

    Optionally, a prior adds the logits of an n-gram classifier in eval mode (see
    nn/label_prior.py). In training mode, the prior is not used.
    """

    prior_inputs = ("untruncated_ids",)

    def forward(
        self,
        ids: Tensor,
        *,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        untruncated_ids: Tensor | None = None,
    ) -> Tensor:
        """Class logits of each sequence: b t -> b c.

        Only the prior uses `untruncated_ids`, the rows before truncation to the context, padded
        with -1; only a network with the trait SEGMENTED uses `segments`.
        """
        if self.prior is None or self.training:
            return self.classify(ids, keep, segments)
        logits, ngram_logits = self.component_logits(ids, keep, segments, untruncated_ids)
        mixed_logits: Tensor = self.prior(logits, ngram_logits)
        return mixed_logits

    def component_logits(
        self,
        ids: Tensor,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        untruncated_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The class logits of the network and of the n-gram classifier in its prior: b c, b c."""
        if self.prior is None:
            raise ValueError("this network has no prior")
        if untruncated_ids is None:
            untruncated_ids = mark_padding(ids, keep)
        return self.classify(ids, keep, segments), self.prior.classifier(untruncated_ids)

    def classify(
        self, ids: Tensor, keep: Tensor | None = None, segments: Tensor | None = None
    ) -> Tensor:
        """The network's own class logits: b t -> b c."""
        raise NotImplementedError

    def build_prior(self, config: PriorConfig) -> LabelPrior:
        return LabelPrior(
            NGramClassifier(self.config.vocab, self.config.classes, order=config.order)
        )
