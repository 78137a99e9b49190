"""Built-in images: shapes of random size, place and brightness, drawn on a noisy background."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "cross", "ring", "stripes")
SIDE, SCALE = 32, 4  # pixels; shapes are drawn larger and scaled down, which smooths their edges


def drawn_shapes(count: int = 3000, seed: int = 0) -> Iterator[tuple[NDArray[np.uint8], str]]:
    """Yield images (1 y x) of shapes with the name of each."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        name = SHAPES[i % len(SHAPES)]
        noise = rng.normal(0, 12, (SIDE, SIDE))
        background = rng.uniform(10, 60)
        brightness = rng.uniform(150, 240)
        mask = np.asarray(draw_shape(name, rng), dtype=np.float64) / 255
        values = background + noise + mask * (brightness - background)
        yield values.clip(0, 255).astype(np.uint8)[None], name


def draw_shape(name: str, rng: np.random.Generator) -> Image.Image:
    """A white shape on black."""
    side = SIDE * SCALE
    image = Image.new("L", (side, side))
    draw = ImageDraw.Draw(image)
    radius = rng.uniform(0.2, 0.36) * side
    x, y = rng.uniform(radius, side - radius, 2)
    box = (x - radius, y - radius, x + radius, y + radius)
    thickness = int(radius * 0.45)
    if name == "circle":
        draw.ellipse(box, fill=255)
    elif name == "square":
        draw.rectangle(box, fill=255)
    elif name == "triangle":
        draw.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], 255)
    elif name == "cross":
        draw.line((x - radius, y, x + radius, y), 255, thickness)
        draw.line((x, y - radius, x, y + radius), 255, thickness)
    elif name == "ring":
        draw.ellipse(box, outline=255, width=thickness)
    else:
        for offset in (-0.8, 0, 0.8):
            level = y + offset * radius
            draw.line((x - radius, level, x + radius, level), 255, max(thickness // 2, 1))
    return image.resize((SIDE, SIDE), Image.Resampling.BOX)
