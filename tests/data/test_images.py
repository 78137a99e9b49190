"""Images are read from folders, IDX files and CIFAR's files; what cannot be read is reported."""

import gzip

import numpy as np
import pytest
from PIL import Image

from glassformer.core.errors import GlassError
from glassformer.data.image_sample import drawn_shapes
from glassformer.data.images import (
    Size,
    find_images,
    has_images,
    is_image_folder,
    make_sheet,
    read_images,
    read_picture,
)
from glassformer.data.request import DataRequest


def write_image(path, *, size=(8, 6), mode="L", seed=0):
    """Write an image (width, height) of random pixels and return them: c y x."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels.transpose(2, 0, 1) if mode == "RGB" else pixels[None]


def write_idx(path, array):
    header = np.array([0x800 + array.ndim, *array.shape], dtype=">u4").tobytes()
    with (gzip.open if path.suffix == ".gz" else open)(path, "wb") as file:
        file.write(header + array.astype(np.uint8).tobytes())


def read(*files, **request):
    """The images of files or folders, and the messages about bad ones."""
    bad = []
    found = read_images(DataRequest(files=files, **request), lambda where, why: bad.append(why))
    return list(found), bad


def test_a_folder_has_a_subfolder_for_each_class(tmp_path):
    expected = {name: write_image(tmp_path / name / "1.png", seed=i) for i, name in enumerate("ab")}
    (tmp_path / "a" / "notes.md").write_text("not an image")
    (tmp_path / "a" / "._1.png").write_text("of the system")
    images, bad = read(tmp_path)
    assert not bad
    assert [image.label for image in images] == ["a", "b"]
    assert all(np.array_equal(image.pixels, expected[image.label]) for image in images)
    assert images[0].location == str(tmp_path / "a" / "1.png")


def test_folders_named_train_and_val_are_the_splits(tmp_path):
    for i, name in enumerate(("train/cat/1.png", "train/dog/1.png", "val/cat/1.png")):
        write_image(tmp_path / name, seed=i)
    images, _ = read(tmp_path)
    found = {(image.split, image.label) for image in images}
    assert found == {("train", "cat"), ("train", "dog"), ("valid", "cat")}


def test_all_images_of_an_evaluation_are_for_validation_whatever_their_folder(tmp_path):
    for i, name in enumerate(("train/cat/1.png", "train/dog/1.png", "val/cat/1.png")):
        write_image(tmp_path / name, seed=i)
    images, _ = read(tmp_path, valid_fraction=1.0, is_evaluation=True)
    assert [image.split for image in images] == ["valid"] * 3


def test_equal_images_are_in_the_same_split(tmp_path):
    for i in range(60):
        write_image(tmp_path / "a" / f"{i}.png", seed=i % 20)
    images, _ = read(tmp_path)
    splits = {}
    for image in images:
        splits.setdefault(image.key, set()).add(image.split)
    assert len(splits) == 20
    assert all(len(found) == 1 for found in splits.values())
    assert {"train", "valid"} == set.union(*splits.values())


def test_images_of_another_size_or_mode_are_rejected_with_a_remedy(tmp_path):
    write_image(tmp_path / "a" / "1.png")
    write_image(tmp_path / "a" / "2.png", size=(9, 6))
    write_image(tmp_path / "a" / "3.png", mode="RGB")
    images, bad = read(tmp_path)
    assert len(images) == 1
    assert bad == [
        "is 9 x 6 grayscale, but 8 x 6 grayscale is expected: scale all with --image-size",
        "is 8 x 6 RGB, but 8 x 6 grayscale is expected: convert it",
    ]


def test_scaled_images_have_one_size_and_the_mode_of_the_first(tmp_path):
    write_image(tmp_path / "a" / "1.png", mode="RGB")
    write_image(tmp_path / "a" / "2.jpg", size=(20, 10))
    images, bad = read(tmp_path, image_size=4)
    assert not bad
    assert [image.pixels.shape for image in images] == [(3, 4, 4)] * 2


def test_scaling_uses_the_square_in_the_middle(tmp_path):
    pixels = np.zeros((4, 8), np.uint8)
    pixels[:, 2:6] = 200
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert (read_picture(tmp_path / "wide.png", scale_to=2) == 200).all()


def test_scaled_images_are_the_same_from_an_idx_file_and_as_pictures(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (2, 9, 15), dtype=np.uint8)
    write_idx(tmp_path / "train-images-idx3-ubyte", images)
    for i, image in enumerate(images):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "a" / f"{i}.png")
    packed, _ = read(tmp_path / "train-images-idx3-ubyte", image_size=6)
    pictures, _ = read(tmp_path / "a", image_size=6)
    assert len(packed) == len(pictures) == 2
    for ours, theirs in zip(packed, pictures, strict=True):
        assert np.array_equal(ours.pixels, theirs.pixels)


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_a_damaged_image_is_reported_and_loses_no_other(tmp_path, content):
    write_image(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").write_bytes(content)
    images, bad = read(tmp_path)
    assert len(images) == 1
    assert len(bad) == 1
    assert bad[0].startswith("cannot be read as an image: ")


def test_values_of_sixteen_bits_are_scaled(tmp_path):
    values = np.arange(0, 65_536, 257, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert np.array_equal(read_picture(tmp_path / "deep.png").ravel(), np.arange(256))


def test_what_is_transparent_becomes_white(tmp_path):
    black = np.zeros((4, 4, 4), np.uint8)
    black[:2, :, 3] = 255  # opaque in the upper half
    Image.fromarray(black).save(tmp_path / "rgb.png")
    Image.fromarray(black).convert("LA").save(tmp_path / "gray.png")
    for name, channels in (("rgb.png", 3), ("gray.png", 1)):
        pixels = read_picture(tmp_path / name)
        assert len(pixels) == channels
        assert not pixels[:, :2].any()
        assert (pixels[:, 2:] == 255).all()


def test_a_photo_is_turned_upright(tmp_path):
    image = Image.new("RGB", (16, 8), "red")
    orientation = image.getexif()
    orientation[274] = 6  # to be shown turned by 90 degrees
    image.save(tmp_path / "photo.jpg", exif=orientation)
    assert read_picture(tmp_path / "photo.jpg").shape == (3, 16, 8)


def test_a_huge_image_is_rejected_before_its_pixels_are_decoded(tmp_path):
    image = Image.new("1", (10_000, 6_000))  # 60 million pixels in a small file
    image.save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 100_000
    with pytest.raises(GlassError, match="more than 50 million pixels"):
        read_picture(tmp_path / "bomb.png")


def test_an_image_too_large_for_a_network_is_rejected_unless_scaled(tmp_path):
    Image.new("RGB", (600, 600)).save(tmp_path / "photo.png")
    with pytest.raises(GlassError, match="600 x 600 RGB, too large for a network"):
        read_picture(tmp_path / "photo.png")
    assert read_picture(tmp_path / "photo.png", scale_to=16).shape == (3, 16, 16)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_files_are_read_and_test_images_are_left_out(tmp_path, suffix):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (5, 4, 3))
    for name, count in (("train", 5), ("t10k", 2)):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte{suffix}", pixels[:count])
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte{suffix}", np.arange(count) + 3)
    images, bad = read(tmp_path)
    assert not bad
    assert [image.label for image in images] == ["3", "4", "5", "6", "7"]
    assert np.array_equal(np.stack([image.pixels[0] for image in images]), pixels)
    assert images[1].location.endswith(f"train-images-idx3-ubyte{suffix}[1]")
    test_images, _ = read(tmp_path / f"t10k-images-idx3-ubyte{suffix}")
    assert len(test_images) == 2


def test_damaged_mnist_files_are_rejected(tmp_path):
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    write_idx(images, np.zeros((5, 4, 3)))
    write_idx(labels, np.zeros(4))
    with pytest.raises(GlassError, match="has 4 labels for 5 images"):
        read(tmp_path)
    for content in (b"", images.read_bytes()[:-1], b"\xff" * 76):
        images.write_bytes(content)
        with pytest.raises(GlassError, match="not an IDX file of 3 axes, or it is damaged"):
            read(tmp_path)


def test_a_compressed_file_that_is_cut_off_is_rejected(tmp_path):
    file = tmp_path / "train-images-idx3-ubyte.gz"
    write_idx(file, np.random.default_rng(0).integers(0, 256, (5, 9, 9)))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(GlassError, match=r"train-images-idx3-ubyte.gz is corrupted"):
        read(file)


def test_cifar_files_are_read_with_the_names_of_classes(tmp_path):
    record = np.concatenate(([1], np.arange(3072) % 256)).astype(np.uint8)
    (tmp_path / "data_batch_1.bin").write_bytes(record.tobytes() * 2)
    (tmp_path / "test_batch.bin").write_bytes(record.tobytes())
    (tmp_path / "batches.meta.txt").write_text("airplane\nautomobile\n")
    images, _ = read(tmp_path)
    assert [image.label for image in images] == ["automobile"] * 2
    assert np.array_equal(images[0].pixels.ravel(), record[1:])
    (tmp_path / "data_batch_1.bin").write_bytes(b"123")
    with pytest.raises(GlassError, match="not a binary file of CIFAR-10, or it is damaged"):
        read(tmp_path)


def test_an_image_of_an_unknown_class_is_reported_in_an_evaluation(tmp_path):
    write_image(tmp_path / "cat" / "1.png")
    write_image(tmp_path / "dgo" / "1.png")
    images, bad = read(tmp_path, labels=("cat", "dog"))
    assert [image.label for image in images] == ["cat"]
    assert bad == ["unknown label 'dgo': the model was trained with ['cat', 'dog']"]


def test_images_are_told_from_texts(tmp_path):
    write_image(tmp_path / "images" / "a" / "1.png")
    (tmp_path / "texts" / "pos").mkdir(parents=True)
    (tmp_path / "texts" / "pos" / "1.txt").write_text("good")
    (tmp_path / "empty").mkdir()
    assert has_images([tmp_path / "images"])
    assert not has_images([tmp_path / "texts"])
    assert not is_image_folder(tmp_path / "empty")
    with pytest.raises(GlassError, match="has no images: expected files such as class"):
        list(find_images(tmp_path / "empty"))


def test_the_sample_is_balanced_and_the_same_every_time():
    sample = list(drawn_shapes(60))
    assert all(pixels.shape[1:] == (32, 32) for pixels, _ in sample)
    counts = {name: [label for _, label in sample].count(name) for _, name in sample}
    assert len(counts) > 2
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all(
        np.array_equal(a, b) for (a, _), (b, _) in zip(sample, drawn_shapes(60), strict=True)
    )


def test_a_sheet_has_the_images_in_rows():
    images = np.arange(5 * 16, dtype=np.uint8).reshape(5, 1, 4, 4)
    sheet = np.asarray(make_sheet(images, 2))
    assert sheet.shape[0] > 3 * 4  # three rows, two columns and gaps
    assert sheet.shape[1] > 2 * 4
    windows = np.lib.stride_tricks.sliding_window_view(sheet, (4, 4))
    for image in images:
        assert (windows == image[0]).all(axis=(2, 3)).any()


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_every_image_of_a_sheet_has_its_place_and_a_gap_on_all_sides(columns):
    images = np.stack([np.full((3, 4, 5), 10 * i, np.uint8) for i in range(5)])
    sheet = np.asarray(make_sheet(images, columns))
    rows = -(-5 // columns)
    assert sheet.shape == (6 * rows + 2, 7 * columns + 2, 3)
    expected = np.full_like(sheet, 255)
    for i in range(5):
        top, left = 2 + 6 * (i // columns), 2 + 7 * (i % columns)
        expected[top : top + 4, left : left + 5] = 10 * i
    assert np.array_equal(sheet, expected)


def test_a_size_is_written_as_width_by_height():
    assert str(Size(3, 20, 10)) == "10 x 20 RGB"
