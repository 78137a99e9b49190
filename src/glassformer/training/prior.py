"""Decide whether a run fits a prior, and fit it before the first step."""

import time

from glassformer import registry
from glassformer.core.errors import GlassError
from glassformer.core.reporter import Reporter
from glassformer.models.network import LanguageModel, Network, PriorNetwork
from glassformer.tasks.task import Task
from glassformer.training.fitting import fit, limit_seconds
from glassformer.training.settings import TrainingSettings

MAX_BUDGET_FRACTION = 0.2  # the time limit for fitting a prior, as a fraction of a time budget


def should_fit_prior(network: Network, task: Task, settings: TrainingSettings) -> bool:
    """Whether the run has a prior of its own.

    LoRA keeps the prior of the base model as it is, and a network that is not a `PriorNetwork`
    cannot have one.
    """
    if settings.prior is False or settings.lora or task.spec.fit_prior is None:
        return False
    if settings.prior and not isinstance(network, PriorNetwork):
        name = registry.model_name(network)
        raise GlassError(f"{name} cannot have a prior: leave out train.prior")
    return isinstance(network, PriorNetwork)


def fit_prior(
    network: Network,
    base: Network | None,
    task: Task,
    settings: TrainingSettings,
    reporter: Reporter,
) -> tuple[Network, float] | None:
    """Attach a prior to the network and fit it; return what `TaskSpec.fit_prior` returns.

    `base` is the model being fine-tuned; the trained weights of its prior are the starting point.
    """
    assert isinstance(network, PriorNetwork)
    assert task.spec.fit_prior is not None
    start_time = time.monotonic()
    if isinstance(network, LanguageModel) and isinstance(base, LanguageModel) and base.prior_config:
        network.attach_prior(base.prior_config)
    max_seconds = limit_seconds(settings, MAX_BUDGET_FRACTION)
    fitted = task.spec.fit_prior(
        task.dataset, network, lambda baseline: fit(task, baseline, max_seconds)
    )
    prior = network.prior
    seconds = time.monotonic() - start_time
    assert prior is not None
    if base is not None:
        prior.start_from(base.prior if isinstance(base, PriorNetwork) else None)
    reporter(f"prior: {prior.describe()}, fitted in {seconds:.1f} s")
    return fitted
