"""Two heads for two words, and many small linear maps as one large map."""

from collections.abc import Iterable

import torch
from torch import nn

from glassformer.lessons.attention_speed import largest_difference, split_map
from glassformer.lessons.lesson import Values
from glassformer.lessons.machines import embed_words
from glassformer.lessons.printed import read_matrices, read_words
from glassformer.nn.attention import Attention
from glassformer.nn.layout import SequenceLayout
from glassformer.trace import Trace

DIM, HEADS = 512, 8  # of the paper
HEAD_DIM = DIM // HEADS
TOKENS = 10


@torch.no_grad()
def compute_values() -> Values:
    return {
        "words": read_words("machines")["words"],
        "features": [f"f{i}" for i in range(4)],
        "both_heads": [f"head {h} e{i}" for h in (1, 2) for i in range(3)],
        "head_features": [f"e{i}" for i in range(3)],
        **compute_two_heads(),
        **compare_maps(),
    }


def compute_two_heads() -> Values:
    """The output of the first head's weights from the previous chapter and of a second head."""
    printed = read_matrices("machines")
    matrices = read_matrices("machines_heads")
    layer = Attention(4, 2, head_dim=3, bias=False, out_bias=False).double()
    for name, linear in (("w_q", layer.query), ("w_k", layer.key), ("w_v", layer.value)):
        linear.weight.copy_(torch.cat((printed[name], matrices[f"{name}_2"]), dim=1).T)
    layer.out.weight.copy_(matrices["w_o"].T)
    with Trace(layer) as trace:
        output = layer(embed_words()[None], SequenceLayout(2, 2))[0]
    heads = trace["head_outputs"][0]
    concatenated = torch.cat(tuple(heads), dim=1)
    averaging = torch.cat((torch.eye(3), torch.eye(3))).double() / 2
    return {
        **matrices,
        "pattern_1": trace["pattern"][0, 0],
        "pattern_2": trace["pattern"][0, 1],
        "z_1": heads[0],
        "z_2": heads[1],
        "concatenated": concatenated,
        "output": output,
        "average": heads.mean(dim=0),
        "averaging": averaging,
        "average_by_projection": concatenated @ averaging,
    }


def compare_maps() -> Values:
    """The paper's 24 maps from 512 to 64 features, compared with three maps from 512 to 512."""
    layer = Attention(DIM, HEADS, bias=False, out_bias=False)
    random = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, DIM, generator=random)
    large = (layer.query, layer.key, layer.value)
    for linear in large:
        linear.weight.copy_(torch.randn(DIM, DIM, generator=random) / DIM**0.5)
    small = [split_map(linear, HEAD_DIM) for linear in large]
    differences = [
        largest_difference(linear, maps, x) for linear, maps in zip(large, small, strict=True)
    ]
    convolution = nn.Conv1d(DIM, DIM, kernel_size=1, bias=False)
    convolution.weight.copy_(layer.query.weight[:, :, None])
    channels = convolution(x.T[None])[0].T
    counts = [count_parameters(map_ for maps in small for map_ in maps), count_parameters(large)]
    return {
        "n_maps": sum(map(len, small)),
        "head_dim": HEAD_DIM,
        "dim": DIM,
        "map_parameters": torch.tensor([counts], dtype=torch.float64).T,
        "map_differences": torch.stack(differences)[None],
        "channel_difference": (channels - layer.query(x)).abs().max()[None, None],
    }


def count_parameters(maps: Iterable[nn.Linear]) -> int:
    return sum(map_.weight.numel() for map_ in maps)
