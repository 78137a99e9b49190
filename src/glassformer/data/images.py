"""Read images: from folders, from MNIST's IDX files and from CIFAR's binary files.

In a folder, each subfolder has the images of one class. Pixels are integers from 0 to 255.
Shapes: c channels, y rows, x columns.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from glassformer.core.errors import GlassError
from glassformer.core.folder import wrap_read_errors
from glassformer.data.compression import open_bytes
from glassformer.data.files import BadRowPolicy
from glassformer.data.request import DataRequest

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
GRAY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
MAX_PIXELS = 50_000_000  # of a file, before it is scaled
MAX_VALUES = 3 * 512 * 512  # of an image that a network reads
IDX_IMAGES = "images-idx3-ubyte"
IDX_LABELS = "labels-idx1-ubyte"
IDX_MAGIC = {3: 0x803, 1: 0x801}  # by number of axes: unsigned bytes
CIFAR_TRAIN = "data_batch_*.bin"
CIFAR_TEST = "test_batch.bin"
CIFAR_SHAPE, CIFAR_NAMES = (3, 32, 32), "batches.meta.txt"
TRAIN_FOLDERS = ("train", "training")
VALID_FOLDERS = ("valid", "val", "validation")

Pixels = NDArray[np.uint8]  # c y x


class Size(NamedTuple):
    """The size of the images that a network reads."""

    channels: int
    height: int
    width: int

    def __str__(self) -> str:
        mode = {1: "grayscale", 3: "RGB"}.get(self.channels, f"{self.channels} channels")
        return f"{self.width} x {self.height} {mode}"


@dataclass(frozen=True)
class LabeledImage:
    location: str  # a file, or file[number]
    pixels: Pixels
    label: str | None  # None if the images have no classes
    split: str  # train or valid

    @property
    def key(self) -> str:
        """Determines the split: equal images are in the same one."""
        return hash_pixels(self.pixels)


def hash_pixels(pixels: Pixels) -> str:
    return hashlib.blake2b(pixels.tobytes(), digest_size=16).hexdigest()


class ImageItem(NamedTuple):
    """An image that has been found; `read` returns its pixels or raises GlassError."""

    location: str
    label: str | None
    read: "ReadPixels"


ReadPixels = partial[Pixels]


def has_images(paths: Sequence[Path]) -> bool:
    """Whether the data are images rather than texts."""
    return any(is_image_file(path) or (path.is_dir() and is_image_folder(path)) for path in paths)


def is_image_file(path: Path) -> bool:
    is_picture = path.suffix.lower() in SUFFIXES
    return path.is_file() and (is_picture or IDX_IMAGES in path.name or is_cifar(path))


def is_cifar(path: Path) -> bool:
    return path.match(CIFAR_TRAIN) or path.name == CIFAR_TEST


def is_image_folder(folder: Path) -> bool:
    """Whether the first file with a known kind, at most three folders down, is an image."""
    for pattern in ("*", "*/*", "*/*/*"):
        for path in folder.glob(pattern):
            if is_image_file(path):
                return True
            if path.is_file() and path.suffix == ".txt" and path.name != CIFAR_NAMES:
                return False
    return False


def read_images(request: DataRequest, on_bad_row: BadRowPolicy) -> Iterator[LabeledImage]:
    """Yield the images of a request; all have the size of the first, unless they are scaled.

    A model to evaluate gives the size and its labels.
    """
    trained = request.trained_metadata
    size = Size(*trained["image"]) if trained else None
    for files, split in request.split_files():
        for path in files:
            for folder_split, item in find_images(path):
                if request.labels and item.label not in request.labels:
                    known = list(request.labels)
                    reason = f"unknown label {item.label!r}: the model was trained with {known}"
                    on_bad_row(item.location, reason)
                    continue
                try:
                    pixels = item.read(size=size, scale_to=request.image_size)
                except GlassError as error:
                    on_bad_row(item.location, str(error))
                    continue
                size = size or Size(*pixels.shape)
                chosen = split or (None if request.is_evaluation else folder_split)
                chosen = chosen or request.assign_split(hash_pixels(pixels))
                yield LabeledImage(item.location, pixels, item.label, chosen)


def find_images(path: Path) -> Iterator[tuple[str | None, ImageItem]]:
    """Yield the images in a file or folder, each with its split if the folder names one."""
    if path.is_file():
        yield from ((None, item) for item in find_in_file(path))
        return
    packed = [p for p in sorted(path.iterdir()) if IDX_IMAGES in p.name or p.match(CIFAR_TRAIN)]
    training = [p for p in packed if not p.name.startswith("t10k")] or packed
    if training:  # the test images of MNIST and CIFAR are left for `glass evaluate`
        for file in training:
            yield from ((None, item) for item in find_in_file(file))
        return
    splits = {
        p.name: "train" if p.name.lower() in TRAIN_FOLDERS else "valid"
        for p in sorted(path.iterdir())
        if p.is_dir() and p.name.lower() in (*TRAIN_FOLDERS, *VALID_FOLDERS)
    }
    if "train" in splits.values():
        for name, split in splits.items():
            yield from ((split, item) for item in find_in_folder(path / name))
    else:
        yield from ((None, item) for item in find_in_folder(path))


def find_in_file(path: Path) -> Iterator[ImageItem]:
    if IDX_IMAGES in path.name:
        yield from find_in_idx(path)
    elif is_cifar(path):
        yield from find_in_cifar(path)
    else:
        yield ImageItem(str(path), path.parent.name, partial(read_picture, path))


def find_in_folder(folder: Path) -> Iterator[ImageItem]:
    """Yield folder/label/image, or folder/image without a label."""
    count = 0
    for path in sorted(folder.iterdir()):
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in files:
            if file.name.startswith(".") or file.suffix.lower() not in SUFFIXES:
                continue  # files of the system, notes and the like
            count += 1
            label = None if file is path else path.name
            yield ImageItem(str(file), label, partial(read_picture, file))
    if not count:
        raise GlassError(f"{folder} has no images: expected files such as class/image.png")


def read_picture(
    file: Path | BinaryIO, size: Size | None = None, scale_to: int | None = None
) -> Pixels:
    """The pixels of an image file: of the given size, or scaled to a square of `scale_to` pixels.

    With scaling, the largest square in the middle of the image is used.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as very large or damaged files
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise GlassError(f"has more than {MAX_PIXELS // 10**6} million pixels")
                is_gray = image.mode in GRAY_MODES
                if size is not None and scale_to:
                    is_gray = size.channels == 1
                pixels = to_eight_bits(image).convert("L" if is_gray else "RGB")
    except GlassError:
        raise
    except Exception as error:  # Pillow raises many types
        reason = error if isinstance(file, Path) else type(error).__name__
        raise GlassError(f"cannot be read as an image: {reason}") from error
    if scale_to:
        pixels = scale_picture(pixels, scale_to)
    array = np.asarray(pixels, dtype=np.uint8)
    return check_size(array[None] if array.ndim == 2 else array.transpose(2, 0, 1), size)


