"""Model folders: config, tokenizer, weights, and a manifest with their checksums.

Long lists in the metadata of the task, such as the titles of items, are in a file of their own. If
only an adapter was trained, the folder holds the adapter's weights, and the config has the path to
the base model.
"""

import json
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
    read_json,
    safe_join,
    verify_manifest,
    wrap_read_errors,
    write_manifest,
)
from glassformer.formats import huggingface, llama2c, onnx
from glassformer.models.network import Network, PriorNetwork, Trait
from glassformer.nn.lora import add_lora, merge_lora
from glassformer.text.bilingual import Bilingual
from glassformer.text.tokenizer import Tokenizer

CONFIG = "config.toml"
TOKENIZER = "tokenizer.json"
ADAPTER = "adapter.safetensors"
LISTS = "lists.json"  # the long lists in the metadata of the task
MAX_LIST_LENGTH = 10_000  # characters of a list as JSON that is in the config
BEST, LAST = "best", "last"  # in a run: weights to use, and weights to resume from
MAX_ADAPTER_DEPTH = 8  # maximum number of stacked adapters
MAX_ADAPTER_RANK = 4096

LoadedModel = tuple[Network, Tokenizer | None, dict[str, Any]]


@dataclass(frozen=True)
class Adapter:
    """A trained adapter for a frozen base model."""

    rank: int
    base: str  # path to the base model
    sha256: str  # of the base model's weights


