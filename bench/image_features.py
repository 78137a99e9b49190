"""Train the fixed classifier on whose features the Fréchet distance of painted images is measured.

    python bench/image_features.py DATA

DATA is a folder with mnist/. The classifier learns ten digits and six drawn shapes, in random
colors on random backgrounds, shifted and scaled, so that its features respond to form and color of
any image. Its weights are written to src/glassformer/tasks/image_features, with half the digits of
precision to keep the package small, and its accuracy on MNIST's test images is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from glassformer import checkpoint
from glassformer.data.image_sample import SHAPES, drawn_shapes
from glassformer.data.images import read_idx
from glassformer.models.image_cnn import ImageCNN
from glassformer.tasks.frechet import FOLDER

STEPS, BATCH, LR, SIDE, SEED = 3000, 128, 2e-3, 32, 0
LABELS = [*map(str, range(10)), *SHAPES]


def read_mnist(folder: Path, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images between 0 and 1 (n 1 y x) and labels of a split of MNIST."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", axes=3)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", axes=1)
    pixels = torch.from_numpy(images.astype(np.float32))[:, None] / 255
    resized = F.interpolate(pixels, (SIDE, SIDE), mode="bilinear", antialias=True)
    return resized, torch.from_numpy(labels.astype(np.int64))


def color(images: torch.Tensor) -> torch.Tensor:
    """Give half of the images random colors; all get values between -1 and 1: b 3 y x."""
    shape = (len(images), 3, 1, 1)
    ink, paper = torch.rand(shape), torch.rand(shape)
    colored = paper + images * (ink - paper)
    is_gray = torch.rand(len(images), 1, 1, 1) < 0.5
    return torch.where(is_gray, images.expand(-1, 3, -1, -1), colored) * 2 - 1


def main() -> None:
    torch.manual_seed(SEED)
    folder = Path(sys.argv[1]) / "mnist"
    digits, digit_labels = read_mnist(folder, "train")
    drawn = list(drawn_shapes(12_000, seed=1))
    shapes = torch.from_numpy(np.stack([pixels for pixels, _ in drawn])).float() / 255
    shape_labels = torch.tensor([10 + SHAPES.index(name) for _, name in drawn])
    images, labels = torch.cat((digits, shapes)), torch.cat((digit_labels, shape_labels))
    network = ImageCNN(
        ImageCNN.Config(channels=3, height=SIDE, width=SIDE, classes=len(LABELS), dim=24)
    ).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=0.01)
    for step in range(STEPS):
        rows = torch.randint(len(images), (BATCH,))
        loss = F.cross_entropy(network(color(images[rows])), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = LR * min((step + 1) / 200, 1 - step / STEPS)
        optimizer.step()
        if step % 250 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    for parameter in network.eval().parameters():
        parameter.data = parameter.data.bfloat16().float()  # compresses well
    test, test_labels = read_mnist(folder, "t10k")
    with torch.inference_mode():
        gray = test.expand(-1, 3, -1, -1) * 2 - 1
        predicted = torch.cat([network(part).argmax(1) for part in gray.split(500)])
    print(
        f"accuracy on MNIST's test images: {float((predicted == test_labels).float().mean()):.4f}"
    )
    task = {"labels": LABELS}
    checkpoint.save(FOLDER, network, None, task=task, overwrite=True)


if __name__ == "__main__":
    main()
