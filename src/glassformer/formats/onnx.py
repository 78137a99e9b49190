"""Export to ONNX, for use with ONNX Runtime and `tokenizers`, without PyTorch and Glassformer.

A model can be exported if torch compiles it to one graph (the trait COMPILABLE) and it is used in
one of the ways in `TASKS`: not the models that are fitted directly, nor recurrent ones, nor
those for images, ratings and summaries. The exported graph is run on batches of other sizes
and compared with the network before anything is written.
"""

import contextlib
import copy
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.core.errors import GlassError, is_memory_error
from glassformer.core.folder import new_folder
from glassformer.formats.exportable import check_exportable
from glassformer.formats.tokenizer_json import write_tokenizer
from glassformer.models.network import Network, Trait
from glassformer.nn.attention import Attention
from glassformer.registry import MODELS
from glassformer.text.tokenizer import Tokenizer, find_eos

MODEL = "model.onnx"
CONFIG = "config.json"
README = "README.md"
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
EXAMPLES = Path(__file__).parent / "onnx_examples"  # a program for each task
OPSET = 20
TOLERANCE = 1e-4  # largest difference from the network, absolute and relative
TRACED_SIZES = (2, 6, 5)  # batch, length and source length of the batch that torch traces
CHECKED_SIZES = ((1, 1, 1), (3, 11, 8))  # of the batches on which the result is checked
TASKS = {  # the first trait that a network has determines how it is used
    Trait.SEQ2SEQ: "translate",
    Trait.CAUSAL_LM: "generate",
    Trait.MASKED_LM: "fill-mask",
    Trait.CLASSIFIER: "classify",
    Trait.ENCODER: "embed",
}
OTHER_USES = {Trait.IMAGES, Trait.SUMMARIZER, Trait.RATER, Trait.NEXT_ITEM}  # not in TASKS
IDS = {
    "translate": "token ids of the translation so far, which starts with `<start>`",
    "generate": "token ids; padding after a text does not change its logits",
    "fill-mask": "token ids",
    "classify": "token ids",
    "embed": "token ids",
}
INPUTS = {
    "keep": "true at tokens, false at padding, which may come before or after a text",
    "segments": "0 in the first text, 1 in the second text of a pair",
    "source": "token ids of the text to translate",
    "source_keep": "true at tokens of the source, false at padding",
}
OUTPUTS = {
    "translate": "logits of the token after each position",
    "generate": "logits of the token after each position",
    "fill-mask": "logits of the token at each position",
    "classify": "logits of the labels",
    "embed": "features of each token",
}


def exportable_models() -> list[str]:
    """Return the names of the models that this format supports."""
    return [
        name
        for name, model in MODELS.items()
        if Trait.COMPILABLE in model.traits and model.traits.isdisjoint(OTHER_USES)
    ]


