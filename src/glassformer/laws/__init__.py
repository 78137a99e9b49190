"""Laws: properties that must hold for every network with certain traits.

`LAWS` lists all of them. The tests check them on small networks of every kind; `check_laws` checks
them on any network, such as a trained one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from glassformer.laws import (
    caching,
    causality,
    execution,
    gradients,
    memory,
    order,
    padding,
    tracing,
)
from glassformer.laws.comparison import BrokenLawError
from glassformer.laws.law import Law
from glassformer.laws.subject import TOLERANCE, Subject
from glassformer.models.network import Network

__all__ = ["LAWS", "BrokenLawError", "Law", "Result", "Subject", "check_laws", "laws_for"]

LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        causality.check_future_is_hidden,
        causality.check_gradients_respect_the_mask,
        caching.check_cached_steps_equal_one_pass,
        caching.check_cached_steps_equal_one_pass_with_padding_on_the_left,
        caching.check_cache_stores_padding,
        caching.check_cache_selects_rows,
        caching.check_failed_pass_leaves_cache_unchanged,
        memory.check_segments_with_a_long_memory_equal_one_pass,
        memory.check_gradients_stop_at_the_segment,
        padding.check_padding_changes_nothing,
        padding.check_padding_ids_do_not_matter,
        padding.check_source_padding_changes_nothing,
        padding.check_sequence_of_only_padding_is_finite,
        padding.check_features_ignore_padding,
        order.check_permuted_input_gives_permuted_output,
        order.check_source_order_comes_from_its_positions,
        gradients.check_every_parameter_gets_a_gradient,
        gradients.check_tied_head_and_embedding_share_one_gradient,
        gradients.check_one_batch_can_be_learned,
        tracing.check_tracing_changes_nothing,
        tracing.check_fused_and_traced_gradients_match,
        tracing.check_inference_mode_leaves_network_trainable,
        execution.check_batch_of_one_equals_batch_of_many,
        execution.check_copy_gives_the_same_output,
        execution.check_half_precision_is_close,
        execution.check_compiles_to_one_graph,
        execution.check_builds_on_the_meta_device,
    )
}


@dataclass(frozen=True)
class Result:
    """The result of checking a law."""

    law: Law
    error: Exception | None = None  # `BrokenLawError`, or what the network raised

    @property
    def holds(self) -> bool:
        return self.error is None


def laws_for(network: Network) -> dict[str, Law]:
    """The laws that apply to a network."""
    return {name: law for name, law in LAWS.items() if law.applies_to(network)}


def check_laws(
    network: Network,
    laws: Iterable[Law] | None = None,
    *,
    name: str = "",
    tolerance: float = TOLERANCE,
) -> Iterator[Result]:
    """Check laws one by one, by default all that apply, and yield their results.

    The network is not changed.
    """
    subject = Subject(network, name=name, tolerance=tolerance)
    for law in laws_for(network).values() if laws is None else laws:
        try:
            law(subject)
        except Exception as error:  # a network that cannot run also breaks the law
            yield Result(law, error)
        else:
            yield Result(law)
