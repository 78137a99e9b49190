"""A folder that holds a model: config, tokenizer, weights, and a manifest of the three.

Where only an adapter was trained, the weights are those of the adapter, and the config says where
the model is that it was trained for.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from glassformer import registry, text, weights
from glassformer.core import config
from glassformer.core.errors import GlassError
from glassformer.core.folder import (
    find_subfolder,
    hash_file,
    new_folder,
    safe_join,
    verify_manifest,
    wrap_read_errors,
    write_manifest,
)
from glassformer.formats import huggingface, llama2c
from glassformer.models.network import Network, Trait
from glassformer.nn.lora import add_lora, merge_lora
from glassformer.text.tokenizer import Tokenizer

CONFIG, TOKENIZER, ADAPTER = "config.toml", "tokenizer.json", "adapter.safetensors"
BEST, LAST = "best", "last"  # of a run: the weights to use, and those to go on from
MAX_ADAPTER_DEPTH = 8  # adapters on adapters

LoadedModel = tuple[Network, Tokenizer | None, dict[str, Any]]


@dataclass(frozen=True)
class Adapter:
    """What was trained beside a model that stays as it is."""

    rank: int
    base: str  # the model's folder
    sha256: str  # of its weights


def save(
    path: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    *,
    task: dict[str, Any] | None = None,
    adapter: tuple[Adapter, Sequence[str]] | None = None,
    more: Callable[[Path], None] = lambda _: None,
    overwrite: bool = False,
) -> None:
    """Write the folder, whole or not at all; `more` may write further files into it.

    Of a network with an adapter only the named tensors are written.
    """
    settings = {"name": registry.model_name(network), **config.to_dict(network.config)}
    tables: dict[str, Any] = {"model": settings} | ({"task": task} if task else {})
    state, file = network.state_dict(), weights.FILE
    if adapter is not None:
        tables["adapter"] = asdict(adapter[0])
        state, file = {name: state[name] for name in adapter[1]}, ADAPTER
    with new_folder(path, overwrite=overwrite) as folder:
        (folder / CONFIG).write_text(config.to_toml(tables), encoding="utf-8")
        if tokenizer is not None:
            (folder / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        weights.write(state, folder / file)
        more(folder)
        write_manifest(folder)


def exportable_models() -> list[str]:
    """The models that such a folder can hold: all of them."""
    return list(registry.MODELS)


def load(path: Path, *, merged: bool = True, depth: int = 0) -> LoadedModel:
    """Read the folder, after each of its files was found to be what was saved.

    Gives the network, the tokenizer, and what the task that it was trained for needs to know. An
    adapter becomes part of the network's weights, unless it is to stay beside them; `depth` is how
    many adapters were opened on the way here.
    """
    with wrap_read_errors(path):
        names = verify_manifest(path)
        file = ADAPTER if ADAPTER in names else weights.FILE
        for needed in (CONFIG, file):
            if needed not in names:
                raise GlassError(f"{path} is damaged: its manifest does not list {needed}")
        tables = config.read_toml(safe_join(path, CONFIG))
        settings, task = tables.get("model"), tables.get("task", {})
        if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
            raise GlassError(f"{path / CONFIG} names no model")
        if not isinstance(task, dict):
            raise GlassError(f"{path / CONFIG}: task must be a table of settings, not {task!r}")
        name = settings.pop("name")
        state = weights.read(safe_join(path, file))
        if file == ADAPTER and (adapter := read_adapter(path)):
            network = build_with_adapter(adapter, name, settings, state, path, depth)
            if merged:
                merge_lora(network)
        else:
            network = weights.build_with_weights(
                lambda: registry.build_model(name, settings), state, path / weights.FILE
            )
        tokenizer = text.load(safe_join(path, TOKENIZER)) if TOKENIZER in names else None
    return check_consistency(path, network, tokenizer, task)


def check_consistency(
    path: Path, network: Network, tokenizer: Tokenizer | None, task: dict[str, Any]
) -> LoadedModel:
    """The three as they are; an error where one of them does not fit another."""
    if tokenizer is not None and tokenizer.vocab > (rows := network.vocab):
        marks = {id for id in tokenizer.special_tokens.values() if id >= rows}
        if len(marks) < tokenizer.vocab - rows or marks.intersection(tokenizer.prefix):
            raise GlassError(
                f"{path}: the tokenizer has {tokenizer.vocab:,} tokens, the network only {rows:,}"
            )
        for name in [name for name, id in tokenizer.special_tokens.items() if id >= rows]:
            del tokenizer.special_tokens[
                name
            ]  # no text becomes one, and the network does not know it
    eos = task.get("eos", [])
    if not isinstance(eos, list) or not all(isinstance(id, int) for id in eos):
        raise GlassError(f"{path}: eos must be a list of ids, not {eos!r}")
    if (labels := task.get("labels")) is None:
        return network, tokenizer, task
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise GlassError(f"{path}: labels must be a list of texts")
    if not network.has(Trait.CLASSIFIER):
        raise GlassError(f"{path}: it has labels, but its network is not a classifier")
    if len(labels) != (classes := network.config.classes):
        raise GlassError(f"{path}: there are {len(labels)} labels, and {classes} classes")
    return network, tokenizer, task


def average(paths: Sequence[Path], out: Path, *, overwrite: bool = False) -> None:
    """Write a model whose weights are the mean of those in `last/` of runs, or of folders."""
    opened = [load(find_subfolder(path, LAST) or path) for path in paths]
    network, tokenizer, task = opened[0]
    first = network.state_dict()
    if network.has(Trait.FITTED):
        raise GlassError(f"{paths[0]} learnt in one go: counts have no mean")
    for path, (other, words, found) in zip(paths, opened, strict=True):
        if other.config != network.config or registry.model_name(other) != registry.model_name(
            network
        ):
            raise GlassError(f"{path} holds another model than {paths[0]}: they have no mean")
        if found.get("labels") != task.get("labels"):
            raise GlassError(f"{path} has other labels than {paths[0]}: they have no mean")
        if (words and words.to_json()) != (tokenizer and tokenizer.to_json()):
            raise GlassError(f"{path} has another tokenizer than {paths[0]}")
    states = [other.state_dict() for other, _, _ in opened]
    mean = {name: torch.stack([s[name].double() for s in states]).mean(dim=0) for name in first}
    network.load_state_dict({name: value.to(first[name].dtype) for name, value in mean.items()})
    save(out, network, tokenizer, task=task, overwrite=overwrite)


def read_adapter(path: Path) -> Adapter | None:
    """The adapter that a folder holds, if it holds one."""
    table = config.read_toml(path / CONFIG).get("adapter")
    return None if table is None else config.from_dict(Adapter, table, "adapter.")


def build_with_adapter(
    adapter: Adapter,
    name: str,
    settings: dict[str, Any],
    state: weights.State,
    path: Path,
    depth: int,
) -> Network:
    """The network that an adapter was trained for, with the adapter beside its weights."""
    base = Path(adapter.base)
    if not 0 < adapter.rank <= 4096 or base.resolve() == path.resolve():
        raise GlassError(f"{path / CONFIG} is no adapter: its rank or base makes no sense")
    if depth >= MAX_ADAPTER_DEPTH:
        raise GlassError(f"{path}: more than {MAX_ADAPTER_DEPTH} adapters are built on each other")
    if not base.exists():
        raise GlassError(f"{path} is an adapter for the model in {base}, which is not there")
    if hash_weights(base) != adapter.sha256:
        raise GlassError(f"{path} is an adapter for the model that was in {base}, which changed")
    network = registry.build_model(name, settings)
    load_matching(network, open_model(base, depth=depth + 1)[0].state_dict())
    add_lora(network, network.stacks, adapter.rank)
    wanted = network.state_dict()
    for key, value in state.items():
        if key not in wanted or wanted[key].shape != value.shape:
            raise GlassError(f"{path / ADAPTER}: {key} has no place in the model")
    network.load_state_dict(state, strict=False)
    for key, parameter in network.named_parameters():
        parameter.requires_grad_(key in state)
    return network.eval()


def hash_weights(path: Path) -> str:
    """What tells a model's weights from any others."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return " ".join(map(hash_file, files))


