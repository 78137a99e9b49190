"""How weights start."""

from torch import nn


def normal(network: nn.Module, std: float = 0.02) -> None:
    """Small normal weights and zero biases, as GPT-2 and BERT start."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def xavier(network: nn.Module) -> None:
    """Weights that keep the size of what passes through them, as in the paper's code."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
