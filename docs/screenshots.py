"""Take the pictures of the explorer in docs/pictures/: two views and an animation.

python docs/screenshots.py   # needs Chromium (Debian's package) and the extra dev
"""

import io
import shutil
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from glassformer.serve.app import HOST, bind, make_server
from glassformer.serve.session import Session

FOLDER = Path(__file__).with_name("pictures")
TEXT = "text=The value of the list is the sum of its"
FLOW = f"flow?{TEXT}&stage=blocks.1.attention.pattern&head=1&cell=7,4"
SIZE = {"width": 1280, "height": 980}
FRAME_MS, COLORS, SCALE = 1800, 96, 0.62
FIRST_MINUTE = (  # an address, and what to click after it
    (f"flow?{TEXT}", None),
    (f"flow?{TEXT}&stage=blocks.0.attention.q", None),
    (FLOW, None),
    (f"attention?{TEXT}", None),
    (f"attention?{TEXT}&layer=blocks.3.attention.pattern&head=1", None),
    (f"next?{TEXT}&temperature=0.5", None),
    (None, "Step"),
    (None, "Step"),
    (f"edit?{TEXT}", None),
    (f"edit?{TEXT}&off=blocks.3.attention.head_outputs:1;blocks.3.feedforward", None),
    (f"lens?{TEXT}", None),
    ("walk?lesson=attention&step=4", None),
)


def main() -> None:
    with bind(None) as listener, sync_playwright() as driver:
        port = listener.getsockname()[1]
        server = make_server(Session.open(), "look", listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE)
        address = f"http://{HOST}:{port}/look/#"
        for name, view in (("explorer-flow", FLOW), ("explorer-attention", f"attention?{TEXT}")):
            show(page, address + view).save(FOLDER / f"{name}.png", optimize=True)
        frames = [
            show(page, address + view) if view else click(page, label)
            for view, label in FIRST_MINUTE
        ]
        save_animation(frames, FOLDER / "explorer.gif")
        browser.close()
        server.should_exit = True
        thread.join()


def show(page: Page, url: str) -> Image.Image:
    page.goto("about:blank")
    page.goto(url)
    return take(page)


def click(page: Page, label: str) -> Image.Image:
    page.get_by_role("button", name=label, exact=True).click()
    return take(page)


def take(page: Page) -> Image.Image:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(700)  # for drawing
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return picture.quantize(256, dither=Image.Dither.NONE)


def save_animation(frames: list[Image.Image], file: Path) -> None:
    size = tuple(round(side * SCALE) for side in frames[0].size)
    small = [
        frame.convert("RGB").resize(size, Image.Resampling.LANCZOS).quantize(COLORS)
        for frame in frames
    ]
    small[0].save(file, save_all=True, append_images=small[1:], duration=FRAME_MS, loop=0)


if __name__ == "__main__":
    main()