@torch.no_grad()
def load_matching(network: Network, state: weights.State, *, but: Sequence[str] = ()) -> list[str]:
    """Take over every tensor that fits, except those of the modules `but`; returns the names of
    those that start anew.

    A classifier takes its body from a language model. Of tables of tokens and positions the common
    rows are taken over; further rows start from their mean.
    """
    anew = []
    tables = tuple(f"{name}." for name in (*network.embeddings, *network.heads))
    for name, value in network.state_dict().items():
        old = state.get(name, state.get(name.removeprefix("body.")))
        if name.startswith(tuple(f"{module}." for module in but)):
            old = None
        if old is not None and old.shape == value.shape:
            value.copy_(old)
        elif old is not None and name.startswith(tables) and old.shape[1:] == value.shape[1:]:
            value.copy_(old.mean(dim=0).expand_as(value))
            common = min(len(old), len(value))
            value[:common] = old[:common]
        else:
            anew.append(name)
    return anew


def open_model(
    path: Path, ignore: Sequence[str] = (), *, tokenizer: Path | None = None, depth: int = 0
) -> LoadedModel:
    """Any model: a run or folder of ours, a Hugging Face folder, or a llama2.c file."""
    with wrap_read_errors(path):
        if path.is_file():
            return check_consistency(path, *llama2c.load(path, tokenizer))
        if not path.is_dir():
            raise GlassError(f"there is no folder {path}")
        if tokenizer is not None:
            raise GlassError(f"{path} is a folder; a tokenizer is given only with a llama2.c file")
        if ignore and not (path / huggingface.CONFIG).exists():
            raise GlassError(f"{path} is a folder of ours: in it nothing is ignored")
        for name, other in ((BEST, LAST), (LAST, BEST)):
            if inner := find_subfolder(path, name):
                try:
                    return load(inner, depth=depth)
                except GlassError as error:
                    also = f"; {path / other} may be whole" if find_subfolder(path, other) else ""
                    raise GlassError(f"{error}{also}") from None
        if (path / CONFIG).exists():
            return load(path, depth=depth)
        if (path / huggingface.CONFIG).exists():
            return check_consistency(path, *huggingface.load(path, ignore))
        wanted = f"{CONFIG} (ours) or {huggingface.CONFIG} (Hugging Face)"
        raise GlassError(f"{path} holds no model: it has no {wanted}")
