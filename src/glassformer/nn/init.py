"""Weight initialization."""

from torch import nn


def normal(network: nn.Module, std: float = 0.02) -> None:
    """Initialize weights from a normal distribution and biases to zero, as in GPT-2 and BERT."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def xavier(network: nn.Module) -> None:
    """Initialize weights so that activations keep their variance, as in the code of the paper
    "Attention Is All You Need"."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
