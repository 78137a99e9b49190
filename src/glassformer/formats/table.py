"""Tables that map another library's settings and tensors to ours, used in both directions."""

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
    """Maps one of their settings to one of ours; `default` is their default."""

    theirs: str
    ours: str
    default: Any
    values: dict[str, str] | None = None  # their value -> ours, if they differ


@dataclass(frozen=True)
class Rule:
    """Maps one of their tensors to one of ours, or to several concatenated; {} is a layer index."""

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    only: str = ""  # their class, if the tensor's name depends on the class

    def layers(self, state: State) -> list[str]:
        """Return the layers for which `state` has their tensor; [""] if the name has no layer."""
        pattern = re.compile(re.escape(self.theirs).replace(r"\{\}", r"(\d+)"))
        matches = filter(None, map(pattern.fullmatch, state))
        return [match[1] if match.re.groups else "" for match in matches]


def weight_and_bias(
    theirs: str, *ours: str, transposed: bool = False, only: str = ""
) -> list[Rule]:
    """Return the rules for the weight and bias of a module; `transposed` applies to the weight."""
    return [
        Rule(
            f"{theirs}.{name}",
            tuple(f"{module}.{name}" for module in ours),
            transposed=transposed and name == "weight",
            only=only,
        )
        for name in ("weight", "bias")
    ]


@dataclass(frozen=True)
class Family:
    """How `transformers` stores one family of models."""

    model: str  # their model_type
    ours: tuple[str, ...]  # our models in the family
    architecture: Callable[[Any], str]  # our config -> their class
    settings: Sequence[Setting]
    rules: Sequence[Rule]
    architectures: frozenset[str]  # their classes that we can load
    fixed: dict[str, Any]  # settings for which we support only one value
    prefix: str  # of the body's tensors in classes with a head
    without_effect: frozenset[str] = frozenset()  # settings that do not change the output
    copies: dict[str, str] = field(
        default_factory=dict
    )  # duplicate -> original, among their tensors
    ignored: tuple[str, ...] = ()  # name patterns of constant tensors
    flatten: Callable[[dict[str, Any]], dict[str, Any]] = dict  # their settings, before mapping
    finish: Callable[[dict[str, Any], Any], None] = lambda _theirs, _config: None  # after mapping
    find_model: Callable[[State], tuple[str, dict[str, Any]]] | None = None  # from our tensors

    def rules_for(self, architecture: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.only in ("", architecture)]


ACTIVATIONS = {  # theirs -> ours; the first name with our value is written
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

GENERAL = frozenset(  # settings of all models: bookkeeping, training, generation
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
    family: Family, config: dict[str, Any], source: object, ignore: Iterable[str] = ()
) -> dict[str, Any]:
    """Return their config as our settings; reject any setting that may change the output.

    `source` is the file to report in errors; `ignore` lists name patterns of settings to skip.
    """
    classes = config.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise GlassError(f"{source}: expected architectures to be a list of names, got {classes!r}")
    if any(fnmatchcase("architectures", pattern) for pattern in ignore):
        classes = []
    for name in classes:
        if name not in family.architectures:
            choices = ", ".join(sorted(family.architectures))
            raise GlassError(
                f"{source}: unsupported architecture {name}: expected one of {choices}"
            )
    try:
        config = family.flatten(config)
    except GlassError as error:
        raise GlassError(f"{source}: {error}") from None
    known = {s.theirs for s in family.settings} | family.fixed.keys()
    known |= GENERAL | family.without_effect
    for name, value in config.items():
        if any(fnmatchcase(name, pattern) for pattern in ignore):
            continue
        if name not in known and value:
            raise GlassError(
                f"{source}: unknown setting {name} = {value!r}, which may change the output; if it "
                f"does not, load with ignore=[{name!r}]"
            )
        if name in family.fixed and value is not None and value != family.fixed[name]:
            expected = family.fixed[name]
            raise GlassError(f"{source}: unsupported {name} = {value!r}: expected {expected!r}")
    ours: dict[str, Any] = {}  # if several settings map to one of ours, the first is used
    for setting in family.settings:
        value = config.get(setting.theirs)
        value = setting.default if value is None else value
        if setting.values is not None:
            if not isinstance(value, str) or value not in setting.values:
                raise GlassError(
                    f"{source}: unsupported {setting.theirs} = {value!r}: expected one of "
                    f"{', '.join(setting.values)}"
                )
            value = setting.values[value]
        if value is not None:
            ours.setdefault(setting.ours, value)
    return ours


def their_settings(family: Family, config: Any) -> dict[str, Any]:
    """Return one of our configs as their settings."""
    theirs: dict[str, Any] = dict(family.fixed)
    for setting in family.settings:
        value = getattr(config, setting.ours)
        if setting.values is not None:
            value = next(name for name, ours in setting.values.items() if ours == value)
        theirs[setting.theirs] = value
    family.finish(theirs, config)
    return theirs


def our_tensors(
    family: Family, state: State, source: object, *, tied: bool = True, ignore: Iterable[str] = ()
) -> State:
    """Return their tensors under our names, split and transposed as ours are.

    If `tied`, copies of other tensors are dropped. `ignore` lists name patterns of tensors to skip.
    """
    skipped = (*family.ignored, *ignore)
    theirs = {
        normalize_name(family, name): value
        for name, value in state.items()
        if not any(fnmatchcase(name, pattern) for pattern in skipped)
    }
    for copy, original in family.copies.items() if tied else ():
        if copy in theirs and original in theirs:
            if not torch.equal(theirs[copy], theirs[original]):
                raise GlassError(f"{source}: {copy} differs from {original}: expected a copy")
            del theirs[copy]
    ours: State = {}
    for rule in family.rules:
        for layer in rule.layers(theirs):
            name = rule.theirs.format(layer)
            tensor = theirs.pop(name)
            split_dim = -1 if rule.transposed else 0
            if tensor.ndim not in (1, 2) or tensor.shape[split_dim] % len(rule.ours):
                raise GlassError(f"{source}: {name} has an invalid shape, {tuple(tensor.shape)}")
            tensor = tensor.T if rule.transposed else tensor
            for our_name, chunk in zip(rule.ours, tensor.chunk(len(rule.ours)), strict=True):
                ours[our_name.format(layer)] = chunk.contiguous()
    if theirs:
        raise GlassError(f"{source} has unknown tensors: {list_some(theirs)}")
    return ours


def normalize_name(family: Family, name: str) -> str:
    """Return a name as in the rules: with the body's prefix, without TensorFlow's suffixes."""
    if name.endswith((".gamma", ".beta")):
        name = name.removesuffix(".gamma") + ".weight" if ".gamma" in name else name[:-5] + ".bias"
    with_prefix = family.prefix + name
    template = re.sub(r"(?<=\.)\d+(?=\.)", "{}", with_prefix)
    return with_prefix if any(rule.theirs == template for rule in family.rules) else name


def their_tensors(family: Family, ours: State, architecture: str) -> State:
    """Return our tensors under the names of their class."""
    theirs: State = {}
    for rule in family.rules_for(architecture):
        for layer in Rule(rule.ours[0], ()).layers(ours):
            tensor = torch.cat([ours[name.format(layer)] for name in rule.ours])
            name = rule.theirs.format(layer)
            name = name.removeprefix(family.prefix) if architecture == "BertModel" else name
            theirs[name] = tensor.T if rule.transposed else tensor
    return theirs
