"""Another library's names beside ours: tables of settings and tensors, read in both directions."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch

from glassformer.core.errors import GlassError
from glassformer.weights import State, list_some


@dataclass(frozen=True)
class Setting:
    """One of their settings is one of ours; `default` is what they mean by leaving it out."""

    theirs: str
    ours: str
    default: Any
    values: dict[str, str] | None = None  # where the two use different words


@dataclass(frozen=True)
class Rule:
    """One of their tensors is one of ours, or several of ours joined; {} is the layer."""

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    only: str = ""  # the class of theirs that has it, where another has the same under another name

    def layers(self, state: State) -> list[str]:
        """The layers in which `state` has their name; [""] if the name has no layer."""
        pattern = re.compile(re.escape(self.theirs).replace(r"\{\}", r"(\d+)"))
        found = filter(None, map(pattern.fullmatch, state))
        return [match[1] if match.re.groups else "" for match in found]


def both(theirs: str, *ours: str, linear: bool = False, only: str = "") -> list[Rule]:
    """The weight and the bias of one layer."""
    return [
        Rule(
            f"{theirs}.{part}",
            tuple(f"{name}.{part}" for name in ours),
            transposed=linear and part == "weight",
            only=only,
        )
        for part in ("weight", "bias")
    ]


@dataclass(frozen=True)
class Family:
    """How Hugging Face's library writes one of our models."""

    model: str  # their name for it
    ours: tuple[str, ...]  # our models that it holds
    architecture: Callable[[Any], str]  # their class for one of our configs
    settings: Sequence[Setting]
    rules: Sequence[Rule]
    architectures: frozenset[str]  # their classes that hold no more than ours
    fixed: dict[str, Any]  # settings that have one value here: any other would change numbers
    prefix: str  # before the names of the body, where a head stands beside it
    harmless: frozenset[str] = frozenset()  # settings that change no number
    copies: dict[str, str] = field(default_factory=dict)  # their tensors that repeat another
    ignored: tuple[str, ...] = ()  # patterns of tensors that are constants, not weights
    tidy: Callable[[dict[str, Any]], dict[str, Any]] = dict  # their settings, made flat
    finish: Callable[[dict[str, Any], Any], None] = lambda _theirs, _config: None  # and back
    find_model: Callable[[State], tuple[str, dict[str, Any]]] | None = None  # told by our tensors

    def rules_for(self, architecture: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.only in ("", architecture)]


GELU = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

GENERAL = frozenset(  # of every configuration file there: bookkeeping, training, generation
    """_attn_implementation_autoset _name_or_path _num_labels architectures
    attn_implementation bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward decoder_start_token_id diversity_penalty do_sample dtype
    early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label
    initializer_range label2id length_penalty max_length max_sequence_length min_length
    model_type no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id prefix
    problem_type remove_invalid_values repetition_penalty return_dict return_dict_in_generate
    sep_token_id suppress_tokens task_specific_params temperature tokenizer_class top_k top_p
    torch_dtype torchscript transformers_version typical_p unsloth_fixed unsloth_version
    use_bfloat16 use_cache""".split()
)


def our_settings(
    family: Family, config: dict[str, Any], where: object, ignore: Iterable[str] = ()
) -> dict[str, Any]:
    """Their configuration in our words; a setting that may change numbers is refused by name."""
    classes = config.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise GlassError(f"{where}: architectures must be a list of names, not {classes!r}")
    if any(fnmatchcase("architectures", pattern) for pattern in ignore):
        classes = []
    for name in classes:
        if name not in family.architectures:
            choice = ", ".join(sorted(family.architectures))
            raise GlassError(f"{where} is a {name}, which has another head; known are {choice}")
    config = family.tidy(config)
    known = {s.theirs for s in family.settings} | GENERAL | family.harmless | family.fixed.keys()
    for name, value in config.items():
        if any(fnmatchcase(name, pattern) for pattern in ignore):
            continue
        if name not in known and value:
            raise GlassError(
                f"{where} sets {name} = {value!r}, which Glassformer does not know and which may "
                f"change the numbers; if it does not, load with ignore=[{name!r}]"
            )
        if name in family.fixed and value is not None and value != family.fixed[name]:
            wanted = family.fixed[name]
            raise GlassError(f"{where} sets {name} = {value!r}; Glassformer has only {wanted!r}")
    ours: dict[str, Any] = {}  # of several settings that are one of ours, the first counts
    for setting in family.settings:
        value = config.get(setting.theirs)
        value = setting.default if value is None else value
        if setting.values is not None:
            if not isinstance(value, str) or value not in setting.values:
                choice = ", ".join(setting.values)
                raise GlassError(f"{where} sets {setting.theirs} = {value!r}; known are {choice}")
            value = setting.values[value]
        if value is not None:
            ours.setdefault(setting.ours, value)
    return ours


def their_settings(family: Family, config: Any) -> dict[str, Any]:
    """One of our configs in their words."""
    theirs: dict[str, Any] = dict(family.fixed)
    for setting in family.settings:
        value = getattr(config, setting.ours)
        if setting.values is not None:
            value = next(word for word, ours in setting.values.items() if ours == value)
        theirs[setting.theirs] = value
    family.finish(theirs, config)
    return theirs


def our_tensors(
    family: Family, state: State, where: object, *, tied: bool = True, ignore: Iterable[str] = ()
) -> State:
    """Their tensors under our names, cut and turned as ours are."""
    dropped = (*family.ignored, *ignore)
    theirs = {
        full_name(family, name): value
        for name, value in state.items()
        if not any(fnmatchcase(name, pattern) for pattern in dropped)
    }
    for copy, original in family.copies.items() if tied else ():
        if copy in theirs and original in theirs:
            if not torch.equal(theirs[copy], theirs[original]):
                raise GlassError(f"{where}: {copy} differs from {original}, of which it is a copy")
            del theirs[copy]
    ours: State = {}
    for rule in family.rules:
        for layer in rule.layers(theirs):
            name = rule.theirs.format(layer)
            whole = theirs.pop(name)
            if whole.ndim not in (1, 2) or whole.shape[-1 if rule.transposed else 0] % len(
                rule.ours
            ):
                raise GlassError(f"{where}: {name} has the odd shape {tuple(whole.shape)}")
            whole = whole.T if rule.transposed else whole
            parts = whole.chunk(len(rule.ours))
            for mine, part in zip(rule.ours, parts, strict=True):
                ours[mine.format(layer)] = part.contiguous()
    if theirs:
        unknown = list_some(theirs)
        raise GlassError(f"{where} holds tensors that Glassformer does not know: {unknown}")
    return ours


def full_name(family: Family, name: str) -> str:
    """A name as the rules have it: with the body's prefix, and not as TensorFlow had it."""
    if name.endswith((".gamma", ".beta")):
        name = name.removesuffix(".gamma") + ".weight" if ".gamma" in name else name[:-5] + ".bias"
    with_prefix = family.prefix + name
    in_any_layer = re.sub(r"(?<=\.)\d+(?=\.)", "{}", with_prefix)
    return with_prefix if any(rule.theirs == in_any_layer for rule in family.rules) else name


def their_tensors(family: Family, ours: State, architecture: str) -> State:
    """Our tensors under the names of their class."""
    theirs: State = {}
    for rule in family.rules_for(architecture):
        for layer in Rule(rule.ours[0], ()).layers(ours):
            whole = torch.cat([ours[name.format(layer)] for name in rule.ours])
            name = rule.theirs.format(layer)
            name = name.removeprefix(family.prefix) if architecture == "BertModel" else name
            theirs[name] = whole.T if rule.transposed else whole
    return theirs
