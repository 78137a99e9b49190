"""The check of a model before it is exported to another library's format."""

from collections.abc import Sequence

from glassformer.core.errors import GlassError
from glassformer.models.network import Network, PriorNetwork
from glassformer.registry import model_name


def check_exportable(
    network: Network, format: str, models: Sequence[str], alternative: str = ""
) -> str:
    """Return the name of a model; raise `GlassError` if it is not in `models`, or has a prior.

    `alternative` is another way to export the model, for the error message.
    """
    name = model_name(network)
    if name not in models:
        raise GlassError(
            f"cannot export {name} to {format}: train one of {', '.join(models)} instead "
            f"(--model){alternative}"
        )
    if isinstance(network, PriorNetwork) and network.prior:
        raise GlassError(
            f"cannot export a prior to {format}: remove it first with "
            "`glass convert --strip-prior` or `Model.strip_prior()`; expect a higher loss"
        )
    return name
