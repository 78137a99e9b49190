"""What a training step costs: the memory of each part of a network, and the time of variants.

Activations are the values that the forward pass keeps for the backward pass. Checkpointing keeps
only the inputs of the blocks, and computes the rest again, one block at a time.
"""

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from glassformer.core.errors import GlassError
from glassformer.core.reporter import NullReporter
from glassformer.models.network import Network, Trait
from glassformer.nn.block import Block, CrossBlock
from glassformer.tasks.task import Batch, Task
from glassformer.training.autotune import Autotune, UnsupportedPrecisionError, bfloat16_ratio
from glassformer.training.settings import TrainingSettings
from glassformer.training.step import Step

BYTES = 4  # of a number in float32
GRIDS = 4  # of scores: before and after the softmax, and the gradients of both


def count_attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    return sdpa_flop_count(q, k, v)  # type: ignore[no-untyped-call]


def count_attention_backward(gradient: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
    return sdpa_backward_flop_count(gradient, q, k, v)  # type: ignore[no-untyped-call]


ATTENTION_FLOPS = {  # torch counts only the fused kernels of other devices
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: count_attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: count_attention_backward,
}


@dataclass(frozen=True)
class PartCost:
    """A part of the network: its parameters, and its activations for one batch in bytes."""

    name: str
    parameters: int
    activations: int


@dataclass(frozen=True)
class Variant:
    """A way to train: its activations at a time in bytes, and the time of a step in seconds."""

    name: str
    activations: int
    seconds: float


@dataclass(frozen=True)
class Cost:
    batch: tuple[int, int]  # rows and tokens; 0 tokens if the task does not read text
    parts: list[PartCost]
    optimizer: int  # bytes of the optimizer's state
    flops: int  # of all matrix products in a step, and of convolutions
    attention_grids: int  # bytes per layer if the scores of all heads were computed as a whole
    variants: list[Variant]


def measure_cost(network: Network, task: Task, settings: TrainingSettings) -> Cost:
    """Measure a training step of a network on a batch of its training data."""
    if network.has(Trait.FITTED):
        raise GlassError("the model was fitted directly, without training steps")
    settings = replace(settings, accumulate=1, precision="float32", checkpointing=False)
    batches = task.train_batches(network, settings.batch, settings.seed)
    batch = batches.at(0)
    tune = Autotune(network, task, batches, NullReporter())
    step = Step(copy.deepcopy(network).train(), task.objective, settings)
    with FlopCounterMode(display=False, custom_mapping=ATTENTION_FLOPS) as counter:
        step(batch, 0.0, 0)  # also creates the optimizer's state
    kept = count_activations(step, batch)
    rows = len(next(iter(batch.values())))
    tokens = batch["ids"].shape[1] if "ids" in batch else 0
    heads = getattr(network.config, "heads", 0)
    return Cost(
        batch=(rows, tokens),
        parts=list_parts(network, kept),
        optimizer=count_optimizer_state(step),
        flops=counter.get_total_flops(),
        attention_grids=grid_bytes(rows * heads, tokens),
        variants=list(measure_variants(step, batch, kept, tune)),
    )


def measure_variants(
    step: Step, batch: Batch, kept: Counter[str], tune: Autotune
) -> Iterator[Variant]:
    """Yield the ways to train that this machine supports; `kept` are the activations of `step`."""
    settings = step.settings
    total = sum(kept.values())
    yield Variant("float32", total, tune.time_step(settings, rounds=3))
    half = replace(settings, precision="bfloat16")
    with contextlib.suppress(UnsupportedPrecisionError):
        is_slow = bfloat16_ratio(step.network) > 1  # then a step can take a hundred times as long
        seconds = tune.time_step(half, rounds=1 if is_slow else 3)
        half_step = Step(copy.deepcopy(step.network), step.objective, half)
        yield Variant("bfloat16", sum(count_activations(half_step, batch).values()), seconds)
    count = min(4, len(next(iter(batch.values()))))
    seconds = tune.time_step(replace(settings, accumulate=count), rounds=3)
    yield Variant(f"{count} micro-batches", total // count, seconds)
    by_block = Counter[str]()
    for path, size in kept.items():
        by_block[block_of(step.network, path)] += size
    outside = by_block.pop("", 0)
    inputs = count_block_inputs(step, batch)
    checkpointed = outside + inputs + max(by_block.values(), default=0)
    seconds = tune.time_step(replace(settings, checkpointing=True), rounds=3)
    yield Variant("checkpointing", checkpointed, seconds)


def count_optimizer_state(step: Step) -> int:
    """The bytes of the state of the optimizers."""
    states = [state for optimizer in step.optimizers.values() for state in optimizer.state.values()]
    tensors = [value for state in states for value in state.values() if isinstance(value, Tensor)]
    return sum(value.nbytes for value in tensors)


def grid_bytes(grids: int, tokens: int) -> int:
    """Bytes of the grids of scores of one layer, tokens x tokens each, with their gradients."""
    return GRIDS * grids * tokens**2 * BYTES


def list_parts(network: Network, activations: Counter[str]) -> list[PartCost]:
    """The costs of the children of the network, where those in a list of blocks are summed by kind.

    For example, all attention layers are one part.
    """
    parameters = Counter[str]()
    sizes = Counter[str]()
    for path, parameter in network.named_parameters():
        parameters[part_of(network, path)] += parameter.numel()
    for path, size in activations.items():
        sizes[part_of(network, path)] += size
    names = list(dict.fromkeys((*parameters, *sizes)))
    return [PartCost(name, parameters[name], sizes[name]) for name in names]


def part_of(network: Network, path: str) -> str:
    """The part that a module or parameter belongs to: `blocks.0.attention.query` -> attention."""
    for stack in network.stacks:
        if path.startswith(f"{stack}."):
            _, _, inner = path.removeprefix(f"{stack}.").partition(".")
            return inner.partition(".")[0] or "residual"
    return path.partition(".")[0] or "output"


def block_of(network: Network, path: str) -> str:
    """The path of the block that a module is in; empty if it is in none."""
    for stack in network.stacks:
        if path.startswith(f"{stack}."):
            return ".".join(path.split(".")[: stack.count(".") + 2])
    return ""


def count_activations(step: Step, batch: Batch) -> Counter[str]:
    """The bytes that a forward pass keeps for the backward pass, by the path of the module."""
    sizes = Counter[str]()
    seen = set[int]()
    running = [""]
    weights = {p.untyped_storage().data_ptr() for p in step.network.parameters()}

    def pack(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights | seen:
            seen.add(storage.data_ptr())
            sizes[running[-1]] += storage.nbytes()
        return value

    with (
        track_modules(step.network, running),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value),
    ):
        (micro_batch,) = step.make_loss_generators(batch, 1)
        losses = list(micro_batch)  # the graph, and with it all storages, stay alive until here
    del losses
    return sizes


@contextlib.contextmanager
def track_modules(network: nn.Module, running: list[str]) -> Iterator[None]:
    """Keep the paths of the running modules, innermost last, in a list."""
    hooks = list[Any]()
    paths = {id(module): path for path, module in network.named_modules()}

    def enter(module: nn.Module, _inputs: object) -> None:
        running.append(paths[id(module)])

    def leave(_module: nn.Module, _inputs: object, _output: object) -> None:
        running.pop()

    for module in network.modules():
        hooks.append(module.register_forward_pre_hook(enter))
        hooks.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def count_block_inputs(step: Step, batch: Batch) -> int:
    """The bytes of the inputs of all blocks, which checkpointing keeps."""
    sizes = list[int]()

    def record(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
        sizes.append(sum(x.nbytes for x in inputs if isinstance(x, Tensor)))

    blocks = [m for m in step.network.modules() if isinstance(m, Block | CrossBlock)]
    hooks = [block.register_forward_pre_hook(record) for block in blocks]
    (losses,) = step.make_loss_generators(batch, 1)
    for _ in losses:
        pass
    for hook in hooks:
        hook.remove()
    return sum(sizes)
