"""MNIST with its patches in order and in one fixed random order: attention, convolution, pixels.

    python bench/sets.py MNIST RESULTS [MINUTES]

A vision Transformer knows the place of a patch only from its position embedding, so the order in
which the patches are given should not matter to it; a convolution needs neighbors. The networks are
trained with `glass train classify` for MINUTES each (3 by default) without random shifts, which
would move pixels between patches. Accuracy is that on the 10,000 test images. Results are appended
to RESULTS (JSON lines), so that the script can be stopped and started again; the table is printed.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from quality import append_result, matmul_speed, read_results

import glassformer
from glassformer.data.images import IDX_IMAGES, IDX_LABELS, read_idx

PATCH, SEED = 7, 0
MODELS = ("vision", "image_cnn", "logistic")


def shuffle_patches(images: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Images (n y x) whose squares of PATCH x PATCH pixels are in another order."""
    n, height, width = images.shape
    rows, columns = height // PATCH, width // PATCH
    patches = images.reshape(n, rows, PATCH, columns, PATCH).swapaxes(2, 3)
    shuffled = patches.reshape(n, rows * columns, PATCH, PATCH)[:, order]
    return shuffled.reshape(n, rows, columns, PATCH, PATCH).swapaxes(2, 3).reshape(images.shape)


def write_shuffled(source: Path, target: Path) -> None:
    for split in ("train", "t10k"):
        images = read_idx(source / f"{split}-{IDX_IMAGES}.gz", axes=3)
        order = np.random.default_rng(SEED).permutation(images[0].size // PATCH**2)
        header = np.array([0x803, *images.shape], dtype=">u4").tobytes()
        with gzip.open(target / f"{split}-{IDX_IMAGES}.gz", "wb", compresslevel=1) as file:
            file.write(header + shuffle_patches(images, order).tobytes())
        shutil.copy(source / f"{split}-{IDX_LABELS}.gz", target)


def run(model: str, data: Path, minutes: float, run: Path) -> dict[str, float]:
    settings = [] if model == "logistic" else ["model.max_shift=0"]
    settings += [f"model.patch={PATCH}"] if model == "vision" else []
    trained = glassformer.train(
        "classify", data, model=model, run=run, minutes=minutes, settings=settings, seed=SEED
    )
    metrics = glassformer.evaluate(run, data / f"t10k-{IDX_IMAGES}.gz")
    return {
        "accuracy": metrics["accuracy"],
        "parameters": trained.network.size,
        "steps": trained.metrics.get("steps", 0),
    }


def format_table(results: list[dict]) -> str:
    lines = ["| model | in order | shuffled | steps |", "| --- | --- | --- | --- |"]
    for model in MODELS:
        rows = {row["order"]: row for row in results if row["model"] == model}
        if len(rows) == 2:
            accuracies = " | ".join(f"{rows[o]['accuracy']:.4f}" for o in ("in order", "shuffled"))
            steps = " and ".join(f"{rows[o]['steps']:,}" for o in ("in order", "shuffled"))
            lines.append(f"| `{model}` | {accuracies} | {steps} |")
    return "\n".join(lines)


def main() -> None:
    data, file = Path(sys.argv[1]), Path(sys.argv[2])
    minutes = float(sys.argv[3]) if len(sys.argv) > 3 else 3.0
    results = read_results(file)
    with tempfile.TemporaryDirectory() as folder:
        shuffled = Path(folder) / "shuffled"
        shuffled.mkdir()
        write_shuffled(data, shuffled)
        for model in MODELS:
            for order, source in (("in order", data), ("shuffled", shuffled)):
                job = {"model": model, "order": order, "minutes": minutes}
                if not any(all(row[k] == v for k, v in job.items()) for row in results):
                    scores = run(model, source, minutes, Path(folder) / f"{model}-{order}")
                    results.append(append_result(file, job, scores, matmul_speed()))
    print(format_table(results))


if __name__ == "__main__":
    main()
