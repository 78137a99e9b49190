"""How long the explorer takes, and how much memory its page uses, in Chromium on this machine.

python bench/explorer.py   # prints a table

Two untrained models: that which comes with the package in size (4 blocks of 96) but for 512 tokens,
and one of GPT-2's size (12 blocks of 768, 124 million parameters). Each view is opened on a text of
512 tokens, or 64 for the large model, from the request to the last drawing; the best of three. A
frame of attention is drawing one head's pattern of 512 x 512 weights on the canvas.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright

from glassformer import MODELS, TOKENIZERS, Model
from glassformer.serve.app import HOST, bind, make_server
from glassformer.serve.session import Session

ROUNDS = 3
DRAW = """() => {
  const map = [...document.querySelectorAll("heat-map")].find((m) => m.tabIndex === 0);
  const times = [];
  for (let i = 0; i < 20; i++) {
    const start = performance.now();
    map.draw();
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[10];
}"""


def main() -> None:
    print("| | small model, 512 tokens | GPT-2's size, 64 tokens |\n| --- | --- | --- |")
    for name, small, large in measure():
        print(f"| {name} | {small} | {large} |")


def measure() -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"],
        )
        columns = []
        for name, config, length in (
            ("small", {"context": 512, "dim": 96, "depth": 4, "heads": 4}, 512),
            ("large", {"context": 1024, "dim": 768, "depth": 12, "heads": 12}, 64),
        ):
            path = Path(folder) / name
            save_model(path, config)
            text = "a" * (length - 1)  # a token for each byte; the last one differs by round
            with serve(path) as address:
                columns.append(measure_views(browser.new_page(), address, text))
        browser.close()
    return [(name, columns[0][name], columns[1][name]) for name in columns[0]]


def save_model(path: Path, config: dict[str, int]) -> None:
    torch.manual_seed(0)
    tokenizer = TOKENIZERS["bytes"].train([])
    network = MODELS["gpt2"](MODELS["gpt2"].Config(vocab=tokenizer.vocab, **config))
    Model(network, tokenizer, {"name": "generate"}).save(path)


@contextmanager
def serve(path: Path) -> Iterator[str]:
    """The address of a server for a model, which runs in a thread."""
    with bind(None) as listener:
        port = listener.getsockname()[1]
        server = make_server(Session.open(path), "bench", listener)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://{HOST}:{port}/bench/"
        server.should_exit = True
        thread.join()


def measure_views(page: Page, address: str, text: str) -> dict[str, str]:
    result = {}
    for view, name in (("flow", "flow, first picture"), ("attention", "attention, every head")):
        best = min(time_view(page, f"{address}#{view}?text={text}{i}", view) for i in range(ROUNDS))
        result[name] = f"{best:.2f} s"
    start = time.perf_counter()
    page.wait_for_load_state("networkidle", timeout=120_000)
    result["then, roles of all heads"] = f"{time.perf_counter() - start:.1f} s"
    result["attention, one frame"] = f"{page.evaluate(DRAW):.1f} ms"
    used = page.evaluate("performance.memory.usedJSHeapSize")
    result["memory of the page (JavaScript heap)"] = f"{used / 1e6:.0f} MB"
    return result


def time_view(page: Page, url: str, view: str) -> float:
    page.goto("about:blank")
    start = time.perf_counter()
    page.goto(url)
    target = "main heat-map canvas" if view == "flow" else "main .halves heat-map canvas"
    page.wait_for_selector(target)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
