"""The format of every response: metadata as JSON, then all tensors as raw float32 numbers.

4 bytes   length of the JSON, little-endian
JSON      padded with spaces to a multiple of 4 bytes; {"$tensor": n, "shape": [...]} stands for
          a tensor whose numbers start at the nth of the numbers below
numbers   float32, little-endian
"""

import json
import sys
from typing import Any

import torch
from torch import Tensor

TENSOR = "$tensor"


def pack(response: Any) -> bytes:
    tensors: list[Tensor] = []
    size = 0

    def refer(value: Any) -> Any:
        nonlocal size
        if isinstance(value, dict):
            return {name: refer(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [refer(item) for item in value]
        if isinstance(value, Tensor):
            tensors.append(value.detach().to("cpu", torch.float32).contiguous())
            offset, size = size, size + value.numel()
            return {TENSOR: offset, "shape": list(value.shape)}
        return value

    text = json.dumps(refer(response), ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    numbers = [tensor.numpy().astype("<f4", copy=False).tobytes() for tensor in tensors]
    return b"".join([len(text).to_bytes(4, "little"), text, *numbers])


def unpack(data: bytes) -> Any:
    """The definition of the format: what the page reads from packed bytes."""
    end = 4 + int.from_bytes(data[:4], "little")
    numbers = torch.frombuffer(bytearray(data[end:]) or bytearray(4), dtype=torch.float32)
    assert sys.byteorder == "little"

    def revive(value: Any) -> Any:
        if isinstance(value, list):
            return [revive(item) for item in value]
        if not isinstance(value, dict):
            return value
        if TENSOR in value:
            shape = torch.Size(value["shape"])
            return numbers[value[TENSOR] : value[TENSOR] + shape.numel()].reshape(shape)
        return {name: revive(item) for name, item in value.items()}

    return revive(json.loads(data[4:end]))
