"""What a network can do: protocols for the type checker, traits for choices at run time.

Shapes: b texts, t tokens, s source tokens, d features, v vocabulary, c classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor, nn

from glassformer.core.bounds import check_bounds
from glassformer.core.errors import GlassError
from glassformer.nn.cache import Cache


class Trait(StrEnum):
    """What holds for a network. A trait with a protocol implies its methods (a test checks it)."""

    CAUSAL_LM = "causal_lm"  # CausalLM: predicts the next token
    MASKED_LM = "masked_lm"  # MaskedLM: predicts hidden tokens
    CLASSIFIER = "classifier"  # Classifier: one row of scores for each text
    SEQ2SEQ = "seq2seq"  # Seq2Seq: predicts the next token, given a source
    ENCODER = "encoder"  # Encoder: features of each token
    FITTED = "fitted"  # Fitted: fitted in one pass by counting, not by gradients
    CACHED = "cached"  # Cached: decoding in chunks equals one pass

    PADDED = "padded"  # padding on either side changes nothing
    CAUSAL = "causal"  # what it predicts does not depend on later tokens
    ATTENTION = "attention"  # every layer attends
    POSITIONLESS = "positionless"  # without its table of positions, order does not matter
    FIRST_TOKEN = "first_token"  # the first token stands for the whole text
    SEGMENTED = "segmented"  # it is told which of two texts a token belongs to
    COMPILED = "compiled"  # torch.compile makes one graph of it


@runtime_checkable
class CausalLM(Protocol):
    """Scores for the token after each of ids: b t -> b t v."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class MaskedLM(Protocol):
    """Scores for the token at each place: b t -> b t v."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...

    def masked_logits(
        self,
        ids: Tensor,
        masked_positions: Tensor,
        segments: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> "MaskedLogits":
        """Scores only where `asked`, b t, is true."""
        ...


@dataclass(frozen=True)
class MaskedLogits:
    tokens: Tensor  # n v, for the tokens that were asked for
    is_next: Tensor | None = None  # b 2, whether the second text follows the first


@runtime_checkable
class Classifier(Protocol):
    """Scores for the classes of each text: b t -> b c."""

    def __call__(self, ids: Tensor, *, keep: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class Seq2Seq(Protocol):
    """Scores for the token after each of ids, given source ids: b t, b s -> b t v."""

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
class Encoder(Protocol):
    def features(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """What the last layer knows of each token: b t -> b t d. Of a Seq2Seq: of the source."""
        ...


@runtime_checkable
class Cached(Protocol):
    def cache(self, capacity: int) -> Cache:
        """An empty cache for a batch of texts of up to so many tokens; `forward` takes it."""
        ...


@runtime_checkable
class Fitted(Protocol):
    def fit(self, *data: Tensor) -> None:
        """Replace its weights by counts of the data."""
        ...


PROTOCOLS: dict[Trait, type] = {
    Trait.CAUSAL_LM: CausalLM,
    Trait.MASKED_LM: MaskedLM,
    Trait.CLASSIFIER: Classifier,
    Trait.SEQ2SEQ: Seq2Seq,
    Trait.ENCODER: Encoder,
    Trait.FITTED: Fitted,
    Trait.CACHED: Cached,
}
TRANSFORMER = frozenset({Trait.PADDED, Trait.ATTENTION, Trait.ENCODER, Trait.COMPILED})
DECODES = frozenset({Trait.PADDED, Trait.CAUSAL, Trait.CACHED, Trait.ENCODER})
DECODER = TRANSFORMER | DECODES


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a model; every number is checked against its bounds."""

    def __post_init__(self) -> None:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        check_bounds(values)
        if values.get("heads") and values["dim"] % values["heads"]:
            raise GlassError(
                f"dim {values['dim']} cannot be shared equally by {values['heads']} heads"
            )


class Network(nn.Module):
    """A model of the registry: a module that says what it can do and how it is built.

    A setting may change what holds; then the network has traits of its own.
    """

    Config: Any
    traits: frozenset[Trait] = frozenset()
    embeddings: ClassVar[tuple[str, ...]] = ()  # modules with a row for each token or position
    stacks: ClassVar[tuple[str, ...]] = ()  # lists of layers, in the order in which they run
    heads: ClassVar[tuple[str, ...]] = ()  # modules that answer one task, and no other
    forward_inputs: ClassVar[tuple[str, ...]] = (
        "ids",
        "keep",
    )  # entries of a batch that `forward` reads
    config: Any

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def has(self, *traits: Trait) -> bool:
        return self.traits.issuperset(traits)

    def select_inputs(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The entries of a batch that `forward` takes."""
        return {name: batch[name] for name in self.forward_inputs if name in batch}

    @property
    def context(self) -> int | None:
        """The most tokens that it is given at once; None: any number."""
        found: int | None = getattr(self.config, "context", None)
        return found

    @property
    def vocab(self) -> int:
        """The number of tokens that it knows: ids are below it."""
        size: int = self.config.vocab
        return size

    @property
    def device(self) -> Any:
        return next(self.parameters()).device