def save(
    path: Path,
    network: Network,
    tokenizer: Tokenizer | None,
    *,
    task: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write a folder with the graph, the tokenizer, a config and a README, atomically."""
    name = check_exportable(network, "ONNX", exportable_models())
    check_packages()
    network = copy.deepcopy(network).cpu().float().eval()  # the caller's may be on another device
    remove_kernels(network)
    with new_folder(path, overwrite=overwrite) as folder:
        export_graph(network, folder / MODEL)
        session = open_session(folder / MODEL)
        check_outputs(network, session)
        has_tokenizer = write_tokenizer(folder, tokenizer)
        config = {"model": name, **describe(network, session, tokenizer, task or {})}
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (folder / CONFIG).write_text(text, encoding="utf-8")
        (folder / README).write_text(format_readme(config, has_tokenizer), encoding="utf-8")


def check_packages() -> None:
    """Raise `GlassError` if a package that the export needs is not installed."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise GlassError(f"export to ONNX needs {name}: pip install 'glassformer[export]'")


# --- the graph ------------------------------------------------------------------------------------


def remove_kernels(network: Network) -> None:
    """Use masked attention in place of sparse kernels, whose shapes depend on the length."""
    for module in network.modules():
        if isinstance(module, Attention) and module.mask.kernel is not None:
            module.mask = replace(module.mask, kernel=None)


def export_graph(network: Network, file: Path) -> None:
    """Write the network as a graph for batches of any size and sequences of any length."""
    batch = torch.export.Dim("batch")
    length = torch.export.Dim("length", max=network.context)
    source_length = torch.export.Dim("source_length")
    example = make_batch(network, *TRACED_SIZES)
    shapes = {
        name: {0: batch, 1: source_length if name.startswith("source") else length}
        for name in example
    }
    output = "features" if find_task(network) == "embed" else "logits"
    try:
        with silence_exporter(), torch.no_grad():
            program = torch.export.export(network, (), example, dynamic_shapes=shapes, strict=False)
            onnx_program = torch.onnx.export(
                program,
                kwargs=example,
                dynamic_shapes=shapes,
                output_names=[output],
                opset_version=OPSET,
                verbose=False,
            )
    except RuntimeError as error:
        if is_memory_error(error):
            raise
        reason = str(error).partition("\n")[0]
        raise GlassError(f"torch cannot export the model to ONNX: {reason}") from error
    assert onnx_program is not None
    for node in onnx_program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces with paths of this machine
    onnx_program.save(file)  # weights of more than 1.5 GB go to a second file


def make_batch(network: Network, size: int, length: int, source_length: int) -> dict[str, Tensor]:
    """Random inputs, with padding after the second row and before the third, if there are three.

    A language model gets only ids: it does not see padding that comes after a text.
    """
    names = ("ids",) if network.has(Trait.CAUSAL_LM) else network.forward_inputs
    generator = torch.Generator().manual_seed(0)
    batch = dict[str, Tensor]()
    for name in names:
        columns = source_length if name.startswith("source") else length
        columns = min(columns, network.context or columns)
        if name.endswith("keep"):
            keep = torch.ones(size, columns, dtype=torch.bool)
            keep[1:2, columns // 2 + 1 :] = False
            keep[2:3, : columns // 2] = False
            batch[name] = keep
        else:
            count = network.config.segments if name == "segments" else network.vocab
            batch[name] = torch.randint(count, (size, columns), generator=generator)
    return batch


@contextlib.contextmanager
def silence_exporter() -> Iterator[None]:
    """Suppress the warnings of torch's exporter, which are about its own code."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# --- the check ------------------------------------------------------------------------------------


def open_session(file: Path) -> Any:
    """An `InferenceSession` of ONNX Runtime."""
    import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


@torch.inference_mode()
def check_outputs(network: Network, session: Any) -> None:
    """Raise `GlassError` if the graph and the network differ on batches of other sizes."""
    for sizes in CHECKED_SIZES:
        batch = make_batch(network, *sizes)
        expected = network(**batch).numpy()
        (actual,) = session.run(None, {name: value.numpy() for name, value in batch.items()})
        if actual.shape != expected.shape or not np.allclose(
            actual, expected, rtol=TOLERANCE, atol=TOLERANCE
        ):
            raise GlassError(
                f"the ONNX model differs from the network on a batch of shape "
                f"{tuple(batch['ids'].shape)}, so it was not written"
            )


# --- the description ------------------------------------------------------------------------------


def find_task(network: Network) -> str:
    return next(task for trait, task in TASKS.items() if network.has(trait))


def describe(
    network: Network, session: Any, tokenizer: Tokenizer | None, task: dict[str, Any]
) -> dict[str, Any]:
    """The content of config.json, except for the name of the model."""
    description = {
        "task": find_task(network),
        "opset": OPSET,
        "inputs": {i.name: {"type": i.type, "shape": i.shape} for i in session.get_inputs()},
        "outputs": {o.name: {"type": o.type, "shape": o.shape} for o in session.get_outputs()},
        "context": network.context,
        "special_tokens": tokenizer.special_tokens if tokenizer else {},
    }
    if network.has(Trait.CLASSIFIER):
        description["labels"] = task.get("labels") or list(map(str, range(network.config.classes)))
        description["multi_label"] = bool(task.get("multi_label"))
        description["temperature"] = task.get("temperature", 1.0)
        if description["multi_label"]:
            description["threshold"] = task.get("threshold", 0.5)
    if network.has(Trait.CAUSAL_LM):
        description["eos"] = find_eos(tokenizer, task)
    return description


def format_readme(config: dict[str, Any], has_tokenizer: bool) -> str:
    """A README with tables of the inputs and outputs, and an example script."""
    meanings = {**INPUTS, "ids": IDS[config["task"]]}
    meanings |= dict.fromkeys(config["outputs"], OUTPUTS[config["task"]])
    rows = [
        f"| `{name}` | {entry['type']} | {', '.join(map(str, entry['shape']))} | {meanings[name]} |"
        for name, entry in (config["inputs"] | config["outputs"]).items()
    ]
    lines = (EXAMPLES / f"{config['task']}.py.txt").read_text(encoding="utf-8").splitlines()
    program = [line for line in lines if "segments" in config["inputs"] or "segments" not in line]
    example = ["```python", *program, "```"]
    if not has_tokenizer:
        example = ["This folder has no tokenizer: encode texts with Glassformer."]
    return "\n".join(
        [
            f"# {config['model']} for ONNX Runtime",
            "",
            f"Exported by Glassformer for the task {config['task']}. `config.json` has the inputs",
            "and outputs, the special tokens with their ids, the maximum length of a sequence",
            "(`context`) and, for a classifier, the labels in the order of the logits.",
            "",
            "| name | type | shape | meaning |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            *example,
            "",
        ]
    )