def save(
    path: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    *,
    task: dict[str, Any] | None = None,
    adapter: tuple[Adapter, Sequence[str]] | None = None,
    write_extra: Callable[[Path], None] = lambda _: None,
    overwrite: bool = False,
) -> None:
    """Write a model folder atomically.

    `task` is the metadata of the model's task. With `adapter`, only the tensors that it lists are
    written. `write_extra` may write further files, which the manifest includes. An existing folder
    is replaced only with `overwrite`, and only if it is a model folder.
    """
    settings = {"name": registry.model_name(network), **config.to_dict(network.config)}
    short, long = split_lists(task or {})
    tables: dict[str, Any] = {"model": settings} | ({"task": short} if task else {})
    if isinstance(network, PriorNetwork) and network.prior_config and adapter is None:
        tables["prior"] = asdict(network.prior_config)
    state, file = network.state_dict(), weights.FILE
    if adapter is not None:
        tables["adapter"] = asdict(adapter[0])
        state = {name: state[name] for name in adapter[1]}
        file = ADAPTER
    with new_folder(path, overwrite=overwrite) as folder:
        (folder / CONFIG).write_text(config.to_toml(tables), encoding="utf-8")
        if tokenizer is not None:
            (folder / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
        if long:
            (folder / LISTS).write_text(json.dumps(long, ensure_ascii=False), encoding="utf-8")
        weights.write(state, folder / file)
        write_extra(folder)
        write_manifest(folder)


def split_lists(task: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the metadata of a task into what is in the config and its long lists."""
    long = {
        name: value
        for name, value in task.items()
        if isinstance(value, list) and len(json.dumps(value)) > MAX_LIST_LENGTH
    }
    return {name: value for name, value in task.items() if name not in long}, long


def read_lists(path: Path) -> dict[str, list[Any]]:
    """Return the long lists in the metadata of a task, by name."""
    lists = read_json(path)
    if not isinstance(lists, dict) or not all(isinstance(x, list) for x in lists.values()):
        raise GlassError(f"{path} is corrupted: expected lists by name")
    return lists


def exportable_models() -> list[str]:
    """Return the names of the models that this format supports: all of them."""
    return list(registry.MODELS)


def load(path: Path, *, merge_adapter: bool = True, depth: int = 0) -> LoadedModel:
    """Verify the checksums of a model folder and load it.

    Returns the network, the tokenizer, and the metadata of the task. An adapter is merged into the
    weights unless `merge_adapter` is false. `depth` counts the stacked adapters followed so far.
    """
    with wrap_read_errors(path):
        names = verify_manifest(path)
        file = ADAPTER if ADAPTER in names else weights.FILE
        for required in (CONFIG, file):
            if required not in names:
                raise GlassError(f"{path} is corrupted: its manifest does not list {required}")
        tables = config.read_toml(safe_join(path, CONFIG))
        settings = tables.get("model")
        task = tables.get("task", {})
        if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
            raise GlassError(f"{path / CONFIG} has no model name")
        if not isinstance(task, dict):
            raise GlassError(f"{path / CONFIG}: expected task to be a table, got {task!r}")
        task |= read_lists(safe_join(path, LISTS)) if LISTS in names else {}
        name = settings.pop("name")
        state = weights.read(safe_join(path, file))
        if file == ADAPTER and (adapter := read_adapter(path)):
            network = build_with_adapter(adapter, name, settings, state, path, depth)
            if merge_adapter:
                merge_lora(network)
        else:
            network = weights.build_with_weights(
                lambda: build(name, settings, tables.get("prior")), state, path / weights.FILE
            )
        tokenizer = text.load(safe_join(path, TOKENIZER)) if TOKENIZER in names else None
    return check_consistency(path, network, tokenizer, task)


def build(name: str, settings: dict[str, Any], prior: Any) -> Network:
    """Build a network from the tables of its config; `prior` is None if it has no prior."""
    network = registry.build_model(name, settings)
    if prior is not None:
        if not isinstance(network, PriorNetwork) or not isinstance(prior, dict):
            raise GlassError(f"{name} cannot have the prior {prior!r}")
        network.attach_prior(config.from_dict(network.prior_config_type, prior, "prior."))
    return network


def check_consistency(
    path: Path, network: Network, tokenizer: Tokenizer | None, task: dict[str, Any]
) -> LoadedModel:
    """Return the three arguments; raise GlassError if they are inconsistent.

    Special tokens without an embedding are removed from the tokenizer.
    """
    if tokenizer is not None and "ids" not in network.forward_inputs:
        raise GlassError(f"{path} has a tokenizer, but its model does not read text")
    if isinstance(tokenizer, Bilingual):
        if (source_rows := getattr(network.config, "source_vocab", None)) is None:
            raise GlassError(f"{path} has two tokenizers, but its network has one vocabulary")
        check_vocabulary(path, tokenizer.source, source_rows)
        check_vocabulary(path, tokenizer.target, network.config.vocab)
    elif tokenizer is not None:
        check_vocabulary(path, tokenizer, network.vocab)
    if not isinstance(name := task.get("name", ""), str):
        raise GlassError(f"{path}: expected the name of a task, got {name!r}")
    eos = task.get("eos", [])
    if not isinstance(eos, list) or not all(isinstance(id, int) for id in eos):
        raise GlassError(f"{path}: expected eos to be a list of ids, got {eos!r}")
    for name in ("users", "items"):
        known = task.get(name)
        expected = getattr(network.config, name, None)
        if isinstance(known, list) and expected is not None and len(known) != expected:
            raise GlassError(
                f"{path} has {len(known)} {name}, but its network has {expected} of them"
            )
    if (labels := task.get("labels")) is None:
        return network, tokenizer, task
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise GlassError(f"{path}: expected labels to be a list of strings")
    if network.traits.isdisjoint({Trait.CLASSIFIER, Trait.PAINTER}):
        raise GlassError(f"{path} has labels, but its network is not a classifier")
    if len(labels) != (classes := network.config.classes):
        raise GlassError(f"{path} has {len(labels)} labels, but its network has {classes} classes")
    return network, tokenizer, task


def check_vocabulary(path: Path, tokenizer: Tokenizer, rows: int) -> None:
    """Raise GlassError if a token other than a special token has no row in an embedding.

    Such special tokens are removed from the tokenizer.
    """
    if tokenizer.vocab <= rows:
        return
    extra = {id for id in tokenizer.special_tokens.values() if id >= rows}
    if len(extra) < tokenizer.vocab - rows or extra.intersection(tokenizer.prefix):
        raise GlassError(
            f"{path}: the tokenizer has {tokenizer.vocab:,} tokens, the network only {rows:,}"
        )
    for name in [name for name, id in tokenizer.special_tokens.items() if id >= rows]:
        del tokenizer.special_tokens[name]


def average(paths: Sequence[Path], out: Path, *, overwrite: bool = False) -> None:
    """Write a model with the mean weights of several runs (from `last/`) or model folders."""
    models = [load(find_subfolder(path, LAST) or path) for path in paths]
    network, tokenizer, task = models[0]
    first = network.state_dict()
    if network.has(Trait.FITTED):
        raise GlassError(
            f"cannot average {paths[0]}: it is a count-based model, which has no trained weights"
        )
    for path, (other, other_tokenizer, other_task) in zip(paths, models, strict=True):
        if other.config != network.config or registry.model_name(other) != registry.model_name(
            network
        ):
            raise GlassError(f"cannot average {path} and {paths[0]}: their models differ")
        if other_task.get("labels") != task.get("labels"):
            raise GlassError(f"cannot average {path} and {paths[0]}: their labels differ")
        if (other_tokenizer and other_tokenizer.to_json()) != (tokenizer and tokenizer.to_json()):
            raise GlassError(f"cannot average {path} and {paths[0]}: their tokenizers differ")
    states = [other.state_dict() for other, _, _ in models]
    for path, state in zip(paths, states, strict=True):
        if state.keys() != first.keys() or not all(
            torch.equal(state[n], v) for n, v in first.items() if not v.is_floating_point()
        ):
            raise GlassError(f"cannot average {path} and {paths[0]}: their priors differ")
    mean = {name: torch.stack([s[name].double() for s in states]).mean(dim=0) for name in first}
    network.load_state_dict({name: value.to(first[name].dtype) for name, value in mean.items()})
    save(out, network, tokenizer, task=task, overwrite=overwrite)


def read_adapter(path: Path) -> Adapter | None:
    """Return the adapter table in a model folder's config, or None if it has none."""
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
    """Return the base network with the adapter added, not merged; only the adapter is trainable."""
    base = Path(adapter.base)
    if not 0 < adapter.rank <= MAX_ADAPTER_RANK or base.resolve() == path.resolve():
        raise GlassError(f"{path / CONFIG} is corrupted: the adapter's rank or base is invalid")
    if depth >= MAX_ADAPTER_DEPTH:
        raise GlassError(f"{path}: more than {MAX_ADAPTER_DEPTH} adapters are stacked")
    if not base.exists():
        raise GlassError(f"{path} is an adapter for {base}, which does not exist")
    if hash_weights(base) != adapter.sha256:
        raise GlassError(f"{path} is an adapter for {base}, whose weights have changed")
    network = registry.build_model(name, settings)
    base_network, _, _ = open_model(base, depth=depth + 1)
    load_matching(network, base_network.state_dict())
    if isinstance(network, PriorNetwork):
        network.share_prior(base_network)
    add_lora(network, network.stacks, adapter.rank)
    expected = dict(network.named_parameters())
    for key, value in state.items():
        if key not in expected or expected[key].shape != value.shape:
            raise GlassError(f"{path / ADAPTER}: {key} does not match the model")
    network.load_state_dict(state, strict=False)
    for key, parameter in network.named_parameters():
        parameter.requires_grad_(key in state)
    return network.eval()


def hash_weights(path: Path) -> str:
    """Return the checksums of a model's weight files."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return " ".join(map(hash_file, files))


@torch.no_grad()
def load_matching(
    network: Network, state: weights.State, *, exclude: Sequence[str] = ()
) -> list[str]:
    """Copy every tensor that fits, except those in the modules named in `exclude`.

    Returns the names of the tensors that were not copied. A classifier takes its backbone from
    a language model. In embeddings and heads, rows present in both are copied; new rows are set to
    the mean of the old ones.
    """
    skipped = []
    tables = tuple(f"{name}." for name in (*network.embeddings, *network.output_heads))
    for name, value in network.state_dict().items():
        old = state.get(name, state.get(name.removeprefix("body.")))
        if name.startswith(tuple(f"{module}." for module in exclude)):
            old = None
        if old is not None and old.shape == value.shape:
            value.copy_(old)
        elif old is not None and name.startswith(tables) and old.shape[1:] == value.shape[1:]:
            value.copy_(old.mean(dim=0).expand_as(value))
            common = min(len(old), len(value))
            value[:common] = old[:common]
        else:
            skipped.append(name)
    return skipped


def open_model(
    path: Path, ignore: Sequence[str] = (), *, tokenizer: Path | None = None, depth: int = 0
) -> LoadedModel:
    """Load a run, a model folder, a Hugging Face folder or a llama2.c file.

    For a run, loads `best/` if it exists, otherwise `last/`. `ignore` lists settings and tensors in
    a Hugging Face folder to skip. `tokenizer` is the tokenizer file for a llama2.c file.
    """
    with wrap_read_errors(path):
        if path.is_file():
            return check_consistency(path, *llama2c.load(path, tokenizer))
        if not path.is_dir():
            raise GlassError(f"{path} does not exist")
        if tokenizer is not None:
            raise GlassError(
                f"{path} is a folder: a tokenizer can be given only for a llama2.c file"
            )
        if ignore and not (path / huggingface.CONFIG).exists():
            raise GlassError(f"{path} is not a Hugging Face folder: `ignore` does not apply")
        for name, other in ((BEST, LAST), (LAST, BEST)):
            if inner := find_subfolder(path, name):
                try:
                    return load(inner, depth=depth)
                except GlassError as error:
                    hint = f"; {path / other} may be intact" if find_subfolder(path, other) else ""
                    raise GlassError(f"{error}{hint}") from None
        if (path / CONFIG).exists():
            return load(path, depth=depth)
        if (path / onnx.MODEL).exists() and not (path / weights.FILE).exists():
            raise GlassError(
                f"{path} is an ONNX model, for use with ONNX Runtime: load the folder that it was "
                "exported from"
            )
        if (path / huggingface.CONFIG).exists():
            return check_consistency(path, *huggingface.load(path, ignore))
        raise GlassError(
            f"{path} is not a model folder: it has neither {CONFIG} nor {huggingface.CONFIG}"
        )
