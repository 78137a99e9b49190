"""Load and save folders of Hugging Face's `transformers`: GPT-2, BERT, Llama."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer import registry, text, weights
from glassformer.core.errors import GlassError
from glassformer.core.folder import new_folder, read_json, safe_join
from glassformer.formats.bert import BERT
from glassformer.formats.gpt2 import GPT2
from glassformer.formats.llama import LLAMA
from glassformer.formats.table import our_settings, our_tensors, their_settings, their_tensors
from glassformer.models.network import Network, PriorNetwork
from glassformer.text.subword import BPE, SubwordTokenizer, WordPiece
from glassformer.text.tokenizer import Tokenizer

CONFIG, TOKENIZER, INDEX = "config.json", "tokenizer.json", "model.safetensors.index.json"
GENERATION = "generation_config.json"
FAMILIES = {family.model: family for family in (GPT2, BERT, LLAMA)}


def load(
    path: Path, ignore: Sequence[str] = ()
) -> tuple[Network, Tokenizer | None, dict[str, Any]]:
    """Load a folder; `eos` in the returned task metadata lists the end-of-text ids.

    `ignore` lists name patterns of settings and tensors to skip.
    """
    theirs = read_json(safe_join(path, CONFIG))
    model_type = theirs.get("model_type") if isinstance(theirs, dict) else None
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise GlassError(
            f"{path / CONFIG}: unsupported model_type {model_type!r}: expected one of "
            f"{', '.join(FAMILIES)}"
        )
    family = FAMILIES[model_type]
    settings = our_settings(family, theirs, path / CONFIG, ignore)
    state: weights.State = {}
    for file in find_weight_files(path):
        state |= weights.read(file)
    ours = our_tensors(family, state, path, tied=settings.get("tied", True), ignore=ignore)
    name, inferred = family.find_model(ours) if family.find_model else (family.model, {})
    network = weights.build_with_weights(
        lambda: registry.build_model(name, settings | inferred), ours, path
    )
    return network, load_tokenizer(path), read_eos(path, theirs, settings["vocab"])


def read_eos(path: Path, theirs: dict[str, Any], vocab: int) -> dict[str, Any]:
    """Return `eos`, the end-of-text ids; the generation config takes precedence."""
    if (path / GENERATION).exists():
        generation = read_json(safe_join(path, GENERATION))
        if isinstance(generation, dict) and generation.get("eos_token_id") is not None:
            theirs = generation
    value = theirs.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    eos = [i for i in ids if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab]
    return {"eos": eos} if eos else {}


def find_weight_files(path: Path) -> list[Path]:
    """Return the single weight file, or the shards that the index lists."""
    if (path / weights.FILE).exists():
        return [safe_join(path, weights.FILE)]
    if (path / INDEX).exists():
        match read_json(safe_join(path, INDEX)):
            case {"weight_map": dict(shards)} if all(isinstance(s, str) for s in shards.values()):
                return [safe_join(path, name) for name in sorted(set(shards.values()))]
        raise GlassError(f"{path / INDEX} is corrupted: it has no weight_map")
    if any(path.glob("*.bin")):
        raise GlassError(
            f"{path} has weights in pickle files, which can run code: convert them to safetensors"
        )
    raise GlassError(f"{path} has no {weights.FILE}")


def load_tokenizer(path: Path) -> Tokenizer | None:
    """Load tokenizer.json, GPT-2's vocab.json and merges.txt, or BERT's vocab.txt; else None."""
    config = read_tokenizer_config(path)
    if (path / TOKENIZER).exists():
        return set_prefix(text.load(safe_join(path, TOKENIZER)), config)
    if (path / "vocab.json").exists() and (path / "merges.txt").exists():
        tokenizer = BPE.read(safe_join(path, "vocab.json"), safe_join(path, "merges.txt"))
        return set_prefix(tokenizer, config)
    if (path / "vocab.txt").exists():
        return WordPiece.read(safe_join(path, "vocab.txt"), **normalizer_options(config))
    return None


def read_tokenizer_config(path: Path) -> dict[str, Any]:
    """Return the settings in tokenizer_config.json; an empty dict if there is no such file."""
    file = path / "tokenizer_config.json"
    config = read_json(safe_join(path, file.name)) if file.exists() else {}
    if not isinstance(config, dict):
        raise GlassError(f"{file} is not a table of settings")
    return config


def set_prefix(tokenizer: Tokenizer, config: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer with or without a prefix of `bos_token`, as the config specifies."""
    match config:
        case {"add_bos_token": bool(add_bos), "bos_token": str(token) | {"content": str(token)}}:
            pass
        case _:
            return tokenizer
    if not isinstance(tokenizer, SubwordTokenizer) or token not in tokenizer.special_tokens:
        return tokenizer
    if add_bos == (tokenizer.prefix == [tokenizer.special_tokens[token]]):
        return tokenizer
    return tokenizer.with_prefix(token if add_bos else None)


def normalizer_options(config: dict[str, Any]) -> dict[str, bool]:
    """Return the options for case, accents and ideographs that a BERT tokenizer config sets."""
    names = {
        "do_lower_case": "lower",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "ideographs",
    }
    options = {ours: config[name] for name, ours in names.items() if config.get(name) is not None}
    if not all(isinstance(value, bool) for value in options.values()):
        raise GlassError(f"tokenizer_config.json: {', '.join(names)} must be true or false")
    return options


def exportable_models() -> list[str]:
    """Return the names of the models that this format supports."""
    return [name for family in FAMILIES.values() for name in family.ours]


def save(
    path: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    *,
    task: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a folder for `transformers`, atomically; from `task`, only `eos` is written."""
    name, eos = registry.model_name(network), (task or {}).get("eos", ())
    family = next((family for family in FAMILIES.values() if name in family.ours), None)
    if family is None:
        raise GlassError(
            f"cannot export {name} to Hugging Face: expected one of "
            f"{', '.join(exportable_models())}"
        )
    if isinstance(network, PriorNetwork) and network.prior:
        raise GlassError(
            "cannot export a prior to Hugging Face: remove it first with "
            "`glass convert --strip-prior` or `Model.strip_prior()`; expect a higher loss"
        )
    architecture = family.architecture(network.config)
    theirs = {
        "architectures": [architecture],
        "model_type": family.model,
        "dtype": "float32",
        "bos_token_id": tokenizer.prefix[0] if tokenizer and tokenizer.prefix else None,
        "eos_token_id": eos[0] if len(eos) == 1 else list(eos) or None,
        **their_settings(family, network.config),
    }
    with new_folder(path, overwrite=overwrite) as folder:
        (folder / CONFIG).write_text(json.dumps(theirs, indent=2) + "\n", encoding="utf-8")
        tensors = their_tensors(family, network.state_dict(), architecture)
        weights.write(tensors, folder / weights.FILE)
        if isinstance(tokenizer, SubwordTokenizer):
            (folder / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
            config = {"tokenizer_class": "PreTrainedTokenizerFast"}
            (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        elif tokenizer is not None:
            warnings.warn(
                f"left out the tokenizer: cannot export one of kind {tokenizer.kind!r} to "
                "Hugging Face",
                stacklevel=3,
            )
