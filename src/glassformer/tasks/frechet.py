"""The Fréchet distance between two sets of images, on features of a fixed classifier.

The classifier is a small convolutional network, trained on digits and drawn shapes in random colors
(bench/image_features.py); its weights are part of the package. The distance is that of two normal
distributions with the means and covariances of the features (Heusel et al., 2017).

Shapes: b batch, c channels, y rows, x columns, d features.
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer import checkpoint
from glassformer.models.image_cnn import ImageCNN

FOLDER = Path(__file__).with_name("image_features")
Floats = NDArray[np.float64]


@cache
def load_classifier() -> tuple[ImageCNN, list[str]]:
    """The fixed classifier and its labels."""
    network, _, metadata = checkpoint.load(FOLDER)
    assert isinstance(network, ImageCNN)
    return network.eval().requires_grad_(False), list(metadata["labels"])


def to_classifier_input(images: Tensor) -> Tensor:
    """Images between -1 and 1 in the size and the colors that the classifier reads."""
    config = load_classifier()[0].config
    size = (config.height, config.width)
    if images.shape[2:] != size:
        images = F.interpolate(images.float(), size, mode="bilinear", antialias=True)
    return images.float().expand(-1, config.channels, -1, -1)


@torch.no_grad()
def feature_sums(images: Tensor) -> Floats:
    """The number of images, the sum of their features, and that of their products: 1 + d + d*d."""
    classifier, _ = load_classifier()
    features = classifier.image_features(to_classifier_input(images.cpu())).double()  # b d
    products = features.T @ features
    parts = (torch.tensor([len(features)]), features.sum(dim=0), products.flatten())
    return np.concatenate([part.double().numpy() for part in parts])


@torch.no_grad()
def recognize(images: Tensor) -> list[str]:
    """The label that the classifier predicts for each image."""
    classifier, labels = load_classifier()
    return [labels[i] for i in classifier(to_classifier_input(images.cpu())).argmax(1).tolist()]


def mean_and_covariance(sums: Floats) -> tuple[Floats, Floats]:
    """From `feature_sums`, added over all images."""
    size = round((-1 + np.sqrt(4 * len(sums) - 3)) / 2)
    count, mean = sums[0], sums[1 : 1 + size] / sums[0]
    products = sums[1 + size :].reshape(size, size)
    return mean, (products - count * np.outer(mean, mean)) / max(count - 1, 1)


def frechet_distance(sums: Floats, other_sums: Floats) -> float:
    """|m₁ - m₂|² + tr(C₁ + C₂ - 2 (C₁ C₂)^½)."""
    (mean, covariance), (other_mean, other) = map(mean_and_covariance, (sums, other_sums))
    # C₁ C₂ has the eigenvalues of √C₁ C₂ √C₁, which is symmetric
    values, vectors = np.linalg.eigh(covariance)
    root = vectors @ np.diag(np.sqrt(values.clip(min=0))) @ vectors.T
    eigenvalues = np.linalg.eigvalsh(root @ other @ root).clip(min=0)
    spread = np.trace(covariance) + np.trace(other) - 2 * np.sqrt(eigenvalues).sum()
    return float(np.square(mean - other_mean).sum() + max(spread, 0.0))
