"""Folders as Hugging Face's library writes and reads them: GPT-2, BERT, Llama."""

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
from glassformer.models.network import Network
from glassformer.text.subword import BPE, SubwordTokenizer, WordPiece
from glassformer.text.tokenizer import Tokenizer

CONFIG, TOKENIZER, INDEX = "config.json", "tokenizer.json", "model.safetensors.index.json"
GENERATION = "generation_config.json"
FAMILIES = {family.model: family for family in (GPT2, BERT, LLAMA)}


def load(
    path: Path, ignore: Sequence[str] = ()
) -> tuple[Network, Tokenizer | None, dict[str, Any]]:
    """The network and tokenizer of a folder, and which ids end a text.

    `ignore` names settings and tensors to pass over.
    """
    theirs = read_json(safe_join(path, CONFIG))
    kind = theirs.get("model_type") if isinstance(theirs, dict) else None
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise GlassError(f"{path / CONFIG} is of type {kind!r}; known are {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    settings = our_settings(family, theirs, path / CONFIG, ignore)
    state: weights.State = {}
    for file in weight_files(path):
        state |= weights.read(file)
    ours = our_tensors(family, state, path, tied=settings.get("tied", True), ignore=ignore)
    name, told = family.find_model(ours) if family.find_model else (family.model, {})
    network = weights.build_with_weights(
        lambda: registry.build_model(name, settings | told), ours, path
    )
    return network, load_tokenizer(path), end_of_text(path, theirs, settings["vocab"])


def end_of_text(path: Path, theirs: dict[str, Any], vocab: int) -> dict[str, Any]:
    """The ids that end a text, as `eos`; what is said for generation wins over the model's own."""
    if (path / GENERATION).exists():
        generation = read_json(safe_join(path, GENERATION))
        if isinstance(generation, dict) and generation.get("eos_token_id") is not None:
            theirs = generation
    found = theirs.get("eos_token_id")
    ids = found if isinstance(found, list) else [found]
    eos = [i for i in ids if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab]
    return {"eos": eos} if eos else {}


def weight_files(path: Path) -> list[Path]:
    """One file, or those that an index lists."""
    if (path / weights.FILE).exists():
        return [safe_join(path, weights.FILE)]
    if (path / INDEX).exists():
        match read_json(safe_join(path, INDEX)):
            case {"weight_map": dict(places)} if all(isinstance(p, str) for p in places.values()):
                return [safe_join(path, name) for name in sorted(set(places.values()))]
        raise GlassError(f"{path / INDEX} is damaged: it has no weight_map")
    if any(path.glob("*.bin")):
        raise GlassError(
            f"{path} has its weights in pickle files, which can run code: convert to safetensors"
        )
    raise GlassError(f"{path} has no {weights.FILE}")


def load_tokenizer(path: Path) -> Tokenizer | None:
    """From the library's one file, from GPT-2's two or from BERT's list; None without any."""
    told = tokenizer_config(path)
    if (path / TOKENIZER).exists():
        return with_bos(text.load(safe_join(path, TOKENIZER)), told)
    if (path / "vocab.json").exists() and (path / "merges.txt").exists():
        return with_bos(
            BPE.read(safe_join(path, "vocab.json"), safe_join(path, "merges.txt")), told
        )
    if (path / "vocab.txt").exists():
        return WordPiece.read(safe_join(path, "vocab.txt"), **normaliser(told))
    return None


def tokenizer_config(path: Path) -> dict[str, Any]:
    """What the file beside a tokenizer says; nothing without one."""
    file = path / "tokenizer_config.json"
    told = read_json(safe_join(path, file.name)) if file.exists() else {}
    if not isinstance(told, dict):
        raise GlassError(f"{file} is no table of settings")
    return told


def with_bos(tokenizer: Tokenizer, told: dict[str, Any]) -> Tokenizer:
    """The tokenizer, with its first token before a text or without it, where a file says so."""
    match told:
        case {"add_bos_token": bool(wanted), "bos_token": str(token) | {"content": str(token)}}:
            pass
        case _:
            return tokenizer
    if not isinstance(tokenizer, SubwordTokenizer) or token not in tokenizer.special_tokens:
        return tokenizer
    if wanted == (tokenizer.prefix == [tokenizer.special_tokens[token]]):
        return tokenizer
    return tokenizer.with_prefix(token if wanted else None)


def normaliser(told: dict[str, Any]) -> dict[str, bool]:
    """How BERT's tokenizer treats case, accents and ideographs, if a file beside it says so."""
    names = {
        "do_lower_case": "lower",
        "strip_accents": "strip",
        "tokenize_chinese_chars": "ideographs",
    }
    found = {ours: told[theirs] for theirs, ours in names.items() if told.get(theirs) is not None}
    if not all(isinstance(value, bool) for value in found.values()):
        raise GlassError(f"tokenizer_config.json: {', '.join(names)} must be true or false")
    return found


def exportable_models() -> list[str]:
    """The models that such a folder can hold."""
    return [name for family in FAMILIES.values() for name in family.ours]


def save(
    path: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    *,
    task: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a folder that Hugging Face's library loads; of a task it holds the ids that end a text,
    `eos`."""
    name, eos = registry.model_name(network), (task or {}).get("eos", ())
    family = next((family for family in FAMILIES.values() if name in family.ours), None)
    if family is None:
        known = ", ".join(exportable_models())
        raise GlassError(f"Hugging Face has no {name} as it is here; it has {known}")
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
            kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
            (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
        elif tokenizer is not None:
            warnings.warn(
                f"Hugging Face has no tokenizer of the kind {tokenizer.kind!r}: none was written",
                stacklevel=3,
            )
