"""Load and save folders of Hugging Face's `transformers`: GPT-2, BERT, Llama."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer import registry, text, weights
from glassformer.core.errors import GlassError
from glassformer.core.folder import new_folder, read_json, safe_join
from glassformer.formats.bert import BERT
from glassformer.formats.exportable import check_exportable
from glassformer.formats.gpt2 import GPT2
from glassformer.formats.llama import LLAMA
from glassformer.formats.table import our_settings, our_tensors, their_settings, their_tensors
from glassformer.formats.tokenizer_json import FILE as TOKENIZER
from glassformer.formats.tokenizer_json import write_tokenizer
from glassformer.models.network import Network, Trait
from glassformer.text.subword import BPE, SubwordTokenizer, WordPiece
from glassformer.text.tokenizer import Tokenizer, clean, find_eos

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
GENERATION = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
PAD, BOS = "[PAD]", ("<s>", "<|endoftext|>")
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
TOKEN_ROLES = {
    "[UNK]": "unk_token",
    "<unk>": "unk_token",
    "[CLS]": "cls_token",
    "[SEP]": "sep_token",
    "[MASK]": "mask_token",
}
FAMILIES = {family.model: family for family in (GPT2, BERT, LLAMA)}


def load(
    path: Path, ignore: Sequence[str] = ()
) -> tuple[Network, Tokenizer | None, dict[str, Any]]:
    """Load a folder; the returned task metadata has the end-of-text ids and the labels, if any.

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
    task = read_eos(path, theirs, settings["vocab"]) | read_labels(network, theirs)
    return network, load_tokenizer(path), task


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


def read_labels(network: Network, theirs: dict[str, Any]) -> dict[str, Any]:
    """Return `labels`, the names of a classifier's classes in order, if the config has them.

    `multi_label` is true if a text can have several of them.
    """
    names = theirs.get("id2label")
    if not network.has(Trait.CLASSIFIER) or not isinstance(names, dict):
        return {}
    labels = [clean(str(names.get(str(i), i))) for i in range(network.config.classes)]
    if len(set(labels)) < len(labels):
        return {}
    has_several = theirs.get("problem_type") == MULTI_LABEL
    return {"labels": labels} | ({"multi_label": True} if has_several else {})


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
    file = path / TOKENIZER_CONFIG
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
    """Write a folder for `transformers`, atomically; `task` may have `eos` and `labels`."""
    alternative = ""
    if Trait.COMPILABLE in type(network).traits:
        alternative = "; or export this one with `--to onnx`"
    name = check_exportable(network, "Hugging Face", exportable_models(), alternative)
    family = next(family for family in FAMILIES.values() if name in family.ours)
    architecture = family.architecture(network.config)
    token_ids = special_ids(network, tokenizer, task or {})
    theirs = {
        "architectures": [architecture],
        "model_type": family.model,
        "dtype": "float32",
        **token_ids,
        **label_settings(network, task or {}),
        **their_settings(family, network.config),
    }
    with new_folder(path, overwrite=overwrite) as folder:
        write_json(folder / CONFIG, theirs)
        if network.has(Trait.CAUSAL_LM):
            write_json(folder / GENERATION, token_ids)
        tensors = their_tensors(family, network.state_dict(), architecture)
        weights.write(tensors, folder / weights.FILE)
        if write_tokenizer(folder, tokenizer) and tokenizer is not None:
            write_json(folder / TOKENIZER_CONFIG, tokenizer_settings(network, tokenizer, token_ids))


def write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def special_ids(
    network: Network, tokenizer: Tokenizer | None, task: dict[str, Any]
) -> dict[str, Any]:
    """The ids of the special tokens, by their names in a config.

    They are None where a language model has none: without them, `transformers` would use the ids
    of the published models. It pads with the end-of-text token, as there is none for padding.
    """
    special = tokenizer.special_tokens if tokenizer else {}
    if not network.has(Trait.CAUSAL_LM):
        return {"pad_token_id": special[PAD]} if PAD in special else {}
    eos = find_eos(tokenizer, task)
    bos = [*(tokenizer.prefix if tokenizer else ()), *(special[t] for t in BOS if t in special)]
    return {
        "bos_token_id": next(iter(bos), None),
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
        "pad_token_id": next(iter(eos), None),
    }


def label_settings(network: Network, task: dict[str, Any]) -> dict[str, Any]:
    """The names of the classes of a classifier; an empty dict for other networks.

    There is no setting for the temperature that calibrates the probabilities: it is left out.
    """
    if not network.has(Trait.CLASSIFIER):
        return {}
    labels = task.get("labels") or [f"LABEL_{i}" for i in range(network.config.classes)]
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "problem_type": MULTI_LABEL if task.get("multi_label") else SINGLE_LABEL,
    }


def tokenizer_settings(
    network: Network, tokenizer: Tokenizer, token_ids: dict[str, Any]
) -> dict[str, Any]:
    """The content of tokenizer_config.json: the roles of the special tokens, and the inputs."""
    names = {id: token for token, id in tokenizer.special_tokens.items()}
    roles = {role: token for token, role in TOKEN_ROLES.items() if token in names.values()}
    for key in ("eos_token_id", "bos_token_id", "pad_token_id"):
        value = token_ids.get(key)
        id = value[0] if isinstance(value, list) else value
        if id in names:
            roles[key.removesuffix("_id")] = names[id]
    inputs = ["input_ids", "attention_mask"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": network.context,
        "model_input_names": inputs + ["token_type_ids"] * network.has(Trait.SEGMENTED),
        **roles,
    }