def scale_picture(picture: Image.Image, size: int) -> Image.Image:
    """The largest square in the middle of a picture, scaled to `size` pixels."""
    side = min(picture.size)
    left = (picture.width - side) // 2
    top = (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    return square.resize((size, size), Image.Resampling.LANCZOS)


def to_eight_bits(image: Image.Image) -> Image.Image:
    """The image as it is shown: upright, on white where it is transparent, with 8-bit values."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):  # 16-bit values, which `convert` would cut off at 255
        values = np.asarray(upright, dtype=np.float64) / 257
        return Image.fromarray(values.round().clip(0, 255).astype(np.uint8))
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        return Image.alpha_composite(white, upright.convert("RGBA"))
    return upright


def check_size(pixels: Pixels, size: Size | None) -> Pixels:
    actual = Size(*pixels.shape)
    if size is not None and actual != size:
        hint = "convert it" if actual.channels != size.channels else "scale all with --image-size"
        raise GlassError(f"is {actual}, but {size} is expected: {hint}")
    if pixels.size > MAX_VALUES:
        raise GlassError(f"is {actual}, too large for a network: scale all with --image-size 64")
    return pixels


def find_in_idx(path: Path) -> Iterator[ImageItem]:
    """The images of an IDX file, with labels from the file of the same name for labels."""
    images = read_idx(path, axes=3)
    label_file = path.with_name(path.name.replace(IDX_IMAGES, IDX_LABELS))
    labels = read_idx(label_file, axes=1) if label_file.exists() else None
    if labels is not None and len(labels) != len(images):
        raise GlassError(f"{label_file} has {len(labels):,} labels for {len(images):,} images")
    for i, image in enumerate(images):
        label = None if labels is None else str(labels[i])
        yield ImageItem(f"{path}[{i}]", label, partial(fit_pixels, image[None]))


def read_packed(path: Path) -> bytes:
    """The content of a file with many images, decompressed."""
    with wrap_read_errors(path), open_bytes(path) as file:
        return file.read()


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    data = read_packed(path)
    header = np.frombuffer(data[: 4 + 4 * axes], dtype=">u4")
    shape = tuple(int(n) for n in header[1:])
    is_valid = len(header) == axes + 1 and header[0] == IDX_MAGIC[axes]
    if not is_valid or len(data) != 4 + 4 * axes + int(np.prod(shape, dtype=np.float64)):
        raise GlassError(f"{path} is not an IDX file of {axes} axes, or it is damaged")
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def find_in_cifar(path: Path) -> Iterator[ImageItem]:
    """The images of CIFAR-10's binary version: one byte for the label, then the pixels."""
    data = np.frombuffer(read_packed(path), dtype=np.uint8)
    record = 1 + int(np.prod(CIFAR_SHAPE))
    if not len(data) or len(data) % record:
        raise GlassError(f"{path} is not a binary file of CIFAR-10, or it is damaged")
    names_file = path.with_name(CIFAR_NAMES)
    names = names_file.read_text("utf-8").split() if names_file.exists() else []
    for i, row in enumerate(data.reshape(-1, record)):
        label = names[row[0]] if row[0] < len(names) else str(row[0])
        pixels = row[1:].reshape(CIFAR_SHAPE)
        yield ImageItem(f"{path}[{i}]", label, partial(fit_pixels, pixels))


def fit_pixels(pixels: Pixels, size: Size | None = None, scale_to: int | None = None) -> Pixels:
    """Pixels from memory, as `read_picture` returns those of a file."""
    if scale_to:
        planes = [scale_picture(Image.fromarray(plane), scale_to) for plane in pixels]
        pixels = np.stack([np.asarray(plane, dtype=np.uint8) for plane in planes])
    return check_size(pixels, size)


def make_sheet(images: NDArray[np.uint8], columns: int) -> Image.Image:
    """One picture with the images (n c y x) in rows, with a gap between them."""
    count, channels, height, width = images.shape
    rows, gap = -(-count // columns), 2
    shape = (rows * (height + gap) + gap, columns * (width + gap) + gap, channels)
    sheet = np.full(shape, 255, dtype=np.uint8)
    for i, image in enumerate(images):
        top = gap + (i // columns) * (height + gap)
        left = gap + (i % columns) * (width + gap)
        sheet[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    return Image.fromarray(sheet[:, :, 0] if channels == 1 else sheet)
